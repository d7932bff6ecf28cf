"""One soft-Bellman backup and its adjoint, on tables `[S, B]` with humans in the minor dimension.

Each operation exists twice: in torch, for every device, and in C++ (`sweeps.cpp`), for processors. No form of the
transitions is expanded to `[S, A, K, B]`, and probabilities that all actions share stay shared.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from bsdr_torch import native
from bsdr_torch.mdp import TabularMDP

Kernel = Literal["auto", "native", "compiled", "eager"]
"""C++ on the CPU; `torch.compile`, meant for GPUs; or plain torch. "auto" is the fastest there is."""

Reduce = Callable[[Tensor], Tensor]
"""From the values of all actions `[S, A, B]` to the value of the choice `[S, B]`."""

_log = logging.getLogger(__name__)


def hard_max(action_values: Tensor) -> Tensor:
    """max_a."""
    return action_values.amax(dim=1)


class Backup:
    """What every sweep of one problem shares: its transitions, discount, action term and pauses.

    `action_term` is the sum of the action rewards and the log base measure, with -inf where an action is
    forbidden, `[S or 1, A, B or 1]`, or None. `pause [B]` is the probability that a person does not choose but does
    `stay`. Results go to `out` where it is given. Tables must be contiguous; autograd sees only the "eager" kernel.
    """

    def __init__(
        self,
        mdp: TabularMDP,
        dtype: torch.dtype,
        discount: float,
        action_term: Tensor | None,
        pause: Tensor | None = None,
        stay: int = 0,
        kernel: Kernel = "auto",
    ) -> None:
        self.num_actions = mdp.num_actions
        self._mdp, self._dtype = mdp, dtype
        self._pause, self._stay = pause, stay
        self._discount = discount
        # One entry per outcome: [S * A] and [S, A or 1, 1].
        self._next_state = [column.reshape(-1) for column in mdp.next_state.unbind(2)]
        probability = mdp.probability
        self._probability = None if probability is None else [p[..., None] for p in probability.to(dtype).unbind(2)]
        self._terminal = None if mdp.terminal is None else mdp.terminal[:, None]
        self._action_term = action_term
        kernel = _choose(kernel, mdp.device, dtype)
        self._native = None
        if kernel == "native":
            self._native = native.NativeSweeps(mdp, dtype, discount, action_term, pause, stay)
        compiled = kernel == "compiled"
        self._future: Callable[..., Tensor] = _compiled_future if compiled else _future
        self._policy: Callable[..., Tensor] = _compiled_policy if compiled else _policy

    def sweep(self, reward: Tensor, next_values: Tensor, out: Tensor | None = None) -> Tensor:
        """V_t from V_{t+1}, `[S, B]`."""
        if self._native is not None:
            out = torch.empty_like(next_values) if out is None else out
            self._native.sweep(reward, next_values, out)
            return out
        future = self._future(next_values, *self._transitions(), self._terminal, self._pause, self._stay)
        return torch.add(reward, future, out=out)

    def outflow(self, next_values: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
        """weight(s) pi(a|s), `[S, A, B]`: how much of the weight `[S, B]` leaves each state by each choice."""
        if self._native is not None:
            out = weight.new_empty(weight.shape[0], self.num_actions, weight.shape[1]) if out is None else out
            self._native.outflow(next_values, weight, out)
            return out
        weight = weight if self._terminal is None else weight.masked_fill(self._terminal, 0.0)
        return torch.mul(self._policy(next_values, *self._transitions()), weight[:, None], out=out)

    def arrivals(self, flow: Tensor, out: Tensor | None = None) -> Tensor:
        """Where the flow `[S, A, B]` arrives, discounted, `[S, B]`: the adjoint of the expectation."""
        out = flow.new_empty(flow.shape[0], flow.shape[2]) if out is None else out
        if self._native is not None:
            self._native.arrivals(flow, out)
            return out
        if flow.device.type == "cpu":
            return torch.addmm(out, self._transpose, flow.flatten(0, 1), beta=0.0, alpha=self._discount, out=out)
        out.zero_()  # on a GPU atomic writes win, and torch.use_deterministic_algorithms does without them
        for k, next_state in enumerate(self._next_state):
            moved = flow if self._probability is None else flow * self._probability[k]
            out.index_add_(0, next_state, moved.flatten(0, 1), alpha=self._discount)
        return out

    def push(self, chosen: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
        """The weight of the next step, `[S, B]`: where choices and pauses lead. Adds the pauses to `chosen`."""
        if self._pause is not None:
            paused = self._pause * weight
            if self._terminal is not None:
                paused.masked_fill_(self._terminal, 0.0)
            chosen[:, self._stay] += paused
        return self.arrivals(chosen, out)

    def fuses_advance(self, table: Tensor) -> bool:
        """Whether `advance` can be had, and pays, for tables like this `[S, B]`."""
        return self._native is not None and self._native.fuses_advance(table)

    def advance(self, next_values: Tensor, weight: Tensor, visits: Tensor, out: Tensor) -> Tensor:
        """Adds the weight to the visits and gives the weight of the next step: `outflow` and `push` in one pass."""
        assert self._native is not None, "callers ask fuses_advance first"
        self._native.advance(next_values, weight, visits, out)
        return out

    def chosen(self, weight: Tensor) -> Tensor:
        """The part of the weight `[S, B]` that does not pause."""
        return weight if self._pause is None else weight * (1 - self._pause)

    def gain_of_pausing(self, next_values: Tensor) -> Tensor:
        """The derivative of V_t to the probability of a pause, `[S, B]`: V_t always pausing less V_t never doing so."""
        action_values, expected = _action_values(next_values, *self._transitions())
        gain = expected[:, self._stay] - torch.logsumexp(action_values, dim=1)
        return gain if self._terminal is None else gain.masked_fill(self._terminal, 0.0)

    def action_values(self, next_values: Tensor) -> Tensor:
        """discount * E[V(s')] + action term, `[S, A, B]`."""
        return _action_values(next_values, *self._transitions())[0]

    def reduced(self, reward: Tensor, next_values: Tensor, reduce: Reduce) -> Tensor:
        """V_t from V_{t+1} where another rule than the soft maximum chooses, `[S, B]`."""
        future = reduce(self.action_values(next_values))
        return reward + (future if self._terminal is None else future.masked_fill(self._terminal, 0.0))

    @cached_property
    def _transpose(self) -> Tensor:
        """The chance of arriving in s' after the pair (s, a), `[S, S A]`, sparse: its rows need no scattered writes."""
        offset, source, chance = self._mdp.incoming
        chance = torch.ones(source.shape) if chance is None else chance
        shape = (self._mdp.num_states, self._mdp.num_states * self.num_actions)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(offset, source.long(), chance.to(self._dtype), shape, check_invariants=False)

    def _transitions(self) -> tuple[list[Tensor], list[Tensor] | None, float, Tensor | None]:
        return self._next_state, self._probability, self._discount, self._action_term


def _choose(kernel: Kernel, device: torch.device, dtype: torch.dtype) -> Kernel:
    if kernel == "native" and not native.available(device, dtype):
        raise ValueError(
            f"the native kernel needs a C++ compiler and float32 or float64 on a CPU, got {dtype} on {device}: "
            'use kernel="auto"'
        )
    if kernel != "auto":
        return kernel
    if device.type == "cpu":
        return "native" if native.available(device, dtype) else "eager"
    return "compiled"


def _action_values(
    next_values: Tensor,
    next_state: list[Tensor],
    probability: list[Tensor] | None,
    discount: float,
    action_term: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """discount * E[V(s')] with and without the action term, `[S, A, B]`; never holds all outcomes at once."""
    shape = (next_values.shape[0], -1, next_values.shape[1])
    if probability is None:
        expected = next_values.index_select(0, next_state[0]).view(shape)
    else:
        expected = next_values.index_select(0, next_state[0]).view(shape) * probability[0]
        for states, chance in zip(next_state[1:], probability[1:], strict=True):
            expected = torch.addcmul(expected, next_values.index_select(0, states).view(shape), chance)
    if discount != 1.0:
        expected = expected * discount
    return (expected if action_term is None else expected + action_term), expected


def _future(
    next_values: Tensor,
    next_state: list[Tensor],
    probability: list[Tensor] | None,
    discount: float,
    action_term: Tensor | None,
    terminal: Tensor | None,
    pause: Tensor | None,
    stay: int,
) -> Tensor:
    """What a sweep adds to the reward, `[S, B]`."""
    action_values, expected = _action_values(next_values, next_state, probability, discount, action_term)
    future = torch.logsumexp(action_values, dim=1)
    if pause is not None:
        future = pause * expected[:, stay] + (1 - pause) * future
    return future if terminal is None else future.masked_fill(terminal, 0.0)


def _policy(
    next_values: Tensor,
    next_state: list[Tensor],
    probability: list[Tensor] | None,
    discount: float,
    action_term: Tensor | None,
) -> Tensor:
    """pi(a|s) of what is chosen, `[S, A, B]`."""
    return torch.softmax(_action_values(next_values, next_state, probability, discount, action_term)[0], dim=1)


def _compile(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function, fused by `torch.compile` when it is first called, or as it is where that does not work."""
    compiled: Callable[..., Tensor] | None = None

    @functools.wraps(function)
    def call(*args: Any) -> Tensor:
        nonlocal compiled
        if compiled is not None:
            return compiled(*args)
        _log.warning("compiling %s for %s with torch.compile, once", function.__name__.strip("_"), args[0].device)
        compiled = torch.compile(function, dynamic=True)
        try:
            return compiled(*args)
        except Exception as error:  # a missing toolchain shows itself in many types
            _log.warning("torch.compile does not work here, so sweeps run in plain torch: %s", error)
            compiled = function
            return function(*args)

    return call


_compiled_future = _compile(_future)
_compiled_policy = _compile(_policy)
