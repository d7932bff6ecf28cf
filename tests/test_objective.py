from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bsdr_torch import objective
from bsdr_torch.data.rollouts import Rollouts
from bsdr_torch.mdp import TabularMDP
from bsdr_torch.objective import Evidence
from bsdr_torch.soft_bellman import Problem, action_log_probs, initial_values, sample, soft_values
from tests.oracle import random_mdp


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_rollouts(mdp: TabularMDP, seed: int, **problem: object) -> tuple[torch.Tensor, Rollouts]:
    """Rewards of three humans, and five rollouts of each."""
    generator = rng(seed)
    reward = torch.randn(mdp.num_states, 3, generator=generator, dtype=torch.float64)
    humans = torch.arange(3).repeat_interleave(5)
    return reward, Rollouts(humans, *sample(mdp, reward, humans, generator, **problem))


def likelihood(mdp: TabularMDP, reward: torch.Tensor, rollouts: Rollouts, problem: Problem) -> torch.Tensor:
    """Sum of log pi of each human's actions, `[B]`."""
    steps = rollouts.steps()
    log_probs = action_log_probs(
        mdp, soft_values(mdp, reward, **problem), steps.state, steps.human, steps.step, **problem
    )
    taken = log_probs.gather(1, steps.action[:, None]).squeeze(1)
    return torch.zeros(3, dtype=torch.float64).index_add_(0, steps.human, taken)


@pytest.mark.parametrize("kind", ["deterministic", "terminal"])
@pytest.mark.parametrize(("horizon", "discount"), [(6, 1.0), (6, 0.8), (None, 0.8)])
@pytest.mark.parametrize("cut", [False, True])
def test_evidence_gives_the_likelihood_of_the_actions(
    kind: str, horizon: int | None, discount: float, cut: bool
) -> None:
    mdp = random_mdp(kind, rng(5), S=6)
    problem = Problem(horizon=horizon, discount=discount)
    reward, rollouts = some_rollouts(mdp, 3, steps=6, **problem)
    if cut:
        rollouts = Rollouts(rollouts.human, rollouts.states[:, :4], rollouts.actions[:, :3])
    evidence = Evidence.of(rollouts, mdp, 3, horizon, discount)
    values = soft_values(mdp, reward, **problem)
    total = evidence.reward_sums(reward) + evidence.value_sums(values)
    torch.testing.assert_close(total, likelihood(mdp, reward, rollouts, problem), rtol=0, atol=1e-9)
    hypotheses = evidence.under_hypotheses(reward, values, 3)
    torch.testing.assert_close(hypotheses.diagonal(), total, rtol=0, atol=1e-9)


def test_whole_rollouts_need_v_only_at_the_start() -> None:
    mdp = random_mdp("terminal", rng(5), S=6)
    reward, rollouts = some_rollouts(mdp, 3, horizon=6)
    evidence = Evidence.of(rollouts, mdp, 3, horizon=6)
    assert not evidence.needs_all_steps
    first = initial_values(mdp, reward, horizon=6)[None]
    torch.testing.assert_close(evidence.value_sums(first), evidence.value_sums(soft_values(mdp, reward, horizon=6)))


@settings(max_examples=25, deadline=None)
@given(S=st.integers(1, 40), seed=st.integers(0, 1000))
def test_three_ways_to_the_data_term_agree(S: int, seed: int) -> None:
    generator = rng(seed)
    states, humans = torch.randint(S, (50,), generator=generator), torch.randint(4, (50,), generator=generator)
    phi_R = torch.randn(S, 3, generator=generator, dtype=torch.float64)
    phi_beta = torch.randn(S, 2, generator=generator, dtype=torch.float64)
    theta_R = torch.randn(3, generator=generator, dtype=torch.float64)
    theta_beta = torch.randn(4, 2, generator=generator, dtype=torch.float64)
    reward = -(phi_beta @ theta_beta.T) * (phi_R @ theta_R)[:, None]
    visits = objective.visit_counts(states, humans, S, 4)
    assert float(visits.sum()) == 50
    from_visits = objective.reward_from_visits(visits, reward)
    Phi = objective.feature_counts(visits, phi_R, phi_beta)
    torch.testing.assert_close(objective.reward_from_feature_counts(Phi, theta_R, theta_beta), from_visits)
    torch.testing.assert_close(objective.reward_from_steps(states, humans, reward), from_visits)


def test_the_smaller_way_to_sum_rewards_is_chosen() -> None:
    small, large = random_mdp("deterministic", rng(1), S=3), random_mdp("deterministic", rng(1), S=300)
    _, rollouts = some_rollouts(small, 1, horizon=6)
    assert Evidence.of(rollouts, small, 3, 6).visits is not None
    assert Evidence.of(rollouts, large, 3, 6).visits is None


def test_losses_of_chunks_average_to_the_loss_of_the_whole() -> None:
    mdp = random_mdp("deterministic", rng(2), S=5)
    reward, rollouts = some_rollouts(mdp, 2, horizon=6)
    values, log_prior = soft_values(mdp, reward, horizon=6), torch.tensor(-3.0, dtype=torch.float64)
    whole = objective.map_loss(Evidence.of(rollouts, mdp, 3, 6), reward, values, log_prior)
    torch.testing.assert_close(whole.total, whole.data + whole.log_z + whole.prior)
    expected = -(likelihood(mdp, reward, rollouts, Problem(horizon=6)).sum() + log_prior) / 90
    torch.testing.assert_close(whole.total, expected)
    parts = []
    for rows in (slice(0, 4), slice(4, 15)):
        some = Evidence.of(rollouts.select(torch.arange(15)[rows]), mdp, 3, 6)
        parts.append(objective.map_loss(some, reward, values, log_prior, num_chunks=2, total_actions=90).total)
    torch.testing.assert_close(torch.stack(parts).mean(), whole.total)
