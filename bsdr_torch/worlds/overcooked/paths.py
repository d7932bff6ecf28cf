"""How far it is to walk in a kitchen, from every pose to everything that can be used."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from bsdr_torch.worlds.overcooked.layouts import DISHES, ONIONS, SERVING, TOMATOES, Layout

FAR = 127  # the distance to what cannot be reached; the largest int8, so that `distance | FAR` is FAR
FIXED_PLACES = (ONIONS, TOMATOES, DISHES, SERVING)


@cache
def walking_distances(layout: Layout) -> Tensor:
    """`[F + 1, P, T, 5]` int8: moves until one faces a target, now and after each of the four moves.

    One walks from a pose (`4 * floor cell + orientation`, P of them) while the other player stands on one of the
    F floor cells, in the way; the last entry, F, is the kitchen without them. A move against something only
    turns. The T targets are the nearest of each of `FIXED_PLACES`, each pot, each counter that may hold things,
    and the other player. What cannot be reached is `FAR`; 126 stands for itself and more.
    """
    moved = _poses_after_moves(layout)
    worlds, poses, _ = moved.shape
    distances = torch.where(_faced_targets(layout), 0, FAR).to(torch.int8).flatten(0, 1)
    following = (moved + poses * torch.arange(worlds).view(-1, 1, 1)).flatten()
    while True:
        after = distances.index_select(0, following).view(worlds * poses, 4, -1)
        nearest = after.amin(1)
        shorter = torch.minimum(distances, torch.where(nearest < FAR - 1, nearest + 1, nearest))
        if torch.equal(shorter, distances):
            break
        distances = shorter
    return torch.cat([distances.unsqueeze(1), after], dim=1).mT.contiguous().view(worlds, poses, -1, 5)


@cache
def floor_neighbours(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """`[F, 4]`: the floor cell to the north, south, east and west of each, -1 where there is none."""
    number = {cell: index for index, cell in enumerate(layout.floor)}
    ahead = [number.get(cell, -1) for cell in layout.faced]
    return tuple(tuple(ahead[first : first + 4]) for first in range(0, len(ahead), 4))


def _poses_after_moves(layout: Layout) -> Tensor:
    """`[F + 1, P, 4]`: the pose after each move, while the other player stands on each cell or nowhere."""
    here = torch.arange(len(layout.floor)).view(1, -1, 1)
    there = torch.tensor(floor_neighbours(layout)).unsqueeze(0)
    others = torch.arange(len(layout.floor) + 1).view(-1, 1, 1)
    cells = torch.where((there >= 0) & (there != others), there, here)
    return (4 * cells + torch.arange(4)).repeat_interleave(4, dim=1)


def _faced_targets(layout: Layout) -> Tensor:
    """`[F + 1, P, T]` bool: which targets one faces in a pose, while the other player stands on each cell."""
    targets = [set(layout.cells(place)) for place in FIXED_PLACES]
    targets += [{cell} for cell in (*layout.pots, *layout.counters)]
    things = torch.tensor([[cell in target for target in targets] for cell in layout.faced])
    others = torch.tensor([[cell == other for cell in layout.faced] for other in (*layout.floor, None)])
    return torch.cat([things.expand(len(layout.floor) + 1, -1, -1), others.unsqueeze(2)], dim=2)
