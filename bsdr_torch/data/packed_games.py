"""All recorded games in one kitchen as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bsdr_torch.data.games import Game, RecordedState
from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import (
    Layout,
    from_records,
    load_layout,
    load_package_layout,
    package_layout_names,
)

AGREES, DIFFERS, UNKNOWN = 1, 0, -1


@dataclass(frozen=True, eq=False)
class PackedGames:
    """G games of two players in one kitchen, J joint steps, game after game, each in the order of time.

    Attributes:
        layout: the kitchen.
        games: G ids.
        players: an id for each seat of each game.
        is_human: which seats people played in.
        official: "train", "test", or "" where the data set has no official split, for each game.
        game: `[J]` int64, an index into `games`.
        time: `[J]` int32, the recorded time step.
        states: `[J, W]` packed states, as recorded.
        actions: `[J, 2]` uint8, what the players did in them.
        rewards: `[J]` float32, as recorded.
        soups: `[J]` uint8, how many soups the simulator says were served in the step.
        agrees: `[J]` int8, whether the simulator leads to the state recorded next: `AGREES`, `DIFFERS`, or `UNKNOWN`
            where none is recorded.
    """

    layout: Layout
    games: list[str]
    players: list[tuple[str, str]]
    is_human: list[tuple[bool, bool]]
    official: list[str]
    game: Tensor
    time: Tensor
    states: Tensor
    actions: Tensor
    rewards: Tensor
    soups: Tensor
    agrees: Tensor

    def __len__(self) -> int:
        """J."""
        return len(self.game)

    @cached_property
    def first(self) -> Tensor:
        """`[G]` int64: the first row of each game."""
        return torch.searchsorted(self.game, torch.arange(len(self.games)))

    @cached_property
    def lengths(self) -> Tensor:
        """`[G]` int64: how many steps of each game there are."""
        return torch.bincount(self.game, minlength=len(self.games))

    @cached_property
    def humans(self) -> list[str]:
        """The people in these games, sorted."""
        return sorted(
            {p for seats, human in self._seats() for p, is_human in zip(seats, human, strict=True) if is_human}
        )

    @property
    def num_decisions(self) -> int:
        """How many recorded actions a person chose."""
        people = torch.tensor(self.is_human, dtype=torch.int64).sum(1)
        return int((people * self.lengths).sum())

    def select(self, rows: Tensor) -> PackedGames:
        """Some of the steps, by a mask `[J]`, and the games that are left."""
        kept, game = torch.unique(self.game[rows], return_inverse=True)
        chosen = kept.tolist()
        return replace(
            self,
            games=[self.games[g] for g in chosen],
            players=[self.players[g] for g in chosen],
            is_human=[self.is_human[g] for g in chosen],
            official=[self.official[g] for g in chosen],
            game=game,
            **{name: getattr(self, name)[rows] for name in ("time", "states", "actions", "rewards", "soups", "agrees")},
        )

    def _seats(self) -> list[tuple[tuple[str, str], tuple[bool, bool]]]:
        return list(zip(self.players, self.is_human, strict=True))


def kitchen(name: str, rules: int) -> Layout:
    """The kitchen of a name as it was played by the rules of a year."""
    layout = load_layout(name)
    if layout.rules == rules:
        return layout
    if rules == 2020 and name in package_layout_names():
        return load_package_layout(name)
    raise InputError(
        f"{name} is a kitchen of the rules of {layout.rules}, and the games are said to obey those of {rules}: "
        f"choose the other rules, or write the kitchen to envs/overcooked"
    )


def pack(games: Sequence[Game]) -> tuple[PackedGames, Tensor]:
    """The games, which are all of one kitchen and one year, and the states recorded after each step `[J, W]`.

    `agrees` is `UNKNOWN` where no next state is recorded (the returned row then means nothing) and `DIFFERS` elsewhere,
    until somebody compares; `soups` is 0.
    """
    layout = kitchen(games[0].layout, games[0].rules)
    # Steps that were recorded alike share one object, so each is converted once.
    places: dict[int, int] = {}
    distinct: list[tuple[RecordedState, Game, int]] = []
    rows: list[int] = []
    next_rows: list[int] = []
    for game in games:
        for step, (state, following) in enumerate(zip(game.states, game.next_states, strict=True)):
            for record, found in ((state, rows), (following, next_rows)):
                if record is None:
                    found.append(-1)
                    continue
                place = places.setdefault(id(record), len(distinct))
                if place == len(distinct):
                    distinct.append((record, game, step))
                found.append(place)
    packed = _from_records(layout, distinct)
    following_rows = torch.tensor(next_rows)
    lengths = torch.tensor([game.num_steps for game in games])
    return PackedGames(
        layout=layout,
        games=[game.game for game in games],
        players=[game.players for game in games],
        is_human=[game.is_human for game in games],
        official=[game.split or "" for game in games],
        game=torch.arange(len(games)).repeat_interleave(lengths),
        time=_joined([game.time for game in games]),
        states=packed[torch.tensor(rows)],
        actions=_joined([game.actions.astype(np.uint8) for game in games]),
        rewards=_joined([game.rewards for game in games]),
        soups=torch.zeros(len(rows), dtype=torch.uint8),
        agrees=torch.where(following_rows < 0, UNKNOWN, DIFFERS).to(torch.int8),
    ), packed[following_rows]


def _from_records(layout: Layout, records: list[tuple[RecordedState, Game, int]]) -> Tensor:
    try:
        return from_records(layout, (record for record, _, _ in records))
    except InputError as error:
        number, _, problem = str(error).removeprefix("record ").partition(": ")
        _, game, step = records[int(number)]
        raise InputError(
            f"game {game.game}, cur_gameloop {game.time[step]} or the step after, state: {problem}"
        ) from None


def _joined(arrays: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate(arrays))
