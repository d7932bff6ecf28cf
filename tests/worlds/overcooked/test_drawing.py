from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import (
    describe_state,
    draw_rollout,
    draw_state,
    load_layout,
    package_layout_names,
    pot_codes,
    save_rollout,
    start_states,
    unique_states,
)
from bsdr_torch.worlds.overcooked.state import DISH, FIRST_POT, HELD, NUM_OBJECTS, ONION, PotCode, counter_columns
from tests.worlds.overcooked.random_kitchens import random_states


@pytest.fixture(scope="module")
def room():
    return load_layout("cramped_room")


def test_text_says_all_that_is_in_a_kitchen(room):
    state = start_states(room)[0]
    state[HELD[0]], state[HELD[1]], state[-1] = ONION, DISH + 3, DISH
    state[FIRST_POT] = pot_codes(room).index(PotCode(3, 7))
    assert describe_state(room, state).split("\n") == [
        "XXPXX",
        "O  ▲O",
        "X△  X",
        "XDdSX" if room.counters[-1] == (2, 3) else "XDXSX",
        "△ player 0 holds onion",
        "▲ player 1 holds a soup of 3 onions",
        "P pot at row 0, column 2: 3 onions, cooked 7 of 20 steps",
    ]


@pytest.mark.parametrize("name", ["cramped_room", "soup_coordination"])
def test_different_states_have_different_texts(name):
    layout = load_layout(name)
    states, _ = unique_states(random_states(layout, 300, seed=0))
    # A text says that a thing on a counter is a soup, but not of what.
    states[:, counter_columns(layout)] = states[:, counter_columns(layout)].clamp(max=DISH + 1)
    states, _ = unique_states(states)
    assert len({describe_state(layout, state) for state in states}) == len(states)


def test_different_things_look_different(room):
    """All but soups in hands, for which there are two sprites: with onions and without."""
    pictures = []
    for column, values in (
        (0, range(4 * len(room.floor))),
        (HELD[0], range(DISH + 2)),
        (FIRST_POT, range(len(pot_codes(room)))),
        (FIRST_POT + 1, range(NUM_OBJECTS)),
    ):
        for value in values:
            state = start_states(room)[0]
            state[column] = value
            if state[0] // 4 != state[2] // 4 and value != int(start_states(room)[0, column]):
                pictures.append(draw_state(room, state, cell_pixels=45).tobytes())
    # Tick 0 has no number of its own to tell it from a pot that waits: it lasts no step.
    assert len(set(pictures)) == len(pictures)


@pytest.mark.parametrize("name", package_layout_names()[::6])
def test_any_kitchen_can_be_drawn(name):
    layout = load_layout(name)
    for state in random_states(layout, 20, seed=0):
        picture = draw_state(layout, state, cell_pixels=15)
        assert picture.shape == (15 * layout.height, 15 * layout.width, 3)
        assert picture.dtype == np.uint8


def test_beta_colours_the_floor_and_nothing_else(room):
    state = start_states(room)[0]
    plain, colored = draw_state(room, state), draw_state(room, state, torch.linspace(0, 2, len(room.floor)))
    changed = (plain != colored).any(axis=2).reshape(room.height, 60, room.width, 60).mean(axis=(1, 3))
    floor = np.zeros((room.height, room.width), dtype=bool)
    for x, y in room.floor:
        floor[y, x] = True
    assert (changed[floor] > 0.3).all()
    assert not changed[~floor].any()
    low, high = (colored[60 * y + 5, 60 * x + 5].astype(int) for x, y in (room.floor[0], room.floor[-1]))
    assert high.sum() > low.sum() + 100, "the upper end is bright"


def test_bars_are_as_long_as_probabilities(room):
    probabilities = torch.zeros(2, 6)
    probabilities[0, 0], probabilities[1, 3] = 1, 1
    states = start_states(room, 2)
    first, second = draw_rollout(room, states, probabilities=probabilities)
    blue = [(frame == (0x3B, 0x6F, 0xD4)).all(axis=2) for frame in (first, second)]
    rows = [np.flatnonzero(mark[:, -150:].sum(axis=1) >= 100) for mark in blue]
    assert len(rows[0]) == len(rows[1]) > 5
    assert rows[1].min() > rows[0].max(), "west is below north"


def test_frames_have_one_size_and_make_a_film_or_a_strip(room, tmp_path: Path):
    states = random_states(room, 5, seed=0)
    frames = draw_rollout(
        room,
        states,
        torch.randint(6, (5, 2)),
        torch.full((5, 2, 6), 1 / 6),
        torch.rand(5, len(room.floor)),
        cell_pixels=30,
    )
    assert len({frame.shape for frame in frames}) == 1
    save_rollout(tmp_path / "film.gif", frames, fps=5)
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == 5
        assert film.info["duration"] == 200
        difference = np.abs(np.asarray(film.convert("RGB")).astype(int) - frames[0])
        assert difference.mean() < 3, "the palette keeps the colours"
    save_rollout(tmp_path / "deep" / "strip.png", frames, columns=3)
    with Image.open(tmp_path / "deep" / "strip.png") as strip:
        height, width, _ = frames[0].shape
        assert strip.size == (3 * width + 16, 2 * height + 8)


def test_what_cannot_be_drawn_is_refused(room, tmp_path: Path):
    state = start_states(room)[0]
    with pytest.raises(InputError, match="another layout"):
        draw_state(load_layout("coordination_ring"), state)
    with pytest.raises(InputError, match=r"beta must have shape \[6\], got \[5\]"):
        draw_state(room, state, torch.ones(5))
    with pytest.raises(InputError, match="beta must be finite"):
        draw_state(room, state, torch.full((6,), float("nan")))
    with pytest.raises(InputError, match="cell_pixels must be at least 15, got 3"):
        draw_state(room, state, cell_pixels=3)
    with pytest.raises(InputError, match=r"actions must have shape \[1, 2\], got \[2, 2\]"):
        draw_rollout(room, state.unsqueeze(0), torch.zeros(2, 2))
    with pytest.raises(InputError, match=r"at least one packed state \[T, W\]"):
        draw_rollout(room, state)
    with pytest.raises(InputError, match=r"film\.mp4: the name must end in \.gif"):
        save_rollout(tmp_path / "film.mp4", [draw_state(room, state)])
    with pytest.raises(InputError, match="there are no pictures"):
        save_rollout(tmp_path / "film.gif", [])
