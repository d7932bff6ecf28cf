from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import (
    check_orders,
    from_overcooked,
    from_records,
    load_layout,
    parse_record,
    pot_codes,
    start_states,
    to_overcooked,
    to_records,
)
from tests.worlds.overcooked.random_kitchens import random_states

RECORD: dict[str, Any] = {
    "players": [
        {"position": [1, 2], "orientation": [0, -1], "held_object": {"name": "onion", "position": [1, 2]}},
        {"position": [3, 1], "orientation": [0, -1]},
    ],
    "objects": {"2,0": {"name": "soup", "position": [2, 0], "state": ["onion", 2, 0]}},
    "order_list": ["onion"],
    "pot_explosion": False,
}


@pytest.fixture(scope="module")
def kitchen():
    return load_layout("cramped_room")


def test_both_data_sets_write_the_same_state(kitchen) -> None:
    newer = copy.deepcopy(RECORD)
    newer["players"][1]["held_object"] = None
    part = {"name": "onion", "position": [2, 0]}
    newer["objects"] = [{"name": "soup", "position": [2, 0], "_ingredients": [part, part], "_cooking_tick": -1}]
    assert torch.equal(from_records(kitchen, [RECORD]), from_records(kitchen, [newer]))


def test_text_is_read_as_json_and_as_a_python_literal(kitchen) -> None:
    texts = [
        str(RECORD),
        str(RECORD).replace("'", '"').replace("False", "false"),
        str(RECORD).replace("[1, 2]", "(1, 2)"),
    ]
    assert len(from_records(kitchen, texts).unique(dim=0)) == 1
    with pytest.raises(InputError, match="expected JSON or a Python literal"):
        parse_record("__import__('os').getcwd()")


def test_a_ready_soup_is_ready_however_long_it_has_stood(kitchen) -> None:
    record = copy.deepcopy(RECORD)
    states = []
    for time in (20, 21, 239):
        record["objects"]["2,0"]["state"] = ["onion", 3, time]
        states.append(from_records(kitchen, [record]))
    assert torch.equal(states[0], states[1])
    assert torch.equal(states[0], states[2])
    assert pot_codes(kitchen)[int(states[0][0, 4])] == (3, 20)


def test_no_records_are_no_states(kitchen) -> None:
    assert from_records(kitchen, []).shape == (0, 10)
    assert to_records(kitchen, start_states(kitchen, 0)) == []


def test_states_of_2019_can_be_drawn_by_overcooked_ai() -> None:
    kitchen = load_layout("coordination_ring")
    states = random_states(kitchen, 200, seed=2)
    assert torch.equal(from_overcooked(kitchen, to_overcooked(kitchen, states)), states)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["players"].append(r["players"][0]), "players: a state has two players, got 3"),
        (lambda r: r.pop("players"), "players: a state has two players, got None"),
        (lambda r: r["players"][1].update(position=[1, 2]), r"players: both stand at \[1, 2\]"),
        (
            lambda r: r["players"][1].update(position=[6, 3]),
            r"players\[1\].position: \[6, 3\] is not a floor cell of cramped_room. Is it a state of another layout",
        ),
        (lambda r: r["players"][0].update(position="here"), r"players\[0\].position: expected \[x, y\], got 'here'"),
        (lambda r: r["players"][0].update(orientation=[1, 1]), r"players\[0\].orientation: expected one of"),
        (
            lambda r: r["players"][0].update(held_object={"name": "leek", "position": [1, 2]}),
            r"players\[0\].held_object.name: unknown object 'leek'",
        ),
        (
            lambda r: r["players"][0].update(
                held_object={"name": "soup", "position": [1, 2], "state": ["onion", 3, 4]}
            ),
            r"players\[0\].held_object: a soup outside a pot must be ready",
        ),
        (lambda r: r.update(objects=None), "objects: expected a list of objects, got None"),
        (lambda r: r.update(objects=["soup"]), r"objects\[0\].position: expected \[x, y\]"),
        (
            lambda r: r.update(objects=[{"name": "dish", "position": [2, 2]}]),
            r"objects\[0\].position: \[2, 2\] is not a pot or a counter that may hold things of cramped_room",
        ),
        (
            lambda r: r.update(objects=[{"name": "dish", "position": [2, 0]}]),
            r"objects\[0\].name: only a soup can be in a pot, got 'dish'",
        ),
        (
            lambda r: r.update(objects=[{"name": "dish", "position": [1, 0]}] * 2),
            r"objects\[1\].position: two objects at \[1, 0\]",
        ),
        (
            lambda r: r["objects"]["2,0"].update(state=["onion", 4, 0]),
            r"objects\[0\]: expected up to 3 of onion and tomato",
        ),
        (lambda r: r["objects"]["2,0"].update(state=["leek", 1, 0]), r"objects\[0\]: expected up to 3 of onion"),
        (lambda r: r["objects"]["2,0"].update(state=["onion", 1]), r"objects\[0\].state: expected \[ingredient"),
        (
            lambda r: r["objects"]["2,0"].update(state=["onion", 2, 5]),
            r"objects\[0\]: .* does not cook under the rules",
        ),
        (lambda r: r["objects"]["2,0"].pop("state"), r"objects\[0\]._ingredients: expected a list, got None"),
    ],
)
def test_a_wrong_record_is_refused_with_its_number_and_field(
    kitchen, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    record = copy.deepcopy(RECORD)
    change(record)
    with pytest.raises(InputError, match=f"^record 1: {message}"):
        from_records(kitchen, [RECORD, record])


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 30) | st.sampled_from(["soup", "onion", "dish", "x"]) | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "position", "state", "_ingredients", "cooking_tick"]), inner)
    ),
    max_leaves=12,
)


@example(path="held_object", value="soup")
@given(path=st.sampled_from(["players", "objects", "position", "held_object", "object"]), value=_VALUES)
def test_any_record_is_read_or_refused(path: str, value: Any) -> None:
    record = copy.deepcopy(RECORD)
    if path in ("position", "held_object"):
        record["players"][0][path] = value
    elif path == "object":
        record["objects"]["2,0"] = value
    else:
        record[path] = value
    kitchen = load_layout("cramped_room")
    try:
        states = from_records(kitchen, [record])
    except InputError:
        return
    assert torch.equal(from_records(kitchen, to_records(kitchen, states)), states)


def test_other_orders_are_noticed() -> None:
    kitchen = load_layout("soup_coordination")
    record = to_records(kitchen, start_states(kitchen))[0]
    check_orders(kitchen, record)
    check_orders(load_layout("cramped_room"), RECORD)
    record["bonus_orders"] = []
    with pytest.raises(
        InputError, match=r"bonus_orders is \[\], and soup_coordination has .*correct the layout's file"
    ):
        check_orders(kitchen, record)
