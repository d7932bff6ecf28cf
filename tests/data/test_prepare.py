from __future__ import annotations

import errno
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bsdr_torch.data import arrow_files
from bsdr_torch.data.data_card import draw_figures, figure_paths, summary_table
from bsdr_torch.data.packed_games import UNKNOWN, PackedGames
from bsdr_torch.data.prepare import prepare, read_and_verify
from bsdr_torch.data.prepared import PreparedSet, layout_from_json, layout_to_json, read_prepared
from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import load_layout
from tests.data.simulated_games import awkward_rows, play, rows_of, write_csv, write_pickle

SCRIPT = Path(__file__).parents[2] / "scripts" / "prepare_data.py"


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def same(one: PackedGames, other: PackedGames) -> bool:
    return all(
        torch.equal(value, getattr(other, name)) if isinstance(value, torch.Tensor) else value == getattr(other, name)
        for name, value in vars(one).items()
        if name in PackedGames.__dataclass_fields__
    )


def test_the_2019_set_is_prepared_complete_and_verified(prepared_2019: Path) -> None:
    prepared = read_prepared(prepared_2019)
    kitchens = prepared.kitchens
    assert {name: len(games) for name, games in kitchens.items()} == {
        "cramped_room": 19_190,
        "asymmetric_advantages": 20_385,
        "coordination_ring": 19_181,
        "forced_coordination": 14_375,
        "counter_circuit_o_1order": 17_971,
    }
    assert sum(len(games.games) for games in kitchens.values()) == 76
    assert sum(games.num_decisions for games in kitchens.values()) == 182_204
    soups = [float(games.soups.sum()) / len(games.games) for games in kitchens.values()]
    assert [round(value + 1e-9, 1) for value in soups] == [17.8, 26.4, 15.3, 16.9, 12.2]
    for name, replay in prepared.replays.items():
        assert replay.agree == replay.transitions == replay.rewards_agree == len(kitchens[name])
        assert (replay.unknown, replay.broken_games, replay.removed_steps) == (0, [], 0)
    assert len(prepared.humans) == 34
    assert sum(path.stat().st_size for path in prepared_2019.iterdir()) < 3_000_000


def test_a_second_run_finds_the_first_and_does_nothing(prepared_2020: Path, awkward_csv: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in prepared_2020.iterdir()}
    stages: list[str] = []
    found, made = prepare(awkward_csv, prepared_2020, progress=lambda stage, done, total: stages.append(stage))
    assert not made
    assert stages == ["looking for prepared data"]
    assert {path: path.stat().st_mtime_ns for path in prepared_2020.iterdir()} == before
    fresh = read_and_verify(awkward_csv)
    assert found.provenance == fresh.provenance
    assert all(same(games, fresh.kitchens[name]) for name, games in found.kitchens.items())
    assert found.replays == fresh.replays


@pytest.mark.parametrize("change", ["content", "option", "lost file", "edited file", "other schema"])
def test_it_is_prepared_again_when_anything_changed(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(play("counter_circuit", 1, steps=20)[0], 1, ("a", "b"))
    rows += rows_of(play("cramped_room", 1, steps=20)[0], 2, ("a", "b"))
    source, folder = write_csv(rows, tmp_path / "games.csv"), tmp_path / "set"
    assert prepare(source, folder)[1]
    assert not prepare(source, folder)[1]
    on_break: Any = "keep"
    if change == "content":
        write_csv(rows[:-1], source)
    elif change == "option":
        on_break = "drop"
    elif change == "lost file":
        (folder / "cramped_room.parquet").unlink()
    elif change == "edited file":
        (folder / "cramped_room.parquet").write_bytes(b"PAR1")
    else:
        for module in ("prepared.SCHEMA_VERSION", "prepared.Provenance.__init__.__defaults__"):
            value = 2 if module.endswith("VERSION") else (2,)
            monkeypatch.setattr(f"bsdr_torch.data.{module}", value)
    assert prepare(source, folder, on_break=on_break)[1]
    assert not prepare(source, folder, on_break=on_break)[1]


def test_a_kitchen_that_is_no_longer_in_the_source_leaves(tmp_path: Path) -> None:
    one = rows_of(play("counter_circuit", 1, steps=5)[0], 1, ("a", "b"))
    other = rows_of(play("cramped_room", 1, steps=5)[0], 2, ("a", "b"))
    prepare(write_csv(one + other, tmp_path / "games.csv"), tmp_path / "set")
    prepare(write_csv(other, tmp_path / "games.csv"), tmp_path / "set")
    assert list(read_prepared(tmp_path / "set").kitchens) == ["cramped_room"]


def test_a_parquet_file_of_somebody_else_is_never_removed(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "mine.parquet")
    before = content(tmp_path)
    source = write_csv(rows_of(play("cramped_room", 1, steps=5)[0], 2, ("a", "b")), tmp_path.with_suffix(".csv"))
    with pytest.raises(InputError, match=r"mine\.parquet: not a file that scripts/prepare_data.py wrote"):
        prepare(source, tmp_path)
    assert content(tmp_path) == before


def test_the_files_say_where_they_come_from(prepared_2019: Path) -> None:
    metadata = json.loads(
        pyarrow.parquet.read_schema(prepared_2019 / "forced_coordination.parquet").metadata[b"bsdr_torch"]
    )
    assert metadata["provenance"] == {
        "source": "mturk_2019",
        "checksums": {
            "clean_train_trials.pickle": "28659cfd09ee033d82b56bed905b239f078877e1b09d1f1b916e4bc0480ca4fa",
            "clean_test_trials.pickle": "59979552a053f1efe762de976f37dd83e269d70d19b67613c61e856c86705666",
        },
        "rules": 2019,
        "on_break": "keep",
        "layouts": list(read_prepared(prepared_2019).kitchens),
        "schema": 1,
    }
    assert layout_from_json(metadata["layout"]) == load_layout("forced_coordination")


def test_a_kitchen_survives_json() -> None:
    for name in ("counter_circuit_o_1order", "soup_coordination"):
        layout = load_layout(name)
        assert layout_from_json(json.loads(json.dumps(layout_to_json(layout)))) == layout


def test_csv_and_pickle_prepare_to_the_same(awkward_csv: Path, tmp_path: Path) -> None:
    one, other = read_and_verify(awkward_csv), read_and_verify(write_pickle(awkward_rows(), tmp_path / "games.pickle"))
    assert list(one.kitchens) == ["cramped_room", "asymmetric_advantages_tomato", "counter_circuit"]
    assert all(same(games, other.kitchens[name]) for name, games in one.kitchens.items())


def test_awkward_games_of_2020_are_all_there(prepared_2020: Path) -> None:
    prepared = read_prepared(prepared_2020)
    circuit, tomato = prepared.kitchens["counter_circuit"], prepared.kitchens["asymmetric_advantages_tomato"]
    assert circuit.games == ["counter_circuit/a:1", "counter_circuit/12"]
    assert circuit.players == [("anna", "bert"), ("7", "AI")]
    assert circuit.is_human == [(True, True), (True, False)]
    assert (len(circuit), circuit.num_decisions) == (240, 360)
    assert tomato.lengths.tolist() == [118, 70]
    assert prepared.humans == ["7", "8", "9", "anna", "bert", "carl", "dora"]
    for games in prepared.kitchens.values():
        assert prepared.replays[games.layout.name].agree == prepared.replays[games.layout.name].transitions
    # The last step of each game has no next state, nor has the one before the gap.
    assert (tomato.agrees == UNKNOWN).nonzero()[:, 0].tolist() == [38, 117, 187]


def test_the_awkward_games_have_soups_in_all_stages() -> None:
    text = "".join(row["state"] for row in awkward_rows())
    assert all(f'"{stage}": true' in text for stage in ("is_cooking", "is_ready", "is_idle"))
    assert '"held_object": null' in text
    assert '"held_object": {"name": "soup"' in text
    actions = "".join(row["joint_action"] for row in awkward_rows())
    assert '"interact"' in actions
    assert '"INTERACT"' in actions


def bad_bytes(name: str, folder: Path) -> Path:
    path = folder / name
    path.write_bytes({"empty.csv": b"", "os.pickle": b"\x80\x04cos\nsystem\n.", "noise.csv": b"\xff\xfe"}[name])
    return path


def spoiled(field: str, value: object) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        rows = rows_of(play("counter_circuit", 1, steps=5)[0], 1, ("a", "b"))
        rows[2][field] = value
        return write_csv(rows, folder / "spoiled.csv")

    return write


def without(field: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        rows = rows_of(play("counter_circuit", 1, steps=5)[0], 1, ("a", "b"))
        return write_csv([{k: v for k, v in row.items() if k != field} for row in rows], folder / "without.csv")

    return write


def truncated_pickle(folder: Path) -> Path:
    path = write_pickle(rows_of(play("counter_circuit", 1, steps=5)[0], 1, ("a", "b")), folder / "short.pickle")
    path.write_bytes(path.read_bytes()[:-40])
    return path


def impossible_state(folder: Path) -> Path:
    rows = rows_of(play("counter_circuit", 1, steps=5)[0], 1, ("a", "b"))
    rows[2]["state"] = rows[2]["state"].replace('"players": [{"position": [', '"players": [{"position": [9', 1)
    return write_csv(rows, folder / "impossible.csv")


def nobody_human(folder: Path) -> Path:
    rows = rows_of(play("counter_circuit", 1, steps=5)[0], 1, ("a", "b"), (False, False))
    return write_csv(rows, folder / "robots.csv")


BAD_INPUTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "truncated pickle": (truncated_pickle, r"short\.pickle: not a pickled table"),
    "pickle that imports os": (lambda folder: bad_bytes("os.pickle", folder), r"os\.pickle: .*os\.system"),
    "missing column": (without("trial_id"), r"without\.csv: no column trial_id"),
    "malformed JSON": (spoiled("state", '{"players": ['), r"spoiled\.csv: row 3, state: .*malformed"),
    "unknown layout": (spoiled("layout_name", "moon_base"), r"row 3, layout_name: unknown layout 'moon_base'"),
    "duplicate time step": (spoiled("cur_gameloop", 1), r"row 3, cur_gameloop: time step 1 .*already in row 1"),
    "empty file": (lambda folder: bad_bytes("empty.csv", folder), r"empty\.csv: the file is empty"),
    "noise": (lambda folder: bad_bytes("noise.csv", folder), r"noise\.csv: neither a pickled table nor CSV"),
    "no file": (lambda folder: folder / "nowhere.csv", r"nowhere\.csv: cannot be read"),
    "impossible state": (impossible_state, r"impossible\.csv: game counter_circuit/1, cur_gameloop . .*state: players"),
    "no humans": (nobody_human, r"robots\.csv: nobody in it is human"),
}


@pytest.mark.parametrize("bad", BAD_INPUTS)
def test_bad_input_is_one_message_and_leaves_prepared_data_as_it_was(
    bad: str, prepared_2020: Path, tmp_path: Path
) -> None:
    write, message = BAD_INPUTS[bad]
    before = content(prepared_2020)
    with pytest.raises(InputError, match=message) as caught:
        prepare(write(tmp_path), prepared_2020)
    assert "\n" not in str(caught.value)
    assert content(prepared_2020) == before


def test_a_full_disk_leaves_prepared_data_as_it_was(
    prepared_2020: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(prepared_2020)
    written = []
    original = pyarrow.parquet.write_table

    def write_until_full(table: Any, path: Path, **options: Any) -> None:
        if written:
            Path(path).write_bytes(b"PAR1 and then no more")
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        original(table, path, **options)

    monkeypatch.setattr(arrow_files.pa.parquet, "write_table", write_until_full)
    rows = [row for row in awkward_rows() if row["cur_gameloop"] < 20]
    with pytest.raises(InputError, match=r"\.parquet: cannot be written: No space left on device"):
        prepare(write_csv(rows, tmp_path / "other.csv"), prepared_2020)
    assert written
    assert content(prepared_2020) == before


def test_games_that_follow_no_rules_are_not_dropped_to_nothing(tmp_path: Path) -> None:
    rows = rows_of(play("cramped_room", 1, rules=2019)[0], 1, ("a", "b"))
    rows = [dict(row, state=rows[(7 * place) % len(rows)]["state"]) for place, row in enumerate(rows)]
    path = write_csv(rows, tmp_path / "shuffled.csv")
    with pytest.raises(InputError, match=r"shuffled\.csv: no game on cramped_room follows the rules of 2020"):
        read_and_verify(path, on_break="drop")


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("nothing", "no prepared data there: run scripts/prepare_data.py"),
        ("foreign", "not a file that scripts/prepare"),
    ],
)
def test_a_folder_without_prepared_data_says_what_to_do(folder: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "foreign" / "a.parquet")
    with pytest.raises(InputError, match=message):
        read_prepared(tmp_path / folder)


def outcome_of(load: Callable[[], PreparedSet]) -> PreparedSet | str:
    """What was loaded, or the message that refuses it."""
    try:
        return load()
    except InputError as error:
        return str(error)


@given(st.binary(min_size=1, max_size=40), st.floats(0, 1))
@example(b"\x80", 0.005859375)  # a text that is not UTF-8
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_prepared_file_loads_or_is_refused(
    prepared_2020: Path, tmp_path: Path, noise: bytes, place: float
) -> None:
    for name, data in content(prepared_2020).items():
        start = int(place * len(data))
        (tmp_path / name).write_bytes(data[:start] + noise + data[start + len(noise) :])
    outcome = outcome_of(lambda: read_prepared(tmp_path))
    if isinstance(outcome, str):
        assert str(tmp_path) in outcome
    else:
        assert all(int(games.actions.max()) < 6 for games in outcome.kitchens.values())


FEW_ROWS = awkward_rows()[:20]
cells = st.one_of(
    st.none(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["[]", "{}", "[[0, 0], [0, 0]]", "true"]),
)


@given(st.integers(0, 19), st.sampled_from(sorted(FEW_ROWS[0])), cells)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cell_is_prepared_or_refused(tmp_path: Path, place: int, field: str, cell: object) -> None:
    rows = [dict(row) for row in FEW_ROWS]
    rows[place][field] = cell
    path = write_csv(rows, tmp_path / "games.csv")
    outcome = outcome_of(lambda: read_and_verify(path))
    if isinstance(outcome, str):
        assert "games.csv" in outcome
    else:
        assert sum(map(len, outcome.kitchens.values())) == len(rows)


def test_the_summary_counts_what_people_did(prepared_2020: Path) -> None:
    lines = [line.split() for line in summary_table(read_prepared(prepared_2020)).splitlines()]
    assert lines[0][:5] == ["layout", "games", "humans", "steps", "decisions"]
    assert {line[0]: line[1:5] for line in lines[1:]} == {
        "cramped_room": ["1", "2", "120", "240"],
        "asymmetric_advantages_tomato": ["2", "4", "188", "376"],
        "counter_circuit": ["2", "3", "240", "360"],
        "all": ["5", "7", "548", "976"],
    }


def test_figures_are_drawn_beside_the_folder(prepared_2020: Path, tmp_path: Path) -> None:
    draw_figures(tmp_path / "mturk_2020", read_prepared(prepared_2020))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mturk_2020_actions.png", "mturk_2020_places.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in figure_paths(tmp_path / "mturk_2020"))


def run_here(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    """The script, in this process, which is faster."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_the_script_prepares_and_a_bad_file_ends_it_with_code_2(
    awkward_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_here(monkeypatch, "--source", awkward_csv, "--out", tmp_path)
    assert "\nPrepared: " in capsys.readouterr().out
    before = content(tmp_path / "mturk_2020")
    assert set(before) == {"cramped_room.parquet", "asymmetric_advantages_tomato.parquet", "counter_circuit.parquet"}
    assert all(path.exists() for path in figure_paths(tmp_path / "mturk_2020"))
    run_here(monkeypatch, "--source", awkward_csv, "--out", tmp_path)
    assert "\nAlready prepared: " in capsys.readouterr().out
    bad = spoiled("state", "{")(tmp_path)
    outcome = subprocess.run(
        [sys.executable, SCRIPT, "--source", bad, "--out", tmp_path], capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 2
    assert outcome.stderr.count("\n") == 1
    assert "spoiled.csv: row 3, state" in outcome.stderr
    assert content(tmp_path / "mturk_2020") == before


def test_check_only_writes_nothing(
    awkward_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_here(monkeypatch, "--source", awkward_csv, "--out", tmp_path / "sets", "--check-only")
    printed = capsys.readouterr().out
    assert "counter_circuit: 238 of 238 transitions agree (100.00 %)" in printed
    assert "nothing was written" in printed
    assert not (tmp_path / "sets").exists()
