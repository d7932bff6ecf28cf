from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import (
    ACTIONS,
    EVENTS,
    JOINT_ACTIONS,
    Layout,
    cells,
    check_states,
    happened,
    hash_states,
    held_objects,
    load_layout,
    orientations,
    pot_contents,
    pot_ticks,
    pots_ready,
    start_states,
    step,
    successor_outcomes,
    successors,
    swap_players,
)
from bsdr_torch.worlds.overcooked.state import NOTHING, ONION, TOMATO
from tests.worlds.overcooked.random_kitchens import random_joint_actions, random_states

KITCHENS = ["cramped_room", "random0", "soup_coordination", "corridor", "long_cook_time"]


@pytest.mark.parametrize("name", KITCHENS)
def test_a_batch_is_stepped_as_its_rows_are(name: str) -> None:
    kitchen = load_layout(name)
    states, actions = random_states(kitchen, 64, seed=0), random_joint_actions(64, seed=1)
    batched = step(kitchen, states, actions)
    alone = [step(kitchen, states[i : i + 1], actions[i : i + 1]) for i in range(64)]
    for together, one_by_one in zip(batched, zip(*alone, strict=True), strict=True):
        assert torch.equal(together, torch.cat(one_by_one))


@pytest.mark.parametrize("name", KITCHENS)
def test_successors_are_the_steps_of_all_joint_actions(name: str) -> None:
    kitchen = load_layout(name)
    states = random_states(kitchen, 300, seed=4)
    following = successors(kitchen, states)
    rewards, events = successor_outcomes(kitchen, states)
    assert following.is_contiguous()
    for number, joint in enumerate(JOINT_ACTIONS):
        expected = step(kitchen, states, torch.tensor([joint]).expand(300, 2))
        for found, wanted in zip((following[:, number], rewards[:, number], events[:, number]), expected, strict=True):
            assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", KITCHENS)
def test_a_step_leaves_its_input_alone(name: str) -> None:
    kitchen = load_layout(name)
    states, actions = random_states(kitchen, 50, seed=0), random_joint_actions(50, seed=0)
    before = states.clone(), actions.clone()
    step(kitchen, states, actions)
    successors(kitchen, states)
    successor_outcomes(kitchen, states)
    assert torch.equal(states, before[0])
    assert torch.equal(actions, before[1])


def test_memory_order_and_integer_type_do_not_matter() -> None:
    kitchen = load_layout("random3")
    states, actions = random_states(kitchen, 50, seed=0), random_joint_actions(50, seed=0)
    expected = step(kitchen, states, actions)
    for found in (
        step(kitchen, states.T.contiguous().T, actions.to(torch.uint8)),
        step(kitchen, states.repeat_interleave(2, dim=0)[::2], actions.T.contiguous().T.int()),
    ):
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert torch.equal(successors(kitchen, states.T.contiguous().T), successors(kitchen, states))


def test_no_kitchens_make_no_steps() -> None:
    kitchen = load_layout("cramped_room")
    states, rewards, events = step(kitchen, start_states(kitchen, 0), torch.zeros((0, 2), dtype=torch.int64))
    assert (states.shape, rewards.shape, events.shape) == ((0, 10), (0,), (0, 2))
    assert successors(kitchen, start_states(kitchen, 0)).shape == (0, 36, 10)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(KITCHENS), seed=st.integers(0, 2**31))
def test_what_can_never_happen_does_not(name: str, seed: int) -> None:
    kitchen = load_layout(name)
    states, actions = random_states(kitchen, 200, seed), random_joint_actions(200, seed)
    following, rewards, events = step(kitchen, states, actions)
    check_states(kitchen, following)
    acts = actions == ACTIONS.index("interact")
    # Only who INTERACTs changes what is in a hand, or makes an event; only serving earns.
    assert not ((held_objects(states) != held_objects(following)) & ~acts).any()
    assert not ((events != 0) & ~acts).any()
    assert torch.equal(
        events != 0, (held_objects(states) != held_objects(following)) | happened(events, "cooking_started")
    )
    assert not ((rewards != 0) & ~happened(events, "soup_served").any(1)).any()
    # Who moves, moves one cell; who presses a direction looks there.
    floor = torch.tensor(kitchen.floor)
    distance = (floor[cells(states)] - floor[cells(following)]).abs().sum(-1)
    assert (distance <= (actions < 4)).all()
    assert torch.equal(orientations(following), torch.where(actions < 4, actions, orientations(states)))
    # Without an INTERACT, pots go on cooking until they are ready and nothing else changes in them.
    still = ~acts.any(1)
    ticks, later = pot_ticks(kitchen, states)[still], pot_ticks(kitchen, following)[still]
    cooking = (ticks >= 0) & ~pots_ready(kitchen, states)[still]
    assert torch.equal(later, ticks + cooking)
    assert torch.equal(pot_contents(kitchen, states)[still], pot_contents(kitchen, following)[still])


@pytest.mark.parametrize("name", KITCHENS)
def test_players_are_equal_unless_they_use_the_same_thing(name: str) -> None:
    """Exchanging the players exchanges what happens, but that player 0 is served first."""
    kitchen = load_layout(name)
    states, actions = random_states(kitchen, 500, seed=8), random_joint_actions(500, seed=9)
    actions[:, 1] = torch.where((actions == 5).all(1), 4, actions[:, 1])
    following, rewards, events = step(kitchen, states, actions)
    swapped = step(kitchen, swap_players(states), actions.flip(1))
    assert torch.equal(swapped[0], swap_players(following))
    assert torch.equal(swapped[1], rewards)
    assert torch.equal(swapped[2], events.flip(1))


def test_player_0_is_first_where_both_use_one_pot() -> None:
    kitchen = load_layout("asymmetric_advantages")
    following, _, events = step(kitchen, _at_one_pot(kitchen, ONION, ONION, onions=2), torch.tensor([[5, 5]]))
    assert held_objects(following).tolist() == [[NOTHING, ONION]]
    assert happened(events, "onion_potted").tolist() == [[True, False]]
    assert happened(events, "cooking_started").tolist() == [[True, False]]
    assert pot_ticks(kitchen, following)[0, 0] == 1


def test_a_pot_filled_by_player_0_is_started_by_player_1_in_the_same_step() -> None:
    kitchen = replace(load_layout("asymmetric_advantages"), rules=2020)
    following, _, events = step(kitchen, _at_one_pot(kitchen, ONION, NOTHING, onions=0), torch.tensor([[5, 5]]))
    assert happened(events, "cooking_started").tolist() == [[False, True]]
    assert (int(pot_contents(kitchen, following)[0, 0]), int(pot_ticks(kitchen, following)[0, 0])) == (1, 1)


@pytest.mark.parametrize(
    ("rules", "held", "onions", "event", "tick"),
    [
        (2019, ONION, 2, "cooking_started", 1),
        (2020, ONION, 2, "onion_potted", -1),
        (2019, TOMATO, 1, None, -1),
        (2020, TOMATO, 1, "tomato_potted", -1),
        (2019, NOTHING, 1, None, -1),
        (2020, NOTHING, 1, "cooking_started", 1),
    ],
)
def test_the_rules_differ_in_what_a_pot_takes_and_who_starts_it(
    rules: int, held: int, onions: int, event: str | None, tick: int
) -> None:
    kitchen = replace(load_layout("asymmetric_advantages"), rules=rules)
    following, _, events = step(kitchen, _at_one_pot(kitchen, held, NOTHING, onions), torch.tensor([[5, 4]]))
    assert pot_ticks(kitchen, following)[0, 0] == tick
    assert events.any() == (event is not None)
    assert event is None or happened(events, event)[0, 0]


def test_counters_that_may_not_hold_things_do_not() -> None:
    kitchen = replace(load_layout("mdp_test"), counters=())
    states = random_states(kitchen, 20_000, seed=0)
    _, _, events = step(kitchen, states, random_joint_actions(20_000, seed=0))
    for event in EVENTS:
        assert happened(events, event).any() == ("drop" not in event), event


def test_things_are_handed_over_a_counter_in_one_step_from_player_0_to_player_1_only() -> None:
    kitchen = load_layout("coordination_ring")
    west, south = (4 * kitchen.floor.index(cell) for cell in ((1, 2), (2, 3)))
    states = start_states(kitchen, 2)
    states[0, :4] = torch.tensor([west + 2, ONION, south + 0, NOTHING])
    states[1, :4] = torch.tensor([west + 2, NOTHING, south + 0, ONION])
    following, _, _ = step(kitchen, states, torch.tensor([[5, 5]] * 2))
    assert held_objects(following).tolist() == [[NOTHING, ONION], [NOTHING, NOTHING]]


def test_reachable_states_are_as_many_as_an_independent_program_found(full: bool) -> None:
    name, count = ("cramped_room", 125_266) if full else ("forced_coordination", 300)
    kitchen = replace(load_layout(name), counters=())
    frontier = start_states(kitchen)
    seen = hash_states(frontier)
    while len(frontier):
        following = successors(kitchen, frontier).flatten(0, 1)
        hashes, index = torch.unique(hash_states(following), return_inverse=True)
        some = torch.empty_like(hashes).scatter_(0, index, torch.arange(len(following)))
        new = seen[torch.searchsorted(seen, hashes).clamp(max=len(seen) - 1)] != hashes
        frontier = following[some[new]]
        seen = torch.cat([seen, hashes[new]]).sort().values
    assert len(seen) == count


def test_wrong_input_is_refused() -> None:
    kitchen = load_layout("cramped_room")
    states, actions = start_states(kitchen, 4), torch.full((4, 2), 4)
    for value in (6, -1):
        wrong = actions.clone()
        wrong[2, 1] = value
        with pytest.raises(InputError, match=rf"joint_actions\[2, 1\] is {value}; the actions are 0 to 5 \(north"):
            step(kitchen, states, wrong)
    with pytest.raises(InputError, match=r"got shapes \(4, 10\) and \(3, 2\)"):
        step(kitchen, states, actions[:3])
    with pytest.raises(InputError, match=r"actions are integers 0..5, got torch.float32"):
        step(kitchen, states, actions.float())
    with pytest.raises(InputError, match="Is it a state of another layout"):
        step(load_layout("random3"), states, actions)
    of_another = start_states(load_layout("you_shall_not_pass"), 4)  # has as many pots and counters, and more floor
    for function in (lambda: step(kitchen, of_another, actions), lambda: successors(kitchen, of_another)):
        with pytest.raises(
            InputError, match=r"state 0 is not a state of cramped_room: column 2 is 40.* another layout"
        ):
            function()
    with pytest.raises(InputError, match=r"expected states \[N, W\]"):
        successors(kitchen, states[0])
    with pytest.raises(InputError, match="there is no event 'fire'"):
        happened(torch.zeros((1, 2), dtype=torch.int16), "fire")


def _at_one_pot(kitchen: Layout, held0: int, held1: int, onions: int) -> Tensor:
    """`[1, W]`: both players look at the upper pot of asymmetric_advantages, from its two sides."""
    states = start_states(kitchen)
    west, east = (kitchen.floor.index(cell) for cell in ((3, 2), (5, 2)))
    states[0, :5] = torch.tensor([4 * west + 2, held0, 4 * east + 3, held1, onions])
    return states
