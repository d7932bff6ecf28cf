"""The exact engine: log Z and its gradient against plain autograd, one sweep against memcpy, and how time grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import matplotlib
import torch
from matplotlib.figure import Figure
from torch import Tensor

from bsdr_torch import soft_bellman
from bsdr_torch.benchmarks.measure import Cost, Record, Work, cost, in_fresh_process
from bsdr_torch.mdp import TabularMDP
from bsdr_torch.sweeps import Backup
from bsdr_torch.worlds.overcooked import Limits, load_graph, load_layout

AUTOGRAD = "plain autograd through the sweeps"
_WARM_UP = {"S": 60, "B": 16, "T": 4}

Measurement = Callable[[], list[Record]]


def measurements(quick: bool) -> list[Measurement]:
    """What is measured, in order; `quick` is the same at sizes that mean nothing."""
    T = 5 if quick else 100
    pairs = [(60, 16)] if quick else [(S, B) for S in (1_000, 10_000, 100_000) for B in (1, 16)]
    kitchens = [partial(_joint, "forced_coordination" if quick else "cramped_room", 0, 16)]
    if not quick:
        kitchens.append(partial(_joint, "cramped_room", 1, 16, "joint_sweep_ns_1_object"))
    return [
        *(partial(_against_autograd, S, B, T, last=pairs[-1] == (S, B)) for S, B in pairs),
        partial(_large, 60 if quick else 1_000_000, 16, T),
        partial(_share_of_memcpy, 60 if quick else 100_000, 16),
        *kitchens,
    ]


def scaling(quick: bool, path: Path) -> list[Record]:
    """Draws time against S, B and T on log axes, and gives the exponents."""
    base = {"S": 60, "B": 2, "T": 4} if quick else {"S": 20_000, "B": 16, "T": 50}
    # From tables that no cache holds to the most that the memory budget keeps without checkpoints.
    factors = (1, 2) if quick else (1, 2, 4, 8)
    matplotlib.use("agg")
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    records = []
    for axes, (name, label) in zip(
        figure.subplots(1, 3), {"S": "states S", "B": "humans B", "T": "horizon T"}.items(), strict=True
    ):
        sizes = [base | {name: base[name] * factor} for factor in factors]
        seconds = in_fresh_process(engine_seconds, sizes, 1 if quick else 5)
        x = [size[name] for size in sizes]
        slope = float(torch.tensor(seconds).log2().diff().mean() / torch.tensor(x).log2().diff().mean())
        records.append(Record(f"exponent_{name}", slope, "", "1: linear"))
        axes.loglog(x, seconds, "o-", label=f"engine, exponent {slope:.2f}")
        axes.loglog(x, [seconds[0] * n / x[0] for n in x], ":", color="gray", label="linear")
        others = ", ".join(f"{k} = {v:,}" for k, v in base.items() if k != name)
        axes.set(xlabel=label, ylabel="log Z and gradient, one thread (s)", title=others)
        axes.set_xticks(x, [f"{n:,}" for n in x], minor=False)
        axes.set_xticks([], minor=True)
        axes.legend()
    figure.savefig(path, dpi=110)
    return records


def grid(S: int, everywhere: bool = False) -> TabularMDP:
    """An open rectangle of S cells, as square as S allows; four moves and one that stays; starts in one cell or all."""
    height = next(n for n in range(int(S**0.5), 0, -1) if S % n == 0)
    width = S // height
    cells = torch.arange(S).view(height, width)
    row, column = cells // width, cells % width
    moves = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)]
    after = [(row + y).clamp(0, height - 1) * width + (column + x).clamp(0, width - 1) for y, x in moves]
    start = torch.full((S,), 1 / S) if everywhere else (torch.arange(S) == S // 2).float()
    return TabularMDP(torch.stack([cell.reshape(-1) for cell in after], dim=1)[..., None], start)


def kitchen(layout: str, max_objects: int) -> TabularMDP:
    """The joint world of a layout: six actions against six of a partner, 36 successors of each state."""
    graph = load_graph(load_layout(layout), Limits(max_objects))
    partner = torch.rand(graph.num_states, 6, generator=torch.Generator().manual_seed(0)) + 0.05
    return graph.mdp(0, partner / partner.sum(1, keepdim=True))


def engine(S: int, B: int, T: int, everywhere: bool = False) -> Work:
    """log Z and its gradient by the engine."""
    world, reward = grid(S, everywhere), _reward(S, B)
    _ = world.incoming, world.reach  # made once per world, as its tables are

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


def engine_seconds(sizes: list[dict[str, int]], rounds: int) -> list[float]:
    """Least time of log Z and gradient at each of the sizes, on one thread: cores that others use make jagged lines."""
    torch.set_num_threads(1)
    return _least([engine(size["S"], size["B"], size["T"]) for size in sizes], rounds)


def sweep_and_copy_seconds(S: int, B: int, threads: int) -> tuple[float, float]:
    """Least time of one sweep and of copying one table, both along a chain of tables, taken in turns."""
    torch.set_num_threads(threads)
    backup, reward = Backup(grid(S), torch.float32, 1.0, None), _reward(S, B).detach()
    tables = torch.zeros(20, S, B)

    def sweeps() -> None:
        for t in range(len(tables) - 1, 0, -1):
            backup.sweep(reward, tables[t], tables[t - 1])

    def copies() -> None:
        for t in range(len(tables) - 1, 0, -1):
            tables[t - 1].copy_(tables[t])

    best = _least([sweeps, copies], rounds=30)
    return best[0] / (len(tables) - 1), best[1] / (len(tables) - 1)


def joint_sweep(layout: str, max_objects: int, B: int) -> tuple[int, float]:
    """The number of states of a kitchen, and the least time of one sweep over it on one thread."""
    torch.set_num_threads(1)
    world = kitchen(layout, max_objects)
    backup, reward = Backup(world, torch.float32, 0.99, None), _reward(world.num_states, B).detach()
    values, out = torch.zeros_like(reward), torch.empty_like(reward)
    return world.num_states, _least([lambda: backup.sweep(reward, values, out)], rounds=30)[0]


def _against_autograd(S: int, B: int, T: int, last: bool) -> list[Record]:
    sizes = {"S": S, "B": B, "T": T}
    ours = cost(engine, sizes, _WARM_UP, repeats=5)
    theirs = cost(plain_autograd, sizes, _WARM_UP, repeats=2 if S * B > 100_000 else 5)
    records = _costs(sizes, ours, f"{AUTOGRAD}: {theirs.seconds:.3g} s", f"{AUTOGRAD}: {theirs.megabytes:.4g} MB")
    if last:
        records += [
            Record("time_vs_autograd", theirs.seconds / ours.seconds, "x", AUTOGRAD),
            Record("memory_vs_autograd", theirs.megabytes / max(ours.megabytes, 0.1), "x", AUTOGRAD),
        ]
        # The engine passes over states that nobody can have reached yet; from a start in every state there are none.
        everywhere = cost(engine, sizes | {"everywhere": True}, _WARM_UP, repeats=5)
        against = f"{AUTOGRAD}, starts in every state"
        records.append(Record("time_vs_autograd_everywhere", theirs.seconds / everywhere.seconds, "x", against))
    return records


def _large(S: int, B: int, T: int) -> list[Record]:
    sizes = {"S": S, "B": B, "T": T}
    return _costs(sizes, cost(engine, sizes, _WARM_UP, repeats=1), "", "4096 MB")


def _costs(sizes: dict[str, int], ours: Cost, time_against: str, memory_against: str) -> list[Record]:
    name = "_".join(f"{key}{value}" for key, value in sizes.items())
    return [
        Record(f"time_{name}", ours.seconds, "s", time_against),
        Record(f"memory_{name}", ours.megabytes, "MB", memory_against),
    ]


def _share_of_memcpy(S: int, B: int) -> list[Record]:
    """Bytes a sweep cannot do without (reward and values read, values written, successors read) beside memcpy's."""
    records = []
    for threads, name in ((1, "memcpy_share"), (torch.get_num_threads(), "memcpy_share_all_threads")):
        sweep, copy = in_fresh_process(sweep_and_copy_seconds, S, B, threads)
        needed = 4 * S * (3 * B + 5) / sweep
        copied = 4 * S * 2 * B / copy
        against = f"memcpy on {threads} thread(s): {copied / 1e9:.3g} GB/s"
        records.append(Record(name, needed / copied, "", against))
    return records


def _joint(layout: str, max_objects: int, B: int, name: str = "joint_sweep_ns") -> list[Record]:
    S, seconds = in_fresh_process(joint_sweep, layout, max_objects, B)
    against = f"(state, human), 36 successors, one thread; {layout}, {S:,} states, {max_objects} objects on counters"
    return [Record(name, seconds / (S * B) * 1e9, "ns", against)]


def _least(works: Iterable[Callable[[], object]], rounds: int) -> list[float]:
    """The least time of each, over rounds in which they take turns, so that they meet the same machine.

    On one thread it is the thread's own time, which does not count what others do on the core in between.
    """
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    works = list(works)
    for work in works:
        work()  # what is loaded, compiled or paged in once is not counted
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for i, work in enumerate(works):
            started = clock()
            work()
            best[i] = min(best[i], clock() - started)
    return best


def _reward(S: int, B: int) -> Tensor:
    return torch.randn(S, B, generator=torch.Generator().manual_seed(0)).requires_grad_()
