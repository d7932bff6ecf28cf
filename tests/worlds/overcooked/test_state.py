from __future__ import annotations

import pytest
import torch

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import (
    CONTENTS,
    cells,
    check_states,
    counter_objects,
    from_records,
    hash_states,
    held_objects,
    load_layout,
    orientations,
    package_layout_names,
    pot_codes,
    pot_contents,
    pot_ticks,
    pots_ready,
    start_states,
    state_dtype,
    swap_players,
    to_records,
    unique_states,
    width,
)
from bsdr_torch.worlds.overcooked import state as state_module
from tests.worlds.overcooked.random_kitchens import random_states


def test_a_state_says_where_everything_is() -> None:
    kitchen = load_layout("soup_coordination")
    record = {
        "players": [
            {"position": [2, 2], "orientation": [-1, 0], "held_object": {"name": "tomato", "position": [2, 2]}},
            {"position": [8, 2], "orientation": [0, 1], "held_object": None},
        ],
        "objects": [
            {"name": "soup", "position": [5, 2], "ingredients": ["tomato", "onion"], "cooking_tick": 4},
            {"name": "dish", "position": [5, 1]},
        ],
    }
    states = from_records(kitchen, [record])
    assert [kitchen.floor[cell] for cell in cells(states)[0]] == [(2, 2), (8, 2)]
    assert orientations(states).tolist() == [[3, 1]]
    assert held_objects(states).tolist() == [[2, 0]]
    assert CONTENTS[int(pot_contents(kitchen, states))] == (1, 1)
    assert pot_ticks(kitchen, states).tolist() == [[4]]
    assert not pots_ready(kitchen, states).any()
    laid = counter_objects(kitchen, states)[0]
    assert {kitchen.counters[i]: int(laid[i]) for i in laid.nonzero()} == {(5, 1): 3}


def test_ready_pots_are_those_that_cooked_their_time() -> None:
    kitchen = load_layout("soup_coordination")
    states = start_states(kitchen, len(pot_codes(kitchen)))
    states[:, 4] = torch.arange(len(states))
    expected = [tick == kitchen.cook_times[contents] for contents, tick in pot_codes(kitchen)]
    assert pots_ready(kitchen, states).flatten().tolist() == expected
    assert sum(expected) == 9


@pytest.mark.parametrize("name", package_layout_names())
def test_any_state_survives_its_record(name: str) -> None:
    kitchen = load_layout(name)
    states = random_states(kitchen, 50, seed=1)
    assert torch.equal(from_records(kitchen, to_records(kitchen, states)), states)
    check_states(kitchen, states)
    assert states.dtype == state_dtype(kitchen) == (torch.int16 if name == "long_cook_time" else torch.uint8)
    assert states.shape == (50, width(kitchen))


def test_swapping_players_twice_is_no_change() -> None:
    states = random_states(load_layout("cramped_room"), 100, seed=0)
    assert torch.equal(swap_players(swap_players(states)), states)
    assert torch.equal(cells(swap_players(states)), cells(states).flip(1))
    assert torch.equal(held_objects(swap_players(states)), held_objects(states).flip(1))


@pytest.mark.parametrize("name", ["cramped_room", "corridor", "long_cook_time"])
def test_hashes_are_equal_exactly_where_states_are(name: str) -> None:
    states = random_states(load_layout(name), 20_000, seed=3)
    states = torch.cat([states, states[:500]])
    different, index = torch.unique(states, dim=0, return_inverse=True)
    hashes, hash_index = torch.unique(hash_states(states), return_inverse=True)
    assert len(hashes) == len(different)
    assert len(torch.unique(torch.stack([index, hash_index]), dim=1).T) == len(different)


def test_hashes_do_not_depend_on_memory_or_batch() -> None:
    states = random_states(load_layout("cramped_room"), 100, seed=0)
    hashes = hash_states(states)
    assert torch.equal(hash_states(states.T.contiguous().T), hashes)
    assert torch.equal(hash_states(states.view(10, 10, -1)).flatten(), hashes)
    assert hash_states(states[7]) == hashes[7]


def test_close_states_have_unrelated_hashes() -> None:
    """Each bit of the hash changes in about half of the states that differ in one column."""
    kitchen = load_layout("counter_circuit")
    states = random_states(kitchen, 4000, seed=0)
    changed = states.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 13
    flips = hash_states(states) ^ hash_states(changed)
    share = torch.stack([(flips >> bit & 1).double().mean() for bit in range(64)])
    assert ((share > 0.45) & (share < 0.55)).all()


@pytest.mark.parametrize("collide", [False, True])
def test_unique_states_are_the_different_ones(collide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if collide:
        monkeypatch.setattr(state_module, "hash_states", lambda states: states[:, 0].long())
    some = random_states(load_layout("cramped_room"), 300, seed=5)
    states = some[torch.randint(300, (2000,), generator=torch.Generator().manual_seed(0))]
    unique, index = unique_states(states)
    assert torch.equal(unique[index], states)
    assert len(unique) == len(torch.unique(states, dim=0)) == len(torch.unique(unique, dim=0))


def test_states_that_cannot_be_are_refused() -> None:
    kitchen = load_layout("cramped_room")
    states = start_states(kitchen, 3)
    with pytest.raises(InputError, match=r"a state of cramped_room is a row of 10 torch.uint8, got .* another layout"):
        check_states(kitchen, start_states(load_layout("random3")))
    with pytest.raises(InputError, match=r"a row of 10 torch.uint8, got torch.int64"):
        check_states(kitchen, states.long())
    wrong = states.clone()
    wrong[1, 4] = 230
    with pytest.raises(InputError, match="state 1 is not a state of cramped_room: column 4 is 230, expected 0 to 198"):
        check_states(kitchen, wrong)
    wrong = states.clone()
    wrong[2, 0] = wrong[2, 2]
    with pytest.raises(InputError, match=r"state 2 is not a state of cramped_room: both players stand at \(3, 1\)"):
        check_states(kitchen, wrong)
