"""One soft-Bellman backup and its adjoint, on tables `[S, B]` with humans in the minor dimension."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bsdr_torch.mdp import TabularMDP

MAX_SWEEPS = 200_000
_SWEEPS_PER_CHECK = 8

Reduce = Callable[[Tensor], Tensor]
"""From the values of all actions `[S, A, B]` to the value of the choice `[S, B]`."""


class ConvergenceError(RuntimeError):
    """A fixed point was not reached."""


def soft_max(action_values: Tensor) -> Tensor:
    """log sum_a exp."""
    return torch.logsumexp(action_values, dim=1)


def hard_max(action_values: Tensor) -> Tensor:
    """max_a."""
    return action_values.amax(dim=1)


class Backup:
    """What every sweep of one problem shares: its transitions, discount and action term.

    `action_term` is the sum of the action rewards and the log base measure, with -inf where an action is
    forbidden, `[S or 1, A, B or 1]`, or None.
    """

    def __init__(self, mdp: TabularMDP, dtype: torch.dtype, discount: float, action_term: Tensor | None) -> None:
        self.discount = discount
        self.action_term = action_term
        self._shape = (mdp.num_states, mdp.num_actions)
        # One entry per outcome: [S * A] and [S, A or 1, 1].
        self._next_state = [column.reshape(-1) for column in mdp.next_state.unbind(2)]
        probability = mdp.probability
        self._probability = None if probability is None else [p[..., None] for p in probability.to(dtype).unbind(2)]
        self._terminal = None if mdp.terminal is None else mdp.terminal[:, None]

    def action_values(self, next_values: Tensor) -> Tensor:
        """discount * E[V(s')] + action term, `[S, A, B]`; never holds all outcomes at once."""
        S, A = self._shape
        if self._probability is None:
            expected = next_values.index_select(0, self._next_state[0]).view(S, A, -1)
        else:
            expected = next_values.new_zeros(S, A, next_values.shape[1])
            for next_state, probability in zip(self._next_state, self._probability, strict=True):
                expected.addcmul_(next_values.index_select(0, next_state).view(S, A, -1), probability)
        if self.discount != 1.0:
            expected *= self.discount
        return expected if self.action_term is None else expected + self.action_term

    def sweep(self, reward: Tensor, next_values: Tensor, reduce: Reduce = soft_max) -> Tensor:
        """V_t from V_{t+1}, `[S, B]`."""
        future = reduce(self.action_values(next_values))
        if self._terminal is not None:
            future = future.masked_fill(self._terminal, 0.0)
        return reward + future

    def outflow(self, next_values: Tensor, weight: Tensor) -> Tensor:
        """weight(s) pi(a|s), `[S, A, B]`: how much of the weight `[S, B]` leaves each state by each action."""
        flow = torch.softmax(self.action_values(next_values), dim=1) * weight[:, None]
        return flow if self._terminal is None else flow.masked_fill(self._terminal[:, None], 0.0)

    def arrivals(self, flow: Tensor) -> Tensor:
        """Where the flow `[S, A, B]` arrives, discounted, `[S, B]`: the adjoint of the expectation."""
        arrived = flow.new_zeros(flow.shape[0], flow.shape[2])
        if self._probability is None:
            arrived.index_add_(0, self._next_state[0], flow.flatten(0, 1), alpha=self.discount)
        else:
            for next_state, probability in zip(self._next_state, self._probability, strict=True):
                arrived.index_add_(0, next_state, (flow * probability).flatten(0, 1), alpha=self.discount)
        return arrived

    def table(self, reward: Tensor, horizon: int, reduce: Reduce = soft_max) -> Tensor:
        """All V_t, `[T+1, S, B]`, with V_T = 0."""
        values = reward.new_zeros(horizon + 1, *reward.shape)
        for t in range(horizon - 1, -1, -1):
            values[t] = self.sweep(reward, values[t + 1], reduce)
        return values

    def fixed_point(self, reward: Tensor, reduce: Reduce = soft_max) -> Tensor:
        """The V `[S, B]` that a sweep leaves as it is."""
        return iterate(lambda values: self.sweep(reward, values, reduce), torch.zeros_like(reward))


def iterate(contraction: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Applies a contraction until what it changes is at rounding level."""
    precision = torch.finfo(values.dtype)
    tolerance = 16 * precision.eps
    residual = float("inf")
    for sweep in range(1, MAX_SWEEPS + 1):
        updated = contraction(values)
        if sweep % _SWEEPS_PER_CHECK == 0:
            residual = float((updated - values).abs().max() / updated.abs().max().clamp(min=precision.tiny))
            if residual <= tolerance:
                return updated
        values = updated
    raise ConvergenceError(
        f"no fixed point after {MAX_SWEEPS} sweeps: relative residual {residual:.3g}, wanted {tolerance:.3g}. "
        "Use a smaller discount, or a finite horizon"
    )
