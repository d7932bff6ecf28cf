"""Kitchens to look at: as text, as a picture with the sprites of overcooked-ai, and rollouts as GIF or strip."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import layouts
from bsdr_torch.worlds.overcooked.layouts import CONTENTS, Cell, Layout
from bsdr_torch.worlds.overcooked.overcooked_ai import packaged_file
from bsdr_torch.worlds.overcooked.rules import ACTIONS, NUM_ACTIONS
from bsdr_torch.worlds.overcooked.state import (
    IDLE,
    NOTHING,
    OBJECT_NAMES,
    SOUP,
    cells,
    check_states,
    counter_objects,
    held_objects,
    orientations,
    pot_contents,
    pot_ticks,
)

Picture = npt.NDArray[np.uint8]

PLAYER_COLORS = ("#3b6fd4", "#3e9a4b")  # of the hats: blue, green
_TERRAIN_SPRITES = {
    layouts.FLOOR: "floor",
    layouts.COUNTER: "counter",
    layouts.POT: "pot",
    layouts.ONIONS: "onions",
    layouts.TOMATOES: "tomatoes",
    layouts.DISHES: "dishes",
    layouts.SERVING: "serve",
}
_SPRITE_PIXELS = 15
_SCALE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))  # from violet to yellow
_INK, _PAPER, _PALE = "#222222", "#ffffff", "#d9d9d9"


def draw_state(
    layout: Layout,
    state: Tensor,
    beta: Tensor | None = None,
    beta_range: tuple[float, float] | None = None,
    cell_pixels: int = 60,
) -> Picture:
    """A picture `[height * cell_pixels, width * cell_pixels, 3]` of a packed state `[W]`.

    `beta` `[floor cells]`, in the order of `Layout.floor`, is laid over the floor as numbers and colours, from violet
    for the lower end of `beta_range` to yellow for the upper one; the range is that of `beta` if not given.
    """
    check_states(layout, state)
    if cell_pixels < _SPRITE_PIXELS:
        raise InputError(f"cell_pixels must be at least {_SPRITE_PIXELS}, got {cell_pixels!r}")
    picture = _kitchen(layout, cell_pixels).copy()
    if beta is None:
        _paste_things(layout, picture, state, cell_pixels)
    else:
        _check("beta", beta, [(len(layout.floor),)])
        low, high = beta_range or _range(beta)
        _color_floor(layout, picture, ((beta - low) / max(high - low, 1e-12)).tolist(), cell_pixels)
        _paste_things(layout, picture, state, cell_pixels)
        _number_floor(layout, picture, beta.tolist(), cell_pixels)
    return np.asarray(picture, dtype=np.uint8)


def describe_state(layout: Layout, state: Tensor) -> str:
    """A packed state `[W]` as text: the grid with things and players, then what is held and what is in the pots.

    Players are arrows, player 0 hollow and player 1 filled. Things on counters are o onion, t tomato, d dish, s soup.
    """
    check_states(layout, state)
    rows = [[" " if cell == layouts.FLOOR else cell for cell in row] for row in layout.grid]
    for (x, y), thing in zip(layout.counters, counter_objects(layout, state).tolist(), strict=True):
        if thing != NOTHING:
            rows[y][x] = OBJECT_NAMES[thing][0]
    lines = []
    floor, looks = cells(state).tolist(), orientations(state).tolist()
    for player, held in enumerate(held_objects(state).tolist()):
        x, y = layout.floor[floor[player]]
        mark = ("△▽▷◁", "▲▼▶◀")[player][looks[player]]
        rows[y][x] = mark
        lines.append(f"{mark} player {player} holds {_thing_text(held)}")
    for (x, y), contents, tick in zip(
        layout.pots, pot_contents(layout, state).tolist(), pot_ticks(layout, state).tolist(), strict=True
    ):
        lines.append(f"P pot at row {y}, column {x}: {_pot_text(layout, contents, tick)}")
    return "\n".join(["".join(row) for row in rows] + lines)


def draw_rollout(
    layout: Layout,
    states: Tensor,
    actions: Tensor | None = None,
    probabilities: Tensor | None = None,
    beta: Tensor | None = None,
    cell_pixels: int = 60,
) -> list[Picture]:
    """A picture of each step of a rollout, all of one size.

    Args:
        layout: The kitchen.
        states: `[T, W]`.
        actions: `[T, 2]`, what the players did, named in the title and marked among the bars.
        probabilities: `[T, 6]` for player 0 or `[T, 2, 6]`, predicted probabilities of actions, drawn as bars.
        beta: `[floor cells]` or `[T, floor cells]`, laid over the floor with one scale of colours for all steps.
        cell_pixels: The size of a cell.
    """
    T = len(states)
    if states.ndim != 2 or not T:
        raise InputError(f"a rollout is at least one packed state [T, W], got shape {tuple(states.shape)}")
    _check("actions", actions, [(T, 2)])
    _check("probabilities", probabilities, [(T, NUM_ACTIONS), (T, 2, NUM_ACTIONS)])
    _check("beta", beta, [(len(layout.floor),), (T, len(layout.floor))])
    if probabilities is not None and probabilities.ndim == 2:
        probabilities = probabilities.unsqueeze(1)
    beta_range = None if beta is None else _range(beta)
    frames = []
    for t in range(T):
        here = None if beta is None else beta if beta.ndim == 1 else beta[t]
        kitchen = Image.fromarray(draw_state(layout, states[t], here, beta_range, cell_pixels))
        taken = [int(action) for action in actions[t]] if actions is not None else None
        title = f"step {t}" if taken is None else f"step {t}: {ACTIONS[taken[0]]}, {ACTIONS[taken[1]]}"
        bars = probabilities[t].tolist() if probabilities is not None else []
        suffix = "" if beta is None else "; beta on the floor"
        frames.append(_framed(kitchen, f"{layout.name}, {title}{suffix}", bars, taken))
    return frames


def save_rollout(path: str | Path, frames: Sequence[Picture], fps: float = 6.0, columns: int = 4) -> None:
    """Pictures of one size as a film (.gif), or one after the other in rows of `columns` (.png)."""
    target = Path(path)
    if not frames:
        raise InputError(f"{target}: there are no pictures to save")
    if target.suffix not in (".gif", ".png"):
        raise InputError(f"{target}: the name must end in .gif (a film) or .png (a strip)")
    target.parent.mkdir(parents=True, exist_ok=True)
    images = [Image.fromarray(frame) for frame in frames]
    if target.suffix == ".png":
        _strip(images, columns).save(target)
        return
    # One palette for all frames: with one each, colours flicker.
    palette = _strip(images[:: max(1, len(images) // 16)], 4).quantize(255, dither=Image.Dither.NONE)
    films = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    films[0].save(target, save_all=True, append_images=films[1:], duration=round(1000 / fps), loop=0)


def _contents_text(contents: int) -> str:
    names = [("onion", CONTENTS[contents][0]), ("tomato", CONTENTS[contents][1])]
    plurals = {"onion": "onions", "tomato": "tomatoes"}
    return " and ".join(f"{n} {name if n == 1 else plurals[name]}" for name, n in names if n)


def _thing_text(thing: int) -> str:
    return f"a soup of {_contents_text(thing - SOUP)}" if thing > SOUP else OBJECT_NAMES[thing]


def _pot_text(layout: Layout, contents: int, tick: int) -> str:
    if not contents:
        return "empty"
    ready = layout.cook_times[contents]
    cooked = "not cooking" if tick == IDLE else "ready" if tick == ready else f"cooked {tick} of {ready} steps"
    return f"{_contents_text(contents)}, {cooked}"


def _paste_things(layout: Layout, picture: Image.Image, state: Tensor, size: int) -> None:
    """Players, what lies on counters, and what is in pots."""

    def paste(sheet: str, name: str, cell: Cell) -> None:
        sprite = _sprite(sheet, name, size)
        picture.paste(sprite, (cell[0] * size, cell[1] * size), sprite)

    floor, looks = cells(state).tolist(), orientations(state).tolist()
    for player, held in enumerate(held_objects(state).tolist()):
        direction, cell = ACTIONS[looks[player]].upper(), layout.floor[floor[player]]
        paste("chefs", direction + _in_hand(held), cell)
        paste("chefs", f"{direction}-{('blue', 'green')[player]}hat", cell)
    for cell, thing in zip(layout.counters, counter_objects(layout, state).tolist(), strict=True):
        if thing > SOUP:
            paste("soups", _soup_sprite("done", thing - SOUP), cell)
        elif thing != NOTHING:
            paste("objects", OBJECT_NAMES[thing], cell)
    pen = ImageDraw.Draw(picture)
    for cell, contents, tick in zip(
        layout.pots, pot_contents(layout, state).tolist(), pot_ticks(layout, state).tolist(), strict=True
    ):
        if not contents:
            continue
        ready = tick == layout.cook_times[contents]
        paste("soups", _soup_sprite("cooked" if ready else "idle", contents), cell)
        if tick != IDLE and not ready:
            place = ((cell[0] + 0.5) * size, (cell[1] + 0.8) * size)
            pen.text(place, str(tick), "#d01c1c", _font(size // 3), "mm", stroke_width=size // 20, stroke_fill=_PAPER)


def _in_hand(held: int) -> str:
    if held > SOUP:
        return "-soup-onion" if CONTENTS[held - SOUP][0] else "-soup-tomato"
    return "" if held == NOTHING else f"-{OBJECT_NAMES[held]}"


def _soup_sprite(status: str, contents: int) -> str:
    onions, tomatoes = CONTENTS[contents]
    return f"soup_{status}_tomato_{tomatoes}_onion_{onions}"


def _range(beta: Tensor) -> tuple[float, float]:
    low, high = (float(end) for end in torch.aminmax(beta.detach()))
    if not np.isfinite(low) or not np.isfinite(high):
        raise InputError(f"beta must be finite, got values from {low} to {high}")
    return low, high


def _color_floor(layout: Layout, picture: Image.Image, shares: list[float], size: int) -> None:
    pen = ImageDraw.Draw(picture, "RGBA")
    for (x, y), share in zip(layout.floor, shares, strict=True):
        red, green, blue = (
            round(np.interp(share, np.linspace(0, 1, len(_SCALE)), part)) for part in zip(*_SCALE, strict=True)
        )
        pen.rectangle([x * size + 1, y * size + 1, (x + 1) * size - 1, (y + 1) * size - 1], (red, green, blue, 175))


def _number_floor(layout: Layout, picture: Image.Image, values: list[float], size: int) -> None:
    """Numbers in the corners of cells, above the players, who would hide them."""
    pen = ImageDraw.Draw(picture)
    for (x, y), value in zip(layout.floor, values, strict=True):
        place = ((x + 1) * size - 4, (y + 1) * size - 4)
        pen.text(place, f"{value:.2f}", _PAPER, _font(size // 4), "rs", stroke_width=1, stroke_fill=_INK)


def _framed(kitchen: Image.Image, title: str, bars: Sequence[Sequence[float]], taken: Sequence[int] | None) -> Picture:
    """The kitchen under its title, with the bars of each player beside it."""
    font, line = _font(15), 20
    panel = 216 if bars else 0
    height = max(kitchen.height, len(bars) * (NUM_ACTIONS + 1) * line + (len(bars) - 1) * line // 2 if bars else 0)
    picture = Image.new("RGB", (kitchen.width + panel, height + 26), _PAPER)
    pen = ImageDraw.Draw(picture)
    pen.text((6, 13), title, _INK, font, "lm")
    picture.paste(kitchen, (0, 26))
    for player, probabilities in enumerate(bars):
        top = 26 + player * ((NUM_ACTIONS + 1) * line + line // 2)
        left = kitchen.width + 10
        pen.text((left, top + line // 2), f"player {player}", PLAYER_COLORS[player], font, "lm")
        for action, probability in enumerate(probabilities):
            y = top + (action + 1) * line
            chosen = taken is not None and taken[player] == action
            pen.text((left + 58, y + line // 2), ACTIONS[action], _INK, _font(13), "rm")
            pen.rectangle([left + 64, y + 4, left + 64 + 100, y + line - 4], fill="#f3f3f3")
            color = PLAYER_COLORS[player] if chosen or taken is None else _PALE
            pen.rectangle([left + 64, y + 4, left + 64 + round(100 * probability), y + line - 4], fill=color)
            pen.text((left + 196, y + line // 2), f"{100 * probability:.0f}%", _INK, _font(12), "rm")
            if chosen:
                pen.rectangle([left + 63, y + 3, left + 65 + 100, y + line - 3], outline=_INK)
    return np.asarray(picture, dtype=np.uint8)


def _strip(images: Sequence[Image.Image], columns: int) -> Image.Image:
    columns = min(columns, len(images))
    width, height, gap = images[0].width, images[0].height, 8
    rows = -(-len(images) // columns)
    strip = Image.new("RGB", (columns * (width + gap) - gap, rows * (height + gap) - gap), _PAPER)
    for number, image in enumerate(images):
        strip.paste(image, (number % columns * (width + gap), number // columns * (height + gap)))
    return strip


def _check(name: str, tensor: Tensor | None, shapes: list[tuple[int, ...]]) -> None:
    if tensor is not None and tuple(tensor.shape) not in shapes:
        expected = " or ".join(str(list(shape)) for shape in shapes)
        raise InputError(f"{name} must have shape {expected}, got {list(tensor.shape)}")


@cache
def _kitchen(layout: Layout, size: int) -> Image.Image:
    """The grid with nobody in it."""
    picture = Image.new("RGB", (layout.width * size, layout.height * size))
    for y, row in enumerate(layout.grid):
        for x, cell in enumerate(row):
            picture.paste(_sprite("terrain", _TERRAIN_SPRITES[cell], size), (x * size, y * size))
    pen = ImageDraw.Draw(picture, "RGBA")
    for y in range(layout.height):
        for x in range(layout.width):
            pen.rectangle([x * size, y * size, (x + 1) * size, (y + 1) * size], outline=(0, 0, 0, 40))
    return picture


@cache
def _sprite(sheet: str, name: str, size: int) -> Image.Image:
    image, frames = _sheet(sheet)
    frame = frames[f"{name}.png"]
    box = (frame["x"], frame["y"], frame["x"] + frame["w"], frame["y"] + frame["h"])
    return image.crop(box).resize((size, size), Image.Resampling.NEAREST)


@cache
def _sheet(name: str) -> tuple[Image.Image, dict[str, dict[str, int]]]:
    """A sheet of sprites and where each is on it; two formats of the description are in use."""
    folder = packaged_file("data/graphics")
    description = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    with Image.open(folder / f"{name}.png") as file:
        image = file.convert("RGBA")
    if "textures" in description:
        return image, {entry["filename"]: entry["frame"] for entry in description["textures"][0]["frames"]}
    return image, {name: entry["frame"] for name, entry in description["frames"].items()}


@cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)
