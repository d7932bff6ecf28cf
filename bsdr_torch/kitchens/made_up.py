"""Kitchens and situations that nobody was ever in: what people want is to hold there, too."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import CONTENTS, DIRECTIONS, Layout, pot_codes, state_dtype, width
from bsdr_torch.worlds.overcooked.layouts import (
    COUNTER,
    DISHES,
    FLOOR,
    MAX_INGREDIENTS,
    ONIONS,
    POT,
    SERVING,
    usable_counters,
)
from bsdr_torch.worlds.overcooked.state import DISH, FIRST_POT, HELD, IDLE, NOTHING, ONION, POSE, SOUP

_WIDTHS, _HEIGHTS = range(4, 10), range(4, 7)
_FLOOR_SHARE = 0.8  # of the inner cells
_PARTED = 0.4  # the share of kitchens with a wall of counters from one side to the other
_HANDS = {NOTHING: 0.45, ONION: 0.25, DISH: 0.2, SOUP: 0.1}
_LYING = 0.1  # the share of counters on which something lies


def made_up_kitchen(like: Layout, generator: torch.Generator) -> Layout:
    """A random kitchen by the rules of another, with one or two pots and places of onions, some islands and corners."""
    while True:
        wide, high = (
            int(torch.randint(sizes.start, sizes.stop, (), generator=generator)) for sizes in (_WIDTHS, _HEIGHTS)
        )
        inner = [(x, y) for y in range(1, high - 1) for x in range(1, wide - 1)]
        open_ = torch.rand(len(inner), generator=generator) < _FLOOR_SHARE
        parted = bool(torch.rand((), generator=generator) < _PARTED)
        wall = int(torch.randint(2, max(3, wide - 2), (), generator=generator)) if parted else None
        floor = {cell for cell, is_open in zip(inner, open_.tolist(), strict=True) if is_open and cell[0] != wall}
        edges = sorted({(x + dx, y + dy) for x, y in floor for dx, dy in DIRECTIONS} - floor)
        some = torch.randint(1, 3, (2,), generator=generator).tolist()
        stations = [POT] * some[0] + [ONIONS] * some[1] + [DISHES, SERVING]
        if len(floor) < 2 or len(edges) < len(stations):
            continue
        order = torch.randperm(len(edges), generator=generator).tolist()
        placed = {edges[place]: station for place, station in zip(order, stations, strict=False)}
        rows = [[FLOOR if (x, y) in floor else placed.get((x, y), COUNTER) for x in range(wide)] for y in range(high)]
        grid = tuple("".join(row) for row in rows)
        first, second = torch.randperm(len(floor), generator=generator)[:2].tolist()
        cells = sorted(floor)
        try:
            return replace(
                like,
                name="made up",
                grid=grid,
                starts=(cells[first], cells[second]),
                counters=usable_counters(grid),
                start_state=None,
            )
        except InputError:  # nobody could reach the pot: make up another
            continue


def made_up_states(layout: Layout, many: int, generator: torch.Generator) -> Tensor:
    """Random situations in a kitchen without tomatoes, `[many, W]`; not all of them can be reached."""
    states = torch.zeros((many, width(layout)), dtype=state_dtype(layout))
    cells = torch.rand(many, len(layout.floor), generator=generator).argsort(1)[:, :2]
    looks = torch.randint(4, (many, 2), generator=generator)
    soup = SOUP + CONTENTS.index((MAX_INGREDIENTS, 0))
    objects, shares = torch.tensor([NOTHING, ONION, DISH, soup]), torch.tensor(list(_HANDS.values()))
    for player in (0, 1):
        states[:, POSE[player]] = (4 * cells[:, player] + looks[:, player]).to(states.dtype)
        held = objects[torch.multinomial(shares, many, replacement=True, generator=generator)]
        states[:, HELD[player]] = held.to(states.dtype)
    pots = slice(FIRST_POT, FIRST_POT + len(layout.pots))
    # Each stage of a pot alike: empty, one, two, cooking, ready.
    stages = _pot_stages(layout)
    stage = torch.randint(len(stages), (many, len(layout.pots)), generator=generator)
    codes = torch.stack([codes[torch.randint(len(codes), stage.shape, generator=generator)] for codes in stages])
    states[:, pots] = codes.gather(0, stage[None]).squeeze(0).to(states.dtype)
    there = torch.rand(many, len(layout.counters), generator=generator) < _LYING
    lying = objects[torch.randint(1, len(objects), there.shape, generator=generator)]
    states[:, pots.stop :] = torch.where(there, lying, NOTHING).to(states.dtype)
    return states


def _pot_stages(layout: Layout) -> list[Tensor]:
    """The codes of pots with onions alone: idle ones by their number, those that cook, and that which is ready."""
    idle: dict[int, list[int]] = {}
    cooking: list[int] = []
    ready: list[int] = []
    for number, code in enumerate(pot_codes(layout)):
        onions, tomatoes = CONTENTS[code.contents]
        if tomatoes:
            continue
        if code.tick == IDLE:
            if onions < MAX_INGREDIENTS or layout.rules == 2020:
                idle.setdefault(onions, []).append(number)
        elif onions == MAX_INGREDIENTS or layout.rules == 2020:
            (ready if code.tick == layout.cook_times[code.contents] else cooking).append(number)
    return [torch.tensor(codes) for codes in (*idle.values(), cooking, ready) if codes]
