"""Runs the cases of an experiment: in parallel, with a progress bar, and on from where it was interrupted."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from tqdm import tqdm

from bsdr_torch.data.arrow_files import write_files
from bsdr_torch.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Case = TypeVar("Case", bound="DataclassInstance")

Record = dict[str, Any]
"""A line of results.json: the fields of the case, then what was measured."""

SAVE_SECONDS = 5.0


def default_seeds(quick: bool) -> int:
    """How many repetitions there are if nobody asks for another number."""
    return 2 if quick else 10


@dataclass(frozen=True)
class Run:
    """What the command line asks of an experiment.

    Attributes:
        out: the folder for report.md, figures and results.json.
        quick: whether to run the small version.
        seeds: repetitions, each with new people.
        workers: processes.
    """

    out: Path
    quick: bool
    seeds: int
    workers: int

    def command(self, name: str) -> str:
        """The command that makes the same results."""
        seeds = "" if self.seeds == default_seeds(self.quick) else f" --seeds {self.seeds}"
        return f"scripts/experiment.py {name} --out DIR{' --quick' if self.quick else ''}{seeds}"


def run_cases(
    out: Path, cases: Sequence[Case], run_case: Callable[[Case], list[Record]], workers: int, version: int = 0
) -> list[Record]:
    """The records of all cases, in their order, also written to results.json in `out`.

    Cases that results.json already holds are not run again, unless they are of another version. It is rewritten while
    the others run, so that no more than some seconds of work are lost when the run is interrupted. Numbers are kept to
    six digits.

    Args:
        out: the folder.
        cases: what to run.
        run_case: makes the records of a case.
        workers: processes.
        version: raised when the records of a case come to be others; it is written into them, if it is not 0.
    """
    path = out / "results.json"
    found = _read(path)
    current = [record for record in found if record.get("version", 0) == version]
    if len(current) < len(found):
        print(f"{path}: {len(found) - len(current)} of {len(found)} records are of another version and left out")
    done = _by_case(current, cases)
    todo = [case for case in cases if case not in done]
    if len(todo) < len(cases):
        print(f"{path}: {len(cases) - len(todo)} of {len(cases)} cases are there and are not run again")
    saved = time.monotonic()
    made_by = {"version": version} if version else {}
    try:
        for case, records in tqdm(_results(todo, run_case, workers), out.name, len(todo), unit="case"):
            done[case] = [rounded(asdict(case) | record | made_by) for record in records]
            if time.monotonic() - saved > SAVE_SECONDS:
                _write(path, cases, done)
                saved = time.monotonic()
    finally:
        _write(path, cases, done)
    return [record for case in cases for record in done[case]]


def write_text(path: Path, text: str) -> None:
    """Writes a file that nobody sees half of."""
    write_files({path: partial(Path.write_text, data=text)})


def rounded(value: Any) -> Any:
    """The same plain data with numbers to six digits: more say nothing, and fill the file."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    return value


def _results(
    todo: Sequence[Case], run_case: Callable[[Case], list[Record]], workers: int
) -> Iterator[tuple[Case, list[Record]]]:
    if workers == 1 or len(todo) < 2:
        for case in todo:
            yield case, run_case(case)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(todo)), context, torch.set_num_threads, (1,)) as pool:
        futures = {pool.submit(run_case, case): case for case in todo}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _by_case(records: list[Record], cases: Sequence[Case]) -> dict[Case, list[Record]]:
    """The records of those of the cases that have any."""
    by_fields: dict[tuple[Any, ...], list[Record]] = {}
    names = list(asdict(cases[0])) if cases else []
    for record in records:
        by_fields.setdefault(tuple(record.get(name) for name in names), []).append(rounded(record))
    return {case: found for case in cases if (found := by_fields.get(tuple(asdict(case).values())))}


def _read(path: Path) -> list[Record]:
    if not path.exists():
        return []
    try:
        records = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as results of an experiment: {error}; remove it") from None
    if not (isinstance(records, list) and all(isinstance(record, dict) for record in records)):
        raise InputError(f"{path}: expected a list of records, as an experiment writes it; remove the file")
    return records


def _write(path: Path, cases: Sequence[Case], done: dict[Case, list[Record]]) -> None:
    lines = [json.dumps(record) for case in cases for record in done.get(case, [])]
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    write_text(path, text)
