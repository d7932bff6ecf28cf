"""Reading recorded games, and making batches of them."""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from bsdr_torch.benchmarks.measure import Record
from bsdr_torch.data.games import Game
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.mturk import FILES_2019, read_mturk_2019
from bsdr_torch.data.prepare import prepare
from bsdr_torch.data.tables import read_table
from bsdr_torch.worlds.overcooked import packaged_file

DEFAULT_FOLDER = Path("datasets/mturk_2019")
BATCH_SIZE = 1024

_CELLS = ("state", "next_state", "joint_action")
_FIRST_BATCH = """
from bsdr_torch.data.kitchen_people import KitchenPeople
import sys
next(iter(KitchenPeople(sys.argv[1]).train_dataloader()))
"""


def benchmark(quick: bool = False, folder: Path | str | None = None) -> Iterator[Record]:
    """Rows per second of the reader, batches per second of the DataModule, seconds from start to the first batch.

    Args:
        quick: measure little, to see that it works.
        folder: of the prepared 2019 set; by default datasets/mturk_2019, or a temporary one if that is not there.
    """
    yield from _reader(quick)
    with tempfile.TemporaryDirectory() as temporary:
        if folder is None:
            folder = DEFAULT_FOLDER if DEFAULT_FOLDER.is_dir() else Path(temporary) / "mturk_2019"
        prepare("mturk_2019", folder)
        yield from _batches(folder, batches=10 if quick else 400)
        if not quick:
            seconds = _seconds(lambda: subprocess.run([sys.executable, "-c", _FIRST_BATCH, str(folder)], check=True))
            yield Record("first_batch", seconds, "s", "10 s from the start of Python")


def number_of_records(quick: bool = False) -> int:
    """How many records `benchmark` yields."""
    return 5 if quick else 6


def _reader(quick: bool) -> Iterator[Record]:
    """All of the 2019 set by the reader, and the first rows of its training file by the alternative."""
    games: list[Game] = []
    seconds = _seconds(lambda: games.extend(read_mturk_2019()))
    rate = sum(game.num_steps for game in games) / seconds
    rows = 200 if quick else 10_000
    columns = read_table(packaged_file(FILES_2019["train"]), _CELLS).columns
    cells = [cell for field in _CELLS for cell in columns[field][:rows].tolist()]
    alternative = rows / _seconds(lambda: [ast.literal_eval(cell) for cell in cells])
    against = (
        f"ast.literal_eval of the same cells alone: {alternative:.0f} rows/s "
        "(pandas.read_pickle cannot load these files any more, so that it adds nothing here)"
    )
    yield Record("reader", rate, "rows/s", against)
    yield Record("reader_vs_literal_eval", rate / alternative, "x", "ast.literal_eval")


def _batches(folder: Path | str, batches: int) -> Iterator[Record]:
    """Training batches of steps, all layouts, history of 8, on the CPU."""
    data = KitchenPeople(str(folder), batch_size=BATCH_SIZE)
    plain: DataLoader[Any] = DataLoader(
        _OneByOne(data), batch_size=BATCH_SIZE, shuffle=True, generator=torch.Generator().manual_seed(0)
    )
    rate = _rate(data.train_dataloader(), batches)
    alternative = _rate(plain, max(batches // 50, 2))
    against = f"a DataLoader that collates the same rows one by one: {alternative:.1f} batches/s"
    yield Record("step_batches", rate, f"batches of {BATCH_SIZE}/s", against)
    yield Record("step_batches_vs_collate", rate / alternative, "x", "one by one")
    whole_games = KitchenPeople(str(folder), batches="rollouts", batch_size=8)
    rate = _rate(whole_games.train_dataloader(), max(batches // 4, 2))
    yield Record("rollout_batches", rate, "batches of 8/s", "no alternative measured")


class _OneByOne(Dataset[tuple[Any, ...]]):
    """The rows of one kitchen as most code would write it: an item per step."""

    def __init__(self, data: KitchenPeople) -> None:
        steps = data.steps("train")["cramped_room"]
        self.columns = [column for column in steps if isinstance(column, torch.Tensor)]

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, row: int) -> tuple[Any, ...]:
        return tuple(column[row] for column in self.columns)


def _rate(loader: Iterable[Any], batches: int) -> float:
    """Batches per second over as many epochs as it takes."""
    done = 0
    start = time.perf_counter()
    while True:
        for _ in loader:
            done += 1
            if done >= batches:
                return done / (time.perf_counter() - start)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
