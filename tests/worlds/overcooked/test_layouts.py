from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import (
    Layout,
    layout_names,
    load_layout,
    load_package_layout,
    overcooked_ai_mdp,
    package_layout_names,
    start_states,
)

GAMES_OF_2019 = (
    "cramped_room",
    "asymmetric_advantages",
    "coordination_ring",
    "forced_coordination",
    "counter_circuit_o_1order",
)
GAMES_OF_2020 = (
    "asymmetric_advantages_tomato",
    "counter_circuit",
    "cramped_corridor",
    "inverse_marshmallow_experiment",
    "marshmallow_experiment",
    "marshmallow_experiment_coordination",
    "soup_coordination",
    "you_shall_not_pass",
)
GRID = "XXPXX\nO  2O\nX1  X\nXDXSX"


def test_importing_the_package_prints_nothing() -> None:
    code = (
        "import bsdr_torch.worlds, gymnasium, bsdr_torch.worlds.overcooked as o; k = o.load_layout('random3');"
        "o.to_overcooked(k, o.start_states(k)); gymnasium.make('bsdr_torch/Overcooked-v0').reset(seed=0)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_all_two_player_layouts_of_the_package_load() -> None:
    assert len(package_layout_names()) == 43
    for name in package_layout_names():
        layout = load_package_layout(name)
        game = overcooked_ai_mdp().OvercookedGridworld.from_layout_name(name)
        assert layout.grid == tuple("".join(row) for row in game.terrain_mtx)
        assert list(layout.starts) == game.start_player_positions
        assert (layout.rules, layout.order_bonus) == (2020, game.order_bonus)


@pytest.mark.parametrize("name", GAMES_OF_2020)
def test_the_files_of_2020_are_the_layouts_of_the_package(name: str) -> None:
    assert load_layout(name) == load_package_layout(name)


@pytest.mark.parametrize("name", GAMES_OF_2019)
def test_the_files_of_2019_are_the_package_layouts_under_the_old_rules(name: str) -> None:
    ours, theirs = load_layout(name), load_package_layout(name)
    assert ours.rules == 2019
    differing = {field.name for field in fields(Layout) if getattr(ours, field.name) != getattr(theirs, field.name)}
    moved = {"starts"} if name == "counter_circuit_o_1order" else set()
    assert differing == {"rules", "horizon"} | moved


def test_the_names_of_the_data_are_aliases() -> None:
    assert load_layout("random0") == load_layout("forced_coordination")
    assert load_layout("random3") == load_layout("counter_circuit_o_1order")
    assert load_layout("random3").starts == ((6, 3), (1, 3))
    assert {"random0", "random3", *GAMES_OF_2019, *GAMES_OF_2020} <= set(layout_names())


def test_layouts_are_values() -> None:
    layout = load_layout("cramped_room")
    assert hash(layout) == hash(load_layout("cramped_room"))
    assert replace(layout, rules=2020) != layout


def test_a_file_says_all_that_a_kitchen_needs(tmp_path: Path) -> None:
    layout = _kitchen(
        tmp_path,
        GRID.replace("1", " ").replace("2", " "),
        "rules: 2020",
        "starts: [[1, 1], [2, 2]]",
        "counters: [[1, 0]]",
        "cook_time: {onion: 3, tomato: 5}",
        "value: 7",
        "orders: [[onion], {ingredients: [tomato, onion], time: 9, value: 11}]",
        "bonus_orders: [[onion, tomato]]",
        "order_bonus: 3",
        "horizon: 50",
        "start_state: {players: [{position: [1, 1], orientation: [0, 1]}, {position: [2, 2], orientation: [0, 1], "
        "held_object: {name: dish, position: [2, 2]}}], objects: []}",
    )
    assert (layout.starts, layout.counters, layout.horizon) == (((1, 1), (2, 2)), ((1, 0),), 50)
    assert layout.cook_times == (0, 3, 6, 9, 5, 9, 11, 10, 13, 15)
    assert layout.rewards == (0, 7, 0, 0, 0, 33, 0, 0, 0, 0)
    assert start_states(layout, 2).tolist() == [[1, 0, 4 * 4 + 1, 3, 0, 0]] * 2


@pytest.mark.parametrize(
    ("grid", "lines", "message"),
    [
        (GRID.replace("1", " ").replace("2", " "), (), "starts: a kitchen is for two players, got 0"),
        (GRID.replace("O  2", "O 32"), (), "starts: a kitchen is for two players, got 3"),
        (GRID.replace("1", " "), (), "grid: players must be drawn as 1 and 2, once each"),
        ("XPXXX\nO1XPX\nX2 XX\nXDXSX", (), "grid: no player can reach the pot at row 1, column 3"),
        ("XXPXX\nO  2O\nX1  X\nXDXS", (), "grid: is ragged: row 3"),
        (GRID.replace("O  2", "O ?2"), (), "grid: row 1, column 2: unknown cell '?'"),
        (GRID.replace("XXPXX", "XXP X"), (), "grid: row 0, column 3: floor at the border"),
        (GRID.replace("P", "X"), (), "grid: there is no pot P"),
        (GRID.replace("D", "X"), (), "grid: there is no dish dispenser D"),
        (GRID.replace("S", "X"), (), "grid: there is no serving place S"),
        (GRID.replace("O", "X"), (), "grid: there is no dispenser of onions"),
        (GRID, ("starts: [[0, 0], [1, 1]]",), r"starts\[0\]: \[0, 0\] is 'X', not floor"),
        (GRID, ("starts: [[1, 1], [1, 1]]",), "starts: both players start at"),
        (GRID, ("starts: [[1, 1], [1, 2], [2, 2]]",), "starts: a kitchen is for two players, got 3"),
        (GRID, ("starts: [1, 2]",), r"starts\[0\]: expected a cell \[x, y\], got 1"),
        (GRID, ("counters: some",), "counters: expected all, none, or a list"),
        (GRID, ("counters: [[0, 0]]",), r"counters: \[0, 0\] is not a counter next to the floor"),
        (GRID, ("counters: [[1, 0], [1, 0]]",), "counters: a cell is given twice"),
        (GRID, ("rules: 2021",), "rules: expected 2019 or 2020, got 2021"),
        (GRID, ("horizon: 0",), "horizon: expected a whole number, at least 1, got 0"),
        (GRID, ("cook_time: soon",), "cook_time: expected a whole number, at least 1, got 'soon'"),
        (GRID, ("cook_time: 0",), "cook_time: expected a whole number, at least 1, got 0"),
        (GRID, ("cook_time: 1001",), "cook time of .*: expected 1 to 1000 steps, got 1001"),
        (GRID, ("value: {onion: 3}",), "value: the key 'tomato' is missing"),
        (GRID, ("orders: [[leek]]",), r"orders\[0\]: expected a list of 1 to 3 of onion and tomato, got \['leek'\]"),
        (GRID, ("orders: [[]]",), r"orders\[0\]: expected a list of 1 to 3"),
        (GRID, ("orders: [[onion]]", "bonus_orders: [[tomato]]"), "bonus_orders: .* is not among the orders"),
        (GRID, ("start_state: {players: []}",), "start_state: record 0: players: a state has two players, got 0"),
        (GRID, ("orders: [[onion], [onion]]",), "orders: a recipe is given twice"),
        (GRID, ("order_bonus: .nan",), r"order_bonus: expected a number \(.*\), got nan"),
        (GRID.replace("1", "²"), (), "grid: players must be drawn as 1 and 2, once each, got"),
        (GRID, ("colour: red",), "unknown key 'colour'"),
        (GRID, ("grid: 3",), "grid: expected text, got 3"),
        (GRID, ("orders: {",), "is not valid YAML"),
        (GRID, ("value: 3", "value: 4"), "is not valid YAML .the key 'value' is given twice"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_field(
    tmp_path: Path, grid: str, lines: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError, match=f"kitchen.yaml: {message}"):
        _kitchen(tmp_path, grid, *lines)


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2021)
    | st.floats()
    | st.dates()
    | st.sampled_from(["onion", "all", GRID]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["onion", "tomato", "ingredients", "time", "value", "players"]), inner)
    ),
    max_leaves=8,
)


@given(
    spec=st.dictionaries(
        st.sampled_from(sorted({field.name for field in fields(Layout)} - {"name"} | {"value"})), _VALUES
    )
)
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, spec: dict[str, object]) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "kitchen.yaml"
    path.write_text(yaml.safe_dump({"grid": GRID, **spec}))
    with contextlib.suppress(InputError):
        assert load_layout(path).name == "kitchen"


def test_unknown_names_and_missing_files_are_refused() -> None:
    with pytest.raises(InputError, match="no kitchen is called 'pantry': choose one of asymmetric_advantages"):
        load_layout("pantry")
    with pytest.raises(InputError, match="overcooked-ai has no layout called 'pantry'"):
        load_package_layout("pantry")
    with pytest.raises(InputError, match=r"multiplayer_schelling.layout: starts: .* two players, got 4"):
        load_package_layout("multiplayer_schelling")
    with pytest.raises(InputError, match=r"nowhere.yaml: there is no such file"):
        load_layout("nowhere.yaml")


def _kitchen(folder: Path, grid: str, *lines: str) -> Layout:
    drawn = "grid: |2\n" + "".join(f"  {row}\n" for row in grid.split("\n"))
    path = folder / "kitchen.yaml"
    given = any(line.startswith("grid") for line in lines)
    path.write_text("\n".join(lines) + "\n" + ("" if given else drawn))
    return load_layout(path)
