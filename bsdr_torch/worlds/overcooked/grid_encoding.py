"""Kitchen states as pictures: a stack of channels over the grid, from the ego's point of view.

Nothing is lost: for a given kitchen two states have the same picture only if they are the same state. The recipes and
their cook times belong to the kitchen; of them a picture shows what the soups in it are worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked.layouts import (
    CONTENTS,
    COUNTER,
    DISHES,
    FLOOR,
    MAX_INGREDIENTS,
    ONIONS,
    POT,
    SERVING,
    TOMATOES,
    Layout,
    relative_rewards,
)
from bsdr_torch.worlds.overcooked.rules import ACTIONS
from bsdr_torch.worlds.overcooked.state import (
    HELD,
    IDLE,
    NUM_OBJECTS,
    OBJECT_NAMES,
    POSE,
    SOUP,
    check_kitchen,
    counter_objects,
    ego_first,
    pot_codes,
    pot_columns,
)

_TERRAIN = {
    "floor": FLOOR,
    "counter": COUNTER,
    "pot": POT,
    "onions": ONIONS,
    "tomatoes": TOMATOES,
    "dishes": DISHES,
    "serving": SERVING,
}
# What lies on a counter, or is held at the cell where its holder stands.
_THINGS = ("onion", "tomato", "dish", "soup")
# Of soups, and of what is in pots: shares of three ingredients; the worth beside that of the best recipe; whether it
# is over the fire; and the share of the cook time that has passed.
_SOUP_FACTS = ("onions_in", "tomatoes_in", "worth", "cooking", "cooked")

# What each channel shows. Outside the kitchen all are 0.
GRID_CHANNELS: tuple[str, ...] = (
    *_TERRAIN,
    "may_hold_things",
    "ego",
    *(f"ego_looks_{direction}" for direction in ACTIONS[:4]),
    "partner",
    *(f"partner_looks_{direction}" for direction in ACTIONS[:4]),
    *_THINGS,
    *_SOUP_FACTS,
)


def encode_grid(layout: Layout, states: Tensor, seat: int | Tensor, size: int | None = None) -> Tensor:
    """States as stacks of channels, `[N, C, size, size]` float32, C = `len(GRID_CHANNELS)`.

    Args:
        layout: The kitchen. It is drawn from the corner (0, 0) on; what remains of the square is 0.
        states: `[N, W]`, packed as in `state`.
        seat: Who is the ego: 0 or 1 for all, or `[N]` integers.
        size: The side of the square, the longer side of the kitchen if not given. Give one to all kitchens that a
            network should see.

    Example:
        >>> from bsdr_torch.worlds.overcooked import load_layout, start_states
        >>> kitchen = load_layout("cramped_room")
        >>> encode_grid(kitchen, start_states(kitchen, 8), seat=0, size=9).shape
        torch.Size([8, 27, 9, 9])
    """
    check_kitchen(layout, states)
    size = max(layout.width, layout.height) if size is None else size
    if size < max(layout.width, layout.height):
        raise InputError(f"{layout.name} is {layout.width} x {layout.height} cells: size {size} is too small for it")
    tables = _grid_tables(layout, size, states.device)
    states = ego_first(states, seat)
    N = len(states)
    grid = tables.empty_kitchen.expand(N, -1, -1).contiguous()
    first_fact, first_thing = len(GRID_CHANNELS) - len(_SOUP_FACTS), len(GRID_CHANNELS) - len(tables.objects[0])
    pots = states[:, pot_columns(layout)].long()
    grid[:, first_fact:, tables.pot_cells] = tables.pots[pots].mT
    grid[:, first_thing:, tables.counter_cells] = tables.objects[counter_objects(layout, states)].mT
    for player, first in enumerate((GRID_CHANNELS.index("ego"), GRID_CHANNELS.index("partner"))):
        pose = states[:, POSE[player]].long()
        cell = tables.floor_cells[pose >> 2].view(N, 1, 1)
        standing = grid[:, first : first + 5]
        standing.scatter_(2, cell.expand(-1, 5, 1), tables.standing[pose & 3].unsqueeze(2))
        holding = grid[:, first_thing:]
        held = tables.objects[states[:, HELD[player]].long()].unsqueeze(2)
        holding.scatter_(2, cell.expand(-1, holding.shape[1], 1), held)
    return grid.view(N, -1, size, size)


@dataclass(frozen=True)
class _GridTables:
    """What the channels show, for each code in a state.

    Attributes:
        empty_kitchen: `[1, C, size * size]`, with nobody and nothing in it.
        floor_cells: `[F]`, where each floor cell is in the square.
        pot_cells: `[pots]`, where each pot is.
        counter_cells: `[counters]`, where each counter is that may hold things.
        standing: `[4, 5]`, presence and orientation, for each orientation.
        objects: `[objects, 9]`, `_THINGS` and `_SOUP_FACTS`.
        pots: `[pot codes, 5]`, `_SOUP_FACTS`.
    """

    empty_kitchen: Tensor
    floor_cells: Tensor
    pot_cells: Tensor
    counter_cells: Tensor
    standing: Tensor
    objects: Tensor
    pots: Tensor


@cache
def _grid_tables(layout: Layout, size: int, device: torch.device) -> _GridTables:
    empty = torch.zeros((1, len(GRID_CHANNELS), size, size), device=device)
    for channel, terrain in enumerate(_TERRAIN.values()):
        for x, y in layout.cells(terrain):
            empty[0, channel, y, x] = 1
    for x, y in layout.counters:
        empty[0, GRID_CHANNELS.index("may_hold_things"), y, x] = 1

    def places(cells: tuple[tuple[int, int], ...]) -> Tensor:
        return torch.tensor([y * size + x for x, y in cells], dtype=torch.int64, device=device)

    soups = [
        (onions / MAX_INGREDIENTS, tomatoes / MAX_INGREDIENTS, worth)
        for (onions, tomatoes), worth in zip(CONTENTS, relative_rewards(layout), strict=True)
    ]
    objects = [
        [*(float(OBJECT_NAMES[thing] == name) for name in _THINGS), *soups[max(0, thing - SOUP)], 0.0, 0.0]
        for thing in range(NUM_OBJECTS)
    ]
    pots = [
        [*soups[contents], float(tick != IDLE), tick / layout.cook_times[contents] if tick > 0 else 0.0]
        for contents, tick in pot_codes(layout)
    ]
    return _GridTables(
        empty_kitchen=empty.flatten(2),
        floor_cells=places(layout.floor),
        pot_cells=places(layout.pots),
        counter_cells=places(layout.counters),
        standing=torch.cat([torch.ones(4, 1), torch.eye(4)], dim=1).to(device),
        objects=torch.tensor(objects, device=device),
        pots=torch.tensor(pots, device=device),
    )
