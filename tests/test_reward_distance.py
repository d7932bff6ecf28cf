from __future__ import annotations

import pytest
import torch

from bsdr_torch.reward_distance import canonical_reward, pairwise_regret, reward_distances
from bsdr_torch.worlds.gridworld import GridWorld
from tests.oracle import KINDS, random_mdp

DISCOUNT = 0.9


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", KINDS)
def test_scale_and_shaping_leave_the_canonical_reward_alone(kind: str) -> None:
    mdp = random_mdp(kind, generator())
    S, A, K = mdp.next_state.shape
    reward = torch.randn(S, A, 1, generator=generator(1), dtype=torch.float64)
    potential = torch.randn(S, generator=generator(2), dtype=torch.float64)
    if mdp.terminal is not None:
        potential[mdp.terminal] = 0.0  # shaping ends with the episode
    chance = torch.ones(S, A, K) if mdp.probability is None else mdp.probability.expand(S, A, K)
    shaping = DISCOUNT * (potential[mdp.next_state.long()] * chance).sum(2) - potential[:, None]
    if mdp.terminal is not None:
        shaping[mdp.terminal] = 0.0
    shaped = 7.0 * reward + shaping[..., None]
    torch.testing.assert_close(canonical_reward(mdp, shaped, DISCOUNT), canonical_reward(mdp, reward, DISCOUNT))


def test_distances_run_from_the_same_to_the_opposite() -> None:
    world = GridWorld.load("meadow")
    reward = torch.randn(len(world.cells), 1, generator=generator(), dtype=torch.float64)
    other = torch.randn(len(world.cells), 1, generator=generator(1), dtype=torch.float64)
    distance = reward_distances(world.mdp, torch.cat([reward, 5 * reward, -reward, other], dim=1), DISCOUNT)
    assert distance[0, 1] < 1e-6
    assert abs(distance[0, 2] - 1) < 1e-6
    assert 0.5 < distance[0, 3] < 0.9
    torch.testing.assert_close(distance, distance.T)


def test_regret_of_pairs_is_that_of_one_by_one() -> None:
    from bsdr_torch.recovery import regret

    world = GridWorld.load("frozen_lake")
    cost = torch.rand(len(world.cells), 3, generator=generator(), dtype=torch.float64) + 0.1
    table = pairwise_regret(world.mdp, -cost, world.horizon)
    for i in range(3):
        for j in range(3):
            assert abs(float(table[i, j]) - regret(world, cost[:, j], cost[:, i])) < 1e-9
