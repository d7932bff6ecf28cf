"""Recorded games cut into stretches, each of which ends where somebody's hands change.

A stretch begins after an INTERACT that did something, and ends with the next one: that is what the person was about to
do. Whoever does nothing of the kind for `LONGEST` steps was waiting, and a new stretch begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bsdr_torch.data.decisions import UNRECORDED
from bsdr_torch.data.packed_games import PackedGames
from bsdr_torch.worlds.overcooked import (
    EVENTS,
    Layout,
    counter_objects,
    ego_first,
    held_objects,
    pot_contents,
    pot_ticks,
    pots_ready,
    step,
)
from bsdr_torch.worlds.overcooked.layouts import CONTENTS, COUNTER, MAX_INGREDIENTS, POT, Cell
from bsdr_torch.worlds.overcooked.state import DISH, IDLE, NOTHING, ONION, POSE

LONGEST = 40  # steps, 6 seconds of play; longer than 19 of 20 stretches

KINDS = ("fetch onion", "fetch dish", "fetch soup", "pot onion", "plate soup", "serve", "put down", "wait", "other")
FETCH_ONION, FETCH_DISH, FETCH_SOUP, POT_ONION, PLATE_SOUP, SERVE, PUT_DOWN, WAIT, OTHER = range(len(KINDS))
HANDS = ("empty hands", "onion", "dish", "soup")

_EVENT_KINDS = {
    "onion_pickup": FETCH_ONION,
    "dish_pickup": FETCH_DISH,
    "soup_pickup": PLATE_SOUP,
    "onion_drop": PUT_DOWN,
    "dish_drop": PUT_DOWN,
    "soup_drop": PUT_DOWN,
    "onion_potted": POT_ONION,
    "soup_served": SERVE,
}


class Subgoal(NamedTuple):
    """An INTERACT that somebody may be about to do: of a kind, with something in the hands, at a cell."""

    kind: int
    hands: int
    cell: Cell


class Stretches(NamedTuple):
    """R stretches of games in one kitchen, padded to `LONGEST` steps by repeating their last one.

    Attributes:
        states: `[R, L, W]`, the person first.
        actions: `[R, L]`.
        last: `[R, L]`, the person's action before, or `UNRECORDED`.
        length: `[R]`, how many of the steps are real; the last one is what the person was about to do.
        kind: `[R]`, what that was, an index into `KINDS`.
        faced: `[R]`, the pose in which it was done.
        human: `[R]`, an index into the data's people.
        seat: `[R]`.
        game: `[R]`, an index into the kitchen's games.
        part: `[R]`, an index into `PARTS`; a stretch that is not all in one part is left out.
    """

    states: Tensor
    actions: Tensor
    last: Tensor
    length: Tensor
    kind: Tensor
    faced: Tensor
    human: Tensor
    seat: Tensor
    game: Tensor
    part: Tensor

    def select(self, rows: Tensor) -> Stretches:
        """Some of the stretches, by a mask or indices."""
        return Stretches(*(column[rows] for column in self))

    @property
    def real(self) -> Tensor:
        """`[R, L]` bool: the steps before the last one of a stretch, which say what is coming."""
        return torch.arange(self.actions.shape[1]) < self.length[:, None] - 1

    @property
    def hands(self) -> Tensor:
        """`[R]`: what the person holds, an index into `HANDS`."""
        return hands(self.states[:, 0])


def hands(states: Tensor, player: int = 0) -> Tensor:
    """`[..., W]` -> `[...]`: what a player holds, an index into `HANDS`."""
    held = held_objects(states)[..., player]
    return torch.where(held > DISH, 3, torch.where(held == DISH, 2, held.clamp(max=1)))


def stretches(games: PackedGames, parts: Tensor, humans: Sequence[str]) -> Stretches:
    """All complete stretches of people in a kitchen, whose joint steps are in `parts [J]`; `humans` numbers people."""
    J = len(games)
    _, _, events = step(games.layout, games.states, games.actions.long())
    # One player after the other, each in the order of games and time.
    seat = torch.arange(2).repeat_interleave(J)
    row = torch.arange(J).repeat(2)
    done = events.T.reshape(-1)
    states = ego_first(games.states[row], seat)
    kind = _kinds(games.layout, done, states)
    begins = _begins(games, parts, done != 0)
    first = begins.nonzero()[:, 0]
    length = torch.diff(first, append=torch.tensor([2 * J]))
    end = first + length - 1
    complete = (done[end] != 0) | (length == LONGEST)
    first, length, end = first[complete], length[complete], end[complete]
    steps = first[:, None] + torch.minimum(torch.arange(LONGEST), length[:, None] - 1)
    numbers = {human: number for number, human in enumerate(humans)}
    players = torch.tensor([[numbers.get(player, -1) for player in seats] for seats in games.players])
    actions = games.actions.T.reshape(-1).long()
    before = actions.roll(1)
    before[torch.cat([games.first, J + games.first])] = UNRECORDED
    found = Stretches(
        states=states[steps],
        actions=actions[steps],
        last=before[steps],
        length=length,
        kind=kind[end],
        faced=states[end, POSE[0]].long(),
        human=players[games.game[row[first]], seat[first]],
        seat=seat[first],
        game=games.game[row[first]],
        part=parts[row[first]].long(),
    )
    return found.select(torch.tensor(games.is_human)[found.game, found.seat])


def subgoals(layout: Layout, seen: Stretches, least: int) -> list[Subgoal]:
    """What happened at least so many times, in the order of kinds, hands and cells."""
    done = seen.kind < WAIT
    rows = torch.stack([seen.kind, seen.hands, _cell_numbers(layout)[seen.faced]], 1)[done]
    different, counts = torch.unique(rows, dim=0, return_counts=True)
    return [
        Subgoal(kind, held, (cell % layout.width, cell // layout.width))
        for kind, held, cell in different[counts >= least].tolist()
    ]


def outcomes(layout: Layout, wanted: list[Subgoal], seen: Stretches) -> Tensor:
    """`[R]`: which of the G subgoals each stretch ended with; G is waiting, G + 1 anything else."""
    cells = _cell_numbers(layout)[seen.faced]
    found = torch.where(seen.kind == WAIT, len(wanted), len(wanted) + 1)
    for number, (kind, held, cell) in enumerate(wanted):
        there = (seen.kind == kind) & (seen.hands == held) & (cells == cell[1] * layout.width + cell[0])
        found = torch.where(there, number, found)
    return found


def is_open(layout: Layout, wanted: Subgoal, states: Tensor) -> Tensor:
    """`[..., W]` -> `[...]` bool: would the INTERACT do what is wanted, if somebody with these hands did it now?"""
    if wanted.kind == POT_ONION:
        return takes_onions(layout, states)[..., layout.pots.index(wanted.cell)]
    if wanted.kind == PLATE_SOUP:
        return pots_ready(layout, states)[..., layout.pots.index(wanted.cell)]
    if layout.terrain(wanted.cell) != COUNTER:
        return torch.ones(states.shape[:-1], dtype=torch.bool)
    lying = counter_objects(layout, states)[..., layout.counters.index(wanted.cell)]
    if wanted.kind == PUT_DOWN:
        return lying == NOTHING
    if wanted.kind == FETCH_SOUP:
        return lying > DISH
    return lying == (ONION if wanted.kind == FETCH_ONION else DISH)


def takes_onions(layout: Layout, states: Tensor) -> Tensor:
    """`[..., W]` -> `[..., pots]` bool: is there room in the pots?"""
    full = torch.tensor([sum(contents) == MAX_INGREDIENTS for contents in CONTENTS])
    return (pot_ticks(layout, states) == IDLE) & ~full[pot_contents(layout, states)]


def _begins(games: PackedGames, parts: Tensor, done: Tensor) -> Tensor:
    """`[2J]` bool: does a stretch begin here?"""
    J = len(games)
    fresh = torch.ones(J, dtype=torch.bool)
    fresh[1:] = (games.game.diff() != 0) | (games.time.diff() != 1) | (parts.diff() != 0)
    fresh = fresh.repeat(2)
    fresh[1:] |= done[:-1]
    places = torch.arange(2 * J)
    since = places - torch.where(fresh, places, 0).cummax(0).values
    return since % LONGEST == 0


def _kinds(layout: Layout, events: Tensor, states: Tensor) -> Tensor:
    """`[N]`: what the players 0 did, if their INTERACT did anything; else, they waited."""
    kind = torch.full_like(events, WAIT, dtype=torch.int64)
    for event, of in _EVENT_KINDS.items():
        kind[(events & (1 << EVENTS.index(event))) != 0] = of
    at_pot = torch.tensor([layout.terrain(cell) == POT for cell in layout.faced])[states[:, POSE[0]].long()]
    return torch.where((kind == PLATE_SOUP) & ~at_pot, FETCH_SOUP, kind)


def _cell_numbers(layout: Layout) -> Tensor:
    """`[P]`: the number of the cell that is faced in each pose."""
    return torch.tensor([y * layout.width + x for x, y in layout.faced])
