"""The soft-Bellman recursion on enumerated states, for many humans or hypotheses at once.

With Q_t(s, a) = r(s) + r(s, a) + discount * E[V_{t+1}(s')] and a base measure b over actions,

    V_t(s) = log sum_a b(a|s) exp Q_t(s, a)        pi_t(a|s) = b(a|s) exp(Q_t(s, a) - V_t(s))

so that V_0(s_0) is the log partition function of all action sequences from s_0 (paper, eq. traj-dist).
V_T = 0: a horizon of T means T actions, and the rewards of the states s_0 .. s_{T-1} they are taken in.
Rewards are `[S, B]`, humans or hypotheses in the minor dimension, and everything else follows that layout.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bsdr_torch.mdp import TabularMDP
from bsdr_torch.sweeps import Backup, Reduce, hard_max, iterate


class Problem(TypedDict, total=False):
    """What a person plans for, beside the reward of states; the keyword arguments of every function here.

    Attributes:
        horizon: number of actions T; None (the default) for an endless problem, which needs `discount` < 1.
        discount: of the future, per step; 1 by default.
        action_reward: r(s, a), broadcast to `[S, A, B]`.
        log_base: log b(a|s), broadcast likewise. By default the counting measure, for which Z counts every
            action sequence once; with `uniform_base` zero reward means acting at random, also in worlds with
            masks or terminal states.
    """

    horizon: int | None
    discount: float
    action_reward: Tensor | None
    log_base: Tensor | None


class Sampled(NamedTuple):
    """Rollouts: `states [N, T+1]` and `actions [N, T]`, -1 after a terminal state was entered."""

    states: Tensor
    actions: Tensor


def uniform_base(mdp: TabularMDP, dtype: torch.dtype = torch.float32) -> Tensor:
    """Log of the uniform distribution over the allowed actions, `[S, A, 1]` (`[1, A, 1]` without masks)."""
    if mdp.allowed is None:
        weight = torch.ones(1, mdp.num_actions, dtype=dtype, device=mdp.device)
    else:
        weight = mdp.allowed.to(dtype)
    return -weight.sum(1, keepdim=True).clamp(min=1).log().expand_as(weight)[..., None]


def soft_values(mdp: TabularMDP, reward: Tensor, **problem: Unpack[Problem]) -> Tensor:
    """V_t(s) for all t, `[T+1, S, B]`; `[1, S, B]`, the fixed point, when there is no horizon.

    Differentiable in the reward, the action reward and the base measure, by the adjoint sweep over visits.
    """
    if problem.get("horizon") is None:
        return initial_values(mdp, reward, **problem)[None]
    table = _finite_horizon(mdp, reward, problem)[1]
    _check_resolution(table[0])
    return table


def initial_values(mdp: TabularMDP, reward: Tensor, **problem: Unpack[Problem]) -> Tensor:
    """log Z(s_0) = V_0(s_0) of every first state, `[S, B]`."""
    if problem.get("horizon") is None:
        action_term, discount = _check_problem(mdp, reward, problem), problem.get("discount", 1.0)
        values: Tensor = _FixedPoint.apply(reward, action_term, mdp, discount)  # type: ignore[no-untyped-call]  # torch's
    else:
        values = _finite_horizon(mdp, reward, problem)[0]
    _check_resolution(values)
    return values


def log_partition(mdp: TabularMDP, reward: Tensor, **problem: Unpack[Problem]) -> Tensor:
    """The log partition function, averaged over the start distribution, `[B]`.

    Its gradient with respect to the reward is the expected number of visits.

    Example:
        >>> coin = TabularMDP(next_state=torch.zeros(1, 2, 1, dtype=torch.int64), start=torch.ones(1))
        >>> log_partition(coin, torch.zeros(1, 1), horizon=3).exp()  # 2 actions, 3 times: 8 sequences
        tensor([8.0000])
    """
    return mdp.start.to(reward.dtype) @ initial_values(mdp, reward, **problem)


def visitation(mdp: TabularMDP, reward: Tensor, **problem: Unpack[Problem]) -> Tensor:
    """Expected (discounted) number of visits to every state, `[S, B]`, from the start distribution."""
    with torch.enable_grad():
        leaf = reward.detach().requires_grad_()
        (visits,) = torch.autograd.grad(log_partition(mdp, leaf, **problem).sum(), leaf)
    return visits


def log_policy(mdp: TabularMDP, next_values: Tensor, **problem: Unpack[Problem]) -> Tensor:
    """log pi(a|s) `[S, A, B]` of somebody whose values after the action are `next_values [S, B]`.

    At a terminal state, where no action is taken, it is what would be done if one were.
    """
    backup = Backup(mdp, next_values.dtype, problem.get("discount", 1.0), _action_term(mdp, next_values, problem))
    return torch.log_softmax(backup.action_values(next_values), dim=1)


def action_log_probs(
    mdp: TabularMDP, values: Tensor, states: Tensor, humans: Tensor, steps: Tensor, **problem: Unpack[Problem]
) -> Tensor:
    """log pi_t(a|s) `[N, A]` at the given states, humans (columns of `values`) and steps, all `[N]`.

    `values` is what `soft_values` returned for the same problem. Looks only at the rows asked for, so that
    a few predictions in a large world are cheap.
    """
    after = torch.zeros_like(steps) if problem.get("horizon") is None else steps + 1
    logits = values[after[:, None, None], mdp.next_state[states].long(), humans[:, None, None]]  # [N, A, K]
    if mdp.probability is not None:
        logits = logits * mdp.probability[states].to(values.dtype)
    logits = logits.sum(2) * problem.get("discount", 1.0)
    action_term = _action_term(mdp, values[0], problem)
    if action_term is not None:
        S, B = values.shape[1:]
        logits = logits + action_term.expand(S, mdp.num_actions, B)[states, :, humans]
    return torch.log_softmax(logits, dim=1)


@torch.no_grad()
def sample(
    mdp: TabularMDP,
    reward: Tensor,
    humans: Tensor,
    generator: torch.Generator,
    *,
    steps: int | None = None,
    **problem: Unpack[Problem],
) -> Sampled:
    """One rollout for each entry of `humans [N]` (columns of `reward`), from the start distribution.

    `steps` is its length; by default the horizon.
    """
    length = problem.get("horizon") if steps is None else steps
    if length is None:
        raise ValueError("sampling a problem without a horizon needs `steps`, the length of a rollout")
    values = soft_values(mdp, reward, **problem)
    states = torch.full((humans.shape[0], length + 1), -1, dtype=torch.int64, device=mdp.device)
    actions = torch.full((humans.shape[0], length), -1, dtype=torch.int64, device=mdp.device)
    current = torch.multinomial(mdp.start, humans.shape[0], replacement=True, generator=generator)
    alive = torch.ones_like(current, dtype=torch.bool)
    for t in range(length):
        states[:, t] = torch.where(alive, current, -1)
        if mdp.terminal is not None:
            alive = alive & ~mdp.terminal[current]
        probs = action_log_probs(mdp, values, current, humans, torch.full_like(current, t), **problem).exp()
        action = torch.multinomial(probs, 1, generator=generator).squeeze(1)
        actions[:, t] = torch.where(alive, action, -1)
        current = _outcome(mdp, current, action, generator)
    states[:, length] = torch.where(alive, current, -1)
    return Sampled(states, actions)


@torch.no_grad()
def optimal_policy(mdp: TabularMDP, reward: Tensor, **problem: Unpack[Problem]) -> tuple[Tensor, Tensor]:
    """Hard value iteration: the best values `[T+1, S, B]` and an action that attains them `[T, S, B]`.

    Without a horizon both have a leading dimension of 1. Ties go to the first action. The base measure
    has no part in it.
    """
    problem["log_base"] = None
    backup = Backup(mdp, reward.dtype, problem.get("discount", 1.0), _check_problem(mdp, reward, problem))
    horizon = problem.get("horizon")
    if horizon is None:
        values = backup.fixed_point(reward, hard_max)[None]
        after = values
    else:
        values = backup.table(reward, horizon, hard_max)
        after = values[1:]
    actions = torch.empty(after.shape, dtype=torch.int64, device=reward.device)
    for t, next_values in enumerate(after):
        actions[t] = backup.action_values(next_values).argmax(1)
    _check_resolution(values[0])
    return values, actions


@torch.no_grad()
def policy_return(mdp: TabularMDP, reward: Tensor, actions: Tensor, **problem: Unpack[Problem]) -> Tensor:
    """Expected sum of rewards `[S, B]` from every first state when acting by `actions` of `optimal_policy`."""
    problem["log_base"] = None
    backup = Backup(mdp, reward.dtype, problem.get("discount", 1.0), _check_problem(mdp, reward, problem))

    def following(step: int) -> Reduce:
        return lambda action_values: action_values.gather(1, actions[step][:, None]).squeeze(1)

    horizon = problem.get("horizon")
    if horizon is None:
        return backup.fixed_point(reward, following(0))
    values = torch.zeros_like(reward)
    for t in range(horizon - 1, -1, -1):
        values = backup.sweep(reward, values, following(t))
    return values


class _FiniteHorizon(torch.autograd.Function):
    """(V_0, table of all V_t). Keeps the table only; the backward pass is one forward sweep of the policy."""

    @staticmethod
    def forward(
        ctx: Any, reward: Tensor, action_term: Tensor | None, mdp: TabularMDP, horizon: int, discount: float
    ) -> tuple[Tensor, Tensor]:
        table = Backup(mdp, reward.dtype, discount, action_term).table(reward, horizon)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(table, action_term)
        ctx.mdp, ctx.discount = mdp, discount
        return table[0].clone(), table

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, initial_grad: Tensor | None, table_grad: Tensor | None) -> tuple[Tensor | None, ...]:
        table, action_term = ctx.saved_tensors
        backup = Backup(ctx.mdp, table.dtype, ctx.discount, action_term)
        weight = torch.zeros_like(table[0]) if initial_grad is None else initial_grad
        if table_grad is not None:
            weight = weight + table_grad[0]
        visits, taken = torch.zeros_like(weight), None
        for t in range(table.shape[0] - 1):
            visits += weight
            flow = backup.outflow(table[t + 1], weight)
            if ctx.needs_input_grad[1]:
                taken = flow if taken is None else taken + flow
            weight = backup.arrivals(flow)
            if table_grad is not None:
                weight += table_grad[t + 1]
        return visits, _sum_to(taken, action_term), None, None, None


class _FixedPoint(torch.autograd.Function):
    """V of an endless discounted problem, with the implicit gradient: the adjoint is a fixed point too."""

    @staticmethod
    def forward(ctx: Any, reward: Tensor, action_term: Tensor | None, mdp: TabularMDP, discount: float) -> Tensor:
        values = Backup(mdp, reward.dtype, discount, action_term).fixed_point(reward)
        ctx.save_for_backward(values, action_term)
        ctx.mdp, ctx.discount = mdp, discount
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, action_term = ctx.saved_tensors
        backup = Backup(ctx.mdp, values.dtype, ctx.discount, action_term)
        policy = backup.outflow(values, torch.ones_like(values))
        visits = iterate(lambda weight: grad + backup.arrivals(policy * weight[:, None]), grad)
        taken = policy * visits[:, None] if ctx.needs_input_grad[1] else None
        return visits, _sum_to(taken, action_term), None, None


def _finite_horizon(mdp: TabularMDP, reward: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
    action_term = _check_problem(mdp, reward, problem)
    out: tuple[Tensor, Tensor] = _FiniteHorizon.apply(  # type: ignore[no-untyped-call]  # torch's own gap
        reward, action_term, mdp, problem["horizon"], problem.get("discount", 1.0)
    )
    return out


def _sum_to(grad: Tensor | None, like: Tensor | None) -> Tensor | None:
    """Undoes the broadcasting of `like` to `[S, A, B]`."""
    if like is None or grad is None:
        return None
    return grad.sum_to_size(like.shape)


def _outcome(mdp: TabularMDP, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
    """The next state of each row, `[N]`."""
    choices = mdp.next_state[states, actions].long()  # [N, K]
    if mdp.probability is None:
        return choices[:, 0]
    row = actions if mdp.probability.shape[1] > 1 else torch.zeros_like(actions)
    k = torch.multinomial(mdp.probability[states, row], 1, generator=generator)
    return choices.gather(1, k).squeeze(1)


def _action_term(mdp: TabularMDP, like: Tensor, problem: Problem) -> Tensor | None:
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


def _check_problem(mdp: TabularMDP, reward: Tensor, problem: Problem) -> Tensor | None:
    """Validates the problem at the door and returns its action term."""
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
    return _action_term(mdp, reward, problem)


def _check_resolution(values: Tensor) -> None:
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
