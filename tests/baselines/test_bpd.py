from __future__ import annotations

from pathlib import Path

import lightning
import pytest
import torch
from torch.nn.functional import nll_loss

from bsdr_torch.baselines.bpd import BPD, Reminded, sequences
from bsdr_torch.baselines.self_play import teach
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.errors import InputError
from bsdr_torch.predictor import Predictor
from bsdr_torch.saved_models import SavedModel

SMALL = {
    "iterations": 2,
    "lessons": 2,
    "games": 4,
    "memory": 8,
    "practice": {"steps": 20, "window": 10, "batch_size": 80},
    "boltzmann": {"slots": 4, "slot_size": 2, "heads": 2, "hidden": 8, "memory": 8},
}


@pytest.fixture(scope="module")
def data(prepared_2020: Path) -> KitchenPeople:
    return KitchenPeople(str(prepared_2020), layouts=["cramped_room"], batch_size=32)


@pytest.fixture(scope="module")
def taught(data: KitchenPeople) -> BPD:
    return teach(small(data), 0)


def small(data: KitchenPeople, **settings: object) -> BPD:
    return BPD(data.specs, data.humans, data.named, **(SMALL | settings))  # type: ignore[arg-type]


def by(taught: BPD, way: str) -> BPD:
    taught.predict_by = way  # type: ignore[assignment]
    return taught


def test_decisions_are_put_in_order_by_rollout_and_time(data: KitchenPeople) -> None:
    steps = data.steps("train")["cramped_room"]
    shuffled = steps.some(torch.randperm(len(steps.actions), generator=torch.Generator().manual_seed(0)))
    order = sequences(shuffled)
    assert sorted(order[order >= 0].tolist()) == list(range(len(steps.actions)))
    for column in order.T:
        rows = column[column >= 0]
        assert torch.equal(column[: len(rows)], rows)
        assert len(shuffled.rollouts[rows].unique()) == 1
        assert bool((shuffled.times[rows].diff() > 0).all())
    timeless = steps._replace(times=torch.zeros_like(steps.times), rollouts=torch.zeros_like(steps.rollouts))
    assert sequences(timeless).shape == (1, len(steps.actions))


@pytest.mark.parametrize("way", ["sequence", "inference"])
def test_predictions_know_the_steps_before_and_no_others(data: KitchenPeople, taught: BPD, way: str) -> None:
    model, steps = by(taught, way), data.steps("train")["cramped_room"]
    rollout = int(steps.rollouts[0])
    mine = (steps.rollouts == rollout).nonzero()[:, 0]
    middle = steps.times[mine].sort().values[len(mine) // 2]
    before, after = (
        (steps.rollouts == rollout) & (steps.times < middle),
        (steps.rollouts == rollout) & (steps.times >= middle),
    )
    found = model.action_log_probs(steps)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(len(found)))
    later = model.action_log_probs(steps._replace(actions=torch.where(after, (steps.actions + 1) % 6, steps.actions)))
    torch.testing.assert_close(found[before], later[before])
    earlier = model.action_log_probs(
        steps._replace(actions=torch.where(before, (steps.actions + 1) % 6, steps.actions))
    )
    assert not torch.allclose(found[after], earlier[after])
    others = steps.rollouts != rollout
    assert torch.allclose(found[others], earlier[others], atol=1e-5)


def test_a_model_is_reminded_of_the_training_part(data: KitchenPeople, taught: BPD) -> None:
    model, steps = by(taught, "sequence"), data.steps("test")["cramped_room"]
    reminded = Reminded(model, data).action_log_probs(steps)
    assert reminded.shape == (len(steps.actions), 6)
    assert not torch.allclose(reminded, model.action_log_probs(steps))


@pytest.mark.parametrize("way", ["sequence", "inference"])
def test_games_may_be_asked_about_in_pieces_and_again(data: KitchenPeople, taught: BPD, way: str) -> None:
    model, steps = by(taught, way), data.steps("test")["cramped_room"]
    whole = Reminded(model, data).action_log_probs(steps)
    reminded, found = Reminded(model, data), []
    for batch in steps.chunks(25):
        found.append(reminded.action_log_probs(batch))
    assert len(found) > 1
    if way == "sequence":
        torch.testing.assert_close(torch.cat(found), whole)
    torch.testing.assert_close(reminded.action_log_probs(batch), found[-1])
    torch.testing.assert_close(reminded.action_log_probs(steps), whole)


@pytest.mark.parametrize("way", ["sequence", "inference"])
def test_a_temperature_is_fitted_to_the_training_part(data: KitchenPeople, taught: BPD, way: str) -> None:
    model, steps = by(taught, way), data.steps("train")["cramped_room"]

    @torch.no_grad()
    def loss(temperature: float) -> float:
        model.temperature = torch.tensor(temperature)
        return float(nll_loss(model.action_log_probs(steps), steps.actions))

    model.temperature = torch.tensor(5.0)  # makes no difference
    model.fit_temperature(data)
    found = float(model.temperature)
    assert loss(found) < min(loss(0.8 * found), loss(1.2 * found))
    model.temperature = torch.ones(())


def test_games_must_end_with_a_fragment(data: KitchenPeople) -> None:
    with pytest.raises(InputError, match=r"horizon 50 must be a multiple of practice.steps 20"):
        small(data, horizon=50)


def test_practice_trains_the_distribution_and_then_the_forecaster(data: KitchenPeople) -> None:
    model = small(data)
    population = model.population("cramped_room")
    optimizers = model.optimizers_of([population])
    steps = [set(model.practise("cramped_room", optimizers)) & {"divergence", "entropy", "forecast"} for _ in range(4)]
    # What a policy reveals is learned only when it counts.
    assert steps == [{"entropy"}, {"divergence", "entropy"}, {"forecast"}, {"forecast"}]
    assert model.done("cramped_room")
    assert not model.practise("cramped_room", optimizers)
    assert len(model.rewards("cramped_room", 3, torch.Generator().manual_seed(0))) == 3


def test_a_checkpoint_predicts_as_the_model_did(data: KitchenPeople, tmp_path: Path) -> None:
    model = small(data)
    trainer = lightning.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, num_sanity_val_steps=0
    )
    trainer.fit(model, datamodule=data)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    assert int(model.practised["cramped_room"]) > 0
    steps = data.steps("test")["cramped_room"]
    read = SavedModel.read(tmp_path / "last.ckpt")
    assert isinstance(read, BPD)
    torch.testing.assert_close(read.action_log_probs(steps), model.eval().action_log_probs(steps))
    predictor = Predictor.from_checkpoint(tmp_path / "last.ckpt")
    found = predictor.predict("cramped_room", steps.states[:3], seats=0)  # type: ignore[attr-defined]
    torch.testing.assert_close(found.probabilities.sum(1), torch.ones(3))
