from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from bsdr_torch.data.mturk import FILES_2019
from bsdr_torch.data.tables import read_table
from bsdr_torch.worlds.overcooked import (
    Layout,
    check_states,
    from_records,
    happened,
    load_layout,
    packaged_file,
    parse_record,
    start_states,
    step,
    to_records,
)

STEPS = {
    "cramped_room": 19_190,
    "asymmetric_advantages": 20_385,
    "coordination_ring": 19_181,
    "random0": 14_375,
    "random3": 17_971,
}
ACTIONS = {(0, -1): 0, (0, 1): 1, (1, 0): 2, (-1, 0): 3, (0, 0): 4, "INTERACT": 5}


FIELDS = ("state", "next_state", "joint_action", "reward", "layout_name", "cur_gameloop")


@cache
def columns() -> dict[str, np.ndarray]:
    """The columns of both files, one after the other."""
    tables = [read_table(packaged_file(file), FIELDS).columns for file in FILES_2019.values()]
    return {field: np.concatenate([table[field] for table in tables]) for field in FIELDS}


@cache
def recorded_games(name: str) -> Recorded:
    return Recorded(load_layout(name), columns(), name)


class Recorded:
    """The recorded steps of a layout, packed."""

    def __init__(self, layout: Layout, columns: dict[str, np.ndarray], name: str) -> None:
        rows = columns["layout_name"] == name
        texts, inverse = np.unique(
            np.concatenate([columns["state"][rows], columns["next_state"][rows]]), return_inverse=True
        )
        self.records = [parse_record(text) for text in texts]
        self.unique = from_records(layout, self.records)
        packed = self.unique[torch.from_numpy(inverse)]
        self.before, self.after = packed[: rows.sum()], packed[rows.sum() :]
        codes = {
            text: [ACTIONS[tuple(action) if isinstance(action, list) else action] for action in parse_record(text)]
            for text in set(columns["joint_action"][rows])
        }
        self.actions = torch.tensor([codes[text] for text in columns["joint_action"][rows]])
        self.deliveries = torch.from_numpy(columns["reward"][rows] / 5)
        self.loops = columns["cur_gameloop"][rows]


@pytest.mark.parametrize("name", STEPS)
def test_every_recorded_step_is_replayed(name: str) -> None:
    layout, recorded = load_layout(name), recorded_games(name)
    assert len(recorded.before) == STEPS[name]
    states, rewards, events = step(layout, recorded.before, recorded.actions)
    wrong = (states != recorded.after).any(1)
    assert not wrong.any(), f"{int(wrong.sum())} steps differ, first {int(wrong.nonzero()[0])}"
    assert torch.equal(rewards.double(), 20 * recorded.deliveries)
    assert torch.equal(happened(events, "soup_served").sum(1).double(), recorded.deliveries)
    check_states(layout, states)


@pytest.mark.parametrize("name", STEPS)
def test_recorded_states_survive_packing(name: str) -> None:
    layout, recorded = load_layout(name), recorded_games(name)
    written = to_records(layout, recorded.unique)
    assert torch.equal(from_records(layout, written), recorded.unique)
    assert written == [_capped(record) for record in recorded.records]


@pytest.mark.parametrize("name", STEPS)
def test_games_begin_where_the_layout_says(name: str) -> None:
    layout, recorded = load_layout(name), recorded_games(name)
    first: Tensor = recorded.before[torch.from_numpy(recorded.loops == 0)]
    assert torch.equal(first, start_states(layout, len(first)))


def _capped(record: dict) -> dict:
    """The record with timers of ready soups at 20."""
    held = [player["held_object"] for player in record["players"] if "held_object" in player]
    for item in [*record["objects"].values(), *held]:
        if "state" in item:
            item["state"][2] = min(item["state"][2], 20)
    return record
