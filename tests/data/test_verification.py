from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bsdr_torch.data.games import Game
from bsdr_torch.data.mturk import read_mturk_2020
from bsdr_torch.data.packed_games import AGREES, DIFFERS, UNKNOWN, kitchen
from bsdr_torch.data.verification import verify
from bsdr_torch.errors import InputError
from tests.data.simulated_games import Row, play, rows_of, write_csv


@pytest.fixture(scope="module")
def two_games() -> list[Row]:
    one, other = play("counter_circuit", 2, steps=60)
    return rows_of(one, "one", ("anna", "bert")) + rows_of(other, "other", ("carl", "dora"))


def read(rows: list[Row], folder: Path) -> list[Game]:
    return read_mturk_2020(write_csv(rows, folder / "games.csv"))


def with_a_break(rows: list[Row], at: int) -> list[Row]:
    """The rows with an onion that appears from nowhere in the hand of a player, in one recorded state."""
    state = json.loads(rows[at]["state"])
    player = state["players"][0]
    player["held_object"] = {"name": "tomato" if player["held_object"] else "onion", "position": player["position"]}
    return [*rows[:at], dict(rows[at], state=json.dumps(state)), *rows[at + 1 :]]


def test_what_the_simulator_played_is_verified_and_comes_back_as_it_was(two_games: list[Row], tmp_path: Path) -> None:
    packed, replay = verify(read(two_games, tmp_path))
    played = play("counter_circuit", 2, steps=60)
    assert torch.equal(packed.states, torch.cat([game.states for game in played]))
    assert torch.equal(packed.actions.long(), torch.cat([game.actions for game in played]))
    assert torch.equal(packed.rewards, torch.cat([game.rewards for game in played]))
    assert (replay.transitions, replay.agree, replay.unknown, replay.broken_games) == (118, 118, 2, [])
    assert replay.rewards_agree == 120
    assert packed.agrees.tolist() == ([AGREES] * 59 + [UNKNOWN]) * 2


def test_a_break_is_found_where_it_is(two_games: list[Row], tmp_path: Path) -> None:
    packed, replay = verify(read(with_a_break(two_games, 20), tmp_path))
    # The transition into the altered state differs; the one out of it may not, if the hand stays as it is.
    assert packed.agrees[19] == DIFFERS
    assert replay.agree < replay.transitions == 118
    assert replay.broken_games == ["counter_circuit/one"]
    assert "1 games differ: kept as recorded, 0 steps removed" in str(replay)


@pytest.mark.parametrize(("on_break", "kept"), [("keep", 120), ("cut", 80), ("drop", 60)])
def test_a_broken_game_is_kept_cut_or_dropped(on_break: Any, kept: int, two_games: list[Row], tmp_path: Path) -> None:
    packed, replay = verify(read(with_a_break(two_games, 20), tmp_path), on_break)
    assert len(packed) == kept
    assert replay.removed_steps == 120 - kept
    assert packed.games == (
        ["counter_circuit/other"] if on_break == "drop" else ["counter_circuit/one", "counter_circuit/other"]
    )
    assert packed.game.max() == len(packed.games) - 1
    whole, _ = verify(read(two_games, tmp_path))
    unbroken = packed.game == len(packed.games) - 1
    assert torch.equal(packed.states[unbroken], whole.states[60:])


def test_a_game_cut_at_the_break_ends_with_the_step_whose_outcome_differs(two_games: list[Row], tmp_path: Path) -> None:
    packed, _ = verify(read(with_a_break(two_games, 20), tmp_path), "cut")
    assert packed.lengths.tolist() == [20, 60]
    assert packed.agrees[:20].tolist() == [AGREES] * 19 + [DIFFERS]


def test_a_wrong_reward_is_counted_and_kept(two_games: list[Row], tmp_path: Path) -> None:
    rows = [dict(two_games[0], reward=3), *two_games[1:]]
    packed, replay = verify(read(rows, tmp_path))
    assert (replay.agree, replay.rewards_agree) == (118, 119)
    assert packed.rewards[0] == 3
    assert "1 rewards differ: kept as recorded" in str(replay)


def test_games_of_2019_in_the_2020_schema_obey_the_rules_of_2019(tmp_path: Path) -> None:
    games = play("cramped_room", 2, rules=2019, steps=200)
    assert sum(game.rewards.sum() for game in games) > 0
    rows = [row for number, game in enumerate(games) for row in rows_of(game, number, ("a", "b"))]
    path = write_csv(rows, tmp_path / "new_points.csv")
    packed, replay = verify(read_mturk_2020(path, rules=2019))
    assert packed.soups.sum() * 20 == packed.rewards.sum()
    assert (replay.agree, replay.rewards_agree) == (398, 400)
    for row in rows:
        row["reward"] /= 4  # as recorded in 2019, 5 points a soup
    _, replay = verify(read_mturk_2020(write_csv(rows, tmp_path / "old_points.csv"), rules=2019))
    assert replay.rewards_agree == 400
    _, replay = verify(read_mturk_2020(path, rules=2020))
    assert replay.agree < replay.transitions


def test_a_state_of_another_kitchen_names_game_step_and_field(two_games: list[Row], tmp_path: Path) -> None:
    rows = [dict(row) for row in two_games]
    state = json.loads(rows[5]["state"])
    state["players"][0]["position"] = [0, 0]
    rows[5]["state"] = json.dumps(state)
    message = (
        r"counter_circuit/one, cur_gameloop 5 or the step after, state: players\[0\].position: \[0, 0\] is not a floor"
    )
    with pytest.raises(InputError, match=message):
        verify(read(rows, tmp_path))


def test_a_kitchen_is_that_of_the_year() -> None:
    assert kitchen("cramped_room", 2019).rules == 2019
    assert kitchen("cramped_room", 2020).rules == 2020
    with pytest.raises(InputError, match="counter_circuit is a kitchen of the rules of 2020"):
        kitchen("counter_circuit", 2019)
