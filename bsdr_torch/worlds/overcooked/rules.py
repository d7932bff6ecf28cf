"""The rules of a kitchen, written out as lookup tables: where a move leads, and what an INTERACT does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from bsdr_torch.worlds.overcooked import layouts
from bsdr_torch.worlds.overcooked.layouts import CONTENTS, DIRECTIONS, MAX_INGREDIENTS, Layout
from bsdr_torch.worlds.overcooked.state import (
    DISH,
    FIRST_POT,
    IDLE,
    NOTHING,
    NUM_OBJECTS,
    OBJECT_NAMES,
    ONION,
    SOUP,
    TOMATO,
    PotCode,
    pot_codes,
    state_dtype,
    thing_columns,
)

# The order of overcooked-ai's Action.INDEX_TO_ACTION.
ACTIONS = ("north", "south", "east", "west", "stay", "interact")
STAY, INTERACT = 4, 5
NUM_ACTIONS = len(ACTIONS)

# What a player's INTERACT did. Bit i of a player's events is EVENTS[i].
EVENTS = (
    "onion_pickup",
    "tomato_pickup",
    "dish_pickup",
    "soup_pickup",
    "onion_drop",
    "tomato_drop",
    "dish_drop",
    "soup_drop",
    "onion_potted",
    "tomato_potted",
    "cooking_started",
    "soup_served",
)

# What one may face. A counter that may hold nothing is a wall, and so is everything while one does not INTERACT.
_WALL, _COUNTER, _POT, _ONIONS, _TOMATOES, _DISHES, _SERVING = range(7)
_KINDS = {
    layouts.COUNTER: _COUNTER,
    layouts.POT: _POT,
    layouts.ONIONS: _ONIONS,
    layouts.TOMATOES: _TOMATOES,
    layouts.DISHES: _DISHES,
    layouts.SERVING: _SERVING,
    layouts.FLOOR: _WALL,
}


@dataclass(frozen=True)
class RuleTables:
    """Lookup tables for `step`. A *choice* is `pose * 6 + action`; a *deal* is `faces[choice] + held * values + value`.

    Attributes:
        poses: P, how many poses there are.
        poses_after: Twice `[P * P, 36]`, the poses of player 0 and player 1 after each joint action, given both
            poses before. Who may move depends on both, so a table of pairs replaces a dozen operations.
        column: `[choices]` int64, the column of the state that an INTERACT may change.
        faces: `[choices]` int32, the part of a deal that says what kind of thing is faced.
        values: How many values a column may have, an upper bound.
        held: `[deals]`, what is held after the deal.
        value: `[deals]`, what is in the faced column after it.
        events: `[deals]` int16, bits of `EVENTS`.
        rewards: `[deals]` float32.
        ticked: `[pot codes]`, the pot one step later (the ticks of a recipe follow one another).
    """

    poses: int
    poses_after: tuple[Tensor, Tensor]
    column: Tensor
    faces: Tensor
    values: int
    held: Tensor
    value: Tensor
    events: Tensor
    rewards: Tensor
    ticked: Tensor


@cache
def rule_tables(layout: Layout, device: torch.device) -> RuleTables:
    """The tables of a kitchen on a device; made once."""
    moved, turned, column, kind = _choices(layout)
    poses_after = _poses_after(torch.tensor(moved, dtype=torch.int16), torch.tensor(turned, dtype=torch.int16))
    codes = pot_codes(layout)
    values = max(len(codes), NUM_OBJECTS)
    deals = [
        _deal(layout, codes, kind_, held, value)
        for kind_ in range(7)
        for held in range(NUM_OBJECTS)
        for value in range(values)
    ]
    dtype = state_dtype(layout)
    faces = torch.tensor(kind, dtype=torch.int32) * (NUM_OBJECTS * values)
    return RuleTables(
        poses=len(moved) // NUM_ACTIONS,
        poses_after=(poses_after[0].to(device, dtype), poses_after[1].to(device, dtype)),
        column=torch.tensor(column, dtype=torch.int64, device=device),
        faces=faces.to(device),
        values=values,
        held=torch.tensor([deal.held for deal in deals], dtype=dtype, device=device),
        value=torch.tensor([deal.value for deal in deals], dtype=dtype, device=device),
        events=torch.tensor([_bits(deal.events) for deal in deals], dtype=torch.int16, device=device),
        rewards=torch.tensor([deal.reward for deal in deals], dtype=torch.float32, device=device),
        ticked=torch.tensor(
            [number + (IDLE < tick < layout.cook_times[contents]) for number, (contents, tick) in enumerate(codes)],
            dtype=dtype,
            device=device,
        ),
    )


class _Deal(NamedTuple):
    """What an INTERACT does to the hand and to the thing faced."""

    held: int
    value: int
    events: tuple[str, ...] = ()
    reward: float = 0.0


def _choices(layout: Layout) -> tuple[list[int], list[int], list[int], list[int]]:
    """For each choice: pose if free, pose if blocked, column faced, kind faced."""
    number = {cell: index for index, cell in enumerate(layout.floor)}
    slots = thing_columns(layout)
    moved, turned, column, kind = [], [], [], []
    for here, (x, y) in enumerate(layout.floor):
        for orientation in range(4):
            for action in range(NUM_ACTIONS):
                looks = action if action < STAY else orientation
                dx, dy = DIRECTIONS[looks]
                ahead = (x + dx, y + dy)
                there = number.get(ahead, here) if action < STAY else here
                moved.append(there * 4 + looks)
                turned.append(here * 4 + looks)
                # What has no column of its own leaves the first pot as it is.
                column.append(slots.get(ahead, FIRST_POT))
                terrain = layout.terrain(ahead)
                usable = action == INTERACT and (terrain != layouts.COUNTER or ahead in slots)
                kind.append(_KINDS[terrain] if usable else _WALL)
    return moved, turned, column, kind


def _poses_after(moved: Tensor, turned: Tensor) -> tuple[Tensor, Tensor]:
    """The poses of both after each joint action `[P * P, 36]`: nobody moves where they would meet or swap."""
    moved0, moved1 = moved.view(-1, 1, NUM_ACTIONS, 1), moved.view(1, -1, 1, NUM_ACTIONS)
    turned0, turned1 = turned.view(-1, 1, NUM_ACTIONS, 1), turned.view(1, -1, 1, NUM_ACTIONS)
    from0, from1, to0, to1 = turned0 >> 2, turned1 >> 2, moved0 >> 2, moved1 >> 2
    blocked = (to0 == to1) | ((to0 == from1) & (to1 == from0))
    after0, after1 = torch.where(blocked, turned0, moved0), torch.where(blocked, turned1, moved1)
    return after0.reshape(-1, NUM_ACTIONS**2), after1.reshape(-1, NUM_ACTIONS**2)


def _deal(layout: Layout, codes: tuple[PotCode, ...], kind: int, held: int, value: int) -> _Deal:
    nothing_happens = _Deal(held, value)
    if kind == _COUNTER and value < NUM_OBJECTS:
        if held == NOTHING and value != NOTHING:
            return _Deal(value, NOTHING, (f"{OBJECT_NAMES[value]}_pickup",))
        if held != NOTHING and value == NOTHING:
            return _Deal(NOTHING, held, (f"{OBJECT_NAMES[held]}_drop",))
    if kind == _POT and value < len(codes):
        return _deal_with_pot(layout, codes, held, value)
    if kind == _SERVING and held > SOUP:
        return _Deal(NOTHING, value, ("soup_served",), layout.rewards[held - SOUP])
    if held == NOTHING and kind in (_ONIONS, _TOMATOES, _DISHES):
        taken = {_ONIONS: ONION, _TOMATOES: TOMATO, _DISHES: DISH}[kind]
        return _Deal(taken, value, (f"{OBJECT_NAMES[taken]}_pickup",))
    return nothing_happens


def _deal_with_pot(layout: Layout, codes: tuple[PotCode, ...], held: int, value: int) -> _Deal:
    contents, tick = codes[value]
    if held == DISH and contents and tick == layout.cook_times[contents]:
        return _Deal(SOUP + contents, codes.index(PotCode(0, IDLE)), ("soup_pickup",))
    if tick != IDLE:
        return _Deal(held, value)
    if held in (ONION, TOMATO):
        return _add_ingredient(layout, codes, held, value)
    if held == NOTHING and contents and layout.rules == 2020:
        return _Deal(NOTHING, codes.index(PotCode(contents, 0)), ("cooking_started",))
    return _Deal(held, value)


def _add_ingredient(layout: Layout, codes: tuple[PotCode, ...], held: int, value: int) -> _Deal:
    onions, tomatoes = CONTENTS[codes[value].contents]
    if onions + tomatoes == MAX_INGREDIENTS:
        return _Deal(held, value)
    if layout.rules == 2019 and (tomatoes if held == ONION else onions):
        return _Deal(held, value)
    contents = CONTENTS.index((onions + (held == ONION), tomatoes + (held == TOMATO)))
    potted = f"{OBJECT_NAMES[held]}_potted"
    if layout.rules == 2019 and onions + tomatoes + 1 == MAX_INGREDIENTS:
        return _Deal(NOTHING, codes.index(PotCode(contents, 0)), (potted, "cooking_started"))
    return _Deal(NOTHING, codes.index(PotCode(contents, IDLE)), (potted,))


def _bits(events: tuple[str, ...]) -> int:
    return sum(1 << EVENTS.index(event) for event in events)
