"""From one sweep to the values of a problem and their gradient, in the memory there is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from bsdr_torch.checkpoints import LaterValues, least_stride
from bsdr_torch.fixed_point import Norm, Step, fixed_point
from bsdr_torch.sweeps import Backup, Kernel, Reduce

CHUNK = 16
"""Humans whose numbers share a cache line: chunks of humans are multiples of this."""


class WarmStart:
    """Where the last endless problem ended, as the start of the next: keep one per world over optimiser steps.

    It makes a solve shorter and cannot make it wrong; tables of another shape or dtype are not used.
    """

    def __init__(self) -> None:
        self._tables: dict[tuple[str, int], Tensor] = {}

    def get(self, name: str, first: int, like: Tensor) -> Tensor | None:
        """The table of the humans from column `first` on, if there is one like `like`."""
        table = self._tables.get((name, first))
        fits = table is not None and (table.shape, table.dtype, table.device) == (like.shape, like.dtype, like.device)
        return table if fits else None

    def put(self, name: str, first: int, table: Tensor) -> None:
        """Remembers a table, which nobody writes to any more."""
        self._tables[name, first] = table


@dataclass(frozen=True)
class Solver:
    """How a problem is solved: what changes time and memory but not, beyond rounding, the result.

    Attributes:
        kernel: which sweeps run.
        memory_budget: bytes for the values that a gradient needs. Humans are solved in chunks that fit and, where
            not even 16 humans do, only every sqrt(T)-th table is kept and the others are swept twice.
        tolerance: of endless problems, the relative change a sweep may still make; by default at rounding level.
        max_sweeps: after which an endless problem ends in a ConvergenceError.
        warm_start: where endless problems start.
    """

    kernel: Kernel = "auto"
    memory_budget: int = 2**29
    tolerance: float | None = None
    max_sweeps: int = 200_000
    warm_start: WarmStart | None = field(default=None, repr=False)

    def stride(self, horizon: int, table: Tensor) -> int:
        """1 where all values of the humans of `table [S, B]` fit the budget, else the stride of checkpoints."""
        fits = horizon * table.nelement() * table.element_size() <= self.memory_budget
        return 1 if fits else least_stride(horizon)

    def chunks(self, horizon: int | None, table: Tensor) -> list[slice]:
        """Columns of `table [S, B]` whose values fit the budget together, with checkpoints if it must be."""
        S, B = table.shape
        per_human = max(1, S * table.element_size())
        steps = horizon or 1
        stride = least_stride(steps)
        humans = 0
        for tables in (steps, -(-steps // stride) + stride):
            humans = humans or self.memory_budget // (tables * per_human) // CHUNK * CHUNK
        humans = max(humans, CHUNK)
        return [slice(first, first + humans) for first in range(0, max(B, 1), humans)]


class Gradient(NamedTuple):
    """Of a weighted sum of values, to the reward `[S, B]`, the action term `[S or 1, A, B]` and the pauses `[B]`."""

    visits: Tensor
    taken: Tensor | None
    paused: Tensor | None


class FiniteHorizon:
    """V_0 of a horizon T, with what its gradient needs."""

    def __init__(self, backup: Backup, reward: Tensor, horizon: int, solver: Solver) -> None:
        self._backup = backup
        self._later = LaterValues(backup, reward, horizon, solver.stride(horizon, reward))
        self.initial = self._later.initial

    def gradient(self, weight: Tensor, term: Tensor | None, pauses: bool) -> Gradient:
        """Of sum weight * V_0; for an action term like `term`, and for pauses, where they are asked for."""
        return push_forward(self._backup, self._later, weight.clone(), term, pauses)


class Endless:
    """V of a discounted problem without end, with what its gradient needs; `first` is its first human's column."""

    def __init__(self, backup: Backup, reward: Tensor, solver: Solver, first: int = 0) -> None:
        self._backup, self._solver, self._first = backup, solver, first
        self.initial = self._solve("values", lambda values, out: backup.sweep(reward, values, out), reward)

    def gradient(self, weight: Tensor, term: Tensor | None, pauses: bool) -> Gradient:
        """The implicit gradient of sum weight * V: visits are a fixed point too, of a policy that stays the same."""
        backup, values = self._backup, self.initial
        policy = backup.outflow(values, torch.ones_like(values))
        flow = torch.empty_like(policy)

        def step(visits: Tensor, out: Tensor) -> Tensor:
            torch.mul(policy, backup.chosen(visits)[:, None], out=flow)
            return backup.push(flow, visits, out).add_(weight)

        visits = self._solve("visits", step, weight)
        taken = None if term is None else _like(policy * backup.chosen(visits)[:, None], term)
        paused = (visits * backup.gain_of_pausing(values)).sum(0) if pauses else None
        return Gradient(visits, taken, paused)

    def _solve(self, name: Literal["values", "visits"], step: Step, start: Tensor) -> Tensor:
        solver, warm = self._solver, self._solver.warm_start
        known = None if warm is None else warm.get(name, self._first, start)
        start = start if known is None else known
        norm: Norm = "largest" if name == "values" else "total"
        solution = fixed_point(step, start, norm, solver.tolerance, solver.max_sweeps)
        if warm is not None:
            warm.put(name, self._first, solution)
        return solution


def endless_values(backup: Backup, reward: Tensor, reduce: Reduce, solver: Solver) -> Tensor:
    """V `[S, B]` of an endless problem where another rule than the soft maximum chooses."""

    def step(values: Tensor, out: Tensor) -> Tensor:
        return out.copy_(backup.reduced(reward, values, reduce))

    return fixed_point(step, reward, "largest", solver.tolerance, solver.max_sweeps)


def push_forward(
    backup: Backup,
    later: Iterable[Tensor],
    weight: Tensor,
    term: Tensor | None,
    pauses: bool,
    added: Tensor | None = None,
) -> Gradient:
    """The gradient of sum weight * V_0 + sum added * V_1..T, by one forward sweep of the policy.

    `later` are V_1 .. V_T, `weight [S, B]` is used up, `added` is `[T, S, B]`.
    """
    visits, taken, paused = torch.zeros_like(weight), None, None
    fused = backup.fuses_advance(weight) and term is None and not pauses
    if fused:
        spare = torch.empty_like(weight)
    else:
        flow = weight.new_empty(weight.shape[0], backup.num_actions, weight.shape[1])
    for t, next_values in enumerate(later):
        if fused:
            weight, spare = backup.advance(next_values, weight, visits, spare), weight
        else:
            visits += weight
            backup.outflow(next_values, backup.chosen(weight), flow)
            if term is not None:
                taken = _like(flow, term) if taken is None else taken.add_(_like(flow, term))
            if pauses:
                gain = (weight * backup.gain_of_pausing(next_values)).sum(0)
                paused = gain if paused is None else paused + gain
            backup.push(flow, weight, weight)
        if added is not None:
            weight += added[t]
    return Gradient(visits, taken, paused)


def _like(flow: Tensor, term: Tensor) -> Tensor:
    """The flow `[S, A, B]` summed over the states and actions that share a number of `term`; a new tensor."""
    total = flow.sum_to_size(term.shape[0], term.shape[1], flow.shape[2])
    return total.clone() if total is flow else total
