"""A kitchen's state as one short row of small integers.

The columns of a row, W in all (`width`):

    0  pose of player 0: floor cell * 4 + orientation     1  what player 0 holds
    2  pose of player 1                                    3  what player 1 holds
    then one column per pot (a pot code), then one per counter that may hold things (an object)

Floor cells, pots and counters are numbered as in `Layout.floor`, `Layout.pots` and `Layout.counters`.
Orientations are 0..3: north, south, east, west. Objects have the same code in every kitchen: nothing, onion,
tomato, dish, then the nine soups. A pot code says what is in the pot and for how long it has cooked:
`pot_codes` lists them. Everything that happens in the game is in the row, and each state has exactly one row, so
that two states are equal where their rows are. Time and orders are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked.layouts import CONTENTS, Cell, Layout

POSE, HELD = (0, 2), (1, 3)  # the columns of player 0 and player 1
FIRST_POT = 4

NOTHING, ONION, TOMATO, DISH = range(4)
SOUP = DISH  # a soup of contents c > 0 is the object SOUP + c
NUM_OBJECTS = SOUP + len(CONTENTS)
OBJECT_NAMES = ("nothing", "onion", "tomato", "dish") + ("soup",) * (len(CONTENTS) - 1)

IDLE = -1  # the tick of a pot that does not cook


class PotCode(NamedTuple):
    """What is in a pot (an index into `CONTENTS`), and for how many steps it has cooked (`IDLE` if it does not)."""

    contents: int
    tick: int


def pot_codes(layout: Layout) -> tuple[PotCode, ...]:
    """What each pot code means: first the idle pots in the order of `CONTENTS` (0 is empty), then the cooking ones.

    The last tick of a recipe is its cook time: the soup is ready and stays so.
    """
    return _columns(layout).pot_codes


def width(layout: Layout) -> int:
    """W, the length of a row."""
    return FIRST_POT + len(layout.pots) + len(layout.counters)


def pot_columns(layout: Layout) -> slice:
    """The columns of the pots."""
    return slice(FIRST_POT, FIRST_POT + len(layout.pots))


def counter_columns(layout: Layout) -> slice:
    """The columns of the counters that may hold things."""
    return slice(FIRST_POT + len(layout.pots), width(layout))


def thing_columns(layout: Layout) -> dict[Cell, int]:
    """The column of each pot and of each counter that may hold things, by its cell."""
    return {cell: FIRST_POT + index for index, cell in enumerate((*layout.pots, *layout.counters))}


def state_dtype(layout: Layout) -> torch.dtype:
    """The type of a row: uint8 where the kitchen is small enough for it, which is nearly always; else int16."""
    return _columns(layout).dtype


def cells(states: Tensor) -> Tensor:
    """`[..., W]` -> `[..., 2]` int64: the floor cells where the players stand."""
    return states[..., POSE[0] : POSE[1] + 1 : 2].long() >> 2


def orientations(states: Tensor) -> Tensor:
    """`[..., W]` -> `[..., 2]` int64: where the players look, 0..3 for north, south, east, west."""
    return states[..., POSE[0] : POSE[1] + 1 : 2].long() & 3


def held_objects(states: Tensor) -> Tensor:
    """`[..., W]` -> `[..., 2]` int64: what the players hold."""
    return states[..., HELD[0] : HELD[1] + 1 : 2].long()


def pot_contents(layout: Layout, states: Tensor) -> Tensor:
    """`[..., W]` -> `[..., pots]` int64: what is in the pots, as indices into `CONTENTS`."""
    return _pot_facts(layout, states.device)[0][states[..., pot_columns(layout)].long()]


def pot_ticks(layout: Layout, states: Tensor) -> Tensor:
    """`[..., W]` -> `[..., pots]` int64: for how long the pots have cooked, `IDLE` if they do not."""
    return _pot_facts(layout, states.device)[1][states[..., pot_columns(layout)].long()]


def pots_ready(layout: Layout, states: Tensor) -> Tensor:
    """`[..., W]` -> `[..., pots]` bool: is there a soup to take?"""
    return _pot_facts(layout, states.device)[2][states[..., pot_columns(layout)].long()] > 0


def counter_objects(layout: Layout, states: Tensor) -> Tensor:
    """`[..., W]` -> `[..., counters]` int64: what lies on the counters."""
    return states[..., counter_columns(layout)].long()


def swap_players(states: Tensor) -> Tensor:
    """`[..., W]` -> `[..., W]`: the same kitchen with the players' numbers exchanged."""
    order = [2, 3, 0, 1, *range(FIRST_POT, states.shape[-1])]
    return states[..., order]


def ego_first(states: Tensor, seat: int | Tensor) -> Tensor:
    """`[N, W]` -> `[N, W]`: the same kitchens with the player in `seat`, 0 or 1 for all or `[N]`, as player 0."""
    if states.ndim != 2:
        raise InputError(f"expected states [N, W], got shape {tuple(states.shape)}")
    if not isinstance(seat, Tensor):
        if seat not in (0, 1):
            raise InputError(f"a seat is 0 or 1, got {seat!r}")
        return swap_players(states) if seat else states
    if seat.shape != states.shape[:1] or seat.dtype.is_floating_point:
        raise InputError(
            f"expected a seat, 0 or 1, for each of {len(states)} states, got {seat.dtype} of shape {tuple(seat.shape)}"
        )
    if bool(((seat != 0) & (seat != 1)).any()):
        raise InputError(f"a seat is 0 or 1, got {int(seat[(seat != 0) & (seat != 1)][0])}")
    players = states[:, :FIRST_POT]
    players = torch.where(seat.bool().unsqueeze(1), players.roll(2, dims=1), players)
    return torch.cat([players, states[:, FIRST_POT:]], dim=1)


def check_states(layout: Layout, states: Tensor) -> None:
    """Raise an error that names the first row and column that cannot be a state of this kitchen."""
    check_kitchen(layout, states)
    _check_values(layout, states)
    here = cells(states)
    together = (here[..., 0] == here[..., 1]).reshape(-1)
    if bool(together.any()):
        raise InputError(
            f"state {int(together.nonzero()[0])} is not a state of {layout.name}: both players stand at "
            f"{layout.floor[int(here.reshape(-1, 2)[together][0, 0])]}"
        )


def check_kitchen(layout: Layout, states: Tensor) -> None:
    """Raise an error where states are plainly of another kitchen: by their shape, or by where the players stand.

    What else is in them is not looked at, because that takes as long as a step.
    """
    if states.ndim == 0 or states.shape[-1] != width(layout) or states.dtype != state_dtype(layout):
        raise InputError(
            f"a state of {layout.name} is a row of {width(layout)} {state_dtype(layout)}, got {states.dtype} of shape "
            f"{tuple(states.shape)}. Is it a state of another layout?"
        )
    if states.numel() and max(int(states[..., column].max()) for column in POSE) >= 4 * len(layout.floor):
        _check_values(layout, states)


def hash_states(states: Tensor) -> Tensor:
    """`[..., W]` -> `[...]` int64: a well-mixed hash, the same on every device.

    Of n different states, about n^2 / 2^65 pairs share a hash: one in 10^5 runs for 20 million states.
    """
    size = states.element_size()
    padded = torch.nn.functional.pad(states, (0, -states.shape[-1] % (8 // size)))
    words = padded.contiguous().view(torch.int64)
    mixed = torch.full_like(words[..., 0], states.shape[-1])
    for word in words.unbind(-1):
        mixed = _mix(mixed ^ word)
    return mixed


def unique_states(states: Tensor) -> tuple[Tensor, Tensor]:
    """`[N, W]` -> the different states `[M, W]`, ordered by hash, and for each of the N its index among them `[N]`."""
    hashes, index = torch.unique(hash_states(states), return_inverse=True)
    first = torch.full((len(hashes),), len(states), dtype=torch.int64, device=states.device)
    first.scatter_reduce_(0, index, torch.arange(len(states), device=states.device), "amin")
    unique = states[first]
    if bool((unique[index] == states).all()):
        return unique, index
    unique, index = torch.unique(states, dim=0, return_inverse=True)  # two states share a hash: slow, but right
    return unique, index


def _check_values(layout: Layout, states: Tensor) -> None:
    limits = torch.tensor(_columns(layout).limits, device=states.device)
    wrong = (states < 0) | (states >= limits)
    if bool(wrong.any()):
        row, column = (int(i) for i in wrong.reshape(-1, states.shape[-1]).nonzero()[0])
        value = int(states.reshape(-1, states.shape[-1])[row, column])
        raise InputError(
            f"state {row} is not a state of {layout.name}: column {column} is {value}, expected "
            f"0 to {int(limits[column]) - 1}. Is it a state of another layout?"
        )


@dataclass(frozen=True)
class _Columns:
    pot_codes: tuple[PotCode, ...]
    limits: tuple[int, ...]  # one more than the largest value of each column
    dtype: torch.dtype


@cache
def _columns(layout: Layout) -> _Columns:
    codes = [PotCode(contents, IDLE) for contents in range(len(CONTENTS))]
    for contents in range(1, len(CONTENTS)):
        codes += [PotCode(contents, tick) for tick in range(layout.cook_times[contents] + 1)]
    poses = 4 * len(layout.floor)
    limits = (
        *(poses, NUM_OBJECTS) * 2,
        *(len(codes),) * len(layout.pots),
        *(NUM_OBJECTS,) * len(layout.counters),
    )
    return _Columns(tuple(codes), limits, torch.uint8 if max(limits) <= 256 else torch.int16)


@cache
def _pot_facts(layout: Layout, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Contents, tick, and readiness of each pot code."""
    codes = pot_codes(layout)
    ready = [int(code.tick == layout.cook_times[code.contents]) for code in codes]
    facts = torch.tensor([[code.contents for code in codes], [code.tick for code in codes], ready], device=device)
    return facts[0], facts[1], facts[2]


def _mix(words: Tensor) -> Tensor:
    """The splitmix64 finaliser: every bit of the input moves half of the output."""
    words = words * -0x61C8864680B583EB  # 2^64 / golden ratio, as a signed number
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        words = (words ^ ((words >> shift) & (2 ** (64 - shift) - 1))) * factor
    return words ^ ((words >> 31) & (2**33 - 1))
