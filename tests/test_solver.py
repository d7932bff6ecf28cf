"""Every path of the engine gives what the plain one gives: kernels, checkpoints, chunks, starts, threads."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bsdr_torch import native, soft_bellman
from bsdr_torch.benchmarks.soft_bellman import grid
from bsdr_torch.fixed_point import ConvergenceError, fixed_point
from bsdr_torch.mdp import TabularMDP
from bsdr_torch.solver import Solver, WarmStart
from bsdr_torch.sweeps import Backup
from tests.oracle import KINDS, random_mdp

PLAIN = Solver("eager", memory_budget=2**40)
PATHS = {
    "native": Solver("native", memory_budget=2**40),
    "native, checkpoints and chunks": Solver("native", memory_budget=0),
    "native, chunks": Solver("native", memory_budget=16 * 7 * 9 * 8),  # 16 humans, 7 steps, 9 states
    "eager, checkpoints and chunks": Solver("eager", memory_budget=0),
}


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def solved(
    mdp: TabularMDP, B: int, solver: Solver, dtype: torch.dtype, *, horizon: int | None, pause: bool = False
) -> dict[str, Tensor]:
    """log Z, V_0 and the gradients of both to everything they depend on."""
    S, A = mdp.num_states, mdp.num_actions
    generator = rng(5)
    inputs = {
        "reward": torch.randn(S, B, generator=generator, dtype=torch.float64),
        "action_reward": torch.randn(S, A, 1, generator=generator, dtype=torch.float64),
        "log_base": torch.randn(1, A, B, generator=generator, dtype=torch.float64),
    }
    if pause:
        inputs["pause"] = torch.rand(B, generator=generator, dtype=torch.float64)
    cotangents = [torch.randn(n, generator=generator, dtype=torch.float64).to(dtype) for n in ((B,), (S, B))]
    inputs = {name: value.to(dtype).requires_grad_() for name, value in inputs.items()}
    out = {}
    for name, cotangent in zip(("log_partition", "initial_values"), cotangents, strict=True):
        result = getattr(soft_bellman, name)(mdp, **inputs, horizon=horizon, discount=0.9, stay=A - 1, solver=solver)
        out[name] = result.detach()
        if horizon != 0:
            gradients = torch.autograd.grad(result, list(inputs.values()), cotangent)
            out |= {f"{name} to {k}": g for k, g in zip(inputs, gradients, strict=True)}
    return out


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("horizon", [0, 1, 2, 7, None])
def test_every_path_gives_the_values_and_gradients_of_the_plain_one(path: str, kind: str, horizon: int | None) -> None:
    mdp = random_mdp(kind, rng(2), S=9, A=4, K=3)
    for B in (1, 3, 37):
        expected = solved(mdp, B, PLAIN, torch.float64, horizon=horizon)
        actual = solved(mdp, B, PATHS[path], torch.float64, horizon=horizon)
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_path_agrees_in_float32_up_to_rounding(path: str, kind: str) -> None:
    mdp = random_mdp(kind, rng(2), S=9, A=4, K=3)
    expected = solved(mdp, 20, PLAIN, torch.float64, horizon=7)
    actual = solved(mdp, 20, PATHS[path], torch.float32, horizon=7)
    torch.testing.assert_close({k: v.double() for k, v in actual.items()}, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS)
def test_worlds_whose_actions_lead_to_neighbours_give_what_the_plain_path_gives(path: str, kind: str) -> None:
    mdp = neighbours(random_mdp(kind, rng(2), S=70, A=5, K=3))
    for B in (1, 3, 37):
        for pause in (False, True):
            problem = soft_bellman.Problem(horizon=7, discount=0.9, stay=0)
            if pause:
                problem["pause"] = torch.rand(B, generator=rng(6), dtype=torch.float64)
            reward = torch.randn(70, B, generator=rng(5), dtype=torch.float64)
            expected = soft_bellman.visitation(mdp, reward, **problem, solver=PLAIN)
            actual = soft_bellman.visitation(mdp, reward, **problem, solver=PATHS[path])
            torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def neighbours(mdp: TabularMDP) -> TabularMDP:
    """The same world where an action leads at most two states further, so that the adjoint is one pass."""
    states = torch.arange(mdp.num_states)[:, None, None]
    near = (states + mdp.next_state % 5 - 2).clamp(0, mdp.num_states - 1)
    start = torch.zeros_like(mdp.start)
    start[mdp.num_states // 2] = 1.0  # most states are not reached, which is a case of its own
    return TabularMDP(near, start, mdp.probability, mdp.terminal, mdp.allowed)


def test_compiled_sweeps_give_what_the_plain_ones_give() -> None:
    mdp = random_mdp("everything", rng(2), S=9, A=4)
    expected = solved(mdp, 5, PLAIN, torch.float64, horizon=3)
    actual = solved(mdp, 5, Solver("compiled"), torch.float64, horizon=3)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kernel", ["eager", "native"])
@pytest.mark.parametrize(("kind", "horizon"), [("shared", 3), ("terminal", 3), ("deterministic", None)])
def test_pauses_follow_the_choice_rule_written_out_in_torch(kernel: str, kind: str, horizon: int | None) -> None:
    mdp = random_mdp(kind, rng(3), S=6, A=3)
    S, B, stay, discount = 6, 2, 1, 0.8
    reward = torch.randn(S, B, generator=rng(4), dtype=torch.float64).requires_grad_()
    log_base = torch.randn(1, 3, B, generator=rng(5), dtype=torch.float64).requires_grad_()
    pause = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    chance = torch.ones(S, 1, 1, dtype=torch.float64) if mdp.probability is None else mdp.probability
    values = torch.zeros(S, B, dtype=torch.float64)
    for _ in range(200 if horizon is None else horizon):
        after = values
        expected = discount * (after[mdp.next_state.long()] * chance[..., None]).sum(2)
        future = pause * expected[:, stay] + (1 - pause) * torch.logsumexp(expected + log_base, 1)
        values = reward + (future if mdp.terminal is None else future * ~mdp.terminal[:, None])
    problem = soft_bellman.Problem(
        horizon=horizon, discount=discount, log_base=log_base, pause=pause, stay=stay, solver=Solver(kernel)
    )
    inputs = (reward, log_base, pause)
    exact = {"rtol": 0.0, "atol": 1e-9}
    log_z = soft_bellman.log_partition(mdp, reward, **problem)
    torch.testing.assert_close(log_z, mdp.start @ values, **exact)
    ours = torch.autograd.grad(log_z.sum(), inputs)
    torch.testing.assert_close(ours, torch.autograd.grad((mdp.start @ values).sum(), inputs), **exact)
    assert torch.autograd.gradcheck(
        lambda *x: soft_bellman.soft_values(mdp, x[0], **problem | {"log_base": x[1], "pause": x[2]}), inputs
    )
    chosen = torch.softmax((expected + log_base).detach(), 1)
    policy = soft_bellman.log_policy(mdp, after.detach(), **problem).exp()
    torch.testing.assert_close(policy[:, 0], ((1 - pause) * chosen[:, 0]).detach())
    torch.testing.assert_close(policy[:, stay], (pause + (1 - pause) * chosen[:, stay]).detach())


def test_pauses_that_make_no_sense_are_refused() -> None:
    allowed = torch.tensor([[True, True, True]] * 3 + [[True, True, False]])
    mdp = TabularMDP(torch.zeros(4, 3, 1, dtype=torch.int64), torch.full((4,), 0.25), allowed=allowed)
    reward = torch.zeros(4, 2)
    for pause, stay, message in (
        (torch.zeros(3), 0, "one per human"),
        (torch.tensor([0.5, 1.5]), 0, "probabilities"),
        (torch.zeros(2), 5, "one of 3 actions"),
        (torch.zeros(2), 2, "must be allowed"),
    ):
        with pytest.raises(ValueError, match=message):
            soft_bellman.log_partition(mdp, reward, horizon=2, pause=pause, stay=stay)


def test_a_view_of_memory_that_is_reused_gives_what_its_clone_gives_with_checkpoints() -> None:
    mdp = random_mdp("stochastic", rng(37))
    for function in (soft_bellman.initial_values, soft_bellman.log_partition):
        buffer = torch.randn(1, 20, generator=rng(2), dtype=torch.float64)
        view = buffer.expand(mdp.num_states, 20).requires_grad_()
        clone = view.detach().clone().requires_grad_()
        values = function(mdp, view, horizon=7, solver=Solver(memory_budget=0))
        expected = function(mdp, clone, horizon=7)
        buffer.fill_(7.0)
        actual = torch.autograd.grad(values.sum(), view)
        torch.testing.assert_close(actual, torch.autograd.grad(expected.sum(), clone))


@pytest.mark.parametrize("near", [False, True])
def test_the_number_of_threads_does_not_change_a_single_bit(near: bool) -> None:
    mdp = random_mdp("shared", rng(1), S=3500, A=3, K=4)  # S x B is enough for threads to start
    mdp = neighbours(mdp) if near else mdp
    reward = torch.randn(3500, 20, generator=rng(2))
    threads = torch.get_num_threads()
    try:
        visits = []
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            visits.append(soft_bellman.visitation(mdp, reward, horizon=5, solver=Solver("native")))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(visits[0], visits[1])
    assert torch.equal(visits[0], visits[2])


def test_acceleration_saves_most_of_the_sweeps() -> None:
    mdp = grid(400)
    reward = torch.randn(400, 3, generator=rng(1))
    backup = Backup(mdp, reward.dtype, 0.99, None)
    done = 0

    def sweep(values: Tensor, out: Tensor) -> Tensor:
        nonlocal done
        done += 1
        return backup.sweep(reward, values, out)

    fixed_point(sweep, reward, "largest", None, 10_000)
    plain = math.log(torch.finfo(reward.dtype).eps) / math.log(0.99)  # sweeps until 0.99 ** n is at rounding level
    assert done < plain / 3


def test_a_warm_start_saves_sweeps_and_changes_nothing() -> None:
    mdp, warm = grid(100), WarmStart()
    reward = torch.randn(100, 3, generator=rng(1), dtype=torch.float64)
    cold = soft_bellman.visitation(mdp, reward, discount=0.99)
    soft_bellman.visitation(mdp, reward + 1e-6, discount=0.99, solver=Solver(warm_start=warm))
    visits = soft_bellman.visitation(mdp, reward, discount=0.99, solver=Solver(warm_start=warm))
    torch.testing.assert_close(visits, cold, rtol=0.0, atol=1e-9)
    again = Solver(warm_start=warm, max_sweeps=8, tolerance=1e-12)
    torch.testing.assert_close(soft_bellman.visitation(mdp, reward, discount=0.99, solver=again), cold)
    with pytest.raises(ConvergenceError, match="after 8 sweeps"):
        soft_bellman.visitation(mdp, reward, discount=0.99, solver=Solver(max_sweeps=8, tolerance=1e-12))
    other = soft_bellman.log_partition(mdp, reward[:, :2], discount=0.99, solver=Solver(warm_start=warm))
    torch.testing.assert_close(other, soft_bellman.log_partition(mdp, reward[:, :2], discount=0.99))


def test_a_loose_tolerance_is_met_and_not_more() -> None:
    mdp = grid(100)
    reward = torch.randn(100, 2, generator=rng(1), dtype=torch.float64)
    exact = soft_bellman.initial_values(mdp, reward, discount=0.99)
    loose = soft_bellman.initial_values(mdp, reward, discount=0.99, solver=Solver(tolerance=1e-4))
    error = float((loose - exact).abs().max() / exact.abs().max())
    assert 1e-12 < error < 1e-4 / (1 - 0.99)


def test_the_safeguard_reaches_fixed_points_that_mislead_extrapolation() -> None:
    kinked = torch.tensor([[1.0, 50.0], [-3.0, 2.0]], dtype=torch.float64)

    def step(x: Tensor, out: Tensor) -> Tensor:
        return out.copy_(0.97 * torch.where(x.flip(0) > 3, 6 - x.flip(0), x.flip(0)).abs() + kinked.sign())

    solution = fixed_point(step, kinked * 100, "largest", None, 20_000)
    torch.testing.assert_close(step(solution, torch.empty_like(solution)), solution, rtol=1e-12, atol=1e-12)


def test_without_a_compiler_torch_does_the_work_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mdp, reward = random_mdp("stochastic", rng(1)), torch.ones(4, 2, dtype=torch.float64)
    expected = soft_bellman.log_partition(mdp, reward, horizon=4)
    monkeypatch.setenv("CXX", "/no/such/compiler")
    native._library.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                torch.testing.assert_close(soft_bellman.log_partition(mdp, reward, horizon=4), expected)
        assert [record.message for record in caplog.records if "compiler" in record.message] == [
            "no C++ compiler that works was found, so sweeps run in plain torch: right, but slower"
        ]
        with pytest.raises(ValueError, match="needs a C\\+\\+ compiler"):
            soft_bellman.log_partition(mdp, reward, horizon=4, solver=Solver("native"))
    finally:
        native._library.cache_clear()


def test_the_library_is_compiled_once_for_a_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native._library.cache_clear()
    try:
        assert native.available(torch.device("cpu"), torch.float32)
        (made,) = (tmp_path / "bsdr_torch").iterdir()
        written = made.stat().st_mtime_ns
        native._library.cache_clear()
        assert native.available(torch.device("cpu"), torch.float64)
        assert [(path, path.stat().st_mtime_ns) for path in (tmp_path / "bsdr_torch").iterdir()] == [(made, written)]
    finally:
        native._library.cache_clear()
