from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bsdr_torch.baselines.getting_to_know import Belief, Forecaster, infer, watch
from bsdr_torch.baselines.policy_distribution import (
    Boltzmann,
    PolicyDistribution,
    Revelation,
    first_visits,
    iterate,
)
from bsdr_torch.baselines.ppo import Fragment, Practice, play
from bsdr_torch.worlds.ring import Ring, RingGames, boltzmann_policies

RING = Ring()
S = RING.num_states
GAMES = 64


def policies(distribution: PolicyDistribution, count: int) -> Tensor:
    """Of people drawn from a distribution, `[count, S, 2]`."""
    z = distribution.draw(count, torch.Generator().manual_seed(1))
    with torch.no_grad():
        return distribution.logits(torch.eye(S).expand(count, S, S), z[:, None].expand(-1, S, -1)).softmax(2).double()


def entropy(policies: Tensor) -> Tensor:
    return torch.special.entr(policies).sum(2)


def trained(inverse_beta: float, iterations: int, window: int = RING.horizon) -> PolicyDistribution:
    """The distribution of the ring."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    boltzmann = Boltzmann(inverse_beta, concentration=0.2, slot_size=4, heads=2, hidden=32, memory=32)
    found, revelation = PolicyDistribution(S, 2, boltzmann), Revelation(S, 2, boltzmann)
    practice = Practice(
        steps=RING.horizon, window=window, batch_size=1600, learning_rate=3e-3, discount=1.0, entropy=0.0
    )
    optimizers = [torch.optim.Adam(module.parameters()) for module in (found, revelation)]
    games, people = RingGames(RING, GAMES), found.draw(GAMES, generator)
    for iteration in range(iterations):
        now = practice.at(iteration / iterations)
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = now.learning_rate
        iterate(found, revelation, optimizers, games, people, now, generator)
    return found


@pytest.fixture(scope="module")
def varied() -> PolicyDistribution:
    """People who care less for the reward, and so differ more."""
    return trained(1.0, 25)


@pytest.fixture(scope="module")
def watched(varied: PolicyDistribution) -> Fragment:
    """People of the distribution, each playing a game."""
    generator = torch.Generator().manual_seed(2)
    return play(RingGames(RING, GAMES), varied, RING.horizon, generator, varied.draw(GAMES, generator))


@pytest.fixture(scope="module")
def exact() -> Tensor:
    """Draws from the exact distribution at 1/beta = 0.1."""
    return boltzmann_policies(RING, 0.1, 0.2, 200, torch.Generator().manual_seed(0), sweeps=4)


# Each window reveals a policy anew: ten in a game weigh a KL ten times, of which a tenth counts here.
@pytest.mark.parametrize(("window", "inverse_beta"), [(RING.horizon, 0.1), (RING.horizon // 10, 0.01)])
def test_the_distribution_on_the_ring_is_the_exact_one(window: int, inverse_beta: float, exact: Tensor) -> None:
    ours = policies(trained(inverse_beta, 90, window), 1000)
    returns = [float(RING.returns(found).mean()) for found in (ours, exact)]
    entropies = [float(entropy(found).mean()) for found in (ours, exact)]
    assert returns[0] == pytest.approx(returns[1], abs=0.1)  # 12 at most, 0.6 for the Dirichlet alone
    assert entropies[0] == pytest.approx(entropies[1], abs=0.02)  # 0.69 at most, 0.23 for the Dirichlet alone
    right = ours[:, 0, 1] > 0.5
    assert 0.2 < float(right.double().mean()) < 0.8  # both ways round are as good


def gap(log_probs: Tensor, watched: Fragment, steps: int) -> float:
    """How far predictions are from what people are about to do, after some steps: mean KL over the next ten."""
    soon = slice(steps, steps + 10)
    true = watched.log_probs[soon]
    return float((true.exp() * (true - log_probs[soon])).sum(-1).mean())


def belief(distribution: PolicyDistribution) -> Belief:
    return Belief(distribution, GAMES, torch.Generator().manual_seed(0))


def test_inference_of_z_predicts_better_after_50_steps_than_after_5(
    varied: PolicyDistribution, watched: Fragment
) -> None:
    real = torch.ones_like(watched.actions, dtype=torch.bool)
    found = infer(belief(varied), watched.observations, watched.actions, real, every=5)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(found.shape[:2]))
    assert gap(found, watched, 50) < 0.6 * gap(found, watched, 5)


def test_inference_sees_nothing_that_comes_later(varied: PolicyDistribution, watched: Fragment) -> None:
    real = torch.ones_like(watched.actions, dtype=torch.bool)
    later = watched.actions.clone()
    later[20:] = 1 - later[20:]
    first, second = (infer(belief(varied), watched.observations, actions, real) for actions in (watched.actions, later))
    assert torch.equal(first[:20], second[:20])
    assert not torch.equal(first[30:], second[30:])


def test_a_network_that_watched_predicts_better_after_50_steps_than_after_5(
    varied: PolicyDistribution, watched: Fragment
) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(3)
    forecaster = Forecaster(S, 2, 32)
    optimizer = torch.optim.Adam(forecaster.parameters(), 5e-3)
    for _ in range(60):
        others = play(RingGames(RING, GAMES), varied, RING.horizon, generator, varied.draw(GAMES, generator))
        watch(forecaster, optimizer, others.observations, others.actions, others.ends, torch.zeros(GAMES, 32))
    with torch.no_grad():
        found, _ = forecaster(watched.observations, watched.actions)
    assert gap(found, watched, 50) < 0.8 * gap(found, watched, 5)


def test_what_a_network_remembers_is_what_it_saw() -> None:
    torch.manual_seed(0)
    forecaster, seen, actions = Forecaster(3, 2, 8), torch.randn(10, 4, 3), torch.randint(2, (10, 4))
    whole, _ = forecaster(seen, actions)
    first, memory = forecaster(seen[:6], actions[:6])
    second, _ = forecaster(seen[6:], actions[6:], memory)
    torch.testing.assert_close(whole, torch.cat([first, second]))
    changed, _ = forecaster(seen, torch.cat([actions[:6], 1 - actions[6:]]))
    assert torch.equal(changed[:7], whole[:7])
    assert not torch.allclose(changed[7:], whole[7:])


def test_first_visits_are_the_first() -> None:
    generator = torch.Generator().manual_seed(0)
    number = torch.randint(4, (12, 5), generator=generator)
    found = first_visits(torch.randn(4, 7, generator=generator)[number])
    for t in range(12):
        for row in range(5):
            assert bool(found[t, row]) == (int(number[t, row]) not in number[:t, row].tolist())


def test_what_is_revealed_is_a_ratio_of_densities() -> None:
    torch.manual_seed(0)
    revelation = Revelation(3, 4, Boltzmann(concentration=0.7, memory=16))
    prior = torch.distributions.Dirichlet(torch.full((20000, 4), 0.7)).sample().log()
    seen = torch.randn(3).expand(1, 20000, 3)
    fresh = torch.ones(1, 20000, dtype=torch.bool)
    with torch.no_grad():
        assert float(revelation(seen, prior[None], fresh).abs().mean()) < 0.2
        revelation.mixture[-1].weight.mul_(50)
        ratio = revelation(seen, prior[None], fresh).double()
    assert float(ratio.std()) > 0.3
    assert float(ratio.exp().mean()) == pytest.approx(1, abs=0.05)
    assert not revelation(seen, prior[None], ~fresh).any()
