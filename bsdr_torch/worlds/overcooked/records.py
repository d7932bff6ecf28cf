"""States as people record them: the dicts of the 2019 and 2020 data, and overcooked-ai's OvercookedState."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked.layouts import (
    CONTENTS,
    DIRECTIONS,
    MAX_INGREDIENTS,
    Cell,
    Layout,
    ingredients_of,
    recipe_of,
)
from bsdr_torch.worlds.overcooked.overcooked_ai import overcooked_ai_mdp
from bsdr_torch.worlds.overcooked.state import (
    FIRST_POT,
    HELD,
    IDLE,
    NOTHING,
    OBJECT_NAMES,
    POSE,
    SOUP,
    PotCode,
    check_states,
    pot_codes,
    state_dtype,
    thing_columns,
    width,
)

Record = Mapping[str, Any]


def from_records(layout: Layout, records: Iterable[Record | str]) -> Tensor:
    """Recorded states -> packed states `[N, W]`.

    A record is a dict of either data set, or its text (JSON or a Python literal). Soups that are ready are ready:
    the 2019 record counts their timer on. The time step and the orders of a record are left out; `check_orders`
    compares the orders.
    """
    reader = _reader(layout)
    rows = []
    for number, record in enumerate(records):
        try:
            rows.append(reader.row(parse_record(record) if isinstance(record, str) else record))
        except InputError as error:
            raise InputError(f"record {number}: {error}") from None
    return torch.tensor(rows, dtype=state_dtype(layout)).reshape(len(rows), width(layout))


def to_records(layout: Layout, states: Tensor, timesteps: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """Packed states `[N, W]` -> dicts as the data set of the layout's rules has them, ready for JSON.

    Args:
        layout: The kitchen; its rules choose the format.
        states: `[N, W]`.
        timesteps: What to write as `timestep` (2020 only), 0 if not given.
    """
    return _write(layout, states, timesteps, _record_2019 if layout.rules == 2019 else _record_2020)


def start_states(layout: Layout, count: int = 1) -> Tensor:
    """`[count, W]`: how a game begins."""
    if layout.start_state is not None:
        try:
            state = from_records(layout, [json.loads(layout.start_state)])
        except InputError as error:
            raise InputError(f"{layout.name}: start_state: {error}") from None
    else:
        state = torch.zeros((1, width(layout)), dtype=state_dtype(layout))
        for player, start in enumerate(layout.starts):
            state[0, POSE[player]] = 4 * layout.floor.index(start)
    return state.repeat(count, 1)


def from_overcooked(layout: Layout, states: Iterable[Any]) -> Tensor:
    """OvercookedStates -> packed states `[N, W]`."""
    return from_records(layout, (_record_of_overcooked(state) for state in states))


def to_overcooked(layout: Layout, states: Tensor, timesteps: Sequence[int] | None = None) -> list[Any]:
    """Packed states `[N, W]` -> OvercookedStates (which overcooked-ai can only play on by the rules of 2020).

    overcooked-ai keeps the recipes of the last kitchen that was made in a global, which this sets to the layout's.
    """
    mdp = overcooked_ai_mdp()
    mdp.Recipe.configure(_recipe_configuration(layout))
    return [mdp.OvercookedState.from_dict(record) for record in _write(layout, states, timesteps, _record_2020)]


def check_orders(layout: Layout, record: Record) -> None:
    """Raise an error where a recorded state has other orders than the layout."""
    for field, expected in (("all_orders", layout.orders), ("bonus_orders", layout.bonus_orders)):
        recorded = record.get(field)
        if not recorded and (field == "all_orders" or recorded is None):
            continue
        found = tuple(sorted(recipe_of(list(order["ingredients"])) or 0 for order in recorded or []))
        if found != tuple(sorted(expected)):
            raise InputError(
                f"{field} is {[ingredients_of(recipe) for recipe in found]}, and {layout.name} has "
                f"{[ingredients_of(recipe) for recipe in expected]}: correct the layout's file"
            )


def parse_record(text: str) -> Any:
    """The value of a JSON text or of a Python literal, without running anything."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        # What the 2019 data writes is JSON but for its quotes; json is 20 times faster than ast.
        literal = text.replace("'", '"').replace("None", "null").replace("False", "false").replace("True", "true")
        return json.loads(literal)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise InputError(f"expected JSON or a Python literal, got {text[:60]!r}") from None


@cache
def _reader(layout: Layout) -> _Reader:
    return _Reader(layout)


class _Reader:
    """Turns records into rows; what it needs of a layout as dicts, because a data set is 10^5 records."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.poses = {cell: 4 * index for index, cell in enumerate(layout.floor)}
        self.orientations = {direction: index for index, direction in enumerate(DIRECTIONS)}
        self.slots = thing_columns(layout)
        self.first_counter = FIRST_POT + len(layout.pots)
        self.codes = {code: number for number, code in enumerate(pot_codes(layout))}
        self.width = width(layout)

    def row(self, record: Record) -> list[int]:
        if not isinstance(record, Mapping):
            raise InputError(f"expected a state as a dict with players and objects, got {record!r}")
        players, objects = record.get("players"), record.get("objects")
        if not isinstance(players, list | tuple) or len(players) != 2:
            number = len(players) if isinstance(players, list | tuple) else players
            raise InputError(f"players: a state has two players, got {number!r}")
        if isinstance(objects, Mapping):  # 2019: by position
            objects = list(objects.values())
        if not isinstance(objects, list | tuple):
            raise InputError(f"objects: expected a list of objects, got {objects!r}")
        row = [0] * self.width
        for number, player in enumerate(players):
            field = f"players[{number}]"
            row[POSE[number]] = self._pose(field, player)
            held = player.get("held_object")
            row[HELD[number]] = NOTHING if held is None else self._object(f"{field}.held_object", held)
        if row[POSE[0]] >> 2 == row[POSE[1]] >> 2:
            raise InputError(f"players: both stand at {list(self.layout.floor[row[POSE[0]] >> 2])}")
        for number, item in enumerate(objects):
            field = f"objects[{number}]"
            place = _pair(f"{field}.position", item, "position")
            slot = self.slots.get(place)
            if slot is None:
                self._not_here(f"{field}.position", place, "a pot or a counter that may hold things")
            if row[slot]:
                raise InputError(f"{field}.position: two objects at {list(place)}")
            row[slot] = self._object(field, item) if slot >= self.first_counter else self._pot(field, item)
        return row

    def _pose(self, field: str, player: Any) -> int:
        position = _pair(f"{field}.position", player, "position")
        direction = _pair(f"{field}.orientation", player, "orientation")
        if position not in self.poses:
            self._not_here(f"{field}.position", position, "a floor cell")
        if direction not in self.orientations:
            raise InputError(f"{field}.orientation: expected one of {DIRECTIONS}, got {direction}")
        return self.poses[position] + self.orientations[direction]

    def _not_here(self, field: str, place: Cell, expected: str) -> NoReturn:
        raise InputError(
            f"{field}: {list(place)} is not {expected} of {self.layout.name}. Is it a state of another layout?"
        )

    def _object(self, field: str, item: Any) -> int:
        """The code of an object that is held or lies on a counter."""
        name = item.get("name") if isinstance(item, Mapping) else item
        if name == "soup":
            code = self._soup(field, item)
            if code.tick != self.layout.cook_times[code.contents]:
                raise InputError(f"{field}: a soup outside a pot must be ready, got {item!r}")
            return SOUP + code.contents
        if name not in OBJECT_NAMES[1 : SOUP + 1]:
            raise InputError(f"{field}.name: unknown object {name!r}; the objects are onion, tomato, dish and soup")
        return OBJECT_NAMES.index(name)

    def _pot(self, field: str, item: Any) -> int:
        name = item.get("name") if isinstance(item, Mapping) else item
        if name != "soup":
            raise InputError(f"{field}.name: only a soup can be in a pot, got {name!r}")
        return self.codes[self._soup(field, item)]

    def _soup(self, field: str, item: Any) -> PotCode:
        if not isinstance(item, Mapping):  # of other objects the name says all
            raise InputError(f"{field}: expected a soup with its ingredients, got {item!r}")
        if "state" in item:
            ingredients, tick = _soup_of_2019(field, item["state"])
        else:
            ingredients, tick = _soup_of_2020(field, item)
        contents = recipe_of(ingredients)
        if contents is None:
            raise InputError(f"{field}: expected up to {MAX_INGREDIENTS} of onion and tomato, got {ingredients}")
        full = len(ingredients) == MAX_INGREDIENTS
        if self.layout.rules == 2019 and full:
            tick = max(tick, 0)  # a full pot cooks, whatever the record's name for its first step
        if tick < 0 or not contents:
            return PotCode(contents, IDLE)
        if self.layout.rules == 2019 and not full:
            raise InputError(f"{field}: a pot of {ingredients} does not cook under the rules of 2019")
        ready = self.layout.cook_times[contents]
        return PotCode(contents, ready if item.get("is_ready") is True else min(tick, ready))


def _soup_of_2019(field: str, state: Any) -> tuple[list[str], int]:
    if (
        not isinstance(state, list | tuple)
        or len(state) != 3
        or not all(isinstance(number, int) and number >= 0 for number in state[1:])
    ):
        raise InputError(f"{field}.state: expected [ingredient, number, time], got {state!r}")
    ingredient, number, time = state
    return [ingredient] * min(number, MAX_INGREDIENTS + 1), time if time > 0 else IDLE


def _soup_of_2020(field: str, item: Record) -> tuple[list[str], int]:
    ingredients = item.get("_ingredients", item.get("ingredients"))
    if not isinstance(ingredients, list | tuple):
        raise InputError(f"{field}._ingredients: expected a list, got {ingredients!r}")
    tick = item.get("cooking_tick", item.get("_cooking_tick", IDLE))
    if not isinstance(tick, int):
        raise InputError(f"{field}.cooking_tick: expected a whole number, got {tick!r}")
    return [str(part.get("name") if isinstance(part, Mapping) else part) for part in ingredients], tick


def _pair(field: str, item: Any, key: str) -> Cell:
    value = item.get(key) if isinstance(item, Mapping) else None
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(isinstance(number, int) for number in value):
        raise InputError(f"{field}: expected [x, y], got {value!r}")
    return value[0], value[1]


def _write(
    layout: Layout,
    states: Tensor,
    timesteps: Sequence[int] | None,
    record: Callable[[Layout, list[int], int], dict[str, Any]],
) -> list[dict[str, Any]]:
    check_states(layout, states)
    rows = states.cpu().tolist()
    times = timesteps if timesteps is not None else [0] * len(rows)
    return [record(layout, row, time) for row, time in zip(rows, times, strict=True)]


def _record_2019(layout: Layout, row: list[int], _time: int) -> dict[str, Any]:
    players = []
    for number in (0, 1):
        place = layout.floor[row[POSE[number]] >> 2]
        player = {"position": list(place), "orientation": list(DIRECTIONS[row[POSE[number]] & 3])}
        if row[HELD[number]]:
            player["held_object"] = _object_2019(layout, row[HELD[number]], place)  # type: ignore[assignment]
        players.append(player)
    objects = {f"{x},{y}": _object_2019(layout, code, (x, y)) for code, (x, y) in _laid(layout, row)}
    orders = [ingredients_of(recipe)[0] for recipe in layout.orders]
    return {"players": players, "objects": objects, "order_list": orders, "pot_explosion": False}


def _record_2020(layout: Layout, row: list[int], time: int) -> dict[str, Any]:
    players = []
    for number in (0, 1):
        place = layout.floor[row[POSE[number]] >> 2]
        held = row[HELD[number]]
        players.append(
            {
                "position": list(place),
                "orientation": list(DIRECTIONS[row[POSE[number]] & 3]),
                "held_object": _object_2020(layout, held, place) if held else None,
            }
        )
    return {
        "players": players,
        "objects": [_object_2020(layout, code, place) for code, place in _laid(layout, row)],
        "bonus_orders": [{"ingredients": ingredients_of(recipe)} for recipe in layout.bonus_orders],
        "all_orders": [{"ingredients": ingredients_of(recipe)} for recipe in layout.orders],
        "timestep": time,
    }


def _laid(layout: Layout, row: list[int]) -> list[tuple[int | PotCode, Cell]]:
    """The pots and counters that are not empty, as pot codes and objects, with their places."""
    codes = pot_codes(layout)
    first_counter = FIRST_POT + len(layout.pots)
    pots = [(codes[code], place) for code, place in zip(row[FIRST_POT:first_counter], layout.pots, strict=True) if code]
    laid = [(code, place) for code, place in zip(row[first_counter:], layout.counters, strict=True) if code]
    return [*pots, *laid]


def _object_2019(layout: Layout, code: int | PotCode, place: Cell) -> dict[str, Any]:
    soup = _soup_code(layout, code)
    if soup is None:
        return {"name": OBJECT_NAMES[code], "position": list(place)}  # type: ignore[index]
    ingredients = ingredients_of(soup.contents)
    if len(set(ingredients)) > 1:
        raise InputError(f"{layout.name}: a soup of {ingredients} cannot be written in the format of 2019")
    return {
        "name": "soup",
        "position": list(place),
        "state": [ingredients[0], len(ingredients), max(soup.tick, 0)],
    }


def _object_2020(layout: Layout, code: int | PotCode, place: Cell) -> dict[str, Any]:
    soup = _soup_code(layout, code)
    if soup is None:
        return {"name": OBJECT_NAMES[code], "position": list(place)}  # type: ignore[index]
    ready = layout.cook_times[soup.contents]
    idle = soup.tick == IDLE
    return {
        "name": "soup",
        "position": list(place),
        "_ingredients": [{"name": name, "position": list(place)} for name in ingredients_of(soup.contents)],
        "cooking_tick": soup.tick,
        "is_cooking": not idle and soup.tick < ready,
        "is_ready": soup.tick == ready,
        "is_idle": idle,
        "cook_time": -1 if idle else ready,
        "_cooking_tick": soup.tick,
    }


def _soup_code(layout: Layout, code: int | PotCode) -> PotCode | None:
    """The soup that an object is, if it is one; outside pots they are ready."""
    if isinstance(code, PotCode):
        return code
    return PotCode(code - SOUP, layout.cook_times[code - SOUP]) if code > SOUP else None


def _record_of_overcooked(state: Any) -> dict[str, Any]:
    return {
        "players": [
            {
                "position": player.position,
                "orientation": player.orientation,
                "held_object": None if player.held_object is None else _item_of_overcooked(player.held_object),
            }
            for player in state.players
        ],
        "objects": [_item_of_overcooked(item) for item in state.objects.values()],
    }


def _item_of_overcooked(item: Any) -> dict[str, Any]:
    record = {"name": item.name, "position": item.position}
    if item.name == "soup":
        record |= {"ingredients": item.ingredients, "cooking_tick": item._cooking_tick}
    return record


def _recipe_configuration(layout: Layout) -> dict[str, Any]:
    """What overcooked-ai calls its recipes' configuration; it wants every recipe listed to give it a time and value."""
    every = range(1, len(CONTENTS))
    return {
        "all_orders": [{"ingredients": ingredients_of(recipe)} for recipe in every],
        "recipe_times": [layout.cook_times[recipe] for recipe in every],
        "recipe_values": [layout.values[recipe] for recipe in every],
    }
