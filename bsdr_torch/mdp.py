"""A world with enumerated states, as tensors."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor


class Incoming(NamedTuple):
    """The edges of a world by the state they lead to; E edges can be taken at all.

    Attributes:
        offset: `[S + 1]` int64, the edges into s are `offset[s] .. offset[s + 1] - 1`.
        source: `[E]` int32, the pair `s * A + a` an edge comes from, in increasing order for each state.
        chance: `[E]`, the probability of an edge given that pair; None where nothing is left to chance.
    """

    offset: Tensor
    source: Tensor
    chance: Tensor | None


@dataclass(frozen=True, eq=False)
class TabularMDP:
    """States `0..S-1`, actions `0..A-1`, and up to K outcomes of each action in each state.

    Attributes:
        next_state: `[S, A, K]` int32, the state that outcome k leads to.
        probability: `[S, A, K]`, the probability of outcome k, or `[S, 1, K]` where it is the same for every
            action (a partner who moves at the same time); None where K = 1 and nothing is left to chance.
        start: `[S]`, the distribution of the first state.
        terminal: `[S]` bool or None. A trajectory that enters a terminal state earns that state's reward
            once and ends: no action is taken there.
        allowed: `[S, A]` bool or None, the actions a person may take. A state that is not terminal allows
            at least one.

    Example:
        >>> chain = TabularMDP(
        ...     next_state=torch.tensor([[[0], [1]], [[0], [1]]]), start=torch.tensor([1.0, 0.0])
        ... )
        >>> chain.num_states, chain.num_actions, chain.num_outcomes
        (2, 2, 1)
    """

    next_state: Tensor
    start: Tensor
    probability: Tensor | None = None
    terminal: Tensor | None = None
    allowed: Tensor | None = None

    def __post_init__(self) -> None:
        _check_next_state(self.next_state)
        object.__setattr__(self, "next_state", self.next_state.to(torch.int32))
        S, A, K = self.next_state.shape
        _check_distribution("start", self.start, (S,))
        if self.probability is None:
            if K != 1:
                raise ValueError(
                    f"next_state has {K} outcomes per action, so probability is needed: give a tensor "
                    f"of shape {(S, A, K)}"
                )
        else:
            shared = self.probability.ndim == 3 and self.probability.shape[1] == 1
            _check_distribution("probability", self.probability, (S, 1 if shared else A, K))
        for name, shape in (("terminal", (S,)), ("allowed", (S, A))):
            mask = getattr(self, name)
            if mask is not None and (mask.dtype != torch.bool or tuple(mask.shape) != shape):
                raise ValueError(
                    f"{name} must be a bool tensor of shape {shape}, got {mask.dtype} of shape {tuple(mask.shape)}"
                )
        if self.allowed is not None:
            stuck = ~self.allowed.any(dim=1)
            if self.terminal is not None:
                stuck &= ~self.terminal
            if bool(stuck.any()):
                raise ValueError(
                    f"state {int(stuck.nonzero()[0])} allows no action and is not terminal: "
                    "allow one, or mark the state as terminal"
                )
        devices = {tensor.device for tensor in self._tensors().values()}
        if len(devices) > 1:
            raise ValueError(f"all tensors of a TabularMDP must be on one device, got {sorted(map(str, devices))}")

    @property
    def num_states(self) -> int:
        """S."""
        return self.next_state.shape[0]

    @property
    def num_actions(self) -> int:
        """A."""
        return self.next_state.shape[1]

    @property
    def num_outcomes(self) -> int:
        """K."""
        return self.next_state.shape[2]

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.next_state.device

    @cached_property
    def reach(self) -> int:
        """How far an action can lead, in numbers of states: little where neighbours have numbers that are close."""
        states = torch.arange(self.num_states, dtype=torch.int32, device=self.device)
        return max(int((after - states[:, None]).abs().max()) for after in self.next_state.unbind(2))

    @cached_property
    def incoming(self) -> Incoming:
        """The transpose of the graph, made on first use: what a state receives without scattered writes."""
        S, A, K = self.next_state.shape
        taken = torch.ones(S, A, 1, dtype=torch.bool, device=self.device)
        if self.allowed is not None:
            taken = taken & self.allowed[..., None]
        if self.terminal is not None:
            taken = taken & ~self.terminal[:, None, None]
        if self.probability is not None:
            taken = taken & (self.probability > 0)
        edges = taken.expand(S, A, K).reshape(-1).nonzero().squeeze(1)
        target, order = self.next_state.reshape(-1)[edges].sort(stable=True)
        edges = edges[order]
        offset = torch.searchsorted(target, torch.arange(S + 1, dtype=torch.int32, device=self.device))
        chance = None if self.probability is None else self.probability.expand(S, A, K).reshape(-1)[edges]
        return Incoming(offset, (edges // K).to(torch.int32), chance)

    def to(self, device: torch.device | str) -> TabularMDP:
        """The same world on another device (itself, if it is there already)."""
        target = torch.device(device)
        if target == self.device:
            return self
        moved = copy(self)  # what was validated once is not validated again
        for name, tensor in self._tensors().items():
            object.__setattr__(moved, name, tensor.to(target))
        moved.__dict__.pop("incoming", None)  # it is on the old device
        return moved

    def _tensors(self) -> dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def _check_next_state(next_state: Tensor) -> None:
    if next_state.ndim != 3 or next_state.dtype.is_floating_point or next_state.dtype == torch.bool:
        raise ValueError(
            f"next_state must be an integer tensor [S, A, K], got {next_state.dtype} of shape {tuple(next_state.shape)}"
        )
    if 0 in next_state.shape:
        raise ValueError(
            f"a world needs at least one state, action and outcome, got next_state of shape {tuple(next_state.shape)}"
        )
    outside = (next_state < 0) | (next_state >= next_state.shape[0])
    if bool(outside.any()):
        s, a, k = (int(i) for i in outside.nonzero()[0])
        raise ValueError(
            f"next_state[{s}, {a}, {k}] is {int(next_state[s, a, k])}, but states end at {next_state.shape[0] - 1}"
        )


def _check_distribution(name: str, probability: Tensor, shape: tuple[int, ...]) -> None:
    """`probability` has `shape`, is a distribution along its last dimension."""
    if tuple(probability.shape) != shape or not probability.dtype.is_floating_point:
        raise ValueError(
            f"{name} must be a floating-point tensor of shape {shape}, got {probability.dtype} "
            f"of shape {tuple(probability.shape)}"
        )
    total = probability.double().sum(-1)
    wrong = ~((probability >= 0).all(-1) & ((total - 1).abs() < 1e-5))
    if bool(wrong.any()):
        where = [int(i) for i in wrong.nonzero()[0]] if wrong.ndim else []
        row = probability[tuple(where)] if where else probability
        raise ValueError(
            f"{name}{where or ''} must be non-negative and sum to 1, got sum {float(row.double().sum()):.6g} "
            f"and smallest entry {float(row.min()):.6g}"
        )
