from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningCLI
from torch import Tensor

from bsdr_torch.data.decisions import UNRECORDED, Decisions, KitchenRollouts
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.prepared import layout_from_json
from bsdr_torch.data.splits import PARTS
from bsdr_torch.errors import InputError
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import check_states, load_layout


def where(steps: Decisions, mask: Tensor | None = None) -> set[tuple[int, int]]:
    """Which decisions these are: (rollout, time)."""
    pairs = torch.stack([steps.rollouts, steps.times], -1)
    return set(map(tuple, (pairs.view(-1, 2) if mask is None else pairs[mask]).tolist()))


@pytest.mark.parametrize("protocol", ["rollout", "human"])
def test_the_loaders_visit_every_decision_once(prepared_2019: Path, protocol: Any) -> None:
    data = KitchenPeople(str(prepared_2019), protocol=protocol, batch_size=700)
    loaders = (data.train_dataloader(), data.val_dataloader(), data.test_dataloader())
    seen: set[tuple[int, int]] = set()
    count = 0
    for loader in loaders:
        batches = list(loader)
        assert len(batches) == len(loader)
        for batch in batches:
            assert len(batch.actions) <= 700
            seen |= where(batch)
            count += len(batch.actions)
    assert count == len(seen) == 182_204


def test_a_batch_is_valid_in_its_kitchen(prepared_2019: Path) -> None:
    data = KitchenPeople(str(prepared_2019), history=3)
    batch = next(iter(data.train_dataloader()))
    layout = data.kitchens[batch.layout].layout
    check_states(layout, batch.states)
    assert batch.states.shape[0] == 1024
    assert batch.history.shape == (1024, 3)
    for field, limit in (("actions", 6), ("seats", 2), ("partner_last", 7), ("history", 7), ("humans", 34)):
        values = getattr(batch, field)
        assert values.dtype == torch.int64
        assert 0 <= int(values.min()) <= int(values.max()) < limit
    for human, rollout, seat in zip(batch.humans[:50], batch.rollouts[:50], batch.seats[:50], strict=True):
        key = data.rollouts[int(rollout)]
        assert (key.layout, key.human, key.seat) == (batch.layout, data.humans[int(human)], int(seat))


def test_rollout_batches_hold_the_same_decisions_as_step_batches(prepared_2019: Path) -> None:
    of: Any = {"folder": str(prepared_2019), "layouts": ["forced_coordination"]}
    steps = KitchenPeople(**of).steps("test")["forced_coordination"]
    data = KitchenPeople(**of, batches="rollouts", batch_size=5, window=150)
    seen: set[tuple[int, int]] = set()
    for batch in data.test_dataloader():
        assert isinstance(batch, KitchenRollouts)
        assert batch.steps.states.shape[:2] == batch.mask.shape
        assert batch.mask.shape[0] <= 5
        assert batch.mask.shape[1] <= 150
        # A rollout is of one human, and its time runs on.
        assert (batch.steps.rollouts == batch.steps.rollouts[:, :1]).all()
        assert (batch.steps.times.diff(dim=1) == batch.mask[:, 1:].long()).all()
        # The test part starts late in the game: what happened before is in the history.
        assert (batch.steps.history != UNRECORDED).all()
        window = where(batch.steps, batch.mask)
        assert not window & seen
        seen |= window
    assert seen == where(steps)


def test_steps_of_a_part_are_in_the_order_of_games_and_time(prepared_2019: Path) -> None:
    data = KitchenPeople(str(prepared_2019), protocol="layout", held_out="cramped_room")
    test = data.steps("test")
    assert list(test) == ["cramped_room"]
    assert len(test["cramped_room"].actions) == 38_380
    one = test["cramped_room"].rollouts == 0
    assert test["cramped_room"].times[one].tolist() == list(range(int(one.sum())))
    counts = [sum(len(steps.actions) for steps in data.steps(part).values()) for part in PARTS]
    assert sum(counts) == 182_204
    assert min(counts) > 0


def test_people_who_did_not_train_are_the_population(prepared_2019: Path) -> None:
    for protocol, held_out in (("rollout", None), ("human", None), ("layout", "asymmetric_advantages")):
        data = KitchenPeople(str(prepared_2019), protocol=protocol, held_out=held_out)  # type: ignore[arg-type]
        trained = {int(human) for steps in data.steps("train").values() for human in steps.humans.unique()}
        assert POPULATION not in trained
        tested = {int(human) for steps in data.steps("test").values() for human in steps.humans.unique()}
        assert tested == {POPULATION} if protocol == "human" else tested - {POPULATION} <= trained
    # Everybody who played in the other kitchens is known, and there is somebody who did not.
    alone = KitchenPeople(
        str(prepared_2019), ["forced_coordination", "asymmetric_advantages"], "layout", "asymmetric_advantages"
    )
    assert POPULATION in alone.steps("test")["asymmetric_advantages"].humans
    assert (alone.steps("test")["asymmetric_advantages"].humans != POPULATION).any()


def test_the_split_does_not_depend_on_the_kitchens_used(prepared_2020: Path) -> None:
    everything = KitchenPeople(str(prepared_2020), protocol="human")
    some = KitchenPeople(str(prepared_2020), ["counter_circuit"], protocol="rollout")
    assert some.humans == everything.humans
    for name in everything.kitchens:
        try:
            one = KitchenPeople(str(prepared_2020), [name], protocol="human")
        except InputError as error:
            assert "nothing is left to train on" in str(error)  # noqa: PT017  (a small set: either is right)
            continue
        assert torch.equal(one.parts[name], everything.parts[name])


def test_only_decisions_of_people_are_batched(prepared_2020: Path) -> None:
    data = KitchenPeople(str(prepared_2020), ["counter_circuit"])
    total = sum(
        len(batch.actions) for part in ("train", "val", "test") for batch in getattr(data, f"{part}_dataloader")()
    )
    assert total == 360
    assert data.rollouts[3].human == "AI"
    assert all(3 not in steps.rollouts for part in PARTS for steps in data.steps(part).values())


def test_balanced_batches_show_everybody_in_a_kitchen_equally_often(prepared_2020: Path) -> None:
    def share_of_seven(balanced: bool) -> float:
        data = KitchenPeople(str(prepared_2020), ["counter_circuit"], balanced=balanced, validation=0.0)
        data.parts["counter_circuit"][60:80] = 2  # the pair plays less than the one with the AI
        loader = data.train_dataloader()
        drawn = []
        for epoch in range(40):
            loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
            drawn += [batch.humans for batch in loader]
        return float((torch.cat(drawn) == data.humans.index("7")).double().mean())

    assert share_of_seven(False) == pytest.approx(80 / 200)
    assert share_of_seven(True) == pytest.approx(1 / 3, abs=0.02)


def test_the_order_changes_with_the_epoch_and_comes_back_with_the_seed(prepared_2019: Path) -> None:
    def first_batch(seed: int, epoch: int) -> Tensor:
        loader = KitchenPeople(str(prepared_2019), ["cramped_room"], seed=seed).train_dataloader()
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        batch = next(iter(loader))
        return batch.rollouts * 10_000 + batch.times

    assert torch.equal(first_batch(0, 3), first_batch(0, 3))
    assert not torch.equal(first_batch(0, 3), first_batch(0, 4))
    assert not torch.equal(first_batch(0, 3), first_batch(1, 3))


def test_the_kitchens_travel_as_plain_data(prepared_2019: Path) -> None:
    data = KitchenPeople(str(prepared_2019), ["coordination_ring"])
    assert [layout_from_json(spec) for spec in data.specs] == [load_layout("coordination_ring")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be 1 or more, got 0"),
        ({"history": -1}, "history must be 0 or more, got -1"),
        ({"window": 0}, "window must be 1 or more, got 0"),
        ({"layouts": ["moon_base"]}, r"layouts: \['moon_base'\] given, .* has cramped_room"),
        ({"layouts": []}, "layouts: none given"),
        ({"protocol": "layout"}, "held_out is the kitchen that tests"),
        ({"protocol": "layout", "held_out": "cramped_room", "layouts": ["counter_circuit"]}, "not among the layouts"),
        (
            {"protocol": "layout", "held_out": "cramped_room", "layouts": ["cramped_room"]},
            "nothing is left to train on",
        ),
        ({"folder": "nowhere"}, "nowhere: no prepared data there: run scripts/prepare_data.py"),
    ],
)
def test_bad_arguments_are_refused(prepared_2020: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        KitchenPeople(**{"folder": str(prepared_2020), **arguments})


class ActionCounts(lightning.LightningModule):
    """A model with nothing in it but the frequencies of actions; notes what it is shown."""

    def __init__(self, notes: str | None = None) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.zeros(6))
        self.notes = notes
        self.seen: list[set[tuple[int, int]]] = []
        self.orders: list[list[int]] = []
        self.batches: list[str] = []

    def on_train_epoch_start(self) -> None:
        self.seen.append(set())
        self.orders.append([])

    def training_step(self, batch: Decisions, _number: int) -> Tensor:
        if not self.seen:  # a run resumed in the middle of an epoch does not start one
            self.on_train_epoch_start()
        shown = where(batch)
        assert not shown & self.seen[-1]
        self.seen[-1] |= shown
        self.orders[-1] += batch.times.tolist()
        self.batches.append(batch.layout)
        return torch.nn.functional.cross_entropy(self.logits.expand(len(batch.actions), 6), batch.actions)

    def validation_step(self, batch: Decisions, _number: int) -> None:
        self.log(
            "validation", torch.nn.functional.cross_entropy(self.logits.expand(len(batch.actions), 6), batch.actions)
        )

    def on_train_end(self) -> None:
        if self.notes is not None:
            torch.save((self.seen, self.orders), Path(self.notes) / f"{self.global_rank}.pt")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.1)


def trainer_options(folder: Path) -> dict[str, Any]:
    return {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": str(folder),
    }


def test_a_trainer_sees_each_step_once_an_epoch_in_a_new_order(prepared_2019: Path, tmp_path: Path) -> None:
    data = KitchenPeople(str(prepared_2019), ["forced_coordination"], batch_size=512)
    model = ActionCounts()
    lightning.Trainer(max_epochs=2, **trainer_options(tmp_path)).fit(model, data)
    everything = where(data.steps("train")["forced_coordination"])
    assert model.seen == [everything, everything]
    assert model.orders[0] != model.orders[1]
    assert model.logits.argmax() == 4  # people mostly stay


@pytest.mark.parametrize(
    ("often", "batches_before"),
    [
        ({"every_n_train_steps": 15}, 15),
        ({"every_n_epochs": 2, "save_on_train_epoch_end": True}, 22),
        ({"every_n_epochs": 1, "monitor": "validation"}, 22),
    ],
    ids=["in the middle of an epoch", "at the end of one", "after validation"],
)
def test_a_run_that_was_killed_sees_what_it_would_have_seen(
    prepared_2020: Path, tmp_path: Path, often: dict[str, Any], batches_before: int
) -> None:
    def fit(checkpoint: Path | None = None) -> ActionCounts:
        model = ActionCounts()
        keep = ModelCheckpoint(tmp_path, filename="{step}", save_top_k=-1, **often)
        options = trainer_options(tmp_path) | {"enable_checkpointing": True, "callbacks": [keep]}
        trainer = lightning.Trainer(max_epochs=3, **options)
        trainer.fit(model, KitchenPeople(str(prepared_2020), batch_size=64), ckpt_path=checkpoint)
        return model

    uninterrupted = fit()
    resumed = fit(tmp_path / f"step={batches_before}.ckpt")
    whole, rest = (list(chain(*model.orders)) for model in (uninterrupted, resumed))
    assert 0 < len(rest) < len(whole)
    assert rest == whole[-len(rest) :]
    assert len(resumed.batches) == len(uninterrupted.batches) - batches_before
    assert torch.equal(resumed.logits, uninterrupted.logits)


def test_prediction_goes_through_the_test_part_in_order(prepared_2020: Path, tmp_path: Path) -> None:
    class Taken(ActionCounts):
        def predict_step(self, batch: Decisions) -> Tensor:
            return batch.actions

    data = KitchenPeople(str(prepared_2020), batch_size=50)
    taken = lightning.Trainer(**trainer_options(tmp_path)).predict(Taken(), data)
    assert torch.equal(torch.cat(taken), torch.cat([steps.actions for steps in data.steps("test").values()]))


def test_two_processes_share_each_epoch_without_loss_or_repetition(
    prepared_2020: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = KitchenPeople(str(prepared_2020), batch_size=31)
    # To fork spares two starts of Python; it needs processes without threads, which CUDA's autograd has.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    strategy = "ddp_spawn" if torch.cuda.is_available() else "ddp_fork"
    trainer = lightning.Trainer(max_epochs=2, devices=2, strategy=strategy, **trainer_options(tmp_path))
    trainer.fit(ActionCounts(notes=str(tmp_path)), data)
    one, other = (torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in (0, 1))
    everything = set().union(*(where(steps) for steps in data.steps("train").values()))
    for epoch in (0, 1):
        assert not one[0][epoch] & other[0][epoch]
        assert one[0][epoch] | other[0][epoch] == everything
    assert one[1][0] != one[1][1]


@pytest.mark.parametrize("name", ["KitchenPeople", "bsdr_torch.data.kitchen_people.KitchenPeople"])
def test_the_command_line_takes_the_data_by_name_and_the_first_batch_is_there(
    name: str, prepared_2019: Path, tmp_path: Path
) -> None:
    cli = LightningCLI(
        ActionCounts,
        lightning.LightningDataModule,
        subclass_mode_data=True,
        save_config_callback=None,
        trainer_defaults=trainer_options(tmp_path) | {"max_steps": 1, "limit_val_batches": 0},
        args=[
            "fit",
            f"--data={name}",
            f"--data.folder={prepared_2019}",
            "--data.layouts=[cramped_room, forced_coordination]",
            "--data.protocol=layout",
            "--data.held_out=cramped_room",
            "--data.batch_size=64",
        ],
    )
    assert isinstance(cli.datamodule, KitchenPeople)
    assert len(cli.model.orders[0]) == 64
    assert {cli.datamodule.rollouts[rollout].layout for rollout, _ in cli.model.seen[0]} == {"forced_coordination"}
