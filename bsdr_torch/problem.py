"""What a person plans for beside the reward of states: the keyword arguments of the engine, validated."""

from __future__ import annotations

from typing import TypedDict

import torch
from torch import Tensor

from bsdr_torch.mdp import TabularMDP
from bsdr_torch.solver import Solver
from bsdr_torch.sweeps import Backup


class Problem(TypedDict, total=False):
    """What a person plans for, beside the reward of states; the keyword arguments of every function here.

    Attributes:
        horizon: number of actions T; None (the default) for an endless problem, which needs `discount` < 1.
        discount: of the future, per step; 1 by default.
        action_reward: r(s, a), broadcast to `[S, A, B]`.
        log_base: log b(a|s), broadcast likewise. By default the counting measure, for which Z counts every
            action sequence once; with `uniform_base` zero reward means acting at random, also in worlds with
            masks or terminal states.
        pause: `[B]`, the probability that a person does not choose but does the action `stay`, for no reason:
            V_t(s) = r(s) + pause * discount * E[V_{t+1}(s'_stay)] + (1 - pause) log sum_a b(a|s) exp(...).
        stay: that action; 0 by default.
        solver: how it is computed: kernel, memory budget, tolerance, warm start.
    """

    horizon: int | None
    discount: float
    action_reward: Tensor | None
    log_base: Tensor | None
    pause: Tensor | None
    stay: int
    solver: Solver


def tensors(mdp: TabularMDP, reward: Tensor, problem: Problem) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Validates the problem at the door and returns its reward, action term and pauses."""
    if reward.ndim != 2 or reward.shape[0] != mdp.num_states or not reward.dtype.is_floating_point:
        raise ValueError(
            f"reward must be a floating-point tensor [S, B] with S = {mdp.num_states}, "
            f"got {reward.dtype} of shape {tuple(reward.shape)}"
        )
    if not bool(torch.isfinite(reward).all()):
        s, b = (int(i) for i in (~torch.isfinite(reward)).nonzero()[0])
        raise ValueError(f"reward[{s}, {b}] is {float(reward[s, b])}: rewards must be finite")
    horizon, discount = problem.get("horizon"), problem.get("discount", 1.0)
    if horizon is None:
        if not 0.0 <= discount < 1.0:
            raise ValueError(f"a problem without a horizon needs 0 <= discount < 1, got {discount}: give a horizon")
    elif horizon < 0 or not 0.0 <= discount <= 1.0:
        raise ValueError(f"horizon must be at least 0 and discount in [0, 1], got {horizon} and {discount}")
    pause, stay = problem.get("pause"), problem.get("stay", 0)
    if pause is not None:
        if tuple(pause.shape) != (reward.shape[1],) or not bool(((pause >= 0) & (pause <= 1)).all()):
            raise ValueError(
                f"pause must hold {reward.shape[1]} probabilities, one per human, got shape {tuple(pause.shape)} "
                f"with entries {pause.detach().flatten()[:4].tolist()}"
            )
        if not 0 <= stay < mdp.num_actions:
            raise ValueError(f"stay must be one of {mdp.num_actions} actions, got {stay}")
        if mdp.allowed is not None and not bool((mdp.allowed[:, stay] | _ended(mdp)).all()):
            raise ValueError(f"people pause by action {stay}, so it must be allowed wherever the world goes on")
        pause = pause.to(reward.dtype)
    return reward, action_term_of(mdp, reward, problem), pause


def action_term_of(mdp: TabularMDP, like: Tensor, problem: Problem) -> Tensor | None:
    """action_reward + log_base with forbidden actions at -inf, broadcastable to `[S, A, B]`; None if all zero."""
    shape = (mdp.num_states, mdp.num_actions, like.shape[-1])
    total: Tensor | None = None
    for name in ("action_reward", "log_base"):
        term: Tensor | None = problem.get(name)  # type: ignore[assignment]  # mypy joins the types of all keys
        if term is None:
            continue
        if term.ndim != 3 or any(n not in (1, full) for n, full in zip(term.shape, shape, strict=True)):
            raise ValueError(
                f"{name} must have 3 dimensions that broadcast to [S, A, B] = {shape}, got {tuple(term.shape)}"
            )
        if not bool(torch.isfinite(term).all()):
            raise ValueError(f"{name} has entries that are not finite: forbid actions with TabularMDP(allowed=...)")
        total = term.to(like.dtype) if total is None else total + term.to(like.dtype)
    if mdp.allowed is not None:
        # Where the trajectory has ended any action will do: it keeps the softmax there free of NaN.
        allowed = mdp.allowed if mdp.terminal is None else mdp.allowed | mdp.terminal[:, None]
        total = like.new_zeros(1, 1, 1) if total is None else total
        total = torch.where(allowed[..., None], total, -torch.inf)
    return total


def solver_of(problem: Problem) -> Solver:
    """The solver of a problem, or the default."""
    return problem.get("solver") or Solver()


def backup_of(
    mdp: TabularMDP, dtype: torch.dtype, action_term: Tensor | None, pause: Tensor | None, problem: Problem
) -> Backup:
    """The sweep of a problem; autograd does not look into it."""
    term, rho = (None if tensor is None else tensor.detach() for tensor in (action_term, pause))
    stay, kernel = problem.get("stay", 0), solver_of(problem).kernel
    return Backup(mdp, dtype, problem.get("discount", 1.0), term, rho, stay, kernel)


def check_resolution(values: Tensor) -> None:
    """Refuses values so large that their dtype cannot tell one nat from another."""
    if values.numel() == 0:
        return
    largest = float(values.detach().abs().max())
    blur = largest * torch.finfo(values.dtype).eps
    if not blur < 0.1:
        raise ValueError(
            f"values reach {largest:.3g}, where {values.dtype} is off by up to {blur:.2g} nats: "
            f"use {'' if values.dtype == torch.float64 else 'float64, '}a shorter horizon or smaller rewards"
        )


def _ended(mdp: TabularMDP) -> Tensor:
    return torch.zeros_like(mdp.start, dtype=torch.bool) if mdp.terminal is None else mdp.terminal
