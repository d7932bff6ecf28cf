"""Kitchens from files: envs/overcooked/*.yaml, and the layouts of the installed overcooked-ai package."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.files import world_folder
from bsdr_torch.worlds.overcooked.layouts import (
    CONTENTS,
    MAX_INGREDIENTS,
    Cell,
    Layout,
    parse_grid,
    recipe_of,
    usable_counters,
)
from bsdr_torch.worlds.overcooked.records import start_states

_YAML_KEYS = (
    *("grid", "rules", "aliases", "starts", "counters", "horizon", "start_state"),
    *("cook_time", "value", "orders", "bonus_orders", "order_bonus"),
)
_PACKAGE_KEYS = (
    *("grid", "start_all_orders", "start_bonus_orders", "order_bonus", "start_state", "rew_shaping_params"),
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
    path = _package_folder() / f"{name}.layout"
    if not path.is_file():
        raise InputError(
            f"overcooked-ai has no layout called {name!r}: choose one of {', '.join(package_layout_names())}"
        )
    spec = _read_python_literal(path)
    _refuse_unknown_keys(str(path), spec, _PACKAGE_KEYS)
    if spec.get("max_num_ingredients", MAX_INGREDIENTS) != MAX_INGREDIENTS:
        raise InputError(f"{path}: max_num_ingredients: only {MAX_INGREDIENTS} is supported")
    grid, starts = parse_grid(str(path), [row.strip() for row in str(spec["grid"]).split("\n")])
    listed = [_recipe(f"{path}: start_all_orders", order) for order in spec.get("start_all_orders") or []]
    bonus = [_recipe(f"{path}: start_bonus_orders", order) for order in spec.get("start_bonus_orders") or []]
    start_state = spec.get("start_state")
    return Layout(
        name=name,
        grid=grid,
        starts=_two(str(path), starts),
        counters=usable_counters(grid),
        rules=2020,
        cook_times=tuple(int(time) for time in _package_numbers(spec, listed, "time", "cook_time")),
        values=_package_numbers(spec, listed, "value", "delivery_reward"),
        orders=tuple(sorted(listed)) or tuple(range(1, len(CONTENTS))),
        bonus_orders=tuple(sorted(bonus)),
        order_bonus=float(spec.get("order_bonus", 2)),
        start_state=None if start_state is None else json.dumps(start_state),
    )


def layout_names() -> list[str]:
    """Every name that `load_layout` knows: files and their aliases, then the package's, sorted."""
    return sorted({*_yaml_files(), *package_layout_names()})


@cache
def package_layout_names() -> tuple[str, ...]:
    """The two-player layouts of the installed overcooked-ai package, sorted."""
    names = []
    for path in sorted(_package_folder().glob("*.layout")):
        players = sum(cell.isdigit() for cell in str(_read_python_literal(path)["grid"]))
        if players == 2:
            names.append(path.stem)
    return tuple(names)


def _from_yaml(path: Path) -> Layout:
    spec = _read_yaml(path)
    source = str(path)
    _refuse_unknown_keys(source, spec, _YAML_KEYS)
    if not isinstance(spec.get("grid"), str):
        raise InputError(f"{source}: grid: expected the kitchen drawn as text, got {spec.get('grid')!r}")
    grid, drawn = parse_grid(source, spec["grid"].strip("\n").split("\n"))
    starts = [_cell(f"{source}: starts", cell) for cell in _list(source, spec, "starts")] or drawn
    times = _by_ingredient(f"{source}: cook_time", spec.get("cook_time", 20))
    values = _by_ingredient(f"{source}: value", spec.get("value", 20))
    orders = []
    for number, order in enumerate(_list(source, spec, "orders")):
        field = f"{source}: orders[{number}]"
        orders.append(_recipe(field, order))
        if isinstance(order, Mapping):
            _refuse_unknown_keys(field, order, ["ingredients", "time", "value"])
            times[orders[-1]] = order.get("time", times[orders[-1]])
            values[orders[-1]] = order.get("value", values[orders[-1]])
    bonus = [_recipe(f"{source}: bonus_orders", order) for order in _list(source, spec, "bonus_orders")]
    start_state = spec.get("start_state")
    order_bonus = _number(f"{source}: order_bonus", spec.get("order_bonus", 2))
    two_starts, counters = _two(source, starts), _counters(source, spec.get("counters", "all"), grid)
    try:
        layout = Layout(
            name=path.stem,
            grid=grid,
            starts=two_starts,
            counters=counters,
            rules=spec.get("rules", 2020),
            cook_times=tuple(times),
            values=tuple(values),
            orders=tuple(sorted(orders)) or tuple(range(1, len(CONTENTS))),
            bonus_orders=tuple(sorted(bonus)),
            order_bonus=order_bonus,
            horizon=spec.get("horizon", 400),
            start_state=None if start_state is None else json.dumps(start_state),
        )
        start_states(layout)  # a wrong first state is an error of the file, so it is found here
        return layout
    except InputError as error:
        raise InputError(f"{source}: {str(error).removeprefix(f'{path.stem}: ')}") from None


@cache
def _yaml_files() -> dict[str, Path]:
    """Names and aliases, and their files."""
    found: dict[str, Path] = {}
    for path in sorted(world_folder("overcooked").glob("*.yaml")):
        for name in [path.stem, *_list(str(path), _read_yaml(path), "aliases")]:
            if name in found:
                raise InputError(f"{path}: aliases: {name!r} is already the name of {found[name]}")
            found[name] = path
    return found


@cache
def _package_folder() -> Path:
    # Found, not imported: importing the package prints a warning of the dead `gym`.
    spec = importlib.util.find_spec("overcooked_ai_py")
    if spec is None or not spec.submodule_search_locations:
        raise InputError("the package overcooked-ai is not installed: pip install overcooked-ai")
    return Path(spec.submodule_search_locations[0]) / "data" / "layouts"


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(spec, dict):
        raise InputError(f"{path}: expected keys ({', '.join(_YAML_KEYS)}) and values, got {spec!r}")
    return spec


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


def _by_ingredient(field: str, spec: object) -> list[Any]:
    """The numbers of all contents, from one number, or from one each for onion and tomato."""
    if isinstance(spec, Mapping):
        _refuse_unknown_keys(field, spec, ["onion", "tomato"])
        onion, tomato = (_number(f"{field}.{name}", spec.get(name)) for name in ("onion", "tomato"))
        return [onion * o + tomato * t for o, t in CONTENTS]
    return [_number(field, spec)] * len(CONTENTS)


def _number(field: str, value: object) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{field}: expected a number, got {value!r}")
    return value


def _recipe(field: str, order: object) -> int:
    ingredients = order.get("ingredients") if isinstance(order, Mapping) else order
    recipe = recipe_of(ingredients) if isinstance(ingredients, list) else None
    if not recipe:
        raise InputError(f"{field}: expected a list of 1 to {MAX_INGREDIENTS} of onion and tomato, got {ingredients!r}")
    return recipe


def _counters(source: str, spec: object, grid: tuple[str, ...]) -> tuple[Cell, ...]:
    if spec == "all":
        return usable_counters(grid)
    if spec == "none":
        return ()
    if not isinstance(spec, list):
        raise InputError(f"{source}: counters: expected all, none, or a list of cells [x, y], got {spec!r}")
    return tuple(_cell(f"{source}: counters", cell) for cell in spec)


def _list(source: str, spec: Mapping[str, Any], key: str) -> list[Any]:
    value = spec.get(key) or []
    if not isinstance(value, list):
        raise InputError(f"{source}: {key}: expected a list, got {value!r}")
    return value


def _cell(field: str, cell: object) -> Cell:
    if not isinstance(cell, list) or len(cell) != 2 or not all(type(number) is int for number in cell):
        raise InputError(f"{field}: expected a cell [x, y], got {cell!r}")
    return cell[0], cell[1]


def _two(source: str, starts: list[Cell]) -> tuple[Cell, Cell]:
    if len(starts) != 2:
        raise InputError(
            f"{source}: starts: a kitchen is for two players, got {len(starts)}: draw 1 and 2 in the grid, "
            "or give two cells [x, y] as starts"
        )
    return starts[0], starts[1]


def _refuse_unknown_keys(source: str, spec: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in spec:
        if key not in known:
            raise InputError(f"{source}: unknown key {key!r}; the keys are {', '.join(known)}")
