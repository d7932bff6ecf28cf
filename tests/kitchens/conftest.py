from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import lightning
import pytest
import torch

from bsdr_torch.baselines.cloning import Cloning
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.prepared import layout_to_json
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.predicting import KitchenPredictor
from bsdr_torch.worlds.overcooked import KitchenGraph, Layout, enumerate_kitchen
from bsdr_torch.worlds.overcooked.layouts import usable_counters

SMALL = {"hidden": [32, 32], "habit_hidden": [16], "partner_hidden": [16], "width": 8, "beta_width": 4, "rank": 2}
SMALL |= {"settling": 40, "arbitration": True}


@pytest.fixture(scope="session")
def closet() -> Layout:
    """A kitchen for two on two cells, without a counter to put things on: it can be enumerated to the last state."""
    grid = ("XPOX", "O  S", "XDDX")
    return Layout("closet", grid, ((1, 1), (2, 1)), usable_counters(grid), 2019, cook_times=(3,) * 10)


@pytest.fixture(scope="session")
def closet_graph(closet: Layout) -> KitchenGraph:
    return enumerate_kitchen(closet)


@pytest.fixture(scope="session")
def people_2020(prepared_2020: Path) -> KitchenPeople:
    return KitchenPeople(str(prepared_2020), layouts=["cramped_room", "counter_circuit"], batch_size=32)


@pytest.fixture(scope="session")
def steps(people_2020: KitchenPeople) -> Decisions:
    everything = people_2020.steps("train")["counter_circuit"]
    return Decisions(everything.layout, *(column[::2] for column in everything[1:]))


def untrained(layout: Layout, humans: int = 3, seed: int = 0, **settings: object) -> KitchenModel:
    """A model of made-up people whose parameters are all random."""
    torch.manual_seed(seed)
    options = {**SMALL, "history": 4, **settings}
    model = KitchenModel([layout_to_json(layout)], [f"human {i}" for i in range(humans)], [], **options)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in [*model.rationality.parameters(), model.values.people]:
            parameter.normal_(std=0.5)
        model.rationality.raw_theta_R *= 2
        model.planned_log_base.normal_(std=0.3)
        if model.rule.phi_focus is not None:
            model.rule.theta_focus.normal_(std=0.5)
        for part in (model.rule.hesitation, model.rule.arbitration):
            if part is not None:
                part.network[-1].weight.normal_(std=0.3)  # type: ignore[operator, union-attr]  # torch's
    return model.eval()


class Trained(NamedTuple):
    """A tiny model at the end of its training, and its checkpoint."""

    model: KitchenPredictor
    checkpoint: Path
    data: KitchenPeople


@pytest.fixture(scope="session")
def trained_planner(prepared_2020: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    data = KitchenPeople(str(prepared_2020), batch_size=128, history=12)
    settings = {"hidden": [16], "habit_hidden": [16], "partner_hidden": [8], "width": 8, "rank": 3, "history": 12}
    settings |= {"settling": 40}
    return train(KitchenModel(data.specs, data.humans, data.named, **settings), data, tmp_path_factory)


@pytest.fixture(scope="session")
def trained_cloning(prepared_2020: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    data = KitchenPeople(str(prepared_2020), batch_size=128, history=4)
    model = Cloning(data.specs, data.humans, data.named, hidden=[8], history=4, identity=True)
    return train(model, data, tmp_path_factory)


def train(model: KitchenPredictor, data: KitchenPeople, folders: pytest.TempPathFactory) -> Trained:
    folder = folders.mktemp("trained")
    torch.manual_seed(0)
    trainer = lightning.Trainer(
        max_epochs=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        accelerator="cpu",
    )
    trainer.fit(model, datamodule=data)
    trainer.save_checkpoint(folder / "last.ckpt")
    return Trained(model.eval(), folder / "last.ckpt", data)
