"""Games that the simulator plays, written in exactly the schema of the 2020 files, with all its awkward things."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bsdr_torch.data.packed_games import kitchen
from bsdr_torch.worlds.overcooked import DIRECTIONS, Layout, held_objects, start_states, step, to_records
from bsdr_torch.worlds.overcooked.state import SOUP
from tests.data.pickled_tables import frame_of_today

Row = dict[str, Any]


@dataclass
class Played:
    """One game of T steps: states `[T, W]`, actions `[T, 2]`, rewards `[T]`."""

    layout: Layout
    states: Tensor
    actions: Tensor
    rewards: Tensor


@cache
def play(layout_name: str, games: int, steps: int = 120, rules: int = 2020, seed: int = 0) -> list[Played]:
    """Of many games in which players act at random and INTERACT often, those with most soups in hands and served."""
    layout = kitchen(layout_name, rules)
    generator = torch.Generator().manual_seed(seed)
    many = 200
    state = start_states(layout, many)
    chances = torch.tensor([1.0, 1, 1, 1, 0.3, 4]).repeat(2 * many, 1)
    states, actions, rewards = [], [], []
    for _ in range(steps):
        action = torch.multinomial(chances, 1, generator=generator).view(many, 2)
        following, reward, _ = step(layout, state, action)
        states.append(state)
        actions.append(action)
        rewards.append(reward)
        state = following
    all_states, all_actions, all_rewards = (torch.stack(parts, 1) for parts in (states, actions, rewards))
    soups_held = (held_objects(all_states) > SOUP).sum((1, 2))
    best = torch.argsort(soups_held + all_rewards.sum(1), descending=True, stable=True)[:games]
    return [Played(layout, all_states[g], all_actions[g], all_rewards[g]) for g in best.tolist()]


def rows_of(
    game: Played, trial: object, players: tuple[object, object], is_human: tuple[bool, bool] = (True, True)
) -> list[Row]:
    """A row per step, as the raw CSV has them; INTERACT is spelled in both ways."""
    times = list(range(1, len(game.states) + 1))
    records = to_records(game.layout, game.states, [time - 1 for time in times])
    score = game.rewards.cumsum(0)
    return [
        {
            "state": json.dumps(record),
            "joint_action": json.dumps([_action(int(a), "interact" if time % 2 else "INTERACT") for a in pair]),
            "reward": int(reward),
            "time_left": 60 - 0.15 * time,
            "score": float(total),
            "time_elapsed": 0.15 * time,
            "cur_gameloop": time,
            "layout": json.dumps([list(row) for row in game.layout.grid]),
            "layout_name": game.layout.name,
            "trial_id": trial,
            "player_0_id": players[0],
            "player_1_id": players[1],
            "player_0_is_human": is_human[0],
            "player_1_is_human": is_human[1],
            "button_press_total": 17,
        }
        for time, record, pair, reward, total in zip(
            times, records, game.actions.tolist(), game.rewards.tolist(), score.tolist(), strict=True
        )
    ]


def awkward_rows() -> list[Row]:
    """Five games, interleaved: text and numeric ids, one against an AI, one with a gap, one that ends early."""
    circuit = play("counter_circuit", 2)
    tomato = play("asymmetric_advantages_tomato", 2, seed=1)
    (cramped,) = play("cramped_room", 1, seed=2)
    games = [
        rows_of(circuit[0], "a:1", ("anna", "bert")),
        rows_of(circuit[1], 12, (7, "AI"), (True, False)),
        [row for row in rows_of(tomato[0], 13, ("carl", 8)) if row["cur_gameloop"] not in (40, 41)],
        rows_of(tomato[1], 14.0, (9, "dora"))[:70],
        rows_of(cramped, 15, ("anna", "bert")),
    ]
    longest = max(map(len, games))
    return [game[place] for place in range(longest) for game in games if place < len(game)]


def write_csv(rows: list[Row], path: Path) -> Path:
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(stream.getvalue())
    return path


def write_pickle(rows: list[Row], path: Path) -> Path:
    columns: dict[str, Any] = {field: [row[field] for row in rows] for field in rows[0]}
    columns["cur_gameloop"] = np.array(columns["cur_gameloop"])
    columns["reward"] = np.array(columns["reward"])
    columns["player_0_is_human"] = np.array(columns["player_0_is_human"])
    path.write_bytes(frame_of_today(columns))
    return path


def _action(action: int, interact: str) -> object:
    return interact if action == 5 else [0, 0] if action == 4 else list(DIRECTIONS[action])
