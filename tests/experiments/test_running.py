from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from bsdr_torch.errors import InputError
from bsdr_torch.experiments.running import Record, run_cases


@dataclass(frozen=True)
class Case:
    world: str
    seed: int


CASES = [Case(world, seed) for world in ("meadow", "maze") for seed in range(3)]


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    ran: list[Case] = []

    def stop_at_the_fourth(case: Case) -> list[Record]:
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append(case)
        return [{"model": "br", "score": case.seed}, {"model": "bsdr", "score": -case.seed}]

    with pytest.raises(KeyboardInterrupt):
        run_cases(tmp_path, CASES, stop_at_the_fourth, workers=1)
    assert len(json.loads((tmp_path / "results.json").read_text())) == 6

    def the_rest(case: Case) -> list[Record]:
        ran.append(case)
        return [{"model": "br", "score": 9}]

    records = run_cases(tmp_path, CASES, the_rest, workers=1)
    assert ran == CASES
    assert [r["score"] for r in records] == [0, 0, 1, -1, 2, -2, 9, 9, 9]
    assert records == json.loads((tmp_path / "results.json").read_text())


def test_what_is_not_a_file_of_results_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(InputError, match="expected a list of records"):
        run_cases(tmp_path, CASES, lambda case: [], workers=1)
    assert (tmp_path / "results.json").read_text() == "{}"


def test_results_of_another_version_are_run_again(tmp_path: Path) -> None:
    run_cases(tmp_path, CASES, lambda case: [{"score": 1}], workers=1)
    assert all("version" not in record for record in json.loads((tmp_path / "results.json").read_text()))
    records = run_cases(tmp_path, CASES, lambda case: [{"points": 2}], workers=1, version=1)
    assert [record["points"] for record in records] == [2] * len(CASES)
    again = run_cases(tmp_path, CASES, lambda case: [{"points": 3}], workers=1, version=1)
    assert again == records
