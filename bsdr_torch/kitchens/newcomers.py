"""What was seen so far of people in their games, for models that get to know them while they play."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.rationality import POPULATION

E = TypeVar("E", bound=tuple[Any, ...])


class Memory(Generic[E]):
    """What decisions of people never seen before tell of them, a named tuple of `[N, ...]`, kept by game.

    Games are asked about in the order of time, in as many batches as one likes; who asks about a time again takes back
    all that came after.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Tensor, E]] = {}

    def newcomers(self, batch: Decisions, evidence: E) -> Iterator[tuple[Tensor, E]]:
        """For each game of somebody new, the rows `[L]` of the batch by time, and all evidence, of which they are last.

        Args:
            batch: N decisions.
            evidence: `[N, ...]`, what each of them tells.
        """
        new = batch.humans == POPULATION
        for rollout in torch.unique(batch.rollouts[new]).tolist():
            rows = (new & (batch.rollouts == rollout)).nonzero()[:, 0]
            rows = rows[batch.times[rows].argsort()]
            times, seen = batch.times[rows], _each(lambda part, rows=rows: part[rows], evidence)
            if rollout in self._seen:
                before, earlier = self._seen[rollout]
                kept = before < times[0]
                times = torch.cat([before[kept], times])
                seen = _each(lambda a, b, kept=kept: torch.cat([a[kept], b]), earlier, seen)
            self._seen[rollout] = times, seen
            yield rows, seen


def _each(function: Any, *evidence: E) -> E:
    return type(evidence[0])(*(function(*parts) for parts in zip(*evidence, strict=True)))
