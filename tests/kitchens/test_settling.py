from __future__ import annotations

import copy
from pathlib import Path

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.kitchens import kitchen_model
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.outlook import outlook
from bsdr_torch.kitchens.planning import backup, expected_values
from bsdr_torch.kitchens.predicting import fit
from bsdr_torch.kitchens.settling import ImpliedReward, implied_reward, implied_rewards, settle
from bsdr_torch.rationality import POPULATION
from bsdr_torch.training import finish_kept
from tests.kitchens.conftest import SMALL, untrained


@pytest.fixture
def model(people_2020: KitchenPeople) -> KitchenModel:
    layout = people_2020.kitchens["cramped_room"].layout
    return untrained(layout, humans=len(people_2020.humans))


def test_with_the_implied_reward_values_satisfy_the_bellman_equation(
    model: KitchenModel, people_2020: KitchenPeople
) -> None:
    steps = people_2020.steps("train")["cramped_room"].some(slice(0, 40))
    ahead = outlook(model.layout("cramped_room"), steps.states, steps.seats)
    people = torch.tensor([0, 2, POPULATION])
    implied = implied_reward(model, ahead, people)
    with torch.no_grad():
        values = model.values(ahead.features, people)
        partner = model.partner_probabilities(ahead.partner)
        future = model.discount * expected_values(values, ahead.following, partner)
        backed_up = implied.reward + backup(future, ahead.no_op, model.planned_habit)
    torch.testing.assert_close(backed_up, values[ahead.own])
    assert torch.equal(implied.features, ahead.features[ahead.own])


def test_rewards_are_implied_where_people_decided_and_beyond(model: KitchenModel, people_2020: KitchenPeople) -> None:
    decisions = {"cramped_room": people_2020.steps("train")["cramped_room"]}
    found = implied_rewards(model, decisions, draws=3, beyond=0.25)
    rows = len(decisions["cramped_room"].actions)
    assert [len(each.features) for each in found] == [rows, round(0.25 * rows)] * 3
    for each in found:
        assert POPULATION in each.people.tolist()
        assert set(each.people.tolist()) <= {POPULATION, *decisions["cramped_room"].humans.tolist()}
        assert each.reward.shape == (len(each.features), len(each.people))


def test_settling_fits_the_reward_and_nothing_else(model: KitchenModel, people_2020: KitchenPeople) -> None:
    decisions = {"cramped_room": people_2020.steps("train")["cramped_room"]}
    implied = implied_rewards(model, decisions, draws=4, beyond=0.25)
    before = copy.deepcopy(model.state_dict())
    missed = _missed(model, implied)
    torch.manual_seed(0)
    settle(model, implied, steps=150, learning_rate=1e-2, prior_weight=1e-5)
    assert _missed(model, implied) < 0.5 * missed
    changed = {name.split(".")[0] for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"phi_R", "phi_beta", "rationality"}


def test_a_strong_prior_keeps_the_reward_small(model: KitchenModel, people_2020: KitchenPeople) -> None:
    decisions = {"cramped_room": people_2020.steps("train")["cramped_room"]}
    implied = implied_rewards(model, decisions, draws=2, beyond=0.25)
    sizes = []
    for weight in (1e-5, 10.0):
        settled = copy.deepcopy(model)
        settle(settled, implied, steps=150, learning_rate=1e-2, prior_weight=weight)
        sizes.append(float(settled.rationality.theta_R.detach().norm()))
    assert sizes[1] < 0.7 * sizes[0]


def test_the_reward_settles_after_each_epoch_and_longest_after_the_last(
    people_2020: KitchenPeople, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, float]] = []
    monkeypatch.setattr(
        kitchen_model, "settle", lambda model, implied, steps, rate, weight: taken.append((steps, weight))
    )
    options = {**SMALL, "settling": 60, "tie": 0.2}
    model = KitchenModel(people_2020.specs, people_2020.humans, people_2020.named, **options)  # type: ignore[arg-type]
    trainer = lightning.Trainer(
        max_epochs=3, logger=False, enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False
    )
    trainer.fit(model, datamodule=people_2020)
    assert [steps for steps, _ in taken] == [6, 6, 60]
    # The prior counts once for all decisions, as in the loss of training, whose residuals have the weight `tie` twice.
    decisions = sum(len(steps.actions) for steps in people_2020.steps("train").values())
    assert taken[0][1] == pytest.approx(1 / (2 * 0.2 * decisions))


@pytest.mark.parametrize(("best", "expected"), [("last", [6, 6, 60]), ("first", [6, 6, 60, 60])])
def test_the_reward_settles_for_long_on_the_weights_that_are_kept(
    people_2020: KitchenPeople, monkeypatch: pytest.MonkeyPatch, best: str, expected: list[int]
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(kitchen_model, "settle", lambda model, implied, steps, rate, weight: taken.append(steps))
    sign = 1 if best == "first" else -1
    monkeypatch.setattr(
        KitchenModel,
        "on_validation_epoch_end",
        lambda model: model.log("validation/cross_entropy", sign * float(model.current_epoch)),
    )
    options = {**SMALL, "settling": 60}
    model = KitchenModel(people_2020.specs, people_2020.humans, people_2020.named, **options)  # type: ignore[arg-type]
    fit(model, people_2020, max_epochs=3)
    assert taken == expected


def test_a_checkpoint_of_an_earlier_epoch_settles_when_the_training_ends(
    people_2020: KitchenPeople, tmp_path: Path
) -> None:
    options = {**SMALL, "settling": 60}
    model = KitchenModel(people_2020.specs, people_2020.humans, people_2020.named, **options)  # type: ignore[arg-type]
    every = ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)
    trainer = lightning.Trainer(
        max_epochs=2, logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[every]
    )
    trainer.fit(model, datamodule=people_2020)
    paths = [tmp_path / f"epoch={epoch}.ckpt" for epoch in (0, 1)]
    before, last = torch.load(paths[0], weights_only=True), paths[1].read_bytes()
    for path in paths:
        finish_kept(trainer, path)
    after = torch.load(paths[0], weights_only=True)
    weights, settled = before.pop("state_dict"), after.pop("state_dict")
    changed = {name.split(".")[0] for name, value in settled.items() if not torch.equal(value, weights[name])}
    assert changed == {"phi_R", "phi_beta", "rationality"}
    assert after.keys() == before.keys()
    KitchenModel.read(paths[0])
    assert paths[1].read_bytes() == last  # it settled in training


@torch.no_grad()
def _missed(model: KitchenModel, implied: list[ImpliedReward]) -> float:
    return sum(float((model.symmetric_reward(x, people) - r).square().mean()) for x, people, r in implied)
