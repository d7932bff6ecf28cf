from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from recorded_games import recorded_columns
from torch import Tensor

from bsdr_torch.worlds.overcooked import (
    Layout,
    check_states,
    from_records,
    happened,
    load_layout,
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


@pytest.fixture(scope="module")
def columns() -> dict[str, np.ndarray]:
    return recorded_columns()


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
def test_every_recorded_step_is_replayed(columns: dict[str, np.ndarray], name: str) -> None:
    layout = load_layout(name)
    recorded = Recorded(layout, columns, name)
    assert len(recorded.before) == STEPS[name]
    states, rewards, events = step(layout, recorded.before, recorded.actions)
    wrong = (states != recorded.after).any(1)
    assert not wrong.any(), f"{int(wrong.sum())} steps differ, first {int(wrong.nonzero()[0])}"
    assert torch.equal(rewards.double(), 20 * recorded.deliveries)
    assert torch.equal(happened(events, "soup_served").sum(1).double(), recorded.deliveries)
    check_states(layout, states)


@pytest.mark.parametrize("name", STEPS)
def test_recorded_states_survive_packing(columns: dict[str, np.ndarray], name: str) -> None:
    layout = load_layout(name)
    recorded = Recorded(layout, columns, name)
    written = to_records(layout, recorded.unique)
    assert torch.equal(from_records(layout, written), recorded.unique)
    assert [json.loads(json.dumps(record)) for record in written] == [_capped(record) for record in recorded.records]


@pytest.mark.parametrize("name", STEPS)
def test_games_begin_where_the_layout_says(columns: dict[str, np.ndarray], name: str) -> None:
    layout = load_layout(name)
    recorded = Recorded(layout, columns, name)
    first: Tensor = recorded.before[torch.from_numpy(recorded.loops == 0)]
    assert torch.equal(first, start_states(layout, len(first)))


def _capped(record: dict) -> dict:
    """The record with timers of ready soups at 20."""
    held = [player["held_object"] for player in record["players"] if "held_object" in player]
    for item in [*record["objects"].values(), *held]:
        if "state" in item:
            item["state"][2] = min(item["state"][2], 20)
    return record
