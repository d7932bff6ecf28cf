"""The 8 symmetries of the square, acting on kitchens, states, actions and encodings.

A symmetry is a number 0..7: `4 * mirrored + quarter turns`, where a turn goes clockwise and the mirror, which comes
first, exchanges east and west. They commute with everything that happens in a kitchen:

    step(turned layout, turned states, turned actions) = turned step(layout, states, actions)
    encode(turned layout, turned states) = turned encode(layout, states)
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked.grid_encoding import GRID_CHANNELS
from bsdr_torch.worlds.overcooked.layouts import DIRECTIONS, Cell, Layout
from bsdr_torch.worlds.overcooked.planning_features import FEATURE_NAMES
from bsdr_torch.worlds.overcooked.rules import ACTIONS
from bsdr_torch.worlds.overcooked.state import FIRST_POT, POSE, check_kitchen

NUM_SYMMETRIES = 8


def compose(second: int, first: int) -> int:
    """The symmetry that does what `first` does and then what `second` does."""
    return _symmetry_of(tuple(_turn_vector(second, _turn_vector(first, axis)) for axis in ((1, 0), (0, 1))))


def inverse(symmetry: int) -> int:
    """The symmetry that undoes it."""
    return next(other for other in range(NUM_SYMMETRIES) if compose(other, symmetry) == 0)


def turn_layout(layout: Layout, symmetry: int) -> Layout:
    """The turned kitchen, under the same name. Counters keep their order, and so their columns in a state."""
    _check_symmetry(symmetry)
    cells = {
        _turn_cell(layout, symmetry, (x, y)): cell for y, row in enumerate(layout.grid) for x, cell in enumerate(row)
    }
    width, height = (1 + max(cell[axis] for cell in cells) for axis in (0, 1))
    start_state = None if layout.start_state is None else json.loads(layout.start_state)
    return replace(
        layout,
        grid=tuple("".join(cells[x, y] for x in range(width)) for y in range(height)),
        starts=(_turn_cell(layout, symmetry, layout.starts[0]), _turn_cell(layout, symmetry, layout.starts[1])),
        counters=tuple(_turn_cell(layout, symmetry, cell) for cell in layout.counters),
        start_state=None if start_state is None else json.dumps(_turn_record(layout, symmetry, start_state)),
    )


def turn_states(layout: Layout, states: Tensor, symmetry: int) -> Tensor:
    """States `[..., W]` of a kitchen -> the same states in `turn_layout(layout, symmetry)`, `[..., W]`."""
    check_kitchen(layout, states)
    poses, columns = _state_images(layout, symmetry, states.device)
    turned = states[..., columns]
    for column in POSE:
        turned[..., column] = poses[states[..., column].long()].to(states.dtype)
    return turned


def turn_actions(actions: Tensor, symmetry: int | Tensor) -> Tensor:
    """Actions 0..5, `[...]` -> the same actions in the turned kitchen; a symmetry for all, or one for each."""
    images = torch.tensor(ACTION_IMAGES, device=actions.device)
    if isinstance(symmetry, Tensor):
        _check_symmetries(symmetry)
        return images[symmetry.long(), actions.long()].to(actions.dtype)
    _check_symmetry(symmetry)
    return images[symmetry][actions.long()].to(actions.dtype)


def turn_action_values(values: Tensor, symmetry: int | Tensor) -> Tensor:
    """Numbers by action `[..., 6]` (logits, log-probabilities) -> the same in the turned kitchen `[..., 6]`.

    Args:
        values: `[..., 6]`, in the order of `ACTIONS`.
        symmetry: One for all, or one for each row `[...]`.
    """
    return _permute(values, symmetry, ACTIONS, "ACTIONS")


def permute_features(features: Tensor, symmetry: int | Tensor) -> Tensor:
    """Planning features `[..., F]` -> those of the turned kitchen; only `DIRECTED_FEATURES` change places.

    Args:
        features: `[..., F]`, in the order of `FEATURE_NAMES`.
        symmetry: One for all, or one for each row `[...]`.
    """
    return _permute(features, symmetry, FEATURE_NAMES, "FEATURE_NAMES")


def turn_grid(layout: Layout, grid: Tensor, symmetry: int) -> Tensor:
    """Grid encoding `[N, C, size, size]` of a kitchen -> that of the turned kitchen, in the same shape.

    The kitchen is turned, and moved back to the corner that it is drawn in; its padding stays on the far sides.
    """
    _check_symmetry(symmetry)
    size = grid.shape[-1]
    if grid.ndim != 4 or grid.shape[1:] != (len(GRID_CHANNELS), size, size) or size < max(layout.width, layout.height):
        raise InputError(
            f"expected a grid encoding of {layout.name}, [N, {len(GRID_CHANNELS)}, size, size] with size at least "
            f"{max(layout.width, layout.height)}, got shape {tuple(grid.shape)}"
        )
    channels = torch.tensor(_sources(GRID_CHANNELS)[symmetry], device=grid.device)
    cells = _grid_sources(layout, symmetry, size, grid.device)
    return grid[:, channels].flatten(2)[:, :, cells].view(grid.shape)


def feature_sources(symmetry: int) -> tuple[int, ...]:
    """`[F]`: which feature each of the turned kitchen's is: `permute_features(f, g)` is `f[:, feature_sources(g)]`."""
    _check_symmetry(symmetry)
    return _sources(FEATURE_NAMES)[symmetry]


def _turn_vector(symmetry: int, vector: Cell) -> Cell:
    x, y = vector
    if symmetry >= 4:
        x = -x
    for _ in range(symmetry % 4):
        x, y = -y, x  # y points south, so that this is clockwise
    return x, y


def _symmetry_of(axes: tuple[Cell, ...]) -> int:
    """The symmetry that takes (1, 0) and (0, 1) to these."""
    found = (
        symmetry
        for symmetry in range(NUM_SYMMETRIES)
        if (_turn_vector(symmetry, (1, 0)), _turn_vector(symmetry, (0, 1))) == axes
    )
    return next(found)


def _turn_cell(layout: Layout, symmetry: int, cell: Cell) -> Cell:
    """The cell's place in the turned kitchen, whose corner is again (0, 0)."""
    x, y = _turn_vector(symmetry, cell)
    corner = _turn_vector(symmetry, (layout.width - 1, layout.height - 1))
    return x - min(0, corner[0]), y - min(0, corner[1])


def _turn_direction(symmetry: int, direction: int) -> int:
    return DIRECTIONS.index(_turn_vector(symmetry, DIRECTIONS[direction]))


# [8, 6]: what each action is in the turned kitchen.
ACTION_IMAGES: tuple[tuple[int, ...], ...] = tuple(
    (*(_turn_direction(symmetry, direction) for direction in range(4)), *range(4, len(ACTIONS)))
    for symmetry in range(NUM_SYMMETRIES)
)


def _turn_record(layout: Layout, symmetry: int, record: Any) -> Any:
    """A recorded state with every position and orientation in it turned."""
    if isinstance(record, list):
        return [_turn_record(layout, symmetry, item) for item in record]
    if not isinstance(record, dict):
        return record
    turned = {key: _turn_record(layout, symmetry, value) for key, value in record.items()}
    if "position" in turned:
        turned["position"] = list(_turn_cell(layout, symmetry, tuple(turned["position"])))
    if "orientation" in turned:
        turned["orientation"] = list(_turn_vector(symmetry, tuple(turned["orientation"])))
    return turned


@cache
def _state_images(layout: Layout, symmetry: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """What each pose becomes, and from which column each column of the turned state comes."""
    turned = turn_layout(layout, symmetry)
    poses = [
        4 * turned.floor.index(_turn_cell(layout, symmetry, cell)) + _turn_direction(symmetry, direction)
        for cell in layout.floor
        for direction in range(4)
    ]
    images = [_turn_cell(layout, symmetry, pot) for pot in layout.pots]
    pots = [FIRST_POT + images.index(pot) for pot in turned.pots]
    first_counter = FIRST_POT + len(pots)
    columns = [*range(FIRST_POT), *pots, *range(first_counter, first_counter + len(layout.counters))]
    return torch.tensor(poses, device=device), torch.tensor(columns, device=device)


@cache
def _grid_sources(layout: Layout, symmetry: int, size: int, device: torch.device) -> Tensor:
    """`[size * size]`: from which cell each cell of the turned grid comes."""
    square = [(x, y) for y in range(size) for x in range(size)]
    kitchen = [(x, y) for x, y in square if x < layout.width and y < layout.height]
    source = {_turn_cell(layout, symmetry, cell): cell for cell in kitchen}
    padding = iter([cell for cell in square if cell not in set(kitchen)])
    cells = [source[cell] if cell in source else next(padding) for cell in square]
    return torch.tensor([y * size + x for x, y in cells], device=device)


@cache
def _sources(names: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """`[8, names]`: from which place the number at each place comes; a name's last word may be a direction."""
    index = {name: place for place, name in enumerate(names)}
    directions = ACTIONS[:4]
    sources = []
    for symmetry in range(NUM_SYMMETRIES):
        back = {directions[_turn_direction(symmetry, d)]: directions[d] for d in range(4)}
        split = [name.rpartition("_") for name in names]
        sources.append(tuple(index[stem + bar + back.get(word, word)] for stem, bar, word in split))
    return tuple(sources)


def _permute(values: Tensor, symmetry: int | Tensor, names: tuple[str, ...], what: str) -> Tensor:
    if values.ndim == 0 or values.shape[-1] != len(names):
        raise InputError(f"expected [..., {len(names)}], one for each of {what}, got shape {tuple(values.shape)}")
    sources = _source_table(names, values.device)
    if not isinstance(symmetry, Tensor):
        _check_symmetry(symmetry)
        return values.index_select(-1, sources[symmetry])
    _check_symmetries(symmetry)
    if symmetry.shape != values.shape[:-1]:
        raise InputError(
            f"expected a symmetry for each row of {tuple(values.shape)}, got shape {tuple(symmetry.shape)}"
        )
    turned = values.clone(memory_format=torch.contiguous_format)
    span, places = _moved(names, values.device)  # the other numbers stay where they are, and gathering is slow
    index = places.index_select(0, symmetry.reshape(-1).long()).view(*symmetry.shape, places.shape[1])
    turned[..., span] = values[..., span].gather(-1, index)
    return turned


@cache
def _moved(names: tuple[str, ...], device: torch.device) -> tuple[slice, Tensor]:
    """From the first to the last place that any symmetry moves; and `[8, span]`: the sources in it, from its start."""
    moved = [place for sources in _sources(names) for place, source in enumerate(sources) if source != place]
    span = slice(min(moved), max(moved) + 1)
    return span, (_source_table(names, device)[:, span] - span.start).contiguous()


@cache
def _source_table(names: tuple[str, ...], device: torch.device) -> Tensor:
    return torch.tensor(_sources(names), device=device)


def _check_symmetry(symmetry: int) -> None:
    if not 0 <= symmetry < NUM_SYMMETRIES:
        raise InputError(f"a symmetry is a number 0..{NUM_SYMMETRIES - 1}, got {symmetry!r}")


def _check_symmetries(symmetry: Tensor) -> None:
    if symmetry.dtype.is_floating_point or bool(((symmetry < 0) | (symmetry >= NUM_SYMMETRIES)).any()):
        raise InputError(
            f"symmetries are integers 0..{NUM_SYMMETRIES - 1}, got {symmetry.dtype} {symmetry.tolist()[:8]}"
        )
