"""Kitchens: the grid, the rules, the recipes and where people start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bsdr_torch.errors import InputError

Cell = tuple[int, int]

FLOOR, COUNTER, POT, ONIONS, TOMATOES, DISHES, SERVING = " XPOTDS"
_PLAYERS = "123456789"

# The ways to fill a pot with up to three ingredients, as (onions, tomatoes). A recipe is an index into this.
CONTENTS: tuple[Cell, ...] = ((0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (0, 3))
MAX_INGREDIENTS = 3
RULES = (2019, 2020)
MAX_COOK_TIME = 1000
MAX_FLOOR = 250  # the tables of the simulator grow with its square: 140 MB at the limit, 4 MB for 60 cells

# North, south, east, west as (dx, dy): the first four actions, and the orientations 0..3.
DIRECTIONS: tuple[Cell, ...] = ((0, -1), (0, 1), (1, 0), (-1, 0))


@dataclass(frozen=True)
class Layout:
    """A kitchen for two people. Cells are `(x, y)`, recipes are indices into `CONTENTS`.

    Attributes:
        name: What messages call it.
        grid: Rows of cells: floor " ", counter X, pot P, onions O, tomatoes T, dishes D, serving S.
        starts: Where player 0 and player 1 start, facing north.
        rules: 2019 (a pot starts by itself with its third ingredient, and all three are of a kind) or
            2020 (an INTERACT with empty hands starts it, however full and mixed).
        cook_times: Steps until the contents are a soup, for each of `CONTENTS`.
        values: What a soup is worth, for each of `CONTENTS`, if it was ordered.
        orders: The recipes that are worth something.
        bonus_orders: Those worth `order_bonus` times their value.
        counters: The counters that may hold things; an INTERACT with another does nothing, so that nothing can be
            handed over it either (where both INTERACT at once, player 1 takes what player 0 lays down).
        horizon: Steps in a game.
        start_state: A first state as JSON, for kitchens that do not start empty.

    Example:
        >>> from bsdr_torch.worlds.overcooked import load_layout
        >>> load_layout("cramped_room").pots
        ((2, 0),)
    """

    name: str
    grid: tuple[str, ...]
    starts: tuple[Cell, Cell]
    counters: tuple[Cell, ...]
    rules: int = 2020
    cook_times: tuple[int, ...] = (20,) * len(CONTENTS)
    values: tuple[float, ...] = (20.0,) * len(CONTENTS)
    orders: tuple[int, ...] = tuple(range(1, len(CONTENTS)))
    bonus_orders: tuple[int, ...] = ()
    order_bonus: float = 2.0
    horizon: int = 400
    start_state: str | None = None

    def __post_init__(self) -> None:
        _check_grid(self)
        _check_reach(self)
        _check_recipes(self)

    @property
    def width(self) -> int:
        """Cells in a row."""
        return len(self.grid[0])

    @property
    def height(self) -> int:
        """Rows."""
        return len(self.grid)

    @cached_property
    def floor(self) -> tuple[Cell, ...]:
        """The cells where one can stand, row by row; states name them by their index here."""
        return self.cells(FLOOR)

    @cached_property
    def pots(self) -> tuple[Cell, ...]:
        """The pots, row by row."""
        return self.cells(POT)

    @cached_property
    def faced(self) -> tuple[Cell, ...]:
        """The cell in front of somebody in each pose: `4 * floor cell + orientation`."""
        return tuple((x + dx, y + dy) for x, y in self.floor for dx, dy in DIRECTIONS)

    @cached_property
    def rewards(self) -> tuple[float, ...]:
        """What serving each of `CONTENTS` earns."""
        return tuple(
            0.0 if recipe not in self.orders else value * (self.order_bonus if recipe in self.bonus_orders else 1)
            for recipe, value in enumerate(self.values)
        )

    def cells(self, terrain: str) -> tuple[Cell, ...]:
        """The cells of a kind of terrain, row by row."""
        return tuple((x, y) for y, row in enumerate(self.grid) for x, cell in enumerate(row) if cell == terrain)

    def terrain(self, cell: Cell) -> str:
        """What is at a cell; a counter outside the grid."""
        x, y = cell
        return self.grid[y][x] if 0 <= x < self.width and 0 <= y < self.height else COUNTER


def parse_grid(name: str, rows: Sequence[str]) -> tuple[tuple[str, ...], list[Cell]]:
    """A drawn grid, as terrain without the players, and where the players 1, 2... were drawn."""
    drawn = [(int(cell), (x, y)) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell in _PLAYERS]
    numbers = sorted(number for number, _ in drawn)
    if numbers != list(range(1, len(drawn) + 1)):
        raise InputError(f"{name}: grid: players must be drawn as 1 and 2, once each, got {numbers}")
    terrain = tuple("".join(FLOOR if cell in _PLAYERS else cell for cell in row) for row in rows)
    return terrain, [cell for _, cell in sorted(drawn)]


def usable_counters(grid: tuple[str, ...]) -> tuple[Cell, ...]:
    """The counters next to a floor cell, row by row: the only ones that anybody can reach."""
    floor = {(x, y) for y, row in enumerate(grid) for x, cell in enumerate(row) if cell == FLOOR}
    return tuple(
        (x, y)
        for y, row in enumerate(grid)
        for x, cell in enumerate(row)
        if cell == COUNTER and any((x + dx, y + dy) in floor for dx, dy in DIRECTIONS)
    )


def recipe_of(ingredients: list[str]) -> int | None:
    """The index in `CONTENTS` of a list of "onion" and "tomato", or None if there is no such soup."""
    onions, tomatoes = ingredients.count("onion"), ingredients.count("tomato")
    if onions + tomatoes != len(ingredients) or (onions, tomatoes) not in CONTENTS:
        return None
    return CONTENTS.index((onions, tomatoes))


def ingredients_of(recipe: int) -> list[str]:
    """The ingredients of one of `CONTENTS`, onions first."""
    onions, tomatoes = CONTENTS[recipe]
    return ["onion"] * onions + ["tomato"] * tomatoes


def relative_rewards(layout: Layout) -> tuple[float, ...]:
    """What serving each of `CONTENTS` earns beside the best of them, -1 to 1; next to infinity all else is 0."""
    best = max(map(abs, layout.rewards))
    if math.isinf(best):
        return tuple(math.copysign(1.0, reward) if math.isinf(reward) else 0.0 for reward in layout.rewards)
    return tuple(reward / best if best else 0.0 for reward in layout.rewards)


def _check_grid(layout: Layout) -> None:
    name, grid = layout.name, layout.grid
    if not grid or not grid[0]:
        raise InputError(f"{name}: grid: is empty; draw the kitchen as rows of cells")
    for y, row in enumerate(grid):
        if len(row) != len(grid[0]):
            raise InputError(
                f"{name}: grid: is ragged: row {y} ({row!r}) has {len(row)} cells and row 0 has {len(grid[0])}"
            )
        for x, cell in enumerate(row):
            if cell not in (FLOOR, COUNTER, POT, ONIONS, TOMATOES, DISHES, SERVING):
                raise InputError(
                    f"{name}: grid: row {y}, column {x}: unknown cell {cell!r}; the cells are X counter, P pot, "
                    "O onions, T tomatoes, D dishes, S serving, space floor, 1 and 2 players"
                )
            if cell == FLOOR and (x in (0, len(row) - 1) or y in (0, len(grid) - 1)):
                raise InputError(f"{name}: grid: row {y}, column {x}: floor at the border; close it with a counter X")
    if len(layout.floor) > MAX_FLOOR:
        raise InputError(f"{name}: grid: {len(layout.floor)} floor cells are more than {MAX_FLOOR}, which is the limit")
    for terrain, what in ((POT, "pot P"), (DISHES, "dish dispenser D"), (SERVING, "serving place S")):
        if not layout.cells(terrain):
            raise InputError(f"{name}: grid: there is no {what}")
    if not layout.cells(ONIONS) and not layout.cells(TOMATOES):
        raise InputError(f"{name}: grid: there is no dispenser of onions O or tomatoes T")
    if len(layout.starts) != 2:
        raise InputError(
            f"{name}: starts: a kitchen is for two players, got {len(layout.starts)}; draw 1 and 2 in the grid "
            "or give two cells as starts"
        )
    for player, start in enumerate(layout.starts):
        if layout.terrain(start) != FLOOR:
            raise InputError(f"{name}: starts[{player}]: {list(start)} is {layout.terrain(start)!r}, not floor")
    if layout.starts[0] == layout.starts[1]:
        raise InputError(f"{name}: starts: both players start at {list(layout.starts[0])}")
    for counter in layout.counters:
        if counter not in usable_counters(grid):
            raise InputError(f"{name}: counters: {list(counter)} is not a counter next to the floor")
    if len(set(layout.counters)) < len(layout.counters):
        raise InputError(f"{name}: counters: a cell is given twice in {[list(cell) for cell in layout.counters]}")


def _check_reach(layout: Layout) -> None:
    """Every pot can be reached by somebody."""
    reached = set(layout.starts)
    frontier = list(layout.starts)
    while frontier:
        x, y = frontier.pop()
        for dx, dy in DIRECTIONS:
            cell = (x + dx, y + dy)
            if layout.terrain(cell) == FLOOR and cell not in reached:
                reached.add(cell)
                frontier.append(cell)
    for x, y in layout.pots:
        if not any((x + dx, y + dy) in reached for dx, dy in DIRECTIONS):
            raise InputError(f"{layout.name}: grid: no player can reach the pot at row {y}, column {x}")


def _check_recipes(layout: Layout) -> None:
    name = layout.name
    if layout.rules not in RULES:
        raise InputError(f"{name}: rules: expected 2019 or 2020, got {layout.rules!r}")
    if isinstance(layout.horizon, bool) or not isinstance(layout.horizon, int) or layout.horizon < 1:
        raise InputError(f"{name}: horizon: expected a number of steps, at least 1, got {layout.horizon!r}")
    for field in ("cook_times", "values"):
        if len(getattr(layout, field)) != len(CONTENTS):
            raise InputError(f"{name}: {field}: expected {len(CONTENTS)} numbers, one for each of CONTENTS")
    for recipe in range(1, len(CONTENTS)):
        time, value = layout.cook_times[recipe], layout.values[recipe]
        if isinstance(time, bool) or not isinstance(time, int) or not 1 <= time <= MAX_COOK_TIME:
            raise InputError(
                f"{name}: cook time of {ingredients_of(recipe)}: expected 1 to {MAX_COOK_TIME} steps, got {time!r}"
            )
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise InputError(f"{name}: value of {ingredients_of(recipe)}: expected a finite number, got {value!r}")
    if not isinstance(layout.order_bonus, int | float) or math.isnan(layout.order_bonus):
        raise InputError(f"{name}: order_bonus: expected a number, got {layout.order_bonus!r}")
    for field in ("orders", "bonus_orders"):
        recipes = getattr(layout, field)
        if any(recipe not in range(1, len(CONTENTS)) for recipe in recipes):
            raise InputError(f"{name}: {field}: expected indices into CONTENTS from 1 on, got {recipes}")
        if len(set(recipes)) < len(recipes):
            raise InputError(f"{name}: {field}: a recipe is given twice in {[ingredients_of(r) for r in recipes]}")
    for recipe in layout.bonus_orders:
        if recipe not in layout.orders:
            raise InputError(f"{name}: bonus_orders: {ingredients_of(recipe)} is not among the orders")
