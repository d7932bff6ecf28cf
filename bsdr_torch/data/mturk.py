"""The Overcooked games of Mechanical Turk workers: the 2019 set in overcooked-ai, and files in the 2020 schema."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bsdr_torch.data.games import Game, RecordedState
from bsdr_torch.data.recorded_states import parse_joint_action, parse_state_2019, parse_state_2020
from bsdr_torch.data.tables import Table, read_table
from bsdr_torch.worlds.overcooked import layout_names, packaged_file

SOURCE_2019, SOURCE_2020 = "mturk_2019", "mturk_2020"

# The studies named two kitchens by the order of their making.
COMMON_NAMES = {"random0": "forced_coordination", "random3": "counter_circuit_o_1order"}
FILES_2019 = {"train": "data/human_data/clean_train_trials.pickle", "test": "data/human_data/clean_test_trials.pickle"}
LAYOUTS_2019 = (
    "cramped_room",
    "asymmetric_advantages",
    "coordination_ring",
    "forced_coordination",
    "counter_circuit_o_1order",
)

_FIELDS_2019 = ("state", "next_state", "joint_action", "reward", "cur_gameloop", "layout_name", "workerid_num")
_FIELDS_2020 = (
    "state",
    "joint_action",
    "reward",
    "cur_gameloop",
    "layout_name",
    "trial_id",
    "player_0_id",
    "player_1_id",
    "player_0_is_human",
    "player_1_is_human",
)

# A delivery was recorded as 5 points in 2019; the game gives 20.
_DELIVERY_2019 = 20
_REWARD_SCALE_2019 = _DELIVERY_2019 / 5


def read_mturk_2019(train: Path | str | None = None, test: Path | str | None = None) -> list[Game]:
    """The 2019 games of two people, from the files in the installed overcooked-ai or from given ones."""
    games: list[Game] = []
    with _no_garbage_collection():
        games += _games_2019(train or packaged_file(FILES_2019["train"]), "train")
        games += _games_2019(test or packaged_file(FILES_2019["test"]), "test")
    return games


def read_mturk_2020(
    path: Path | str, rules: Literal[2019, 2020] = 2020, layouts: Collection[str] | None = None
) -> list[Game]:
    """The games in a file of the 2020 schema, CSV or pickled DataFrame, plain or compressed.

    Args:
        path: the file.
        rules: the rule set the games obey; 2019 games were also published in this schema.
        layouts: the names of the kitchens that may occur; by default all that the simulator knows.
    """
    with _no_garbage_collection():
        return _games_2020(path, rules, layout_names() if layouts is None else layouts)


def _games_2019(path: Path | str, split: Literal["train", "test"]) -> Iterator[Game]:
    table = read_table(path, _FIELDS_2019)
    layout_names = _layouts(table, LAYOUTS_2019)
    pairs = table.integers("workerid_num").tolist()
    known: dict[str, RecordedState] = {}
    states = table.parsed("state", parse_state_2019, known)
    next_states = table.parsed("next_state", parse_state_2019, known)
    actions = np.array(table.parsed("joint_action", parse_joint_action), np.int8)
    rewards = table.numbers("reward") * _REWARD_SCALE_2019
    time = table.integers("cur_gameloop")
    for (layout, pair), group in table.groups([layout_names, pairs]).items():
        rows = _in_order(table, group, time, f"pair {pair} on {layout}")
        yield Game(
            source=SOURCE_2019,
            rules=2019,
            layout=str(layout),
            game=f"{layout}/{pair}",
            players=(f"{pair}/0", f"{pair}/1"),
            is_human=(True, True),
            states=[states[row] for row in rows],
            next_states=[next_states[row] for row in rows],
            actions=actions[rows],
            rewards=rewards[rows].astype(np.float32),
            time=time[rows],
            split=split,
        )


def _games_2020(path: Path | str, rules: Literal[2019, 2020], known_layouts: Collection[str]) -> list[Game]:
    table = read_table(path, _FIELDS_2020)
    layout_names = _layouts(table, known_layouts)
    trials = table.names("trial_id")
    players = list(zip(table.names("player_0_id"), table.names("player_1_id"), strict=True))
    is_human = list(zip(table.booleans("player_0_is_human"), table.booleans("player_1_is_human"), strict=True))
    states = table.parsed("state", parse_state_2020)
    actions = np.array(table.parsed("joint_action", parse_joint_action), np.int8)
    rewards = table.numbers("reward").astype(np.float32)
    if rules == 2019 and rewards.max() < _DELIVERY_2019:
        rewards *= _REWARD_SCALE_2019
    time = table.integers("cur_gameloop")
    games = []
    for (layout, trial), group in table.groups([layout_names, trials]).items():
        rows = _in_order(table, group, time, f"trial {trial} on {layout}")
        first = rows[0]
        for row in rows:
            if players[row] != players[first] or is_human[row] != is_human[first]:
                table.fail(
                    row,
                    "player_0_id, player_1_id, player_0_is_human, player_1_is_human",
                    f"got {players[row]} {is_human[row]} in trial {trial}, which began (row {first + 1}) "
                    f"with {players[first]} {is_human[first]}: a trial is one game of the same two players",
                )
        for seat in (0, 1):
            if is_human[first][seat] and not players[first][seat]:
                table.fail(first, f"player_{seat}_id", "empty, expected the id of the person who played")
        games.append(
            Game(
                source=SOURCE_2020,
                rules=rules,
                layout=str(layout),
                game=f"{layout}/{trial}",
                players=players[first],
                is_human=is_human[first],
                states=[states[row] for row in rows],
                next_states=[states[after] if time[after] == time[row] + 1 else None for row, after in pairwise(rows)]
                + [None],
                actions=actions[rows],
                rewards=rewards[rows],
                time=time[rows],
            )
        )
    return games


def _layouts(table: Table, known: Collection[str]) -> list[str]:
    """The common name of the kitchen of each row."""
    names = [COMMON_NAMES.get(name, name) for name in table.names("layout_name")]
    unknown = set(names).difference(known)
    if unknown:
        row = next(row for row, name in enumerate(names) if name in unknown)
        table.fail(row, "layout_name", f"unknown layout {names[row]!r:.60}, expected one of {', '.join(sorted(known))}")
    return names


def _in_order(table: Table, rows: NDArray[np.int64], time: NDArray[np.int32], game: str) -> NDArray[np.int64]:
    """The rows of one game by time step, each step once."""
    rows = rows[np.argsort(time[rows], kind="stable")]
    repeated = np.flatnonzero(np.diff(time[rows]) == 0)
    if repeated.size:
        first, second = rows[repeated[0]], rows[repeated[0] + 1]
        table.fail(
            int(second), "cur_gameloop", f"time step {time[second]} of {game} is already in row {first + 1}: keep one"
        )
    return rows


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # Parsed states hold no cycles, but the collector would walk all of them again and again as they pile up.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
