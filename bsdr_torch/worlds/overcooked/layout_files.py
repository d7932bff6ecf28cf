"""Kitchens from files: envs/overcooked/*.yaml, and the layouts of the installed overcooked-ai package."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.files import SpecField, is_integer, read_yaml, world_folder
from bsdr_torch.worlds.overcooked.layouts import (
    CONTENTS,
    MAX_INGREDIENTS,
    Cell,
    Layout,
    parse_grid,
    recipe_of,
    usable_counters,
)
from bsdr_torch.worlds.overcooked.overcooked_ai import packaged_file
from bsdr_torch.worlds.overcooked.records import start_states

Number = TypeVar("Number", int, float)

# What a file may leave out. No orders means that every soup is ordered.
_DEFAULTS = {
    "rules": 2020,
    "aliases": [],
    "starts": [],
    "counters": "all",
    "horizon": 400,
    "start_state": None,
    "cook_time": 20,
    "value": 20,
    "orders": [],
    "bonus_orders": [],
    "order_bonus": 2,
}
_PACKAGE_KEYS = (
    *("start_all_orders", "start_bonus_orders", "order_bonus", "start_state", "rew_shaping_params"),
    *("cook_time", "recipe_times", "onion_time", "tomato_time"),
    *("delivery_reward", "recipe_values", "onion_value", "tomato_value"),
    *("max_num_ingredients", "num_items_for_soup"),
)


def load_layout(name_or_path: str | Path) -> Layout:
    """A kitchen by the name or alias of a file in envs/overcooked, by a path to a .yaml, or by the package's name.

    A name that both know (cramped_room) is the file's: the 2019 game. `load_package_layout` gives the other.
    """
    if Path(name_or_path).suffix in (".yaml", ".yml"):
        return _from_yaml(Path(name_or_path))
    name = str(name_or_path)
    files = _yaml_files()
    if name in files:
        return _from_yaml(files[name])
    if name in package_layout_names():
        return load_package_layout(name)
    raise InputError(
        f"no kitchen is called {name!r}: choose one of {', '.join(layout_names())}, or give a path that ends in .yaml"
    )


def load_package_layout(name: str) -> Layout:
    """A two-player layout of the installed overcooked-ai package, with the 2020 rules that the package plays by."""
    path = packaged_file("data/layouts") / f"{name}.layout"
    if not path.is_file():
        raise InputError(
            f"overcooked-ai has no layout called {name!r}: choose one of {', '.join(package_layout_names())}"
        )
    source, spec = str(path), _read_python_literal(path)
    SpecField(source, "", spec).entries(required=("grid",), optional=_PACKAGE_KEYS)
    if spec.get("max_num_ingredients", MAX_INGREDIENTS) != MAX_INGREDIENTS:
        raise InputError(f"{source}: max_num_ingredients: only {MAX_INGREDIENTS} is supported")
    grid, starts = parse_grid(source, [row.strip() for row in str(spec["grid"]).split("\n")])
    orders, bonus_orders = (
        [_recipe(order) for order in SpecField(source, key, spec.get(key) or []).items_or_itself()]
        for key in ("start_all_orders", "start_bonus_orders")
    )
    return _layout(
        path,
        grid=grid,
        starts=tuple(starts),
        counters=usable_counters(grid),
        rules=2020,
        cook_times=tuple(int(time) for time in _package_numbers(spec, orders, "time", "cook_time")),
        values=_package_numbers(spec, orders, "value", "delivery_reward"),
        orders=orders,
        bonus_orders=bonus_orders,
        order_bonus=float(spec.get("order_bonus", 2)),
        start_state=spec.get("start_state"),
    )


def layout_names() -> list[str]:
    """Every name that `load_layout` knows: files and their aliases, then the package's, sorted."""
    return sorted({*_yaml_files(), *package_layout_names()})


@cache
def package_layout_names() -> tuple[str, ...]:
    """The two-player layouts of the installed overcooked-ai package, sorted."""
    names = []
    for path in sorted(packaged_file("data/layouts").glob("*.layout")):
        players = sum(cell.isdigit() for cell in str(_read_python_literal(path)["grid"]))
        if players == 2:
            names.append(path.stem)
    return tuple(names)


def _from_yaml(path: Path) -> Layout:
    spec = _read_spec(path)
    grid, drawn = parse_grid(str(path), spec["grid"].rows())
    starts = [_cell(cell) for cell in spec["starts"].items_or_itself()] or drawn
    times = _by_ingredient(spec["cook_time"], SpecField.positive_integer)
    values = _by_ingredient(spec["value"], SpecField.number)
    orders = []
    for order in spec["orders"].items_or_itself():
        recipe = _recipe(order)
        orders.append(recipe)
        if isinstance(order.value, dict):
            given = order.entries(required=("ingredients",), optional=("time", "value"))
            times[recipe] = given["time"].positive_integer() if "time" in given else times[recipe]
            values[recipe] = given["value"].number() if "value" in given else values[recipe]
    return _layout(
        path,
        grid=grid,
        starts=tuple(starts),
        counters=_counters(spec["counters"], grid),
        rules=spec["rules"].value,
        cook_times=tuple(times),
        values=tuple(values),
        orders=orders,
        bonus_orders=[_recipe(order) for order in spec["bonus_orders"].items_or_itself()],
        order_bonus=spec["order_bonus"].number(),
        horizon=spec["horizon"].positive_integer(),
        start_state=spec["start_state"].value,
    )


def _layout(path: Path, orders: list[int], bonus_orders: list[int], start_state: Any, **facts: Any) -> Layout:
    """The kitchen of a file; what is wrong with it is said of the file, a wrong first state included."""
    try:
        layout = Layout(
            name=path.stem,
            orders=tuple(sorted(orders)) or tuple(range(1, len(CONTENTS))),
            bonus_orders=tuple(sorted(bonus_orders)),
            start_state=None if start_state is None else json.dumps(start_state, default=str),
            **facts,
        )
        start_states(layout)
    except InputError as error:
        raise InputError(f"{path}: {str(error).removeprefix(f'{path.stem}: ')}") from None
    return layout


@cache
def _yaml_files() -> dict[str, Path]:
    """Names and aliases, and their files."""
    found: dict[str, Path] = {}
    for path in sorted(world_folder("overcooked").glob("*.yaml")):
        aliases = _read_spec(path)["aliases"]
        for name in (path.stem, *(aliases.names() if aliases.value else ())):
            if name in found:
                raise aliases.error(f"{name!r} is already the name of {found[name]}")
            found[name] = path
    return found


def _read_spec(path: Path) -> dict[str, SpecField]:
    """The fields of a kitchen's file, given or by default."""
    defaults = {key: SpecField(str(path), key, value) for key, value in _DEFAULTS.items()}
    return defaults | SpecField(str(path), "", read_yaml(path)).entries(required=("grid",), optional=tuple(_DEFAULTS))


def _read_python_literal(path: Path) -> dict[str, Any]:
    """A dict written as a Python literal, read without running it; `float('inf')` is the one call that is allowed."""
    try:
        spec = ast.literal_eval(_Infinity().visit(ast.parse(path.read_text(encoding="utf-8"), mode="eval")))
    except (SyntaxError, ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not a layout written as a Python literal ({error})") from None
    if not isinstance(spec, dict) or "grid" not in spec:
        raise InputError(f"{path}: grid: is missing")
    return spec


class _Infinity(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        return ast.Constant(math.inf) if ast.unparse(node) == "float('inf')" else node


def _package_numbers(spec: dict[str, Any], orders: list[int], what: str, one_for_all: str) -> tuple[float, ...]:
    """The cook times or values of all contents, by the package's order of precedence; it takes 0 for "not given"."""
    if spec.get(one_for_all):
        return (float(spec[one_for_all]),) * len(CONTENTS)
    onion, tomato = spec.get(f"onion_{what}"), spec.get(f"tomato_{what}")
    numbers = [float(onion * o + tomato * t) if onion and tomato else 20.0 for o, t in CONTENTS]
    for recipe, number in zip(orders, spec.get(f"recipe_{what}s") or [], strict=False):
        numbers[recipe] = float(number)
    return tuple(numbers)


def _by_ingredient(field: SpecField, number: Callable[[SpecField], Number]) -> list[Number]:
    """The numbers of all contents, from one number, or from one each for onion and tomato."""
    if isinstance(field.value, dict):
        given = field.entries(required=("onion", "tomato"))
        onion, tomato = number(given["onion"]), number(given["tomato"])
        return [onion * o + tomato * t for o, t in CONTENTS]
    return [number(field)] * len(CONTENTS)


def _recipe(field: SpecField) -> int:
    ingredients = field.value.get("ingredients") if isinstance(field.value, dict) else field.value
    recipe = recipe_of(ingredients) if isinstance(ingredients, list) else None
    if not recipe:
        raise field.error(f"expected a list of 1 to {MAX_INGREDIENTS} of onion and tomato, got {ingredients!r}")
    return recipe


def _counters(field: SpecField, grid: tuple[str, ...]) -> tuple[Cell, ...]:
    if field.value == "all":
        return usable_counters(grid)
    if field.value == "none":
        return ()
    if not isinstance(field.value, list):
        raise field.error(f"expected all, none, or a list of cells [x, y], got {field.value!r}")
    return tuple(_cell(cell) for cell in field.items_or_itself())


def _cell(field: SpecField) -> Cell:
    if not isinstance(field.value, list) or len(field.value) != 2 or not all(map(is_integer, field.value)):
        raise field.error(f"expected a cell [x, y], got {field.value!r}")
    return field.value[0], field.value[1]
