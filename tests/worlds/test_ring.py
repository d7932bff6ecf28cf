from __future__ import annotations

from itertools import product

import pytest
import torch

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.ring import Ring, RingGames, boltzmann_policies


def test_both_ways_round_earn_one_for_each_eight_steps() -> None:
    ring = Ring()
    left, right = torch.eye(2).repeat(1, ring.num_states).view(2, ring.num_states, 2)
    there_and_back = torch.where(torch.arange(16)[:, None] % 2 == 0, left, right)
    found = ring.returns(torch.stack([left, right, there_and_back]))
    assert found.tolist() == [12.0, 12.0, 12.0]
    assert float(ring.returns(torch.where(torch.arange(16)[:, None] < 2, left, right)[None])) == 0.0


def test_returns_are_means_over_all_sequences_of_actions() -> None:
    ring, generator = Ring(4, horizon=6), torch.Generator().manual_seed(0)
    policy = torch.rand(8, 2, generator=generator, dtype=torch.float64)
    policy = policy / policy.sum(1, keepdim=True)
    total = 0.0
    for actions in product((0, 1), repeat=6):
        state, chance, earned = 0, 1.0, 0.0
        for action in actions:
            chance *= float(policy[state, action])
            earned += float(ring.reward[state, action])
            state = int(ring.next_state[state, action])
        total += chance * earned
    assert float(ring.returns(policy[None])) == pytest.approx(total)


def test_games_earn_what_returns_say() -> None:
    ring, generator = Ring(), torch.Generator().manual_seed(0)
    policy = torch.tensor([0.2, 0.8]).expand(16, 2)
    games, earned = RingGames(ring, 1000), torch.zeros(1000)
    for t in range(ring.horizon):
        rewards, ends = games.play(torch.multinomial(policy[games.states], 1, generator=generator).squeeze(1))
        earned += rewards
        assert bool(ends.all()) == bool(ends.any()) == (t == 99)
    assert float(earned.mean()) == pytest.approx(float(ring.returns(policy[None])), abs=0.15)
    assert not games.states.any()


def test_annealed_policies_are_those_of_importance_sampling_where_that_works() -> None:
    ring, inverse_beta = Ring(4, horizon=20), 1.0
    generator = torch.Generator().manual_seed(0)
    prior = torch.distributions.Dirichlet(torch.full((ring.num_states, 2), 0.5, dtype=torch.float64))
    torch.manual_seed(0)
    policies = prior.sample((20000,))
    returns = ring.returns(policies)
    weights = (returns / inverse_beta).softmax(0)
    annealed = boltzmann_policies(ring, inverse_beta, 0.5, 1000, generator)
    assert float(ring.returns(annealed).mean()) == pytest.approx(float(weights @ returns), abs=0.1)
    assert float((annealed[:, 0, 0] ** 2).mean()) == pytest.approx(float(weights @ policies[:, 0, 0] ** 2), abs=0.03)
    assert float(returns.mean()) < float(weights @ returns) - 1


def test_a_ring_with_no_opposite_cell_is_refused() -> None:
    with pytest.raises(InputError, match="even number of cells"):
        Ring(5)
