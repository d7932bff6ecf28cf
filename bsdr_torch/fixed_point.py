"""Fixed points of contractions on tables `[S, B]`, each column a problem of its own, by safeguarded Anderson steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor], Tensor]
"""Applies the contraction to the first table and writes the result to the second, which it returns."""

Norm = Literal["largest", "total"]
"""In which a column contracts: values in their largest entry, visits in their sum."""

# A round of plain sweeps for each Anderson step: the step costs about as much as three sweeps.
_SWEEPS_PER_ROUND = 4
_MEMORY = 5


class ConvergenceError(RuntimeError):
    """A fixed point was not reached."""


def fixed_point(step: Step, start: Tensor, norm: Norm, tolerance: float | None, max_sweeps: int) -> Tensor:
    """The table that `step` leaves as it is, up to a relative residual of `tolerance` in every column.

    A round is a few plain sweeps, then an Anderson step: the combination of the last rounds whose changes cancel best.
    Safeguard: a column whose residual has grown goes back to the best table so far, swept, and forgets its
    past, so that never more than every second round is lost against plain sweeps.
    """
    if start.numel() == 0:
        return start
    precision = torch.finfo(start.dtype)
    tolerance = 16 * precision.eps if tolerance is None else tolerance
    current, swept, before = start.clone(), torch.empty_like(start), torch.empty_like(start)
    history = _History(start)
    best, best_residual = torch.empty_like(start), torch.full_like(start[0], torch.inf)
    sweeps, worst = 0, float("inf")
    while sweeps < max_sweeps:
        step(current, swept)
        for _ in range(_SWEEPS_PER_ROUND - 1):
            before, swept = swept, before
            step(before, swept)
        sweeps += _SWEEPS_PER_ROUND
        scale = _size(swept, norm).clamp(min=precision.tiny)
        worst = float((_size(swept - before, norm) / scale).max())
        if worst <= tolerance:
            return swept
        change = swept - current
        residual = _size(change, norm)
        better = residual <= best_residual
        best = torch.where(better, swept, best)
        best_residual = torch.where(better, residual, best_residual)
        current = torch.where(better, history.extrapolate(swept, change, better), best)
    raise ConvergenceError(
        f"no fixed point after {sweeps} sweeps: relative residual {worst:.3g}, wanted {tolerance:.3g}. "
        "Use a smaller discount, a larger tolerance or a finite horizon"
    )


class _History:
    """How results and their changes differed between the last rounds, `[M, S, B]`, newest over oldest."""

    def __init__(self, like: Tensor) -> None:
        self._results = like.new_zeros(_MEMORY, *like.shape)
        self._changes = torch.zeros_like(self._results)
        self._products = like.new_zeros(like.shape[1], _MEMORY, _MEMORY, dtype=torch.float64)
        self._last: tuple[Tensor, Tensor] | None = None
        self._rounds = 0

    def extrapolate(self, result: Tensor, change: Tensor, trusted: Tensor) -> Tensor:
        """The Anderson step from a round's result and change; columns not `trusted [B]` forget their past."""
        if self._last is not None:
            newest = self._rounds % _MEMORY
            self._rounds += 1
            self._results[newest] = result - self._last[0]
            self._changes[newest] = change - self._last[1]
            if not bool(trusted.all()):
                self._results *= trusted
                self._changes *= trusted
                self._products *= trusted[:, None, None]
            products = torch.stack([(row * self._changes[newest]).sum(0) for row in self._changes], dim=1).double()
            self._products[:, newest, :] = products
            self._products[:, :, newest] = products
        self._last = (result.clone(), change)  # the result's memory is swept over
        if self._rounds == 0:
            return result
        target = torch.stack([(row * change).sum(0) for row in self._changes], dim=1).double()
        diagonal = self._products.diagonal(dim1=1, dim2=2)
        # Relative to the largest, so that empty or parallel rows get no say; never zero.
        ridge = diagonal.amax(1, keepdim=True) * 1e-12 + torch.finfo(torch.float64).tiny
        shares = torch.linalg.solve(self._products + torch.diag_embed(ridge.expand_as(diagonal)), target)
        shares = torch.nan_to_num(shares).to(result.dtype)
        step = result.clone()
        for share, row in zip(shares.unbind(1), self._results, strict=True):
            step.addcmul_(row, share, value=-1.0)
        return torch.where(torch.isfinite(step), step, result)


def _size(table: Tensor, norm: Norm) -> Tensor:
    """The norm of each column, `[B]`."""
    return table.abs().amax(0) if norm == "largest" else table.abs().sum(0)
