from __future__ import annotations

import math
from pathlib import Path

import lightning
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.errors import InputError
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.monitoring import Baselines, KitchenPictures, PeopleProjector, PlannerMonitor, mean_scores

BASELINES = ["uniform", "habit"]


def events(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


@pytest.fixture(scope="module")
def data(prepared_2020: Path) -> KitchenPeople:
    return KitchenPeople(str(prepared_2020), batch_size=64)


@pytest.fixture(scope="module")
def trained(data: KitchenPeople, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Baselines, KitchenModel]:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("monitored")
    model = KitchenModel(
        data.specs, data.humans, data.named, hidden=[16], habit_hidden=[16], partner_hidden=[16], settling=40
    )
    baselines = Baselines(BASELINES, max_epochs=1)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=TensorBoardLogger(folder, name=None, version="", default_hp_metric=False),
        callbacks=[baselines, PlannerMonitor(20), KitchenPictures(every_n_epochs=10, situations=3), PeopleProjector()],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, datamodule=data)
    assert data.trainer is trainer  # and not that of a baseline
    return folder, baselines, model


def test_the_planner_and_rationality_are_logged(trained) -> None:
    tags = events(trained[0])
    scalars = set(tags.Tags()["scalars"])
    assert {"planner/residual_at_data", "planner/residual_at_unseen_states", "log_z/cramped_room"} <= scalars
    assert {"beta/spread_over_people", "beta/spread_over_states", "prior/log_prior"} <= scalars
    assert {"train/loss", "train/cross_entropy", "train/stay_or_not", "train/which_move"} <= scalars
    assert max(scalar.value for scalar in tags.Scalars("gauge/largest_error_of_mean_beta")) < 1e-5
    assert {"beta/people_and_states", "beta/people"} <= set(tags.Tags()["histograms"])


def test_parts_of_the_cross_entropy_make_the_whole(trained, data: KitchenPeople) -> None:
    tags = events(trained[0])
    whole, stay = (tags.Scalars(f"train/{name}")[-1].value for name in ("cross_entropy", "stay_or_not"))
    assert 0 < stay < whole


def test_baselines_are_flat_lines_in_the_same_charts(trained, data: KitchenPeople) -> None:
    folder, baselines, _ = trained
    own = [scalar.step for scalar in events(folder).Scalars("validation/cross_entropy")]
    for name in BASELINES:
        line = events(folder / "baselines" / name).Scalars("validation/cross_entropy")
        assert len({scalar.value for scalar in line}) == 1
        assert len(line) == len(own)
    assert baselines.scores["uniform"]["test"]["ce"] == pytest.approx(math.log(6))
    assert baselines.scores["habit"]["validation"]["ce"] < 3


def test_each_kitchen_has_its_pictures(trained, data: KitchenPeople) -> None:
    images = events(trained[0]).Tags()["images"]
    for kitchen in data.kitchens:
        assert {f"reward/{kitchen}", f"beta/{kitchen}", f"replay/{kitchen}"} <= set(images)


def test_people_are_in_the_projector_with_ids_and_kitchens(trained, data: KitchenPeople) -> None:
    folder, _, model = trained
    for tag in ("theta_beta", "values"):
        (path,) = folder.glob(f"*/{tag}/metadata.tsv")
        rows = [line.split("\t") for line in path.read_text().splitlines()]
        assert rows[0] == ["human", "kitchens"]
        assert [row[0] for row in rows[1:]] == model.humans
        assert dict(rows[1:])["anna"] == "counter_circuit cramped_room"


def test_baselines_of_a_checkpoint_are_not_fitted_again(trained, data: KitchenPeople) -> None:
    again = Baselines(BASELINES, max_epochs=1)
    again.load_state_dict(trained[1].state_dict())
    again._fitted = None  # type: ignore[assignment, method-assign]  # it would fail if it were used
    trainer = lightning.Trainer(logger=False, accelerator="cpu", enable_checkpointing=False)
    trainer.datamodule = data  # type: ignore[attr-defined]  # as fit does
    again.on_fit_start(trainer, trained[2])
    assert again.scores == trained[1].scores


def test_scores_of_the_validation_part_are_those_that_training_logs(trained, data: KitchenPeople) -> None:
    folder, _, model = trained
    found = mean_scores(model.eval(), data, "validation")
    logged = events(folder).Scalars("validation/cross_entropy")[-1].value
    assert found["ce"] == pytest.approx(logged, abs=1e-5)


def test_an_unknown_baseline_is_named() -> None:
    with pytest.raises(InputError, match="'oracle' is not one of uniform"):
        Baselines(["oracle"])
