"""How much a model counts beside habit, found while people play."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.errors import InputError
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.predictor_in_kitchens import PredictorInKitchens
from bsdr_torch.kitchens.weighing import WEIGHTS, Weighed
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, STAY
from bsdr_torch.worlds.overcooked.state import HELD, NOTHING, ONION
from tests.kitchens.conftest import Trained

STEPS = 400


class Says:
    """Says the same of every step, whatever is asked."""

    def __init__(self, log_probs: Tensor) -> None:
        self.log_probs = log_probs

    def action_log_probs(self, batch: Decisions) -> Tensor:
        return self.log_probs[batch.times]


def random_log_probs(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(STEPS, NUM_ACTIONS, generator=generator)).log_softmax(1)


def game(acts_by: Tensor, rollout: int = 0) -> Decisions:
    """Somebody who acts by these probabilities `[STEPS, 6]`."""
    generator = torch.Generator().manual_seed(5)
    actions = torch.multinomial(acts_by.exp(), 1, generator=generator).squeeze(1)
    numbers = torch.zeros(STEPS, dtype=torch.int64)
    empty = torch.full((STEPS, 1 + max(HELD)), NOTHING, dtype=torch.uint8)
    times = torch.arange(STEPS)
    return Decisions("somewhere", empty, numbers, numbers, numbers[:, None], numbers, actions, numbers + rollout, times)


def loss(log_probs: Tensor, steps: Decisions) -> float:
    return -float(log_probs.gather(1, steps.actions[:, None]).sum())


@pytest.mark.parametrize("by_hand", [False, True])
def test_predictions_are_means_over_the_exact_posterior(by_hand: bool) -> None:
    model, habit = random_log_probs(0), random_log_probs(1)
    steps = game(model).some(slice(12))
    held = torch.tensor([NOTHING, ONION] * 6)
    steps.states[:, HELD[0]] = held.to(steps.states.dtype)
    found = Weighed(Says(model), Says(habit).action_log_probs, by_hand).action_log_probs(steps)
    alike = [t for t in range(11) if held[t] == held[11] or not by_hand]
    expected = torch.ones(NUM_ACTIONS, dtype=torch.float64)
    others = torch.arange(NUM_ACTIONS) != STAY
    for part in ("acts", "moves"):
        total, evidence = torch.zeros(NUM_ACTIONS, dtype=torch.float64), 0.0
        for weight in WEIGHTS:
            probs = []  # of the part: P(stay) or P(acts), or P(move | acts)
            for which in (habit, model):
                p = which[:12].double().exp()
                acts = p[:, others].sum(1, keepdim=True)
                probs.append(
                    torch.where(others, acts, 1 - acts) if part == "acts" else torch.where(others, p / acts, 1)
                )
            tilted = probs[0] ** (1 - weight) * probs[1] ** weight
            norm = tilted[:, STAY] + tilted[:, 0] if part == "acts" else tilted[:, others].sum(1)
            tilted = torch.where(others | (part == "acts"), tilted / norm[:, None], 1.0)
            likelihood = math.prod(float(tilted[t, steps.actions[t]]) for t in alike)
            total += likelihood * tilted[11]
            evidence += likelihood
        expected *= total / evidence
    torch.testing.assert_close(found[-1].double().exp(), expected, rtol=1e-4, atol=1e-7)


def test_it_is_soon_as_good_as_the_better_one() -> None:
    right, wrong = random_log_probs(0), random_log_probs(1)
    steps = game(right)
    for model, habit in ((right, wrong), (wrong, right)):
        found = Weighed(Says(model), Says(habit).action_log_probs).action_log_probs(steps)
        # What a mixture loses is at most the log of its parts, once for acting and once for which action.
        assert loss(found, steps) <= loss(right, steps) + 2 * math.log(len(WEIGHTS)) + 1e-3


def test_a_model_that_says_what_habit_does_is_left_as_it_is() -> None:
    model = Says(random_log_probs(0))
    steps = game(random_log_probs(1))
    found = Weighed(model, model.action_log_probs).action_log_probs(steps)
    torch.testing.assert_close(found, model.log_probs, rtol=0, atol=1e-5)


def test_games_are_weighed_apart_and_batches_do_not_matter() -> None:
    model, habit = Says(random_log_probs(0)), Says(random_log_probs(1))
    one, other = game(model.log_probs, rollout=0), game(habit.log_probs, rollout=3)

    def fresh() -> Callable[[Decisions], Tensor]:
        return Weighed(model, habit.action_log_probs).action_log_probs

    apart = torch.cat([fresh()(one), fresh()(other)])
    mixed = one.joined(other)
    order = torch.randperm(len(mixed.actions), generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(fresh()(mixed.some(order)), apart[order], rtol=0, atol=1e-5)
    by_and_by = fresh()
    parts = [
        by_and_by(steps.some(slice(first, first + 64))) for steps, first in product((one, other), range(0, 400, 64))
    ]
    torch.testing.assert_close(torch.cat(parts), apart, rtol=0, atol=1e-5)


def test_habit_alone_does_not_depend_on_plans(trained_planner: Trained) -> None:
    model = trained_planner.model
    assert isinstance(model, KitchenModel)
    steps = next(iter(trained_planner.data.steps("train").values()))
    with torch.no_grad():
        before = model.habit_log_probs(steps)
        torch.testing.assert_close(before.exp().sum(1), torch.ones(len(before)))
        values = [parameter.clone() for parameter in model.values.parameters()]
        for parameter in model.values.parameters():
            parameter.mul_(2)
        assert torch.equal(model.habit_log_probs(steps), before)
        for parameter, value in zip(model.values.parameters(), values, strict=True):
            parameter.copy_(value)
    assert not torch.allclose(before, model.action_log_probs(steps), atol=1e-3)


def test_a_predictor_weighs_as_the_table_does(trained_planner: Trained) -> None:
    model, data = trained_planner.model, trained_planner.data
    assert isinstance(model, KitchenModel)
    layout, steps = next(iter(data.steps("train").items()))
    game = (steps.rollouts == steps.rollouts[0]).nonzero()[:, 0]
    steps = steps.some(game[steps.times[game].argsort()])
    human = data.humans[int(steps.humans[0])]
    past = steps.history[:, : model.habit.history].flip(1)
    plain = PredictorInKitchens(model)

    def weighed(predictor: PredictorInKitchens, rows: slice) -> PredictorInKitchens:
        seen = steps.some(rows)
        return predictor.weigh(layout, seen.states, seen.actions, seen.seats, human, past[rows])

    last = {"states": steps.states[-1], "seats": int(steps.seats[-1]), "history": past[-1:]}
    found = weighed(plain, slice(0, -1)).predict(layout, humans=human, **last).probabilities
    table = Weighed(model.eval(), model.habit_log_probs).action_log_probs(steps)[-1:].exp()
    torch.testing.assert_close(found, table, rtol=1e-4, atol=1e-5)
    by_and_by = weighed(weighed(plain, slice(0, 20)), slice(20, -1))
    torch.testing.assert_close(by_and_by.predict(layout, humans=human, **last).probabilities, found)
    # Nobody else is meant, and the predictor that was asked stays as it was.
    before = plain.predict(layout, humans=[None], **last).probabilities
    assert torch.equal(by_and_by.predict(layout, humans=[None], **last).probabilities, before)
    assert not torch.allclose(plain.predict(layout, humans=human, **last).probabilities, found, atol=1e-4)
    # Whoever adapts to somebody new still knows what was seen of others, and nothing of the new one's plans.
    stranger = by_and_by.weigh(layout, steps.states[:30], steps.actions[:30], steps.seats[:30])
    new = [
        predictor.adapt(layout, steps.states[:30], steps.actions[:30], steps.seats[:30])
        for predictor in (stranger, plain)
    ]
    torch.testing.assert_close(new[0].predict(layout, humans=human, **last).probabilities, found)
    assert torch.equal(*(each.predict(layout, humans=[None], **last).probabilities for each in new))


def test_only_planners_are_weighed_by_a_predictor(trained_cloning: Trained) -> None:
    state = next(iter(trained_cloning.data.steps("train").values())).states[:1]
    with pytest.raises(InputError, match="Cloning cannot be weighed against habit"):
        PredictorInKitchens(trained_cloning.model).weigh("counter_circuit", state, ["stay"], 0)
