from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bsdr_torch import soft_bellman
from bsdr_torch.fixed_point import ConvergenceError
from bsdr_torch.mdp import TabularMDP
from bsdr_torch.problem import action_term_of
from bsdr_torch.solver import Solver
from bsdr_torch.sweeps import Backup, Kernel
from tests.oracle import KINDS, BruteForce, deterministic_log_z, random_mdp

EXACT = {"rtol": 0.0, "atol": 1e-9}
KERNELS = (
    "eager",
    "native",
)  # and "compiled", with which test_solver.py compares them: each of its shapes takes seconds


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_reward(mdp: TabularMDP, B: int, generator: torch.Generator) -> Tensor:
    return torch.randn(mdp.num_states, B, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("discount", [1.0, 0.7])
def test_values_policy_and_visits_agree_with_brute_force(kind: str, discount: float, kernel: Kernel) -> None:
    generator = rng(3)
    mdp = random_mdp(kind, generator)
    reward = random_reward(mdp, 2, generator)
    action_reward = torch.randn(mdp.num_states, mdp.num_actions, 2, generator=generator, dtype=torch.float64)
    problem = soft_bellman.Problem(horizon=3, discount=discount, action_reward=action_reward, solver=Solver(kernel))
    values = soft_bellman.soft_values(mdp, reward, **problem)
    visits = soft_bellman.visitation(mdp, reward, **problem)
    log_z = soft_bellman.log_partition(mdp, reward, **problem)
    for b in range(2):
        oracle = BruteForce(mdp, reward[:, b], 3, discount, action_reward[..., b])
        rows = [[oracle.value(t, s) for s in range(mdp.num_states)] for t in range(4)]
        expected = torch.tensor(rows, dtype=torch.float64)
        torch.testing.assert_close(values[..., b], expected, **EXACT)
        torch.testing.assert_close(visits[:, b], torch.tensor(oracle.visits(), dtype=torch.float64), **EXACT)
        torch.testing.assert_close(log_z[b], mdp.start @ expected[0], **EXACT)
        for t in range(3):
            log_policy = soft_bellman.log_policy(
                mdp, values[t + 1], discount=discount, action_reward=action_reward
            )  # [S, A, B]
            for s in range(mdp.num_states):
                if oracle.ended(s):
                    continue
                policy = oracle.policy(t, s)
                for a in range(mdp.num_actions):
                    assert math.isclose(float(log_policy[s, a, b].exp()), policy.get(a, 0.0), abs_tol=1e-9)


def test_log_z_is_the_sum_over_all_action_sequences() -> None:
    generator = rng(1)
    mdp = random_mdp("deterministic", generator)
    reward = random_reward(mdp, 1, generator)
    values = soft_bellman.initial_values(mdp, reward, horizon=5)
    for s in range(mdp.num_states):
        assert math.isclose(float(values[s, 0]), deterministic_log_z(mdp, reward[:, 0], s, 5), abs_tol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
def test_discounted_fixed_point_agrees_with_a_dense_linear_solve(kind: str, kernel: Kernel) -> None:
    generator = rng(5)
    mdp = random_mdp(kind, generator)
    reward = random_reward(mdp, 3, generator)
    log_base = soft_bellman.uniform_base(mdp, torch.float64)
    problem = soft_bellman.Problem(discount=0.9, log_base=log_base, solver=Solver(kernel))
    values = soft_bellman.initial_values(mdp, reward, **problem)
    policy = soft_bellman.log_policy(mdp, values, **problem).exp()
    long = soft_bellman.initial_values(mdp, reward, horizon=400, **problem)
    torch.testing.assert_close(values, long, **EXACT)
    visits = soft_bellman.visitation(mdp, reward, **problem)
    S = mdp.num_states
    for b in range(3):
        transition = torch.zeros(S, S, dtype=torch.float64)
        oracle = BruteForce(mdp, reward[:, b], 1)
        for s in range(S):
            if not oracle.ended(s):
                for a in oracle.actions(s):
                    for p, z in oracle.outcomes(s, a):
                        transition[s, z] += policy[s, a, b] * p
        expected = torch.linalg.solve(torch.eye(S, dtype=torch.float64) - 0.9 * transition.T, mdp.start)
        torch.testing.assert_close(visits[:, b], expected, **EXACT)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("horizon", [4, None])
def test_gradients_pass_gradcheck(kind: str, horizon: int | None, kernel: Kernel) -> None:
    generator = rng(7)
    mdp = random_mdp(kind, generator)
    reward = random_reward(mdp, 2, generator).requires_grad_()
    action_reward = torch.randn(mdp.num_states, mdp.num_actions, 1, generator=generator).double().requires_grad_()
    log_base = torch.randn(1, mdp.num_actions, 2, generator=generator).double().requires_grad_()

    problem = soft_bellman.Problem(horizon=horizon, discount=0.8, solver=Solver(kernel))

    def all_values(reward: Tensor, action_reward: Tensor, log_base: Tensor) -> Tensor:
        return soft_bellman.soft_values(mdp, reward, action_reward=action_reward, log_base=log_base, **problem)

    def first_values(reward: Tensor, action_reward: Tensor, log_base: Tensor) -> Tensor:
        return soft_bellman.initial_values(mdp, reward, action_reward=action_reward, log_base=log_base, **problem)

    for function in (all_values, first_values):
        assert torch.autograd.gradcheck(function, (reward, action_reward, log_base), atol=1e-7)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_of_log_z_is_that_of_autograd_through_the_sweeps(kind: str, kernel: Kernel) -> None:
    generator = rng(11)
    mdp = random_mdp(kind, generator, S=7)
    reward = random_reward(mdp, 3, generator).requires_grad_()
    action_term = action_term_of(mdp, reward, soft_bellman.Problem())
    backup = Backup(mdp, reward.dtype, 1.0, action_term, kernel="eager")
    values = torch.zeros_like(reward)
    for _ in range(6):
        values = backup.sweep(reward, values)
    (expected,) = torch.autograd.grad((mdp.start @ values).sum(), reward)
    torch.testing.assert_close(
        soft_bellman.visitation(mdp, reward, horizon=6, solver=Solver(kernel)), expected, **EXACT
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("horizon", [5, None])
def test_batched_equals_one_by_one(kind: str, horizon: int | None, kernel: Kernel) -> None:
    generator = rng(13)
    mdp = random_mdp(kind, generator)
    reward = random_reward(mdp, 4, generator)
    problem = soft_bellman.Problem(horizon=horizon, discount=0.9, solver=Solver(kernel))
    for function in (soft_bellman.soft_values, soft_bellman.visitation, soft_bellman.log_partition):
        alone = [function(mdp, reward[:, [b]], **problem) for b in range(4)]
        torch.testing.assert_close(function(mdp, reward, **problem), torch.cat(alone, dim=-1), **EXACT)


def test_sum_of_log_policy_is_sum_of_rewards_minus_log_z_in_a_deterministic_world() -> None:
    generator = rng(17)
    mdp = random_mdp("deterministic", generator, S=6)
    reward = random_reward(mdp, 2, generator)
    values = soft_bellman.soft_values(mdp, reward, horizon=9)
    humans = torch.tensor([0, 1, 1])
    states, actions = soft_bellman.sample(mdp, reward, humans, generator, horizon=9)
    for n, b in enumerate(humans.tolist()):
        log_probs = soft_bellman.action_log_probs(
            mdp, values, states[n, :9], torch.full((9,), b), torch.arange(9), horizon=9
        )
        likelihood = log_probs.gather(1, actions[n, :, None]).sum()
        expected = reward[states[n, :9], b].sum() - values[0, states[n, 0], b]
        torch.testing.assert_close(likelihood, expected, **EXACT)


@pytest.mark.parametrize("kind", KINDS)
def test_action_log_probs_are_rows_of_the_log_policy(kind: str) -> None:
    generator = rng(19)
    mdp = random_mdp(kind, generator)
    reward = random_reward(mdp, 2, generator)
    log_base = torch.randn(mdp.num_states, mdp.num_actions, 2, generator=generator).double()
    for horizon in (4, None):
        problem = soft_bellman.Problem(horizon=horizon, discount=0.9, log_base=log_base)
        values = soft_bellman.soft_values(mdp, reward, **problem)
        states, humans = torch.tensor([0, 3, 2]), torch.tensor([1, 0, 1])
        steps = torch.tensor([0, 3, 1])
        rows = soft_bellman.action_log_probs(mdp, values, states, humans, steps, **problem)
        for n in range(3):
            after = values[0] if horizon is None else values[steps[n] + 1]
            table = soft_bellman.log_policy(mdp, after, **problem)
            torch.testing.assert_close(rows[n], table[states[n], :, humans[n]], **EXACT)


@pytest.mark.parametrize("kind", ["stochastic", "everything"])
def test_samples_visit_states_as_often_as_expected(kind: str) -> None:
    generator = rng(23)
    mdp = random_mdp(kind, generator)
    reward = random_reward(mdp, 1, generator)
    N, T = 40_000, 4
    states, actions = soft_bellman.sample(mdp, reward, torch.zeros(N, dtype=torch.int64), generator, horizon=T)
    seen = states[:, :T]
    frequency = torch.bincount(seen[seen >= 0], minlength=mdp.num_states) / N
    expected = soft_bellman.visitation(mdp, reward, horizon=T)[:, 0]
    assert (frequency - expected).abs().max() < 0.03
    if mdp.terminal is not None:
        ended = (seen >= 0) & mdp.terminal[seen.clamp(min=0)]
        assert bool((actions[ended] == -1).all())
    if mdp.allowed is not None:
        acted = actions >= 0
        assert bool(mdp.allowed[seen[acted], actions[acted]].all())


def test_the_same_generator_gives_the_same_rollouts() -> None:
    mdp = random_mdp("stochastic", rng(1))
    reward = random_reward(mdp, 1, rng(2))
    humans = torch.zeros(50, dtype=torch.int64)
    first = soft_bellman.sample(mdp, reward, humans, rng(9), discount=0.9, steps=6)
    again = soft_bellman.sample(mdp, reward, humans, rng(9), discount=0.9, steps=6)
    assert torch.equal(first.states, again.states)
    assert torch.equal(first.actions, again.actions)
    with pytest.raises(ValueError, match="needs `steps`"):
        soft_bellman.sample(mdp, reward, humans, rng(9), discount=0.9)


@pytest.mark.parametrize("kind", KINDS)
def test_optimal_values_are_the_zero_temperature_limit_and_are_attained(kind: str) -> None:
    generator = rng(29)
    mdp = random_mdp(kind, generator)
    reward = random_reward(mdp, 2, generator)
    for problem in (soft_bellman.Problem(horizon=5), soft_bellman.Problem(discount=0.9)):
        values, actions = soft_bellman.optimal_policy(mdp, reward, **problem)
        scale = 1e6
        cold = soft_bellman.soft_values(mdp, reward * scale, **problem) / scale
        torch.testing.assert_close(values, cold, rtol=0.0, atol=1e-4)
        attained = soft_bellman.policy_return(mdp, reward, actions, **problem)
        torch.testing.assert_close(attained, values[0], **EXACT)


def test_uniform_base_makes_zero_reward_a_random_walk() -> None:
    mdp = random_mdp("everything", rng(31))
    zero = torch.zeros(mdp.num_states, 1, dtype=torch.float64)
    log_base = soft_bellman.uniform_base(mdp, torch.float64)
    values = soft_bellman.soft_values(mdp, zero, horizon=6, log_base=log_base)
    torch.testing.assert_close(values, torch.zeros_like(values), **EXACT)
    policy = soft_bellman.log_policy(mdp, values[1], log_base=log_base).exp()[..., 0]
    assert mdp.allowed is not None
    uniform = mdp.allowed.double() / mdp.allowed.sum(1, keepdim=True)
    torch.testing.assert_close(policy[:-1], uniform[:-1], **EXACT)  # the last state is terminal


def corridor(length: int) -> TabularMDP:
    """Left or right along a corridor whose right end is terminal; state 0 cannot be reached from elsewhere."""
    states = torch.arange(length)
    next_state = torch.stack([(states - 1).clamp(min=1), (states + 1).clamp(max=length - 1)], dim=1)[..., None]
    start = torch.zeros(length, dtype=torch.float64)
    start[1] = 1.0
    return TabularMDP(next_state, start, terminal=states == length - 1)


def test_huge_costs_give_the_optimal_values_in_float64() -> None:
    mdp = corridor(12)
    reward = torch.full((12, 1), -100.0 * 1e4, dtype=torch.float64)
    reward[-1] = 0.0
    values = soft_bellman.soft_values(mdp, reward, horizon=400)
    expected = -1e6 * torch.arange(10, -1, -1, dtype=torch.float64)  # steps to the end
    torch.testing.assert_close(values[0, 1:, 0], expected, **EXACT)
    policy = soft_bellman.log_policy(mdp, values[1]).exp()
    assert bool((policy[1:-1, 1, 0] == 1).all())
    visits = soft_bellman.visitation(mdp, reward, horizon=400)
    torch.testing.assert_close(visits[1:, 0], torch.ones(11, dtype=torch.float64), **EXACT)
    assert float(visits[0, 0]) == 0.0


def test_values_too_large_for_the_dtype_are_an_error_that_says_what_to_do() -> None:
    reward = torch.full((12, 1), -1e6)
    with pytest.raises(ValueError, match="use float64"):
        soft_bellman.log_partition(corridor(12), reward, horizon=400)


def test_one_state_one_action_and_short_horizons() -> None:
    mdp = TabularMDP(torch.zeros(1, 1, 1, dtype=torch.int64), torch.ones(1, dtype=torch.float64))
    reward = torch.tensor([[-2.5]], dtype=torch.float64)
    for horizon in (0, 1, 7):
        assert float(soft_bellman.log_partition(mdp, reward, horizon=horizon)[0]) == -2.5 * horizon
        assert float(soft_bellman.visitation(mdp, reward, horizon=horizon)[0, 0]) == horizon
    rollout = soft_bellman.sample(mdp, reward, torch.zeros(2, dtype=torch.int64), rng(), horizon=0)
    assert rollout.states.shape == (2, 1)
    assert rollout.actions.shape == (2, 0)
    assert soft_bellman.optimal_policy(mdp, reward, horizon=0)[1].shape == (0, 1, 1)


def test_a_reward_that_is_a_view_gives_what_its_clone_gives() -> None:
    mdp = random_mdp("stochastic", rng(37))
    buffer = torch.randn(1, 3, generator=rng(2), dtype=torch.float64)
    view = buffer.expand(mdp.num_states, 3).requires_grad_()
    clone = view.detach().clone().requires_grad_()
    values = soft_bellman.log_partition(mdp, view, horizon=5)
    expected = soft_bellman.log_partition(mdp, clone, horizon=5)
    buffer.fill_(7.0)
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(*torch.autograd.grad(values.sum(), view), *torch.autograd.grad(expected.sum(), clone))


@pytest.mark.parametrize(
    ("reward", "problem", "message"),
    [
        (torch.zeros(3, 1), {"horizon": 2}, r"S = 4"),
        (torch.zeros(4), {"horizon": 2}, r"\[S, B\]"),
        (torch.zeros(4, 1, dtype=torch.int64), {"horizon": 2}, "floating-point"),
        (torch.full((4, 1), torch.nan), {"horizon": 2}, r"reward\[0, 0\] is nan"),
        (torch.full((4, 1), -torch.inf), {"horizon": 2}, "must be finite"),
        (torch.zeros(4, 1), {}, "give a horizon"),
        (torch.zeros(4, 1), {"horizon": -1}, "at least 0"),
        (torch.zeros(4, 1), {"horizon": 2, "discount": 1.5}, "discount"),
        (torch.zeros(4, 1), {"horizon": 2, "action_reward": torch.zeros(4, 3)}, "3 dimensions"),
        (torch.zeros(4, 1), {"horizon": 2, "log_base": torch.full((1, 3, 1), -torch.inf)}, "forbid actions"),
    ],
)
def test_bad_problems_are_refused_with_a_reason(reward: Tensor, problem: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        soft_bellman.log_partition(random_mdp("deterministic", rng()), reward, **problem)


def test_a_fixed_point_that_is_not_reached_is_an_error() -> None:
    mdp = random_mdp("deterministic", rng(), S=30)
    with pytest.raises(ConvergenceError, match="after 16 sweeps"):
        soft_bellman.initial_values(mdp, random_reward(mdp, 1, rng(1)), discount=0.999, solver=Solver(max_sweeps=16))


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
    S=st.integers(1, 9),
    A=st.integers(1, 4),
    horizon=st.integers(0, 30),
    discount=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    scale=st.sampled_from([0.0, 1e-6, 1.0, 100.0, 1e6]),
)
def test_nothing_makes_the_engine_give_nan_or_leak_probability(
    kind: str, seed: int, S: int, A: int, horizon: int, discount: float, scale: float
) -> None:
    generator = rng(seed)
    mdp = random_mdp(kind, generator, S=S, A=A)
    reward = random_reward(mdp, 2, generator) * scale
    problem = soft_bellman.Problem(horizon=horizon, discount=discount)
    values = soft_bellman.soft_values(mdp, reward, **problem)
    assert bool(torch.isfinite(values).all())
    visits = soft_bellman.visitation(mdp, reward, **problem)
    assert bool((visits >= 0).all())
    total = sum(discount**t for t in range(horizon))
    if mdp.terminal is None:
        torch.testing.assert_close(visits.sum(0), torch.full((2,), total, dtype=torch.float64))
    else:
        assert bool((visits.sum(0) <= total + 1e-9).all())
    best = soft_bellman.optimal_policy(mdp, reward, **problem)[0]
    freedom = math.log(A) * total + 1e-9 * max(1.0, scale)
    assert bool((best[0] <= values[0] + 1e-9 * max(1.0, scale)).all())
    assert bool((values[0] <= best[0] + freedom).all())
    for t in range(horizon):
        policy = soft_bellman.log_policy(mdp, values[t + 1], discount=discount).exp()
        torch.testing.assert_close(policy.sum(1), torch.ones(S, 2, dtype=torch.float64))
