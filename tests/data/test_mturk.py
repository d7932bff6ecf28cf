from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bsdr_torch.data.games import Game
from bsdr_torch.data.mturk import read_mturk_2019, read_mturk_2020
from bsdr_torch.errors import InputError
from tests.data.pickled_tables import arrow_text, frame_of_2019, frame_of_today

Row = dict[str, Any]


@pytest.fixture(scope="module")
def games_2019() -> list[Game]:
    return read_mturk_2019()


def test_the_2019_set_is_complete(games_2019: list[Game]) -> None:
    steps: Counter[str] = Counter()
    soups: Counter[str] = Counter()
    for game in games_2019:
        steps[game.layout] += game.num_steps
        soups[game.layout] += int(game.rewards.sum() / 20)
    assert len(games_2019) == 76
    assert sum(game.num_decisions for game in games_2019) == 182_204
    assert steps == {
        "cramped_room": 19_190,
        "asymmetric_advantages": 20_385,
        "coordination_ring": 19_181,
        "forced_coordination": 14_375,
        "counter_circuit_o_1order": 17_971,
    }
    played = Counter(game.layout for game in games_2019)
    assert {layout: round(soups[layout] / played[layout], 1) for layout in played} == {
        "cramped_room": 17.8,
        "asymmetric_advantages": 26.4,
        "coordination_ring": 15.3,
        "forced_coordination": 16.9,
        "counter_circuit_o_1order": 12.2,
    }


def test_2019_games_run_without_gaps_and_states_follow_each_other(games_2019: list[Game]) -> None:
    for game in games_2019:
        assert game.time.tolist() == list(range(game.num_steps))
        assert all(after is state for after, state in zip(game.next_states[:-1], game.states[1:], strict=True))
        assert game.actions.shape == (game.num_steps, 2)
        assert set(np.unique(game.actions)) <= set(range(6))


def test_2019_rewards_and_timers_are_those_of_the_game(games_2019: list[Game]) -> None:
    assert {reward for game in games_2019 for reward in game.rewards.tolist()} == {0.0, 20.0, 40.0}
    timers = {
        item["state"][2]
        for game in games_2019
        for state in game.states
        for item in state["objects"].values()
        if "state" in item
    }
    assert timers == set(range(21))


def test_the_official_split_tests_each_pair_on_layouts_it_was_not_trained_on(games_2019: list[Game]) -> None:
    members = {
        split: {(game.layout, game.players) for game in games_2019 if game.split == split}
        for split in ("train", "test")
    }
    assert (len(members["train"]), len(members["test"])) == (39, 37)
    assert not members["train"] & members["test"]
    assert len({player for game in games_2019 for player in game.players}) == 34


def state_2020(time: int) -> Row:
    soup = {
        "name": "soup",
        "position": [2, 0],
        "_ingredients": [{"name": "onion", "position": [2, 0]}, {"name": "tomato", "position": [2, 0]}],
        "cooking_tick": -1 if time < 2 else time,
        "is_cooking": time >= 2,
        "is_ready": False,
        "is_idle": time < 2,
        "cook_time": -1 if time < 2 else 20,
        "_cooking_tick": -1 if time < 2 else time,
    }
    held = [None, {"name": "dish", "position": [1, 2]}, dict(soup, position=[1, 2])][time % 3]
    return {
        "players": [
            {"position": [1, 1], "orientation": [0, -1], "held_object": None},
            {"position": [1, 2], "orientation": [1, 0], "held_object": held},
        ],
        "objects": [soup, {"name": "tomato", "position": [0, 0]}],
        "bonus_orders": [],
        "all_orders": [{"ingredients": ["onion"]}],
        "timestep": time,
    }


def rows_2020(steps: int = 5) -> list[Row]:
    """Two interleaved games, one against an AI, the second with a row missing inside and its last rows missing."""
    actions = ['[[0, 0], "interact"]', '["INTERACT", [0, -1]]', "[[1, 0], [-1, 0]]", "[[0, 1], [0, 0]]"]
    rows = []
    for time in range(steps):
        for trial, layout in ((17, "counter_circuit"), (18, "random3")):
            if trial == 18 and time in (1, steps - 1):
                continue
            rows.append(
                {
                    "state": json.dumps(state_2020(time)),
                    "joint_action": actions[time % 4],
                    "reward": 20 if time == 3 else 0,
                    "time_left": 60 - time / 6,
                    "score": 0,
                    "time_elapsed": time / 6,
                    "cur_gameloop": time,
                    "layout": "[['X', 'P']]",
                    "layout_name": layout,
                    "trial_id": trial,
                    "player_0_id": 55,
                    "player_1_id": "worker_b" if trial == 17 else "ppo",
                    "player_0_is_human": True,
                    "player_1_is_human": trial == 17,
                    "extra, column": "anything",
                }
            )
    return rows


def as_csv(rows: list[Row]) -> bytes:
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode()


def as_columns(rows: list[Row]) -> dict[str, Any]:
    columns: dict[str, Any] = {field: [row[field] for row in rows] for field in rows[0]}
    columns["cur_gameloop"] = np.array(columns["cur_gameloop"], float)
    columns["trial_id"] = np.array(columns["trial_id"])
    columns["player_1_is_human"] = np.array(columns["player_1_is_human"])
    return columns


def as_arrow(rows: list[Row]) -> bytes:
    columns = as_columns(rows)
    return frame_of_today(columns, {field: arrow_text(columns[field]) for field in ("state", "layout_name")})


def read(content: bytes, folder: Path, name: str = "games.data") -> list[Game]:
    path = folder / name
    path.write_bytes(content)
    return read_mturk_2020(path)


def attempt(content: bytes, folder: Path) -> list[Game] | str:
    """The games, or the message that refuses them."""
    try:
        return read(content, folder)
    except InputError as error:
        return str(error)


def contents(game: Game) -> dict[str, Any]:
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in vars(game).items()}


@pytest.mark.parametrize(
    "write",
    [
        lambda rows: gzip.compress(as_csv(rows)),
        lambda rows: b"\xef\xbb\xbf" + as_csv(rows),
        lambda rows: frame_of_2019(as_columns(rows)),
        lambda rows: bz2.compress(frame_of_today(as_columns(rows))),
        as_arrow,
        lambda rows: frame_of_today({**as_columns(rows), "state": [json.loads(row["state"]) for row in rows]}),
        lambda rows: as_csv(random.Random(0).sample(rows, len(rows))),
    ],
    ids=["gzip", "byte order mark", "old pickle", "new pickle", "arrow", "parsed states", "shuffled"],
)
def test_csv_and_pickles_load_to_the_same_games(write: Any, tmp_path: Path) -> None:
    expected = sorted(map(contents, read(as_csv(rows_2020()), tmp_path)), key=lambda game: game["game"])
    loaded = sorted(map(contents, read(write(rows_2020()), tmp_path)), key=lambda game: game["game"])
    assert loaded == expected


def test_a_2020_game_holds_what_its_rows_say(tmp_path: Path) -> None:
    first, second = read(as_csv(rows_2020()), tmp_path)
    assert (first.layout, first.game, first.players) == ("counter_circuit", "counter_circuit/17", ("55", "worker_b"))
    assert first.actions.tolist() == [[4, 5], [5, 0], [2, 3], [1, 4], [4, 5]]
    assert first.rewards.tolist() == [0, 0, 0, 20, 0]
    assert first.next_states == [*first.states[1:], None]
    assert first.states[2] == state_2020(2)
    assert (second.layout, second.is_human, second.num_decisions) == ("counter_circuit_o_1order", (True, False), 3)
    assert second.time.tolist() == [0, 2, 3]
    assert second.next_states == [None, second.states[2], None]


def spoiled(row: int, field: str, value: object) -> list[Row]:
    rows = rows_2020()
    rows[row][field] = value
    return rows


def spoiled_state(edit: Any) -> list[Row]:
    state = state_2020(0)
    edit(state)
    return spoiled(3, "state", json.dumps(state))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (spoiled(3, "state", '{"players": ['), r"row 4, state: .*malformed"),
        (spoiled(3, "state", "__import__('os')"), r"row 4, state: .*malformed"),
        (spoiled(3, "state", "[" * 100_000), r"row 4, state: .*malformed"),
        (spoiled(3, "state", "null"), r"row 4, state: got None, expected an object"),
        (spoiled_state(lambda s: s["players"].pop()), r"row 4, state: players: .*list of two"),
        (spoiled_state(lambda s: s["players"][0].update(position=[1])), r"players\[0\].position: got \[1\]"),
        (spoiled_state(lambda s: s["players"][1].update(orientation=[0, 0])), r"players\[1\].orientation"),
        (spoiled_state(lambda s: s["objects"][1].update(name="pizza")), r"objects\[1\].name: got 'pizza'"),
        (spoiled_state(lambda s: s["objects"][0].pop("_ingredients")), r"neither state nor a list of _ingredients"),
        (spoiled_state(lambda s: s["objects"][0].update(cooking_tick="x")), r"objects\[0\].cooking_tick"),
        (spoiled(2, "joint_action", "[[0, 2], [0, 0]]"), r"row 3, joint_action: got the action \[0, 2\]"),
        (spoiled(2, "joint_action", "[[0, 0]]"), r"row 3, joint_action: .*two actions"),
        (spoiled(2, "joint_action", ""), r"row 3, joint_action: .*malformed"),
        (spoiled(1, "reward", "many"), r"row 2, reward: got 'many', expected a number"),
        (spoiled(1, "reward", "nan"), r"row 2, reward: got nan"),
        (spoiled(1, "cur_gameloop", 1.5), r"row 2, cur_gameloop: got 1.5, expected a whole number"),
        (spoiled(1, "layout_name", "moon_base"), r"row 2, layout_name: unknown layout 'moon_base', expected one of"),
        (spoiled(2, "player_1_id", "another"), r"row 3, player_0_id.*began \(row 1\)"),
        (spoiled(1, "player_1_is_human", "perhaps"), r"row 2, player_1_is_human: got 'perhaps'"),
        ([dict(row, player_0_id="") for row in rows_2020()], r"row 1, player_0_id: empty"),
        ([{k: v for k, v in row.items() if k != "trial_id"} for row in rows_2020()], r"no column trial_id"),
    ],
)
def test_bad_rows_are_refused_with_file_row_and_field(rows: list[Row], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"games\.data: .*{message}"):
        read(as_csv(rows), tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (as_csv(rows_2020()).splitlines()[0] + b"\n", "no rows"),
        (as_csv(rows_2020())[:-30], "row 8"),
        (b"\xff\xfe\x00garbage", "neither a pickled table nor CSV"),
        (frame_of_today(as_columns(rows_2020()))[:-100], "not a pickled table"),
        (b"\x80\x04cos\nsystem\n.", r"os\.system"),
        (b"state,state\n1,2\n", "two columns are called state"),
    ],
)
def test_bad_files_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"games\.data: .*{message}"):
        read(content, tmp_path)


def test_a_duplicate_time_step_names_both_rows(tmp_path: Path) -> None:
    rows = rows_2020()
    rows.append(dict(rows[0]))
    with pytest.raises(InputError, match=r"row 9, cur_gameloop: time step 0 of trial 17 .*already in row 1: keep one"):
        read(as_csv(rows), tmp_path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["onion", "soup"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["players", "objects", "position", "orientation", "name", "state"]), inner)
    ),
    max_leaves=8,
)
cells = st.text(max_size=20) | json_values.map(json.dumps) | json_values | st.integers() | st.floats()


def altered(value: Any, path: list[int], replacement: Any) -> Any:
    """A copy of a JSON value with one part, found by walking the path, replaced."""
    if not path or not isinstance(value, list | dict) or not value:
        return replacement
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    chosen = keys[path[0] % len(keys)]
    copy = value.copy()
    copy[chosen] = altered(value[chosen], path[1:], replacement)
    return copy


@given(
    st.integers(0, 7),
    st.sampled_from(sorted(set(rows_2020()[0]))),
    cells,
    st.lists(st.integers(0, 9), max_size=6),
    st.booleans(),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cell_loads_or_is_refused(
    tmp_path: Path, row: int, field: str, cell: object, path: list[int], as_pickle: bool
) -> None:
    rows = rows_2020()
    part_of_state = field == "state" and path
    rows[row][field] = json.dumps(altered(state_2020(0), path, cell)) if part_of_state else cell
    if as_pickle:
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        content = frame_of_today(columns)
    else:
        content = as_csv(rows)
    outcome = attempt(content, tmp_path)
    assert "games.data" in outcome if isinstance(outcome, str) else sum(game.num_steps for game in outcome) == 8


@given(st.binary(max_size=300), st.integers(0, 3000))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_in_a_file_load_or_are_refused(tmp_path: Path, noise: bytes, place: int) -> None:
    content = as_csv(rows_2020())
    outcome = attempt(content[:place] + noise + content[place + len(noise) :], tmp_path)
    assert "games.data" in outcome if isinstance(outcome, str) else outcome
