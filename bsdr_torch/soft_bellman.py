"""The soft-Bellman recursion on enumerated states, for many humans or hypotheses at once.

With Q_t(s, a) = r(s) + r(s, a) + discount * E[V_{t+1}(s')] and a base measure b over actions,

    V_t(s) = log sum_a b(a|s) exp Q_t(s, a)        pi_t(a|s) = b(a|s) exp(Q_t(s, a) - V_t(s))

so that V_0(s_0) is the log partition function of all action sequences from s_0 (paper, eq. traj-dist).
V_T = 0: a horizon of T means T actions, and the rewards of the states s_0 .. s_{T-1} they are taken in.
Rewards are `[S, B]`, humans or hypotheses in the minor dimension, and everything else follows that layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bsdr_torch.checkpoints import all_values, values_alone
from bsdr_torch.mdp import TabularMDP
from bsdr_torch.problem import Problem, action_term_of, backup_of, check_resolution, solver_of, tensors
from bsdr_torch.solver import Endless, FiniteHorizon, Gradient, endless_values, push_forward
from bsdr_torch.sweeps import Backup, Reduce, hard_max

__all__ = [
    "Problem",
    "Sampled",
    "action_log_probs",
    "initial_values",
    "log_partition",
    "log_policy",
    "optimal_policy",
    "policy_return",
    "sample",
    "soft_values",
    "uniform_base",
    "visitation",
]


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

    Differentiable in the reward, the action reward, the base measure and the pauses, by the adjoint sweep over visits.
    """
    if problem.get("horizon") is None:
        return initial_values(mdp, reward, **problem)[None]
    table: Tensor = _Table.apply(*tensors(mdp, reward, problem), mdp, problem)  # type: ignore[no-untyped-call]  # torch's
    check_resolution(table[0])
    return table


def initial_values(mdp: TabularMDP, reward: Tensor, **problem: Unpack[Problem]) -> Tensor:
    """log Z(s_0) = V_0(s_0) of every first state, `[S, B]`."""
    values: Tensor = _InitialValues.apply(*tensors(mdp, reward, problem), mdp, problem)  # type: ignore[no-untyped-call]  # torch's
    check_resolution(values)
    return values


def log_partition(mdp: TabularMDP, reward: Tensor, **problem: Unpack[Problem]) -> Tensor:
    """The log partition function, averaged over the start distribution, `[B]`.

    Its gradient with respect to the reward is the expected number of visits, which is computed at once, human by human
    within the solver's memory budget, so that nothing but the visits is kept for the backward pass.

    Example:
        >>> coin = TabularMDP(next_state=torch.zeros(1, 2, 1, dtype=torch.int64), start=torch.ones(1))
        >>> log_partition(coin, torch.zeros(1, 1), horizon=3).exp()  # 2 actions, 3 times: 8 sequences
        tensor([8.0000])
    """
    log_z: Tensor = _LogPartition.apply(*tensors(mdp, reward, problem), mdp, problem)  # type: ignore[no-untyped-call]  # torch's
    return log_z


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
    action_term = action_term_of(mdp, next_values, problem)
    backup = Backup(mdp, next_values.dtype, problem.get("discount", 1.0), action_term, kernel="eager")
    log_probs = torch.log_softmax(backup.action_values(next_values), dim=1)
    pause = problem.get("pause")
    return log_probs if pause is None else _pausing(log_probs, pause.to(log_probs.dtype), problem)


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
    action_term = action_term_of(mdp, values[0], problem)
    if action_term is not None:
        S, B = values.shape[1:]
        logits = logits + action_term.expand(S, mdp.num_actions, B)[states, :, humans]
    log_probs = torch.log_softmax(logits, dim=1)
    pause = problem.get("pause")
    return log_probs if pause is None else _pausing(log_probs, pause.to(log_probs.dtype)[humans], problem)


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
    and pauses have no part in it.
    """
    backup, solver = _without_habit(mdp, reward, problem), solver_of(problem)
    horizon = problem.get("horizon")
    if horizon is None:
        values = endless_values(backup, reward, hard_max, solver)[None]
        after = values
    else:
        values = reward.new_zeros(horizon + 1, *reward.shape)
        for t in range(horizon - 1, -1, -1):
            values[t] = backup.reduced(reward, values[t + 1], hard_max)
        after = values[1:]
    actions = torch.empty(after.shape, dtype=torch.int64, device=reward.device)
    for t, next_values in enumerate(after):
        actions[t] = backup.action_values(next_values).argmax(1)
    check_resolution(values[0])
    return values, actions


@torch.no_grad()
def policy_return(mdp: TabularMDP, reward: Tensor, actions: Tensor, **problem: Unpack[Problem]) -> Tensor:
    """Expected sum of rewards `[S, B]` from every first state when acting by `actions` of `optimal_policy`."""
    backup, solver = _without_habit(mdp, reward, problem), solver_of(problem)

    def following(step: int) -> Reduce:
        return lambda action_values: action_values.gather(1, actions[step][:, None]).squeeze(1)

    horizon = problem.get("horizon")
    if horizon is None:
        return endless_values(backup, reward, following(0), solver)
    values = torch.zeros_like(reward)
    for t in range(horizon - 1, -1, -1):
        values = backup.reduced(reward, values, following(t))
    return values


class _Table(torch.autograd.Function):
    """All V_t. Keeps nothing but them; the backward pass is one forward sweep of the policy."""

    @staticmethod
    def forward(
        ctx: Any, reward: Tensor, action_term: Tensor | None, pause: Tensor | None, mdp: TabularMDP, problem: Problem
    ) -> Tensor:
        horizon = problem["horizon"]
        assert horizon is not None
        table = all_values(backup_of(mdp, reward.dtype, action_term, pause, problem), reward.contiguous(), horizon)
        ctx.save_for_backward(table, action_term, pause)
        ctx.mdp, ctx.problem = mdp, problem
        return table

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        table, action_term, pause = ctx.saved_tensors
        backup = backup_of(ctx.mdp, table.dtype, action_term, pause, ctx.problem)
        gradient = push_forward(backup, table[1:], grad[0].clone(), *_wanted(ctx, action_term), added=grad[1:])
        return *_reduced(gradient, action_term), None, None


class _InitialValues(torch.autograd.Function):
    """V_0 of all states. Keeps what the gradient needs where the memory budget holds it for all humans at once.

    Elsewhere it keeps nothing but the problem, and the backward pass solves it again, chunk by chunk of humans.
    """

    @staticmethod
    def forward(
        ctx: Any, reward: Tensor, action_term: Tensor | None, pause: Tensor | None, mdp: TabularMDP, problem: Problem
    ) -> Tensor:
        parts = _parts(reward, action_term, pause, problem)
        if not any(ctx.needs_input_grad[:3]):
            return torch.cat([_values_alone(part, mdp, problem) for part in parts], dim=1)
        ctx.save_for_backward(action_term, pause)
        ctx.mdp, ctx.problem, ctx.reward = mdp, problem, None
        chunks = len(solver_of(problem).chunks(problem.get("horizon"), reward))
        if chunks == 1 or problem.get("horizon") is None:
            ctx.solutions = [_solution(part, mdp, problem) for part in parts]
            return torch.cat([solution.initial for solution in ctx.solutions], dim=1)
        ctx.reward = reward.clone()  # its owner may reuse the memory
        return torch.cat([_values_alone(part, mdp, problem) for part in parts], dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        action_term, pause = ctx.saved_tensors  # complains if somebody wrote to what the solution shares
        like = grad if ctx.reward is None else ctx.reward
        gradients = []
        for i, part in enumerate(_parts(like, action_term, pause, ctx.problem)):
            solution = ctx.solutions[i] if ctx.reward is None else _solution(part, ctx.mdp, ctx.problem)
            gradients.append(solution.gradient(grad[:, part.humans].contiguous(), *_wanted(ctx, part.action_term)))
        return *_reduced(_joined(gradients), action_term), None, None


class _LogPartition(torch.autograd.Function):
    """log Z from the start distribution: of one number per human, so that the gradient can be computed beforehand."""

    @staticmethod
    def forward(
        ctx: Any, reward: Tensor, action_term: Tensor | None, pause: Tensor | None, mdp: TabularMDP, problem: Problem
    ) -> Tensor:
        start = mdp.start.to(reward.dtype)
        log_z: list[Tensor] = []
        gradients: list[Gradient] = []
        for part in _parts(reward, action_term, pause, problem):
            if any(ctx.needs_input_grad[:3]):
                solution = _solution(part, mdp, problem)
                values, weight = solution.initial, start[:, None].expand_as(part.reward).contiguous()
                gradients.append(solution.gradient(weight, *_wanted(ctx, part.action_term)))
            else:
                values = _values_alone(part, mdp, problem)
            check_resolution(values)
            log_z.append(start @ values)
        ctx.set_materialize_grads(False)
        if gradients:
            ctx.save_for_backward(*_joined(gradients))
        ctx.term_shape = None if action_term is None else action_term.shape
        return torch.cat(log_z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 5
        visits, taken, paused = ctx.saved_tensors
        return (
            visits * grad,
            None if taken is None else (taken * grad).sum_to_size(ctx.term_shape),
            None if paused is None else paused * grad,
            None,
            None,
        )


class _Part(NamedTuple):
    """A problem for the humans of some columns, as contiguous tables."""

    humans: slice
    reward: Tensor
    action_term: Tensor | None
    pause: Tensor | None


def _parts(reward: Tensor, action_term: Tensor | None, pause: Tensor | None, problem: Problem) -> Iterator[_Part]:
    """The problem in chunks of humans that fit the memory budget; one of no humans where there are none."""
    for humans in solver_of(problem).chunks(problem.get("horizon"), reward):
        yield _Part(
            humans,
            reward[:, humans].contiguous(),
            action_term if action_term is None or action_term.shape[2] == 1 else action_term[..., humans],
            None if pause is None else pause[humans],
        )


def _joined(gradients: list[Gradient]) -> Gradient:
    """The gradient of all humans from those of chunks."""
    visits, taken, paused = (None if g[0] is None else torch.cat(g, -1) for g in zip(*gradients, strict=True))
    assert visits is not None
    return Gradient(visits, taken, paused)


def _solution(part: _Part, mdp: TabularMDP, problem: Problem) -> FiniteHorizon | Endless:
    backup, horizon = _backup(part, mdp, problem), problem.get("horizon")
    if horizon is None:
        return Endless(backup, part.reward, solver_of(problem), part.humans.start)
    return FiniteHorizon(backup, part.reward, horizon, solver_of(problem))


def _values_alone(part: _Part, mdp: TabularMDP, problem: Problem) -> Tensor:
    """V_0 `[S, B]` where no gradient is asked for."""
    horizon = problem.get("horizon")
    if horizon is None:
        return _solution(part, mdp, problem).initial
    return values_alone(_backup(part, mdp, problem), part.reward, horizon)


def _backup(part: _Part, mdp: TabularMDP, problem: Problem) -> Backup:
    return backup_of(mdp, part.reward.dtype, part.action_term, part.pause, problem)


def _wanted(ctx: Any, action_term: Tensor | None) -> tuple[Tensor | None, bool]:
    """What the gradient is asked for beside the reward's: that of the action term, that of the pauses."""
    return (action_term if ctx.needs_input_grad[1] else None), ctx.needs_input_grad[2]


def _reduced(gradient: Gradient, action_term: Tensor | None) -> tuple[Tensor | None, ...]:
    """The gradient in the shapes of the inputs."""
    taken = None if gradient.taken is None or action_term is None else gradient.taken.sum_to_size(action_term.shape)
    return gradient.visits, taken, gradient.paused


def _without_habit(mdp: TabularMDP, reward: Tensor, problem: Problem) -> Backup:
    """The backup of a problem in which neither the base measure nor pauses have a part."""
    problem["log_base"] = problem["pause"] = None
    action_term = tensors(mdp, reward, problem)[1]
    return Backup(mdp, reward.dtype, problem.get("discount", 1.0), action_term, kernel="eager")


def _pausing(log_probs: Tensor, pause: Tensor, problem: Problem) -> Tensor:
    """The choice `[S, A, B]` or `[N, A]` mixed with pauses `[B]` or `[N]`."""
    stays = torch.zeros(log_probs.shape[1], dtype=torch.bool, device=log_probs.device)
    stays[problem.get("stay", 0)] = True
    stays = stays.view(1, -1, *[1] * (log_probs.ndim - 2))
    pause = pause if log_probs.ndim == 3 else pause[:, None]
    return torch.where(
        stays, torch.logaddexp(log_probs + torch.log1p(-pause), pause.log()), log_probs + torch.log1p(-pause)
    )


def _outcome(mdp: TabularMDP, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
    """The next state of each row, `[N]`."""
    choices = mdp.next_state[states, actions].long()  # [N, K]
    if mdp.probability is None:
        return choices[:, 0]
    row = actions if mdp.probability.shape[1] > 1 else torch.zeros_like(actions)
    k = torch.multinomial(mdp.probability[states, row], 1, generator=generator)
    return choices.gather(1, k).squeeze(1)
