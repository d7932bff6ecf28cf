"""Models that get to know people while they play: `bsdr-online` and `cloning-256-symmetric-online`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import nll_loss

from bsdr_torch.baselines.cloning import AdaptableCloning, Cloning
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.kitchens.adapting import AdaptableKitchenModel
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.newcomers import Adaptable, GettingToKnow, fit_newcomer
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import NUM_ACTIONS
from tests.kitchens.conftest import Trained, train

KITCHEN = "counter_circuit"


@pytest.fixture(scope="module")
def symmetric_cloning(trained_cloning: Trained, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    data = trained_cloning.data
    model = Cloning(data.specs, data.humans, data.named, hidden=[8], history=4, identity=True, symmetric=True)
    return train(model, data, tmp_path_factory)


@pytest.fixture(params=["trained_planner", "trained_cloning", "symmetric_cloning"])
def trained(request: pytest.FixtureRequest) -> Trained:
    found: Trained = request.getfixturevalue(request.param)
    return found


def adaptable(model: object) -> Adaptable:
    if isinstance(model, Cloning):
        return AdaptableCloning(model)
    assert isinstance(model, KitchenModel)
    return AdaptableKitchenModel(model)


def strangers(data: KitchenPeople) -> Decisions:
    """Everybody's steps in the kitchen, as if they were never seen."""
    steps = data.steps("train")[KITCHEN]
    return steps._replace(humans=torch.full_like(steps.humans, POPULATION))


def games(steps: Decisions) -> list[Tensor]:
    """The rows of each game of a person, by time."""
    found = []
    for rollout in torch.unique(steps.rollouts).tolist():
        rows = (steps.rollouts == rollout).nonzero()[:, 0]
        found.append(rows[steps.times[rows].argsort()])
    return found


def test_somebody_who_differs_like_a_known_person_is_predicted_as_that_person(trained: Trained) -> None:
    model, steps = adaptable(trained.model), trained.data.steps("train")[KITCHEN]
    for number, name in enumerate(trained.model.trained_on):
        theirs = steps.some(steps.humans == trained.model.humans.index(name))
        scale = len(trained.model.trained_on) ** 0.5
        found = model.log_probs_of(model.evidence(theirs), model.how_people_differ()[number] * scale)
        torch.testing.assert_close(found, model.action_log_probs(theirs), rtol=1e-4, atol=1e-5)


def test_a_fit_finds_the_maximum_of_the_posterior(trained: Trained) -> None:
    model, steps = adaptable(trained.model), strangers(trained.data)
    steps = steps.some(games(steps)[0])
    evidence, directions = model.evidence(steps), model.how_people_differ()
    z = fit_newcomer(model, evidence, steps.actions, directions).requires_grad_()

    def loss(z: Tensor) -> Tensor:
        log_probs = model.log_probs_of(evidence, z @ directions, fitting=True)
        return nll_loss(log_probs, steps.actions, reduction="sum") + z.square().sum() / 2

    assert float(torch.autograd.grad(loss(z), z)[0].abs().max()) < 0.05
    assert loss(z) < loss(torch.zeros_like(z))


def test_each_step_is_that_of_the_person_whom_the_steps_before_it_tell_of(trained: Trained) -> None:
    model, steps = adaptable(trained.model), strangers(trained.data)
    directions, found = model.how_people_differ(), GettingToKnow(model, stretch=30).action_log_probs(steps)
    for rows in games(steps):
        torch.testing.assert_close(found[rows[:30]], model.action_log_probs(steps.some(rows[:30])), rtol=0, atol=1e-5)
        seen, now = (steps.some(rows[part]) for part in (slice(60), slice(60, 90)))
        z = fit_newcomer(model, model.evidence(seen), seen.actions, directions)
        known = model.log_probs_of(model.evidence(now), z @ directions)
        torch.testing.assert_close(found[rows[60:90]], known, rtol=0, atol=3e-3)


def test_steps_that_come_later_are_not_seen(trained: Trained) -> None:
    model, steps = adaptable(trained.model), strangers(trained.data)
    time = int(steps.times.median())
    changed = steps._replace(actions=torch.where(steps.times >= time, (steps.actions + 1) % NUM_ACTIONS, steps.actions))
    before, after = (GettingToKnow(model).action_log_probs(batch) for batch in (steps, changed))
    torch.testing.assert_close(before[steps.times <= time], after[steps.times <= time])
    assert not torch.allclose(before[steps.times > time], after[steps.times > time])


def test_games_may_be_asked_about_in_parts_and_again(trained: Trained) -> None:
    model, steps = adaptable(trained.model), strangers(trained.data)
    whole, online = GettingToKnow(model).action_log_probs(steps), GettingToKnow(model)
    for _ in range(2):
        parts = [online.action_log_probs(part) for part in steps.chunks(97)]
        torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-3)


def test_people_who_trained_are_known(trained: Trained) -> None:
    model, steps = adaptable(trained.model), trained.data.steps("train")[KITCHEN]
    torch.testing.assert_close(GettingToKnow(model).action_log_probs(steps), model.action_log_probs(steps))
