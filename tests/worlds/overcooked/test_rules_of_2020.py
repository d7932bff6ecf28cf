"""The 2020 rules against overcooked-ai's own. All of it: pytest tests/worlds/overcooked --full"""

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from bsdr_torch.worlds.overcooked import (
    ACTIONS,
    OVERCOOKED_AI_ACTIONS,
    Layout,
    from_overcooked,
    from_records,
    happened,
    load_package_layout,
    overcooked_ai_mdp,
    package_layout_names,
    start_states,
    step,
    to_overcooked,
    to_records,
)
from tests.worlds.overcooked.random_kitchens import BusyPlayer, random_joint_actions, random_states

THEIR_EVENTS = {
    "onion_pickup": "onion_pickup",
    "dish_pickup": "dish_pickup",
    "soup_pickup": "soup_pickup",
    "onion_drop": "onion_drop",
    "tomato_drop": "tomato_drop",
    "dish_drop": "dish_drop",
    "soup_drop": "soup_drop",
    "onion_potted": "potting_onion",
    "tomato_potted": "potting_tomato",
    "soup_served": "soup_delivery",
}


class Played(NamedTuple):
    """Joint steps as overcooked-ai plays them."""

    before: list[Any]
    actions: list[tuple[int, int]]
    after: list[Any]
    infos: list[dict[str, Any]]


@pytest.mark.parametrize("name", package_layout_names())
def test_any_state_is_followed_by_what_overcooked_ai_says(name: str, steps: int) -> None:
    layout, game = load_package_layout(name), overcooked_ai_mdp().OvercookedGridworld.from_layout_name(name)
    states = random_states(layout, steps // 2, _seed(name))
    actions = [(int(a0), int(a1)) for a0, a1 in random_joint_actions(steps // 2, _seed(name) + 1)]
    before = to_overcooked(layout, states)
    assert torch.equal(from_overcooked(layout, before), states)
    outcomes = [game.get_state_transition(*_theirs(pair)) for pair in zip(before, actions, strict=True)]
    events = _compare(layout, Played(before, actions, [new for new, _ in outcomes], [info for _, info in outcomes]))
    for event in ("soup_served", "soup_drop", "soup_pickup", "cooking_started"):
        assert happened(events, event).any() or steps < 1000, f"no {event} was seen: the test shows too little"


@pytest.mark.parametrize("name", package_layout_names())
def test_games_go_on_as_in_overcooked_ai(name: str, steps: int) -> None:
    layout, game = load_package_layout(name), overcooked_ai_mdp().OvercookedGridworld.from_layout_name(name)
    state = game.get_standard_start_state()
    assert torch.equal(from_overcooked(layout, [state]), start_states(layout))
    players = [BusyPlayer(layout, _seed(name) + number) for number in (0, 1)]
    played = Played([], [], [], [])
    for _ in range(steps // 2):
        held = [player.held_object.name if player.held_object else None for player in state.players]
        joint = tuple(
            busy.action(player.position, player.orientation, thing)
            for busy, player, thing in zip(players, state.players, held, strict=True)
        )
        following, infos = game.get_state_transition(*_theirs((state, joint)))
        for column, value in zip(played, (state, joint, following, infos), strict=True):
            column.append(value)
        state = following
    _compare(layout, played)


@pytest.fixture
def steps(full: bool) -> int:
    return 5000 if full else 200


def _compare(layout: Layout, played: Played) -> Tensor:
    """Step the same states and compare all; returns the events."""
    before, after = from_overcooked(layout, played.before), from_overcooked(layout, played.after)
    states, rewards, events = step(layout, before, torch.tensor(played.actions))
    wrong = (states != after).any(1)
    assert not wrong.any(), _difference(layout, played, int(wrong.nonzero()[0]), states)
    assert rewards.tolist() == [sum(info["sparse_reward_by_agent"]) for info in played.infos]
    for ours, theirs in THEIR_EVENTS.items():
        assert happened(events, ours).tolist() == [info["event_infos"][theirs] for info in played.infos], ours
    # Packing keeps everything, not just enough to agree.
    times = [state.timestep for state in played.after]
    records = to_records(layout, states, times)
    assert [_sorted(record) for record in records] == [_sorted(state.to_dict()) for state in played.after]
    assert torch.equal(from_records(layout, [json.dumps(record) for record in records]), states)
    return events


def _theirs(step_: tuple[Any, tuple[int, ...]]) -> tuple[Any, list[Any]]:
    state, actions = step_
    return state, [OVERCOOKED_AI_ACTIONS[action] for action in actions]


def _sorted(record: dict[str, Any]) -> dict[str, Any]:
    """A record as JSON knows it, with what has no order in a fixed order."""
    record = json.loads(json.dumps(record))
    record["objects"].sort(key=lambda item: item["position"])
    for item in [*record["objects"], *(player["held_object"] or {} for player in record["players"])]:
        if "_ingredients" in item:
            item["_ingredients"].sort(key=lambda part: part["name"])
    for orders in ("all_orders", "bonus_orders"):
        record[orders] = sorted(sorted(order["ingredients"]) for order in record[orders])
    return record


def _difference(layout: Layout, played: Played, row: int, states: Tensor) -> str:
    ours = to_records(layout, states[row : row + 1])[0]
    joint = [ACTIONS[action] for action in played.actions[row]]
    return f"after {joint} in\n{played.before[row]}\nwe have\n{ours}\nand overcooked-ai\n{played.after[row]}"


def _seed(name: str) -> int:
    return zlib.crc32(name.encode())
