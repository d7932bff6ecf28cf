"""Time and peak memory of one piece of work, each in a process of its own."""

from __future__ import annotations

import gc
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bsdr_torch.errors import InputError

Work = Callable[[], object]
"""What is measured; whatever it returns is dropped."""


class Cost(NamedTuple):
    """What one run of a piece of work takes."""

    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Record:
    """One number of a benchmark and the named alternative it is to be read against."""

    name: str
    value: float
    unit: str
    against: str


def in_fresh_process(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, computed in a new process, which nothing measured before has touched."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def cost(
    prepare: Callable[..., Work],
    sizes: dict[str, int],
    warm_up: dict[str, int],
    repeats: int,
    threads: int | None = None,
) -> Cost:
    """Least time of `repeats` runs of `prepare(**sizes)()`, and the memory the first adds to its inputs.

    A run at the sizes of `warm_up` comes first, so that what is loaded or compiled once is not counted.
    """
    return Cost(*in_fresh_process(_cost_here, prepare, sizes, warm_up, repeats, threads))


def processor_seconds(work: Work, repeats: int) -> float:
    """The least time of the processor for some runs, after one that is not counted.

    Waiting for a busy machine would be charged to long runs more than to short ones, and a ratio be too good.
    """
    work()
    seconds = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)


def write_json(records: Iterable[Record], path: Path) -> None:
    """A list of records, as JSON."""
    path.write_text(json.dumps([asdict(record) for record in records], indent=2) + "\n")


def check_writable(path: Path) -> None:
    """Refuses a path that cannot be written, before hours are spent on what goes there."""
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: give a file in a directory that exists")


def table(records: Iterable[Record]) -> str:
    """The records as aligned text."""
    rows = [("name", "value", "unit", "against")]
    rows += [(record.name, f"{record.value:.4g}", record.unit, record.against) for record in records]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join(f"{n:<{widths[0]}}  {v:>{widths[1]}}  {u:<{widths[2]}}  {a}" for n, v, u, a in rows)


def _cost_here(
    prepare: Callable[..., Work], sizes: dict[str, int], warm_up: dict[str, int], repeats: int, threads: int | None
) -> tuple[float, float]:
    if threads is not None:
        torch.set_num_threads(threads)
    prepare(**warm_up)()
    work = prepare(**sizes)
    gc.collect()
    before = _resident_megabytes()
    seconds = []
    peak = 0.0
    for repeat in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
        if repeat == 0:
            peak = _peak_megabytes() - before
    return min(seconds), max(peak, 0.0)


def _resident_megabytes() -> float:
    """Memory held now; forgets the peak so far, where the system can."""
    status = Path("/proc/self/status")
    if not status.exists():
        return _peak_megabytes()
    Path("/proc/self/clear_refs").write_text("5")  # makes the peak start from what is resident now
    return _field(status, "VmRSS:")


def _peak_megabytes() -> float:
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would report the parent's peak as well
        return _field(status, "VmHWM:")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def _field(status: Path, name: str) -> float:
    line = next(line for line in status.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024
