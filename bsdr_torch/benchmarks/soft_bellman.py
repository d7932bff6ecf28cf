"""The exact engine against plain autograd through the sweeps: log Z and its gradient, time and peak memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bsdr_torch import soft_bellman
from bsdr_torch.benchmarks.measure import Record, Work, cost
from bsdr_torch.mdp import TabularMDP

STATES = (1_000, 10_000, 100_000)
QUICK_STATES = (60,)
HUMANS = (1, 16)
HORIZON = 100
AUTOGRAD = "plain autograd through the sweeps"
_WARM_UP = {"S": 60, "B": 16, "T": 4}


def benchmark(quick: bool = False, horizon: int = HORIZON) -> Iterator[Record]:
    """The records, one by one as they are measured; the ratios are those of the largest problem. `quick`
    only sees that everything runs."""
    ours = theirs = None
    for S in _states(quick):
        for B in HUMANS:
            sizes = {"S": S, "B": B, "T": horizon}
            ours = cost(engine, sizes, _WARM_UP, repeats=3)
            theirs = cost(plain_autograd, sizes, _WARM_UP, repeats=1 if S * B > 100_000 else 3)
            name = f"S{S}_A5_T{horizon}_B{B}"
            yield Record(f"time_{name}", ours.seconds, "s", f"{AUTOGRAD}: {theirs.seconds:.3g} s")
            yield Record(f"memory_{name}", ours.megabytes, "MB", f"{AUTOGRAD}: {theirs.megabytes:.3g} MB")
    if ours is not None and theirs is not None:
        yield Record("time_vs_autograd", theirs.seconds / ours.seconds, "x", AUTOGRAD)
        yield Record("memory_vs_autograd", theirs.megabytes / max(ours.megabytes, 0.1), "x", AUTOGRAD)


def number_of_records(quick: bool = False) -> int:
    """How many records `benchmark` yields."""
    return len(_states(quick)) * len(HUMANS) * 2 + 2


def grid(S: int) -> TabularMDP:
    """An open rectangle of S cells, as square as S allows; four moves and one that stays."""
    height = next(n for n in range(int(S**0.5), 0, -1) if S % n == 0)
    width = S // height
    cells = torch.arange(S).view(height, width)
    row, column = cells // width, cells % width
    moves = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)]
    after = [(row + y).clamp(0, height - 1) * width + (column + x).clamp(0, width - 1) for y, x in moves]
    start = torch.zeros(S)
    start[S // 2] = 1.0
    return TabularMDP(torch.stack([cell.reshape(-1) for cell in after], dim=1)[..., None], start)


def engine(S: int, B: int, T: int) -> Work:
    """log Z and its gradient by the engine."""
    world, reward = grid(S), _reward(S, B)

    def work() -> Tensor:
        (visits,) = torch.autograd.grad(soft_bellman.log_partition(world, reward, horizon=T).sum(), reward)
        return visits

    return work


def plain_autograd(S: int, B: int, T: int) -> Work:
    """The same, as one would first write it: every sweep is recorded and differentiated."""
    world, reward = grid(S), _reward(S, B)
    next_state = world.next_state.reshape(-1)

    def work() -> Tensor:
        values = torch.zeros_like(reward)
        for _ in range(T):
            after = values.index_select(0, next_state).view(S, world.num_actions, B)
            values = reward + torch.logsumexp(after, dim=1)
        (visits,) = torch.autograd.grad((world.start @ values).sum(), reward)
        return visits

    return work


def _states(quick: bool) -> tuple[int, ...]:
    return QUICK_STATES if quick else STATES


def _reward(S: int, B: int) -> Tensor:
    return torch.randn(S, B, generator=torch.Generator().manual_seed(0)).requires_grad_()
