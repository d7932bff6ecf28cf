from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import (
    CONTENTS,
    GRID_CHANNELS,
    Layout,
    encode_grid,
    layout_names,
    load_layout,
    pot_codes,
    start_states,
    swap_players,
    width,
)
from tests.worlds.overcooked.random_kitchens import random_states

THINGS = ("onion", "tomato", "dish", "soup")


@pytest.mark.parametrize("name", layout_names())
def test_the_packed_state_can_be_read_off_the_picture(name: str) -> None:
    layout = load_layout(name)
    states = random_states(layout, 40, 0)
    pictures = encode_grid(layout, states, 0, size=15)
    for state, picture in zip(states, pictures, strict=True):
        assert _read(layout, picture) == state.tolist()


def test_the_picture_shows_the_terrain_and_nothing_outside() -> None:
    layout = load_layout("asymmetric_advantages")
    picture = encode_grid(layout, start_states(layout), 0)[0]
    assert picture.shape == (len(GRID_CHANNELS), 9, 9)
    for y, row in enumerate(layout.grid):
        for x, cell in enumerate(row):
            shown = [name for name, value in zip(GRID_CHANNELS[:7], picture[:7, y, x], strict=True) if value]
            names = {" ": "floor", "X": "counter", "P": "pot", "O": "onions", "D": "dishes", "S": "serving"}
            assert shown == [names[cell]]
    assert not picture[:, 5:].any()


def test_the_same_kitchen_from_the_other_seat_is_the_kitchen_with_players_swapped() -> None:
    for name in layout_names():
        layout = load_layout(name)
        states, seats = random_states(layout, 60, 1), torch.arange(60) % 2
        pictures = [encode_grid(layout, states, seat) for seat in (0, 1)]
        assert torch.equal(pictures[1], encode_grid(layout, swap_players(states), 0))
        assert not torch.equal(pictures[0], pictures[1])
        assert torch.equal(encode_grid(layout, states, seats), torch.stack(pictures)[seats, torch.arange(60)])


def test_several_kitchens_share_one_shape() -> None:
    shapes = set()
    for name in ("cramped_room", "forced_coordination", "you_shall_not_pass"):
        layout = load_layout(name)
        shapes.add(encode_grid(layout, start_states(layout, 2), 1, size=13).shape)
    assert shapes == {(2, len(GRID_CHANNELS), 13, 13)}


def test_a_kitchen_does_not_fit_in_a_smaller_square() -> None:
    layout = load_layout("you_shall_not_pass")
    with pytest.raises(InputError, match="13 x 4 cells: size 12 is too small"):
        encode_grid(layout, start_states(layout), 0, size=12)


def _read(layout: Layout, picture: Tensor) -> list[int]:
    """The packed state, from the picture of player 0."""
    channel = {name: picture[index] for index, name in enumerate(GRID_CHANNELS)}
    row = [-1] * width(layout)
    for player, name in enumerate(("ego", "partner")):
        ((y, x),) = channel[name].nonzero().tolist()
        directions = ("north", "south", "east", "west")
        (looks,) = (d for d in range(4) if channel[f"{name}_looks_{directions[d]}"][y, x])
        row[2 * player] = 4 * layout.floor.index((x, y)) + looks
        row[2 * player + 1] = _thing(channel, x, y)
    codes = pot_codes(layout)
    for index, (x, y) in enumerate(layout.pots):
        contents = _contents(channel, x, y)
        tick = round(float(channel["cooked"][y, x]) * layout.cook_times[contents]) if channel["cooking"][y, x] else -1
        row[4 + index] = codes.index((contents, tick))
    for index, (x, y) in enumerate(layout.counters):
        row[4 + len(layout.pots) + index] = _thing(channel, x, y)
    return row


def _thing(channel: dict[str, Tensor], x: int, y: int) -> int:
    shown = [number for number, name in enumerate(THINGS, start=1) if channel[name][y, x]]
    assert len(shown) <= 1
    return 0 if not shown else shown[0] if shown[0] < 4 else 3 + _contents(channel, x, y)


def _contents(channel: dict[str, Tensor], x: int, y: int) -> int:
    return CONTENTS.index(
        (round(3 * float(channel["onions_in"][y, x])), round(3 * float(channel["tomatoes_in"][y, x])))
    )
