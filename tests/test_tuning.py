from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bsdr_torch.baselines.frequencies import KitchenFrequencies
from bsdr_torch.contenders import Contender, contenders
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.splits import Protocol
from bsdr_torch.errors import InputError
from bsdr_torch.evaluation import score
from bsdr_torch.kitchens.predicting import Predicts
from bsdr_torch.tuning import append, overview, read, trials

seen: list[tuple[KitchenPeople, dict[str, Any]]] = []


def count(data: KitchenPeople, seed: int, **settings: Any) -> Predicts:
    seen.append((data, settings))
    return KitchenFrequencies(data, after_own_last=False)


PLAYED = Contender(count, {"a": 1, "kitchens": ["cramped_room"]})
COUNTED = Contender(count, {"under": {"rollout": {"a": 1, "b": 2}, "layout": {"a": 3}}})


def test_a_trial_is_scored_on_validation_data(prepared_2019: Path) -> None:
    (row,) = trials("counted", COUNTED, "rollout", {"b": 5}, folder=prepared_2019)
    data, settings = seen[-1]
    assert settings == {"under": {"rollout": {"a": 1, "b": 5}}}
    model = KitchenFrequencies(data, after_own_last=False)
    expected = float(score(model, data, "validation").compute()["ce"])
    assert row["ce"] == pytest.approx(expected, abs=1e-4)
    assert row["ce"] != pytest.approx(float(score(model, data).compute()["ce"]), abs=1e-3)
    assert row["scored_on"] == "validation"
    assert row["ce_replanned"] is None


def test_what_learns_by_playing_is_scored_in_its_kitchens(prepared_2019: Path) -> None:
    (row,) = trials("played", PLAYED, "rollout", {"b": 5}, folder=prepared_2019)
    data, settings = seen[-1]
    assert settings == {"a": 1, "b": 5, "kitchens": ["cramped_room"]}
    scores = score(KitchenFrequencies(data, after_own_last=False), data, "validation", ["cramped_room"])
    assert row["ce"] == pytest.approx(float(scores.compute()["ce"]), abs=1e-4)


def test_kitchens_may_be_changed_too(prepared_2019: Path) -> None:
    (row,) = trials("played", PLAYED, "rollout", {"kitchens": ["forced_coordination"]}, folder=prepared_2019)
    data, _ = seen[-1]
    scores = score(KitchenFrequencies(data, after_own_last=False), data, "validation", ["forced_coordination"])
    assert row["ce"] == pytest.approx(float(scores.compute()["ce"]), abs=1e-4)


def test_two_kitchens_are_left_out_and_score(prepared_2019: Path) -> None:
    without = ["cramped_room", "forced_coordination"]
    rows = list(trials("counted", COUNTED, "layout", {}, without, folder=prepared_2019))
    assert [row["scored_on"] for row in rows] == without
    assert rows[0]["ce"] != rows[1]["ce"]
    assert not set(without).intersection(seen[-1][0].kitchens_of("train"))


def test_trials_are_added_to_a_file(prepared_2019: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuning.jsonl"
    for b in (5, 6):
        for row in trials("counted", COUNTED, "rollout", {"b": b}, folder=prepared_2019):
            append(path, row)
    assert [json.loads(line)["changes"] for line in path.read_text().splitlines()] == [{"b": 5}, {"b": 6}]


@pytest.mark.parametrize(
    ("name", "protocol", "without", "message"),
    [
        ("uniform", "rollout", [], "uniform has nothing to tune under rollout"),
        ("self-play", "layout", ["cramped_room", "forced_coordination"], "learns in each kitchen by itself"),
        ("bsdr", "rollout", ["cramped_room", "forced_coordination"], "none otherwise"),
        ("bsdr", "layout", ["cramped_room", "cramped_room"], "two different kitchens"),
    ],
)
def test_what_cannot_be_tried_is_said(name: str, protocol: Protocol, without: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        next(trials(name, contenders()[name], protocol, {}, without))


def test_a_setting_that_there_is_not_is_said(prepared_2019: Path) -> None:
    with pytest.raises(InputError, match=r"cloning-64: .* unexpected keyword argument 'nonsense'"):
        next(
            trials("cloning-64", contenders(quick=True)["cloning-64"], "rollout", {"nonsense": 1}, folder=prepared_2019)
        )


def test_the_table_of_trials_is_that_of_the_file() -> None:
    assert overview(read(Path("docs/results/tuning.jsonl"))) == Path("docs/results/tuning.md").read_text()


def test_a_file_that_has_no_trials_is_refused_before_any_fit(tmp_path: Path) -> None:
    path = tmp_path / "tuning.jsonl"
    assert read(path) == []
    trial = Path("docs/results/tuning.jsonl").read_text().splitlines()[0]
    for wrong in ("nothing", "3", '{"model": "bsdr"}'):
        path.write_text(f"{trial}\n{wrong}\n")
        with pytest.raises(InputError, match=r"tuning.jsonl: line 2 is not a trial"):
            read(path)


def test_kitchens_are_averaged_and_the_best_comes_first() -> None:
    row = {"model": "bsdr", "protocol": "layout", "seed": 0, "ce_replanned": None}
    rows = [
        row | {"changes": changes, "scored_on": kitchen, "ce": ce}
        for changes, ces in (({"tie": 0.1}, (1.0, 1.2)), ({"tie": 0.3}, (0.9, 1.1)))
        for kitchen, ce in zip(("one", "other"), ces, strict=True)
    ]
    lines = [line for line in overview(rows).splitlines() if line.startswith("| bsdr")]
    assert lines == [
        "| bsdr | layout | tie 0.3 | 0 | 1.000 |  | one, other |",
        "| bsdr | layout | tie 0.1 | 0 | 1.100 |  | one, other |",
    ]
