"""The values of all steps of a finite horizon, in the order the adjoint needs them, within a memory budget."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from bsdr_torch.native import prefer_huge_pages
from bsdr_torch.sweeps import Backup


class LaterValues:
    """`initial` is V_0; iterating gives V_1 .. V_T. Keeps every V_t or, if `stride` > 1, every stride-th.

    What lies between is swept again when it is needed: one sweep more per step, for the memory of two square roots
    of T tables instead of T.
    """

    def __init__(self, backup: Backup, reward: Tensor, horizon: int, stride: int) -> None:
        self._backup, self._horizon, self._stride = backup, horizon, stride
        # The reward is swept with again later, when its owner may have reused its memory.
        self._reward = reward if stride == 1 else reward.clone()
        self._kept = _tables(-(-horizon // stride), reward)  # the last row is V_T
        if horizon > 0:
            self._kept[-1].zero_()
        values = torch.zeros_like(reward)
        spare = [torch.empty_like(reward) for _ in range(min(stride, 2))]
        for t in range(horizon - 1, -1, -1):
            row, between = divmod(t, stride)
            out = spare[t % len(spare)] if t == 0 or between else self._kept[row - 1]
            values = backup.sweep(self._reward, values, out)
        self.initial = values

    def __iter__(self) -> Iterator[Tensor]:
        if self._stride == 1:
            yield from self._kept
            return
        segment = _tables(self._stride - 1, self._reward)
        for row, last in enumerate(self._kept):
            steps = min(self._stride, self._horizon - row * self._stride)
            values = last
            for i in range(steps - 2, -1, -1):
                values = self._backup.sweep(self._reward, values, segment[i])
            yield from segment[: steps - 1]
            yield last


def values_alone(backup: Backup, reward: Tensor, horizon: int) -> Tensor:
    """V_0 `[S, B]` alone, in the memory of two tables."""
    values, spare = torch.zeros_like(reward), torch.empty_like(reward)
    for _ in range(horizon):
        values, spare = backup.sweep(reward, values, spare), values
    return values


def all_values(backup: Backup, reward: Tensor, horizon: int) -> Tensor:
    """All V_t, `[T+1, S, B]`, with V_T = 0."""
    table = _tables(horizon + 1, reward)
    table[horizon].zero_()
    for t in range(horizon - 1, -1, -1):
        backup.sweep(reward, table[t + 1], table[t])
    return table


def least_stride(horizon: int) -> int:
    """The stride that keeps the fewest tables."""
    return max(1, math.isqrt(horizon))


def _tables(count: int, like: Tensor) -> Tensor:
    return prefer_huge_pages(like.new_empty(count, *like.shape))
