from __future__ import annotations

from itertools import product

import pytest
import torch

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import (
    ACTION_IMAGES,
    ACTIONS,
    DIRECTED_FEATURES,
    FEATURE_NAMES,
    NUM_SYMMETRIES,
    Layout,
    check_states,
    compose,
    encode_features,
    encode_grid,
    feature_sources,
    inverse,
    load_layout,
    load_package_layout,
    permute_features,
    start_states,
    step,
    turn_action_values,
    turn_actions,
    turn_grid,
    turn_layout,
    turn_states,
)
from tests.worlds.overcooked.random_kitchens import random_joint_actions, random_states

SYMMETRIES = range(NUM_SYMMETRIES)
# Both rule sets; square, tall and wide; one and two pots; int16 states, a first state, an infinite bonus.
KITCHENS = [
    *("cramped_room", "asymmetric_advantages", "coordination_ring", "forced_coordination", "random3"),
    *("counter_circuit", "cramped_corridor", "you_shall_not_pass", "marshmallow_experiment"),
    *("long_cook_time", "tutorial_1", "tutorial_3"),
]
NORTH, SOUTH, EAST, WEST, STAY, INTERACT = range(6)


def test_a_quarter_turn_goes_clockwise_and_the_mirror_exchanges_east_and_west() -> None:
    kitchen = load_layout("cramped_room")
    assert kitchen.grid == ("XXPXX", "O   O", "X   X", "XDXSX")
    assert turn_layout(kitchen, 1).grid == ("XXOX", "D  X", "X  P", "S  X", "XXOX")
    assert turn_layout(kitchen, 4).grid == ("XXPXX", "O   O", "X   X", "XSXDX")
    assert ACTION_IMAGES[1] == (EAST, WEST, SOUTH, NORTH, STAY, INTERACT)
    assert ACTION_IMAGES[4] == (NORTH, SOUTH, WEST, EAST, STAY, INTERACT)


def test_the_symmetries_are_a_group() -> None:
    assert [compose(g, 0) for g in SYMMETRIES] == [compose(0, g) for g in SYMMETRIES] == list(SYMMETRIES)
    for f, g, h in product(SYMMETRIES, repeat=3):
        assert compose(f, compose(g, h)) == compose(compose(f, g), h)
    for g in SYMMETRIES:
        assert compose(inverse(g), g) == compose(g, inverse(g)) == 0
        assert {compose(g, h) for h in SYMMETRIES} == set(SYMMETRIES)
    assert len({ACTION_IMAGES[g] for g in SYMMETRIES}) == NUM_SYMMETRIES
    assert any(compose(g, h) != compose(h, g) for g, h in product(SYMMETRIES, repeat=2))


@pytest.mark.parametrize("name", ["asymmetric_advantages", "counter_circuit", "tutorial_1"])
def test_turning_twice_is_turning_by_the_composition(name: str) -> None:
    layout = load_layout(name)
    states, actions = random_states(layout, 50, 0), torch.arange(6)
    features, grid = encode_features(layout, states, 0), encode_grid(layout, states, 0)
    for first, second in product(SYMMETRIES, repeat=2):
        both, turned = compose(second, first), turn_layout(layout, first)
        assert turn_layout(turned, second) == turn_layout(layout, both)
        assert torch.equal(
            turn_states(turned, turn_states(layout, states, first), second), turn_states(layout, states, both)
        )
        assert torch.equal(turn_actions(turn_actions(actions, first), second), turn_actions(actions, both))
        assert torch.equal(
            permute_features(permute_features(features, first), second), permute_features(features, both)
        )
        assert torch.equal(turn_grid(turned, turn_grid(layout, grid, first), second), turn_grid(layout, grid, both))
    assert turn_layout(layout, 0) == layout


@pytest.fixture
def some_symmetries(full: bool) -> list[int]:
    """A quarter turn and the mirror, of which all others are made, and one of those; all with --full."""
    return list(SYMMETRIES) if full else [1, 4, 6]


@pytest.mark.parametrize("name", KITCHENS)
def test_turned_kitchens_go_on_as_the_kitchen_does_turned(name: str, some_symmetries: list[int], full: bool) -> None:
    for layout in {load_layout(name), *(_played_by_2020_rules(name) if full else ())}:
        states, actions = random_states(layout, 400, 1), random_joint_actions(400, 2)
        following, rewards, events = step(layout, states, actions)
        for g in some_symmetries:
            turned = turn_layout(layout, g)
            turned_states = turn_states(layout, states, g)
            check_states(turned, turned_states)
            result = step(turned, turned_states, turn_actions(actions, g))
            assert torch.equal(result[0], turn_states(layout, following, g)), g
            assert torch.equal(result[1], rewards)
            assert torch.equal(result[2], events)


@pytest.mark.parametrize("name", KITCHENS)
def test_encodings_of_turned_states_are_turned_encodings(name: str, some_symmetries: list[int]) -> None:
    layout = load_layout(name)
    states, seats = random_states(layout, 200, 3), torch.arange(200) % 2
    size = max(layout.width, layout.height) + 2
    features, grid = encode_features(layout, states, seats), encode_grid(layout, states, seats, size)
    for g in some_symmetries:
        turned, turned_states = turn_layout(layout, g), turn_states(layout, states, g)
        found = encode_features(turned, turned_states, seats)
        wrong = (found != permute_features(features, g)).any(0).nonzero().flatten().tolist()
        assert not wrong, (g, [FEATURE_NAMES[feature] for feature in wrong])
        assert torch.equal(encode_grid(turned, turned_states, seats, size), turn_grid(layout, grid, g)), g


def test_a_kitchen_that_starts_with_things_in_it_starts_turned() -> None:
    layout = load_layout("tutorial_1")
    assert layout.start_state is not None
    for g in SYMMETRIES:
        assert torch.equal(start_states(turn_layout(layout, g)), turn_states(layout, start_states(layout), g))


def test_each_row_can_have_its_own_symmetry() -> None:
    layout = load_layout("coordination_ring")
    features = encode_features(layout, random_states(layout, 80, 4), 0)
    symmetries, actions, logits = torch.arange(80) % 8, torch.arange(80) % 6, torch.randn(80, 6)
    for g in SYMMETRIES:
        rows = symmetries == g
        assert torch.equal(permute_features(features, symmetries)[rows], permute_features(features[rows], g))
        assert torch.equal(turn_actions(actions, symmetries)[rows], turn_actions(actions[rows], g))
        assert torch.equal(turn_action_values(logits, symmetries)[rows], turn_action_values(logits[rows], g))
        assert torch.equal(features[:, list(feature_sources(g))], permute_features(features, g))


def test_values_of_actions_move_with_the_actions() -> None:
    values, actions = torch.randn(1, 6), torch.arange(6)
    for g in SYMMETRIES:
        assert torch.equal(turn_action_values(values, g)[0, turn_actions(actions, g)], values[0])
        assert ACTION_IMAGES[g] == tuple(turn_actions(actions, g).tolist())


def test_only_what_has_a_direction_moves_and_as_the_actions_do() -> None:
    directed = [place for four in DIRECTED_FEATURES for place in four]
    assert [FEATURE_NAMES[place] for place in directed] == [
        name for name in FEATURE_NAMES if name.rpartition("_")[2] in ACTIONS[:4]
    ]
    features = torch.randn(3, 5, len(FEATURE_NAMES))
    invariant = [place for place in range(len(FEATURE_NAMES)) if place not in directed]
    for g in SYMMETRIES:
        turned = permute_features(features, g)
        assert torch.equal(turned[..., invariant], features[..., invariant])
        images = list(ACTION_IMAGES[g][:4])
        assert torch.equal(
            turned[..., torch.tensor(DIRECTED_FEATURES)[:, images]], features[..., torch.tensor(DIRECTED_FEATURES)]
        )


def test_what_is_not_a_symmetry_is_refused() -> None:
    layout = load_layout("cramped_room")
    features = encode_features(layout, start_states(layout), 0)
    with pytest.raises(InputError, match=r"0\.\.7, got 8"):
        turn_layout(layout, 8)
    with pytest.raises(InputError, match=r"0\.\.7"):
        permute_features(features, torch.tensor([9]))
    with pytest.raises(InputError, match="each row of"):
        permute_features(features, torch.tensor([1, 2]))
    with pytest.raises(InputError, match="FEATURE_NAMES"):
        permute_features(features[:, 1:], 1)
    with pytest.raises(InputError, match="size at least 5"):
        turn_grid(layout, torch.zeros(1, 3, 4, 4), 1)


def _played_by_2020_rules(name: str) -> list[Layout]:
    try:
        return [load_package_layout(name)]
    except InputError:
        return []
