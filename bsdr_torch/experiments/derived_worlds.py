"""Worlds derived from those in envs/: the same ground with another goal, with landmarks, or redrawn."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from bsdr_torch.worlds.gridworld import WALL, GridWorld

Cell = tuple[int, int]


def spread_cells(world: GridWorld, count: int, generator: torch.Generator) -> list[Cell]:
    """Free cells far from one another, in random order: each the farthest from those before, the first at random."""
    cells = world.cells.double()
    chosen = [int(torch.randint(len(cells), (1,), generator=generator))]
    while len(chosen) < count:
        nearest = torch.cdist(cells, cells[chosen], p=1).amin(1)
        # Among the farthest few, so that the corners are not always among them.
        far = nearest.topk(min(8, len(cells))).indices
        chosen.append(int(far[torch.randint(len(far), (1,), generator=generator)]))
    order = torch.randperm(count, generator=generator).tolist()
    places: list[Cell] = [(int(r), int(c)) for r, c in world.cells[chosen].tolist()]
    return [places[i] for i in order]


def with_goal(world: GridWorld, goal: Cell, never_start: Sequence[Cell]) -> GridWorld:
    """The same ground with one goal, where episodes end, and starts anywhere but in some cells."""
    spec = _ground(world)
    avoided = {goal, *never_start}
    spec["name"] = f"{world.name}, goal {goal[0]} {goal[1]}"
    spec["goals"] = [list(goal)]
    spec["start"] = [cell for cell in world.cells.tolist() if tuple(cell) not in avoided]
    return GridWorld.from_spec(spec, spec["name"])


def with_landmarks(world: GridWorld, landmarks: Sequence[Cell]) -> GridWorld:
    """The same ground without an end, where each of some cells has a reward feature of its own instead of a terrain."""
    spec = _ground(world)
    rows = [list(row) for row in spec["map"].split("\n")]
    for number, (row, column) in enumerate(landmarks):
        rows[row][column] = str(number)
        name = f"landmark {number}"
        spec["terrain"][str(number)] = {"name": name, "reward_features": {name: 1}}
        spec["reward_features"].append(name)
    spec["map"] = "\n".join("".join(row) for row in rows)
    spec["name"] = f"{world.name} with landmarks"
    return GridWorld.from_spec(spec, spec["name"])


def redrawn(world: GridWorld, name: str, generator: torch.Generator, patch: int = 2) -> GridWorld:
    """Another map with the same legend, size and horizon: random patches of terrain and of regions, and a goal.

    It has no walls, so that everything can be reached.
    """
    height, width = world.shape
    spec = _ground(world)
    ground = [char for char, kind in spec["terrain"].items() if kind.get("reward_features")]
    spec["map"] = _patches(ground, height, width, patch, generator)
    spec["regions"]["map"] = _patches(list(spec["regions"]["legend"]), height, width, patch + 1, generator)
    spec["name"] = name
    row, column = (int(torch.randint(size, (1,), generator=generator)) for size in (height, width))
    spec["goals"] = [[row, column]]
    return GridWorld.from_spec(spec, name)


def _ground(world: GridWorld) -> dict[str, Any]:
    """The spec of a world without its goals, whose cells become the commonest terrain; starts anywhere."""
    spec = copy.deepcopy(world.spec)
    spec.pop("goals", None)
    paying = {char for char, kind in spec["terrain"].items() if kind.get("reward_features")}
    drawn = "".join(world.rows)
    common = max(sorted(paying), key=drawn.count)
    rows = ["".join(char if char in paying or char == WALL else common for char in row) for row in world.rows]
    spec["map"] = "\n".join(rows)
    spec["reward_features"] = list(spec["reward_features"])
    spec["start"] = "anywhere"
    return spec


def _patches(chars: Sequence[str], height: int, width: int, patch: int, generator: torch.Generator) -> str:
    coarse = torch.randint(len(chars), (height // patch + 1, width // patch + 1), generator=generator)
    fine = coarse.repeat_interleave(patch, 0).repeat_interleave(patch, 1)[:height, :width]
    return "\n".join("".join(chars[i] for i in row) for row in fine.tolist())
