from __future__ import annotations

import torch

from bsdr_torch.baselines.frequencies import ActionFrequencies, uniform
from bsdr_torch.data.grid_people import SimulatedPeople, StepBatch, Truth
from bsdr_torch.recovery import TrueModel, recovery, regret
from bsdr_torch.training import cross_entropy
from bsdr_torch.worlds.gridworld import GridWorld

WORLD = GridWorld.load("meadow")
TRUTH = Truth(torch.tensor([0.2, 0.4, 0.8, 0.6]), torch.tensor([[2.0, 1.0], [0.5, 3.0]]))
VISITED, HUMANS = torch.arange(94).repeat(2), torch.arange(2).repeat_interleave(94)


def test_the_truth_in_any_gauge_has_no_error() -> None:
    for factor in (1.0, 10.0):
        found = recovery(WORLD, TRUTH, TRUTH.theta_R * factor, TRUTH.beta(WORLD) / factor, VISITED, HUMANS)
        assert abs(found.theta_R_cosine - 1) < 1e-6
        assert found.beta_relative_error < 1e-6
        assert abs(found.regret) < 1e-6


def test_errors_of_beta_are_relative_and_weighted_by_visits() -> None:
    beta = TRUTH.beta(WORLD).clone()
    beta[:, 1] *= 1.5
    both = recovery(WORLD, TRUTH, TRUTH.theta_R, beta, VISITED, HUMANS)
    assert abs(both.beta_relative_error - 0.25) < 1e-6
    second = recovery(WORLD, TRUTH, TRUTH.theta_R, beta, torch.tensor([3, 4]), torch.tensor([1, 1]))
    assert abs(second.beta_relative_error - 0.5) < 1e-6


def test_regret_is_zero_for_the_best_and_above_it_for_another_goal() -> None:
    cost = TRUTH.cost(WORLD)
    assert abs(regret(WORLD, cost * 3, cost)) < 1e-9
    assert regret(WORLD, cost.max() - cost, cost) > 0.05


def test_nothing_beats_the_truth_and_frequencies_beat_chance() -> None:
    data = SimulatedPeople(["meadow"], humans=10, rollouts=5, held_out=5)
    assert data.truth is not None
    truth = cross_entropy(TrueModel(data.worlds, data.truth), data, "test")
    frequencies = cross_entropy(ActionFrequencies(5, [data.parts["meadow"].train.steps()]), data, "test")
    chance = cross_entropy(uniform(5), data, "test")
    assert abs(chance - torch.log(torch.tensor(5.0))) < 1e-6
    assert truth < frequencies < chance


def test_frequencies_are_counts_with_one_more_of_each() -> None:
    data = SimulatedPeople(["two_rooms"], humans=2, rollouts=2, held_out=1)
    steps = data.parts["two_rooms"].train.steps()
    found = ActionFrequencies(5, [steps]).action_log_probs(
        StepBatch("two_rooms", *torch.zeros(3, 4, dtype=torch.int64))
    )
    counts = torch.bincount(steps.action, minlength=5) + 1.0
    torch.testing.assert_close(found.exp(), (counts / counts.sum()).double().expand(4, 5))
