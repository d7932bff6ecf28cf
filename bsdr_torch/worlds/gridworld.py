"""GridWorld: a map drawn in text, compiled to a `TabularMDP` and to tables of features."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.mdp import TabularMDP
from bsdr_torch.worlds.files import SpecField, is_integer, read_yaml, world_file

ACTIONS = ("N", "S", "E", "W", "STAY")
"""The actions, in the order of the A dimension everywhere."""

WALL = "#"


@dataclass(frozen=True, eq=False)
class GridWorld:
    """A grid of cells with terrain; the states are the cells that are not walls, in reading order.

    A move into a wall or off the map leaves one where one is. Where the terrain is slippery, a move goes to
    one of the two sides instead with the terrain's slip probability, half of it each; STAY never slips.

    Attributes:
        name: what the world is called.
        horizon: T, the number of steps after which an episode ends.
        mdp: the dynamics; K = 1 without slip, else K = 3 (intended, one side, other side). Goals are terminal.
        cells: `[S, 2]` int64, row and column of each state, counted from 0 at the top left.
        reward_features: `[S, F_R]` float32, phi_R; its columns are `reward_feature_names`.
        rationality_features: `[S, F_beta]` float32, phi_beta; its columns are `rationality_feature_names`.
        layers: what is where: a `[H, W]` bool map for "wall", for "terminal", and for each terrain and region.
        colors: "#rrggbb" of terrains and regions that have one.
        rows: the map as drawn.
        spec: the plain data that `from_spec` makes this world from.

    Example:
        >>> world = GridWorld.load("two_rooms")
        >>> world.mdp.num_states, world.reward_feature_names
        (13, ('floor', 'rug'))
    """

    name: str
    horizon: int
    mdp: TabularMDP
    cells: Tensor
    reward_features: Tensor
    reward_feature_names: tuple[str, ...]
    rationality_features: Tensor
    rationality_feature_names: tuple[str, ...]
    layers: Mapping[str, Tensor] = field(repr=False)
    colors: Mapping[str, str] = field(repr=False)
    rows: tuple[str, ...] = field(repr=False)
    spec: dict[str, Any] = field(repr=False)

    @classmethod
    def load(cls, name_or_path: str | Path) -> GridWorld:
        """The world of envs/gridworld with this name, or of a file whose path ends in .yaml."""
        path = world_file("gridworld", name_or_path)
        return cls.from_spec(read_yaml(path), source=str(path))

    @classmethod
    def from_spec(cls, spec: dict[str, Any], source: str = "spec") -> GridWorld:
        """The world that plain data describes, as envs/gridworld/two_rooms.yaml explains; errors name `source`."""
        return _compile(SpecField(source, "", spec))

    @property
    def shape(self) -> tuple[int, int]:
        """H, W."""
        return len(self.rows), len(self.rows[0])

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of the channels of `view`: wall, terminal, the terrains, the regions."""
        return tuple(self.layers)

    def state_at(self, row: int, col: int) -> int:
        """The state of a cell."""
        match = (self.cells == torch.tensor([row, col])).all(dim=1).nonzero()
        if len(match) == 0:
            height, width = self.shape
            raise InputError(
                f"{self.name}: row {row}, column {col} is a wall or outside the map of {height} x {width} cells"
            )
        return int(match[0])

    def view(self, radius: int, channels: Sequence[str] | None = None) -> Tensor:
        """What is around each state, north up, outside counting as wall: `[S, C, 2r+1, 2r+1]` float32 of 0 and 1.

        For a model over several worlds, pass it the channels of all of them; those that this world lacks stay 0.
        """
        names = self.channels if channels is None else tuple(channels)
        missing = [name for name in self.channels if name not in names]
        if missing or len(set(names)) < len(names) or radius < 0:
            raise InputError(
                f"{self.name}: a view needs a radius >= 0 and each of the channels {list(self.channels)} once, "
                f"got radius {radius} and channels {list(names)}"
            )
        height, width = self.shape
        padded = torch.zeros(len(names), height + 2 * radius, width + 2 * radius)
        padded[names.index("wall")] = 1
        inside = padded[:, radius : radius + height, radius : radius + width]
        for channel, name in enumerate(names):
            inside[channel] = self.layers[name].float() if name in self.layers else 0
        side = 2 * radius + 1
        windows = padded.unfold(1, side, 1).unfold(2, side, 1)
        return windows[:, self.cells[:, 0], self.cells[:, 1]].transpose(0, 1).contiguous()

    def to_image(self, values: Tensor) -> Tensor:
        """Values `[S]` on the map, `[H, W]` with NaN on walls."""
        if tuple(values.shape) != (len(self.cells),):
            raise InputError(
                f"{self.name}: expected one value per state, [{len(self.cells)}], got {list(values.shape)}"
            )
        values = values.detach().cpu()
        image = torch.full(self.shape, math.nan, dtype=torch.promote_types(values.dtype, torch.float32))
        image[self.cells[:, 0], self.cells[:, 1]] = values.to(image.dtype)
        return image


# Steps (row, column) of N, S, E, W, STAY, and the two actions that each may slip into; STAY slips into itself.
_STEPS = ((-1, 0), (1, 0), (0, 1), (0, -1), (0, 0))
_SIDES = ((2, 3), (2, 3), (0, 1), (0, 1), (4, 4))


def _compile(spec: SpecField) -> GridWorld:
    parts = spec.entries(
        required=("name", "map", "terrain", "reward_features", "rationality_features", "start", "horizon"),
        optional=("about", "regions", "goals"),
    )
    name, horizon = parts["name"].text(), parts["horizon"].positive_integer()
    if "about" in parts:
        parts["about"].text()
    reward_names, rationality_names = parts["reward_features"].names(), parts["rationality_features"].names()
    rows = parts["map"].rows()
    terrain = _legend(parts["terrain"], reward_names, rationality_names)
    _check_drawing(parts["map"], rows, terrain)
    cells = [(r, c) for r, row in enumerate(rows) for c, char in enumerate(row) if char != WALL]
    if not cells:
        raise parts["map"].error("has no free cell, only walls")

    kinds = [terrain[rows[r][c]] for r, c in cells]
    phi_R = torch.stack([kind.reward for kind in kinds])
    phi_beta = torch.stack([kind.rationality for kind in kinds])
    drawings = [(rows, terrain)]
    if "regions" in parts:
        region_parts = parts["regions"].entries(required=("map", "legend"))
        region_rows = region_parts["map"].rows()
        regions = _legend(region_parts["legend"], reward_names, rationality_names, can_slip=False)
        _check_drawing(region_parts["map"], region_rows, regions, over=rows)
        shared = {kind.name for kind in terrain.values()} & {kind.name for kind in regions.values()}
        if shared:
            raise region_parts["legend"].error(f"the name {shared.pop()!r} is also a terrain; use another")
        phi_R = phi_R + torch.stack([regions[region_rows[r][c]].reward for r, c in cells])
        phi_beta = phi_beta + torch.stack([regions[region_rows[r][c]].rationality for r, c in cells])
        drawings.append((region_rows, regions))

    goals = _cells(parts["goals"], rows, terrain) if "goals" in parts else []
    start = _start_cells(parts["start"], rows, terrain, goals)
    mdp = _dynamics(rows, cells, [kind.slip for kind in kinds], goals, start)
    _check_goals_are_reachable(parts, mdp, cells)

    layers = {
        "wall": torch.tensor([[char == WALL for char in row] for row in rows]),
        "terminal": torch.tensor([[(r, c) in goals for c in range(len(rows[0]))] for r in range(len(rows))]),
    }
    colors = {}
    for drawing, legend in drawings:
        for char, kind in legend.items():
            layers[kind.name] = torch.tensor([[here == char for here in row] for row in drawing])
            if kind.color is not None:
                colors[kind.name] = kind.color
    return GridWorld(
        name=name,
        horizon=horizon,
        mdp=mdp,
        cells=torch.tensor(cells),
        reward_features=phi_R,
        reward_feature_names=reward_names,
        rationality_features=phi_beta,
        rationality_feature_names=rationality_names,
        layers=layers,
        colors=colors,
        rows=rows,
        spec=copy.deepcopy(spec.value),
    )


def _dynamics(
    rows: tuple[str, ...],
    cells: list[tuple[int, int]],
    slips: list[float],
    goals: list[tuple[int, int]],
    start: list[tuple[int, int]],
) -> TabularMDP:
    height, width = len(rows), len(rows[0])
    row, col = torch.tensor(cells).unbind(dim=1)
    here = torch.arange(len(cells))
    # A border of -1 around the map, so that stepping off it looks like stepping into a wall.
    state_of = torch.full((height + 2, width + 2), -1)
    state_of[row + 1, col + 1] = here
    steps = torch.stack([state_of[row + 1 + dr, col + 1 + dc] for dr, dc in _STEPS], dim=1)
    moves = torch.where(steps < 0, here[:, None], steps)

    terminal = torch.tensor([cell in goals for cell in cells])
    next_state, probability = moves[:, :, None], None
    if any(slips):
        next_state = torch.cat([next_state, moves[:, torch.tensor(_SIDES)]], dim=2)
        slip = torch.tensor(slips, dtype=torch.float64)[:, None].repeat(1, len(ACTIONS))
        probability = torch.stack([1 - slip, slip / 2, slip / 2], dim=2)
    next_state[terminal] = here[terminal][:, None, None]
    return TabularMDP(
        next_state=next_state,
        probability=probability,
        start=torch.tensor([cell in start for cell in cells], dtype=torch.float64) / len(start),
        terminal=terminal if goals else None,
    )


def _check_goals_are_reachable(parts: dict[str, SpecField], mdp: TabularMDP, cells: list[tuple[int, int]]) -> None:
    if mdp.terminal is None:
        return
    possible = mdp.next_state.long()
    if mdp.probability is not None:
        possible = torch.where(mdp.probability > 0, possible, torch.arange(len(cells))[:, None, None])
    possible = possible.flatten(1)
    reached, reaching = mdp.start > 0, mdp.terminal.clone()
    for _ in cells:
        visits = reached.clone()
        visits[possible[reached].flatten()] = True
        arrives = reaching | reaching[possible].any(dim=1)
        if bool((visits == reached).all()) and bool((arrives == reaching).all()):
            break
        reached, reaching = visits, arrives
    for state in (mdp.terminal & ~reached).nonzero().flatten():
        raise parts["goals"].error(f"the goal at {list(cells[state])} cannot be reached from any start")
    for state in ((mdp.start > 0) & ~reaching).nonzero().flatten():
        raise parts["start"].error(f"no goal can be reached from the start at {list(cells[state])}")


@dataclass(frozen=True)
class _Kind:
    """What one character of a map stands for; `reward` `[F_R]` and `rationality` `[F_beta]`."""

    name: str
    reward: Tensor
    rationality: Tensor
    slip: float
    color: str | None


def _legend(
    legend: SpecField, reward_names: tuple[str, ...], rationality_names: tuple[str, ...], can_slip: bool = True
) -> dict[str, _Kind]:
    """What each character of a map stands for."""
    kinds: dict[str, _Kind] = {}
    for char, entry in legend.items():
        if not isinstance(char, str) or len(char) != 1 or char.isspace() or char in (WALL, "@"):
            raise legend.error(
                f"the key {char!r} is not a character for a map: use one visible character in quotes, "
                f"not {WALL!r} (wall) or '@' (the agent)"
            )
        parts = entry.entries(
            required=("name",),
            optional=("reward_features", "rationality_features", "color", *(["slip"] if can_slip else [])),
        )
        name = parts["name"].text()
        if name in ("wall", "terminal", *(kind.name for kind in kinds.values())):
            raise parts["name"].error(f"{name!r} is taken (wall and terminal are reserved); use another name")
        kinds[char] = _Kind(
            name,
            _features(parts.get("reward_features"), reward_names),
            _features(parts.get("rationality_features"), rationality_names),
            parts["slip"].probability() if "slip" in parts else 0.0,
            parts["color"].color() if "color" in parts else None,
        )
    return kinds


def _features(values: SpecField | None, names: tuple[str, ...]) -> Tensor:
    """A row of features `[F]`, zero where nothing is said."""
    if values is None:
        return torch.zeros(len(names))
    given = values.entries(optional=names)
    return torch.tensor([given[name].number() if name in given else 0.0 for name in names])


def _check_drawing(
    drawing: SpecField, rows: tuple[str, ...], legend: Mapping[str, _Kind], over: tuple[str, ...] | None = None
) -> None:
    """Each character is a wall or in the legend; walls of a map of regions are those of the map it lies over."""
    if over is not None and (len(rows), len(rows[0])) != (len(over), len(over[0])):
        raise drawing.error(
            f"is {len(rows)} x {len(rows[0])} cells, but the map is {len(over)} x {len(over[0])}; draw the same cells"
        )
    for r, row in enumerate(rows):
        for c, char in enumerate(row):
            if char != WALL and char not in legend:
                raise drawing.error(
                    f"row {r}, column {c} is {char!r}, which the legend does not name; it has {' '.join(legend)}"
                )
            if over is not None and (char == WALL) != (over[r][c] == WALL):
                raise drawing.error(
                    f"row {r}, column {c} is {char!r} where the map has {over[r][c]!r}; put the walls in the same cells"
                )


def _cells(places: SpecField, rows: tuple[str, ...], terrain: Mapping[str, _Kind]) -> list[tuple[int, int]]:
    """The cells that a terrain character, or a list of characters and [row, column] pairs, stands for."""
    found: list[tuple[int, int]] = []
    for place in places.items_or_itself():
        if isinstance(place.value, str) and place.value in terrain:
            matches = [(r, c) for r, row in enumerate(rows) for c, char in enumerate(row) if char == place.value]
            if not matches:
                raise place.error(f"the map has no cell {place.value!r}")
            found += matches
            continue
        if not (isinstance(place.value, list) and len(place.value) == 2 and all(map(is_integer, place.value))):
            raise place.error(
                f"expected a terrain character ({' '.join(terrain)}) or a list of [row, column] pairs "
                f"such as [[0, 2]], got {place.value!r}"
            )
        r, c = place.value
        if not (0 <= r < len(rows) and 0 <= c < len(rows[0])):
            raise place.error(f"[{r}, {c}] is outside the map of {len(rows)} x {len(rows[0])} cells, counted from 0")
        if rows[r][c] == WALL:
            raise place.error(f"[{r}, {c}] is a wall; choose a free cell")
        found.append((r, c))
    if not found:
        raise places.error("is empty; name at least one cell")
    return list(dict.fromkeys(found))


def _start_cells(
    start: SpecField, rows: tuple[str, ...], terrain: Mapping[str, _Kind], goals: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    if start.value == "anywhere":
        everywhere = [(r, c) for r, row in enumerate(rows) for c, char in enumerate(row) if char != WALL]
        chosen = [cell for cell in everywhere if cell not in goals]
        if not chosen:
            raise start.error("every free cell is a goal, so there is nowhere to start")
        return chosen
    chosen = _cells(start, rows, terrain)
    for cell in chosen:
        if cell in goals:
            raise start.error(f"{list(cell)} is a goal, where nothing is left to do; start elsewhere")
    return chosen
