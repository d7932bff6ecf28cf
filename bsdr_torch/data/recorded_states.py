"""What one cell of a record says: the state of the kitchen, and the joint action."""

from __future__ import annotations

import json
from collections.abc import Callable
from reprlib import repr as short
from typing import Any, TypeGuard

from bsdr_torch.data.games import RecordedState

COOK_TIME_2019 = 20


class CellError(ValueError):
    """A cell is wrong; the message names the part of it and what was expected there."""


def parse_state_2019(cell: object) -> RecordedState:
    """A state of the 2019 record: a Python literal, soups as [kind, count, timer], timers capped at 20."""
    state = _checked_state(_parse(cell, _json_of_literal))
    for item in _items(state):
        # The record lets timers run on after the soup is done.
        if "state" in item:
            item["state"][2] = min(item["state"][2], COOK_TIME_2019)
    return state


def parse_state_2020(cell: object) -> RecordedState:
    """A state of the 2020 schema: JSON, soups with ingredients and a cooking tick."""
    return _checked_state(_parse(cell, str))


def parse_joint_action(cell: object) -> tuple[int, int]:
    """The two actions, as indices into the simulator's `ACTIONS`, from JSON or a Python literal."""
    joint = _parse(cell, _json_of_literal)
    if not isinstance(joint, list) or len(joint) != 2:
        raise CellError(f"got {short(joint)}, expected a list of two actions")
    first, second = (_action(action) for action in joint)
    return first, second


_STEPS = {(0, -1): 0, (0, 1): 1, (1, 0): 2, (-1, 0): 3, (0, 0): 4}
_STAY, _INTERACT = 4, 5
_INGREDIENTS = ("onion", "tomato")
_ITEMS = (*_INGREDIENTS, "dish", "soup")
_LARGEST_COORDINATE = 99
_MOST_OBJECTS = 1000


def _parse(cell: object, to_json: Callable[[str], str]) -> Any:
    if not isinstance(cell, str):
        if isinstance(cell, dict | list):
            return cell
        raise CellError(f"got {short(cell)}, expected JSON")
    try:
        return json.loads(to_json(cell))
    except (ValueError, RecursionError) as error:
        raise CellError(f"got {short(cell)}, which is malformed: {error}") from None


def _json_of_literal(literal: str) -> str:
    # Many times faster than ast.literal_eval, and no less safe: no text in a valid record has quotes or such words.
    return literal.replace("'", '"').replace("False", "false").replace("True", "true").replace("None", "null")


def _action(action: object) -> int:
    if isinstance(action, str) and action.lower() == "interact":
        return _INTERACT
    if _is_pair(action) and (action[0], action[1]) in _STEPS:
        return _STEPS[action[0], action[1]]
    raise CellError(f'got the action {short(action)}, expected [dx, dy] of one step or none, or "interact"')


def _checked_state(state: Any) -> RecordedState:
    if not isinstance(state, dict):
        raise CellError(f"got {short(state)}, expected an object with players and objects")
    players = state.get("players")
    if not isinstance(players, list) or len(players) != 2 or not all(isinstance(player, dict) for player in players):
        raise CellError(f"players: got {short(players)}, expected a list of two")
    for index, player in enumerate(players):
        _check_position(player.get("position"), f"players[{index}].position")
        orientation = player.get("orientation")
        if not _is_pair(orientation) or _STEPS.get((orientation[0], orientation[1]), _STAY) == _STAY:
            raise CellError(f"players[{index}].orientation: got {short(orientation)}, expected a step such as [0, -1]")
        if player.get("held_object") is not None:
            _check_item(player["held_object"], f"players[{index}].held_object")
    objects = state.get("objects")
    if not isinstance(objects, list | dict) or len(objects) > _MOST_OBJECTS:
        raise CellError(f"objects: got {short(objects)}, expected a list of up to {_MOST_OBJECTS}")
    for key, item in objects.items() if isinstance(objects, dict) else enumerate(objects):
        _check_item(item, f"objects[{key!r:.20}]")
    return state


def _items(state: RecordedState) -> list[dict[str, Any]]:
    """Every object, lying or held."""
    held = [player["held_object"] for player in state["players"] if player.get("held_object") is not None]
    lying = state["objects"].values() if isinstance(state["objects"], dict) else state["objects"]
    return [*held, *lying]


def _check_item(item: object, where: str) -> None:
    if not isinstance(item, dict):
        raise CellError(f"{where}: got {short(item)}, expected an object with name and position")
    if not isinstance(item.get("name"), str) or item["name"] not in _ITEMS:
        raise CellError(f"{where}.name: got {short(item.get('name'))}, expected one of {', '.join(_ITEMS)}")
    _check_position(item.get("position"), f"{where}.position")
    if item["name"] == "soup":
        _check_soup(item, where)
    elif "state" in item and item["state"] is not None:
        raise CellError(f"{where}.state: got {short(item['state'])} on a {item['name']}, only soups have one")


def _check_soup(soup: dict[str, Any], where: str) -> None:
    if "state" in soup:
        state = soup["state"]
        if not (
            isinstance(state, list)
            and len(state) == 3
            and isinstance(state[0], str)
            and state[0] in _INGREDIENTS
            and all(type(number) is int and number >= 0 for number in state[1:])
        ):
            raise CellError(f"{where}.state: got {short(state)}, expected [ingredient, count, timer]")
        return
    ingredients = soup.get("_ingredients", soup.get("ingredients"))
    if not isinstance(ingredients, list) or len(ingredients) > _MOST_OBJECTS:
        raise CellError(f"{where}: a soup with neither state nor a list of _ingredients")
    for ingredient in ingredients:
        name = ingredient.get("name") if isinstance(ingredient, dict) else ingredient
        if not isinstance(name, str) or name not in _INGREDIENTS:
            raise CellError(f"{where}._ingredients: got {short(ingredient)}, expected {' or '.join(_INGREDIENTS)}")
    tick = soup.get("cooking_tick", soup.get("_cooking_tick"))
    if type(tick) is not int or tick < -1:
        raise CellError(f"{where}.cooking_tick: got {short(tick)}, expected -1 (not cooking) or the steps cooked")


def _check_position(position: object, where: str) -> None:
    if not _is_pair(position) or not all(0 <= x <= _LARGEST_COORDINATE for x in position):
        raise CellError(f"{where}: got {short(position)}, expected [x, y]")


def _is_pair(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and len(value) == 2 and type(value[0]) is int and type(value[1]) is int
