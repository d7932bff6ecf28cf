"""Kitchens in any state that the rules allow, and players who know what to do next most of the time."""

from __future__ import annotations

import random
from collections import deque

import torch
from torch import Tensor

from bsdr_torch.worlds.overcooked import DIRECTIONS, INTERACT, Layout, pot_codes, state_dtype
from bsdr_torch.worlds.overcooked.layouts import COUNTER, DISHES, FLOOR, ONIONS, POT, SERVING, TOMATOES, Cell
from bsdr_torch.worlds.overcooked.state import IDLE, NUM_OBJECTS


def random_states(layout: Layout, count: int, seed: int) -> Tensor:
    """`[count, W]`: any pose, anything in hand, in pots and on counters.

    Half of the hands and counters are empty; half of the pots are idle and a quarter ready, so that much can happen.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(limit: int, columns: int) -> Tensor:
        return torch.randint(limit, (count, columns), generator=generator)

    first = draw(len(layout.floor), 1)
    second = (first + 1 + draw(len(layout.floor) - 1, 1)) % len(layout.floor)

    def things(columns: int) -> Tensor:
        return draw(NUM_OBJECTS, columns) * draw(2, columns)

    codes, pots = pot_codes(layout), len(layout.pots)
    idle = torch.tensor([number for number, code in enumerate(codes) if code.tick == IDLE])
    ready = torch.tensor([number for number, code in enumerate(codes) if code.tick == layout.cook_times[code.contents]])
    kinds = torch.stack([draw(len(codes), pots), ready[draw(len(ready), pots)], *[idle[draw(len(idle), pots)]] * 2])
    pot = kinds.gather(0, draw(4, pots).unsqueeze(0)).squeeze(0)
    players = [first * 4 + draw(4, 1), things(1), second * 4 + draw(4, 1), things(1)]
    return torch.cat([*players, pot, things(len(layout.counters))], dim=1).to(state_dtype(layout))


def random_joint_actions(count: int, seed: int) -> Tensor:
    """`[count, 2]`: half of them INTERACT, the others anything."""
    generator = torch.Generator().manual_seed(seed)
    actions = torch.randint(6, (count, 2), generator=generator)
    return torch.where(torch.rand((count, 2), generator=generator) < 0.5, INTERACT, actions)


class BusyPlayer:
    """Walks to a place that suits what it holds, uses it, and chooses another; one action in five is random."""

    def __init__(self, layout: Layout, seed: int) -> None:
        self.layout = layout
        self.random = random.Random(seed)
        self.goal: Cell | None = None
        self.distances: dict[Cell, dict[Cell, int]] = {}

    def action(self, position: Cell, orientation: Cell, held: str | None) -> int:
        if self.random.random() < 0.2:
            return self.random.randrange(6)
        if self.goal is None:
            self.goal = self._choose(held)
        dx, dy = self.goal[0] - position[0], self.goal[1] - position[1]
        if (dx, dy) == orientation:
            self.goal = None
            return INTERACT
        if (dx, dy) in DIRECTIONS:
            return DIRECTIONS.index((dx, dy))
        away = self._distances(self.goal)
        steps = [away.get((position[0] + x, position[1] + y), 10**6) for x, y in DIRECTIONS]
        if min(steps) == 10**6:
            self.goal = None
            return self.random.randrange(6)
        return steps.index(min(steps))

    def _choose(self, held: str | None) -> Cell:
        suits = {None: ONIONS + TOMATOES + DISHES + POT + COUNTER, "soup": SERVING, "dish": POT}
        wanted = suits.get(held, POT) if self.random.random() < 0.7 else COUNTER
        places = [cell for terrain in wanted for cell in self.layout.cells(terrain)]
        return self.random.choice(places or list(self.layout.pots))

    def _distances(self, goal: Cell) -> dict[Cell, int]:
        """Steps from each floor cell to a cell next to the goal."""
        if goal not in self.distances:
            found = {goal: 0}
            queue = deque([goal])
            while queue:
                x, y = queue.popleft()
                for dx, dy in DIRECTIONS:
                    cell = (x + dx, y + dy)
                    if self.layout.terrain(cell) == FLOOR and cell not in found:
                        found[cell] = found[(x, y)] + 1
                        queue.append(cell)
            del found[goal]
            self.distances[goal] = found
        return self.distances[goal]
