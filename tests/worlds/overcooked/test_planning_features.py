from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import (
    ACTIONS,
    CONTENTS,
    DIRECTIONS,
    EVENTS,
    FEATURE_GROUPS,
    FEATURE_NAMES,
    INTERACT,
    STAY,
    Layout,
    cells,
    counter_objects,
    encode_features,
    happened,
    held_objects,
    layout_names,
    load_layout,
    orientations,
    pot_contents,
    pot_ticks,
    pots_ready,
    start_states,
    step,
    swap_players,
)
from bsdr_torch.worlds.overcooked.layouts import Cell
from bsdr_torch.worlds.overcooked.state import OBJECT_NAMES
from tests.worlds.overcooked.random_kitchens import random_states

Pose = tuple[Cell, int]

KITCHENS = [
    *("cramped_room", "asymmetric_advantages", "coordination_ring", "forced_coordination", "random3"),
    *("counter_circuit", "you_shall_not_pass", "soup_coordination", "long_cook_time"),
]
GOALS = [name.removeprefix("partner_near_") for name in FEATURE_NAMES if name.startswith("partner_near_")]


@pytest.mark.parametrize("name", KITCHENS)
def test_distances_and_directions_are_those_of_a_plain_search(name: str, full: bool) -> None:
    layout = load_layout(name)
    states = random_states(layout, 40 if full else 4, 0)
    for seat in (0, 1):
        features = encode_features(layout, states, seat)
        for row in range(len(states)):
            found = dict(zip(FEATURE_NAMES, features[row].tolist(), strict=True))
            _check_ways(layout, states[row : row + 1], seat, found)


def _check_ways(layout: Layout, state: Tensor, seat: int, found: dict[str, float]) -> None:
    places = [layout.floor[int(cell)] for cell in cells(state)[0]]
    poses = [(place, int(looks)) for place, looks in zip(places, orientations(state)[0], strict=True)]
    me, you = poses[seat], poses[1 - seat]
    targets = _targets(layout, state)
    for goal in GOALS:
        own = [_moves(layout, me, targets[goal], wall) for wall in (None, you[0])]
        theirs = [_moves(layout, you, targets[goal], wall) for wall in (None, me[0])]
        for prefix, (free, hindered) in (("", own), ("partner_", theirs)):
            assert found[f"{prefix}near_{goal}"] == pytest.approx(0 if free is None else 8 / (8 + free)), goal
            assert found[f"{prefix}reach_{goal}"] == (free is not None), goal
            assert found[f"{prefix}detour_{goal}"] == _detour(free, hindered), goal
        for action, direction in enumerate(ACTIONS[:4]):
            for group, wall, now in (("toward", None, own[0]), ("around", you[0], own[1])):
                after = _moves(layout, _after(layout, me, action, wall), targets[goal], wall)
                assert found[f"{group}_{goal}_{direction}"] == (0 if now is None else now - (after or 0)), goal
    meeting = _moves(layout, me, [you[0]], you[0])
    assert found["near_partner"] == pytest.approx(0 if meeting is None else 8 / (8 + meeting))
    for action, direction in enumerate(ACTIONS[:4]):
        after = _moves(layout, _after(layout, me, action, you[0]), [you[0]], you[0])
        assert found[f"toward_partner_{direction}"] == (0 if meeting is None else meeting - (after or 0))
    walls = ((None, None), (you[0], me[0]))
    handover = [_handover(layout, me, you, targets["free_counter"], *pair) for pair in walls]
    assert found["near_handover"] == pytest.approx(0 if handover[0] is None else 8 / (8 + handover[0]))
    assert found["reach_handover"] == (handover[0] is not None)
    assert found["detour_handover"] == _detour(*handover)
    for action, direction in enumerate(ACTIONS[:4]):
        for group, pair, now in (("toward", walls[0], handover[0]), ("around", walls[1], handover[1])):
            after = _handover(layout, _after(layout, me, action, pair[0]), you, targets["free_counter"], *pair)
            assert found[f"{group}_handover_{direction}"] == (0 if now is None else now - (after or 0))


@pytest.mark.parametrize("name", KITCHENS)
def test_a_move_that_promises_to_lead_around_the_partner_does(name: str) -> None:
    layout = load_layout(name)
    states = random_states(layout, 300, 1)
    before = encode_features(layout, states, 0)
    seen = 0
    for action, direction in enumerate(ACTIONS[:4]):
        following, _, _ = step(layout, states, torch.tensor([[action, STAY]]).expand(len(states), 2))
        after = encode_features(layout, following, 0)
        for goal in ("onions", "dishes", "serving", "counter_soup", "free_counter"):
            promised = before[:, FEATURE_NAMES.index(f"around_{goal}_{direction}")] == 1
            free = (before[:, FEATURE_NAMES.index(f"detour_{goal}")] == 0) & (
                after[:, FEATURE_NAMES.index(f"detour_{goal}")] == 0
            )
            near = FEATURE_NAMES.index(f"near_{goal}")
            moves = [8 / features[promised & free, near] - 8 for features in (before, after)]
            torch.testing.assert_close(moves[1], moves[0] - 1)
            seen += len(moves[0])
    assert seen > 100


@pytest.mark.parametrize("name", layout_names())
def test_interact_does_what_the_features_say(name: str) -> None:
    layout = load_layout(name)
    states = random_states(layout, 300, 2)
    for seat in (0, 1):
        joint_action = [INTERACT, STAY] if seat == 0 else [STAY, INTERACT]
        _, _, events = step(layout, states, torch.tensor([joint_action]).expand(len(states), 2))
        for group, features in (
            ("interact", encode_features(layout, states, seat)),
            ("partner_interact", encode_features(layout, states, 1 - seat)),
        ):
            for event in EVENTS:
                said = features[:, FEATURE_NAMES.index(f"{group}_{event}")] == 1
                assert torch.equal(said, happened(events, event)[:, seat]), event
            anything = features[:, FEATURE_NAMES.index(f"{group}_anything")] == 1
            assert torch.equal(anything, events[:, seat] != 0)


@pytest.mark.parametrize("name", KITCHENS)
def test_a_no_op_move_leaves_the_pose_as_it_is(name: str) -> None:
    layout = load_layout(name)
    states = random_states(layout, 300, 3)
    features = encode_features(layout, states, 0)
    for action, direction in enumerate(ACTIONS[:4]):
        following, _, _ = step(layout, states, torch.tensor([[action, STAY]]).expand(len(states), 2))
        stays = features[:, FEATURE_NAMES.index(f"stance_no_op_{direction}")] == 1
        assert torch.equal(stays, following[:, 0] == states[:, 0])
        blocked = features[:, FEATURE_NAMES.index(f"stance_blocked_{direction}")]
        blocked = blocked + features[:, FEATURE_NAMES.index(f"stance_partner_at_{direction}")]
        assert torch.equal(blocked == 1, cells(following)[:, 0] == cells(states)[:, 0])


@pytest.mark.parametrize("name", KITCHENS)
def test_what_is_faced_and_held_and_where_the_partner_is(name: str) -> None:
    layout = load_layout(name)
    states = random_states(layout, 60, 4)
    features = encode_features(layout, states, 1)
    for row in range(len(states)):
        found = dict(zip(FEATURE_NAMES, features[row].tolist(), strict=True))
        (px, py), (x, y) = (layout.floor[int(cell)] for cell in cells(states)[row])
        looks = int(orientations(states)[row, 1])
        ahead = (x + DIRECTIONS[looks][0], y + DIRECTIONS[looks][1])
        faced = [goal for goal, where in _targets(layout, states[row : row + 1]).items() if ahead in where]
        faced = faced or ["floor" if ahead in layout.floor else "wall"]
        assert [name for name in FEATURE_NAMES if name.startswith("facing_") and found[name]] == [f"facing_{faced[0]}"]
        assert found["stance_faces_partner"] == (ahead == (px, py))
        assert [found[f"stance_looks_{direction}"] for direction in ACTIONS[:4]].index(1) == looks
        held = OBJECT_NAMES[int(held_objects(states)[row, 1])]
        assert [name for name in ("nothing", "onion", "tomato", "dish", "soup") if found[f"hand_{name}"]] == [held]
        offsets = (max(0, y - py), max(0, py - y), max(0, px - x), max(0, x - px))
        away = [found[f"stance_partner_away_{direction}"] for direction in ACTIONS[:4]]
        assert away == pytest.approx([offset / (8 + offset) for offset in offsets])


@pytest.mark.parametrize("name", KITCHENS)
def test_pots_are_told_one_by_one_the_nearest_first(name: str) -> None:
    layout = load_layout(name)
    states = random_states(layout, 40, 5)
    features = encode_features(layout, states, 0)
    contents, ticks, ready = (fact(layout, states).tolist() for fact in (pot_contents, pot_ticks, pots_ready))
    for row in range(len(states)):
        found = dict(zip(FEATURE_NAMES, features[row].tolist(), strict=True))
        poses = [
            (layout.floor[int(cell)], int(looks))
            for cell, looks in zip(cells(states)[row], orientations(states)[row], strict=True)
        ]
        expected = []
        for pot, cell in enumerate(layout.pots):
            moves = [_moves(layout, pose, [cell], None) for pose in poses]
            near, partner_near = (0 if way is None else 8 / (8 + way) for way in moves)
            onions, tomatoes = CONTENTS[contents[row][pot]]
            left = layout.cook_times[contents[row][pot]] - ticks[row][pot]
            soon = 0 if ticks[row][pot] < 0 else 8 / (8 + left)
            expected.append([near, partner_near, onions / 3, tomatoes / 3, ready[row][pot], soon])
        facts = ("near", "partner_near", "onions_in", "tomatoes_in", "ready", "soon")
        told = [[found[f"pot_{slot}_{fact}"] for fact in facts] for slot in range(2) if found[f"pot_{slot}_exists"]]
        torch.testing.assert_close(torch.tensor(sorted(told)), torch.tensor(sorted(expected), dtype=torch.float32))
        assert found["pot_0_near"] >= found["pot_1_near"]


def test_pots_and_soups_tell_what_they_are_worth() -> None:
    layout = load_layout("counter_circuit")  # onion + tomato earns a bonus: 68, beside 55 and 47
    states = start_states(layout)
    states[0, 1] = 3 + CONTENTS.index((2, 1))
    states[0, 4] = CONTENTS.index((0, 1))
    found = dict(zip(FEATURE_NAMES, encode_features(layout, states, 0)[0].tolist(), strict=True))
    assert found["hand_worth"] == pytest.approx(55 / 68)
    assert found["recipes_onion_tomato"] == 1
    assert found["recipes_onion"] == 0
    filled = 0 if found["pot_0_tomatoes_in"] else 1
    assert found[f"pot_{filled}_worth"] == 0
    assert found[f"pot_{filled}_worth_at_best"] == 1


@pytest.mark.parametrize("name", KITCHENS)
def test_the_same_kitchen_from_the_other_seat_is_the_kitchen_with_players_swapped(name: str) -> None:
    layout = load_layout(name)
    states, seats = random_states(layout, 100, 6), torch.arange(100) % 2
    features = [encode_features(layout, states, seat) for seat in (0, 1)]
    assert torch.equal(features[1], encode_features(layout, swap_players(states), 0))
    assert not torch.equal(features[0], features[1])
    assert torch.equal(encode_features(layout, states, seats), torch.stack(features)[seats, torch.arange(100)])


def test_all_kitchens_have_the_same_features_and_all_are_small() -> None:
    assert len(set(FEATURE_NAMES)) == len(FEATURE_NAMES)
    assert [slot.start for slot in FEATURE_GROUPS.values()][1:] == [slot.stop for slot in FEATURE_GROUPS.values()][:-1]
    for name in layout_names():
        layout = load_layout(name)
        features = encode_features(layout, random_states(layout, 500, 7), 0)
        assert features.shape == (500, len(FEATURE_NAMES))
        assert features.dtype == torch.float32
        assert features.isfinite().all()
        assert features.min() >= -2
        assert features.max() <= 1


def test_one_state_is_encoded_as_it_is_among_many() -> None:
    layout = load_layout("coordination_ring")
    states = random_states(layout, 10_000, 8)  # more than are encoded at once
    features = encode_features(layout, states, 0)
    for row in (0, 1, 5_000, 9_999):
        assert torch.equal(encode_features(layout, states[row : row + 1], 0)[0], features[row])
    assert encode_features(layout, states[:0], 0).shape == (0, len(FEATURE_NAMES))


def test_a_kitchen_whose_counters_hold_nothing_has_no_counters_in_reach() -> None:
    layout = replace(load_layout("cramped_room"), counters=())
    features = encode_features(layout, random_states(layout, 20, 9), 0)
    for goal in ("reach_free_counter", "reach_counter_onion", "reach_handover", "near_free_counter"):
        assert not features[:, FEATURE_NAMES.index(goal)].any()


def test_wrong_seats_and_states_are_refused() -> None:
    layout = load_layout("cramped_room")
    states = start_states(layout, 3)
    for seat, message in (
        (2, "0 or 1, got 2"),
        (torch.tensor([0, 1]), "each of 3 states"),
        (torch.tensor([0, 1, 3]), "got 3"),
    ):
        with pytest.raises(InputError, match=message):
            encode_features(layout, states, seat)
    with pytest.raises(InputError, match="another layout"):
        encode_features(load_layout("coordination_ring"), states, 0)
    with pytest.raises(InputError, match=r"\[N, W\]"):
        encode_features(layout, states[0], 0)


def _targets(layout: Layout, state: Tensor) -> dict[str, list[Cell]]:
    """Where each of the goals is."""
    targets: dict[str, list[Cell]] = {goal: [] for goal in GOALS}
    for goal, terrain in (("onions", "O"), ("tomatoes", "T"), ("dishes", "D"), ("serving", "S")):
        targets[goal] = list(layout.cells(terrain))
    facts = (pot_contents(layout, state)[0], pot_ticks(layout, state)[0], pots_ready(layout, state)[0])
    for pot, contents, tick, ready in zip(layout.pots, *facts, strict=True):
        number = sum(CONTENTS[int(contents)])
        idle = "empty_pot" if number == 0 else "part_pot" if number < 3 else "full_pot"
        targets["ready_pot" if ready else "cooking_pot" if tick >= 0 else idle].append(pot)
    for counter, thing in zip(layout.counters, counter_objects(layout, state)[0], strict=True):
        targets["free_counter" if thing == 0 else f"counter_{OBJECT_NAMES[int(thing)]}"].append(counter)
    return targets


def _after(layout: Layout, pose: Pose, action: int, wall: Cell | None) -> Pose:
    (x, y), _ = pose
    there = (x + DIRECTIONS[action][0], y + DIRECTIONS[action][1])
    return (there if there in layout.floor and there != wall else (x, y), action)


def _moves(layout: Layout, pose: Pose, targets: list[Cell], wall: Cell | None) -> int | None:
    """How many moves until one faces a target, by breadth-first search; None if there is no way."""
    moves, queue = {pose: 0}, deque([pose])
    while queue:
        here = queue.popleft()
        (x, y), looks = here
        if (x + DIRECTIONS[looks][0], y + DIRECTIONS[looks][1]) in targets:
            return moves[here]
        for action in range(4):
            there = _after(layout, here, action, wall)
            if there not in moves:
                moves[there] = moves[here] + 1
                queue.append(there)
    return None


def _handover(
    layout: Layout, me: Pose, you: Pose, counters: list[Cell], my_wall: Cell | None, your_wall: Cell | None
) -> int | None:
    both = [(_moves(layout, me, [c], my_wall), _moves(layout, you, [c], your_wall)) for c in counters]
    return min((mine + yours for mine, yours in both if mine is not None and yours is not None), default=None)


def _detour(free: int | None, hindered: int | None) -> float:
    if free is None:
        return 0
    return 1 if hindered is None else min(hindered - free, 8) / 8
