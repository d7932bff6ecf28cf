from __future__ import annotations

import pytest
import torch

from bsdr_torch.data.rollouts import check_rollouts
from bsdr_torch.experiments.fitting import fit_ileed
from bsdr_torch.experiments.lapsing_people import draw_lapsing_people, lapsing_log_probs, simulate_lapsing
from bsdr_torch.experiments.simulated import cross_entropy, taken_log_probs
from bsdr_torch.worlds.gridworld import GridWorld


@pytest.mark.parametrize("name", ["meadow", "frozen_lake"])
def test_they_do_what_the_world_allows_and_what_their_policy_says(name: str) -> None:
    world = GridWorld.load(name)
    people = draw_lapsing_people(world, 10, 2.0, torch.Generator().manual_seed(0))
    rollouts = simulate_lapsing(world, people, 40, torch.Generator().manual_seed(1))
    check_rollouts(rollouts, world.mdp, world.horizon, name)
    own = lapsing_log_probs(world, people, rollouts)
    assert (own[rollouts.actions >= 0] >= (people.lapses.min() / 5).log()).all()
    planned = taken_log_probs(world, people.truth.reward(world), rollouts)
    assert cross_entropy(own, rollouts) < cross_entropy(planned, rollouts) - 0.02


def test_who_always_lapses_acts_at_random_and_who_never_does_plans() -> None:
    world = GridWorld.load("two_rooms")
    people = draw_lapsing_people(world, 2, 0.0, torch.Generator().manual_seed(0))
    always, never = (people._replace(lapses=torch.full_like(people.lapses, share)) for share in (1.0, 0.0))
    rollouts = simulate_lapsing(world, never, 20, torch.Generator().manual_seed(1))
    planned = taken_log_probs(world, people.truth.reward(world), rollouts)
    torch.testing.assert_close(lapsing_log_probs(world, never, rollouts), planned)
    random = lapsing_log_probs(world, always, rollouts)[rollouts.actions >= 0]
    torch.testing.assert_close(random.exp(), torch.full_like(random, 0.2))


def test_ileed_finds_who_lapses_where() -> None:
    world = GridWorld.load("meadow")
    people = draw_lapsing_people(world, 20, 2.0, torch.Generator().manual_seed(0))
    alike = people.truth._replace(theta_beta=torch.full_like(people.truth.theta_beta, 8.0))
    people = people._replace(truth=alike)
    ileed = fit_ileed(world, simulate_lapsing(world, people, 16, torch.Generator().manual_seed(1)), 20)
    assert ileed.converged
    torch.testing.assert_close(ileed.log_probs.exp().sum(2), torch.ones_like(ileed.expertise))
    places = world.rationality_features.argmax(0)  # a state with each feature: all others are like one of them
    ranks = [values[places].flatten().argsort().argsort().double() for values in (-people.lapses, ileed.expertise)]
    assert torch.corrcoef(torch.stack(ranks))[0, 1] > 0.9
