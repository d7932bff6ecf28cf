"""Recorded decisions of people in kitchens, gathered into batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bsdr_torch.data.packed_games import PackedGames
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import NUM_ACTIONS

# Stands in a history where no action is recorded: before the game began, or in a gap of the record.
UNRECORDED = NUM_ACTIONS


class Decisions(NamedTuple):
    """Decisions of people in one kitchen, N of them or `[R, L]`; all but `states` are int64.

    What is there for step t was known before step t, but for `actions`.

    Attributes:
        layout: the kitchen's name.
        states: `[N, W]`, packed.
        humans: `[N]`, who decides: an index into the data's `humans`, or `POPULATION` for somebody training never saw.
        seats: `[N]`, which player of the state the human is, 0 or 1.
        history: `[N, H]`, the human's own last actions, the latest first, `UNRECORDED` where there is none.
        partner_last: `[N]`, what the other player did in the step before, or `UNRECORDED`.
        actions: `[N]`, what the human did.
        rollouts: `[N]`, which human in which game: an index into the data's `rollouts`.
        times: `[N]`, the recorded time step.
    """

    layout: str
    states: Tensor
    humans: Tensor
    seats: Tensor
    history: Tensor
    partner_last: Tensor
    actions: Tensor
    rollouts: Tensor
    times: Tensor

    def some(self, rows: slice | Tensor) -> Decisions:
        """Some of the decisions."""
        return Decisions(self.layout, *(column[rows] for column in self[1:]))

    def to(self, device: torch.device | str) -> Decisions:
        """The same decisions on a device."""
        return Decisions(self.layout, *(column.to(device) for column in self[1:]))

    def chunks(self, rows: int) -> Iterator[Decisions]:
        """All decisions, so many at a time."""
        for first in range(0, len(self.actions), rows):
            yield self.some(slice(first, first + rows))

    def joined(self, others: Decisions) -> Decisions:
        """These, and then others in the same kitchen."""
        return Decisions(self.layout, *(torch.cat(pair) for pair in zip(self[1:], others[1:], strict=True)))


class KitchenRollouts(NamedTuple):
    """R windows of games, padded to the longest, L.

    Attributes:
        steps: `[R, L]` decisions; what follows the end of a window repeats its last one.
        mask: `[R, L]` bool, which are real.
    """

    steps: Decisions
    mask: Tensor


class RolloutKey(NamedTuple):
    """Which human, in which seat, in which game: the unit over which scores are averaged."""

    layout: str
    game: str
    human: str
    seat: int


@dataclass(frozen=True, eq=False)
class DecisionTable:
    """Every decision in a kitchen, on one device; decision `2 j + k` is that of player k at joint step j.

    Attributes:
        layout: the kitchen's name.
        states: `[J, W]`.
        humans: `[2J]` int64, `POPULATION` in seats that nobody human played in.
        history: `[2J, H]` uint8.
        partner_last: `[2J]` uint8.
        actions: `[2J]` uint8.
        rollouts: `[2J]` int64.
        times: `[J]` int32.
    """

    layout: str
    states: Tensor
    humans: Tensor
    history: Tensor
    partner_last: Tensor
    actions: Tensor
    rollouts: Tensor
    times: Tensor

    @staticmethod
    def of(games: PackedGames, humans: Mapping[str, int], history: int, first_rollout: int = 0) -> DecisionTable:
        """The decisions in the games, with the `history` last actions of each; `humans` numbers the people."""
        own, partner = _past_actions(games, max(history, 1))
        index = [
            [humans[player] if human else POPULATION for player, human in zip(players, is_human, strict=True)]
            for players, is_human in zip(games.players, games.is_human, strict=True)
        ]
        rollouts = first_rollout + torch.arange(2 * len(games.games)).view(-1, 2)
        return DecisionTable(
            layout=games.layout.name,
            states=games.states,
            humans=torch.tensor(index)[games.game].view(-1),
            history=own[:, :history].contiguous(),
            partner_last=partner[:, 0].contiguous(),
            actions=games.actions.reshape(-1),
            rollouts=rollouts[games.game].view(-1),
            times=games.time,
        )

    @property
    def num_bytes(self) -> int:
        """The memory that it takes."""
        return sum(tensor.nbytes for tensor in vars(self).values() if isinstance(tensor, Tensor))

    def to(self, device: torch.device) -> DecisionTable:
        """The same on another device."""
        moved: dict[str, Any] = {name: v.to(device) for name, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **moved)

    def gather(self, decisions: Tensor) -> Decisions:
        """Some decisions, given by number `[N]` or `[R, L]`."""
        flat = decisions.reshape(-1)
        rows = flat >> 1
        shape = decisions.shape

        def of(table: Tensor, index: Tensor) -> Tensor:
            return table.index_select(0, index).view(*shape, *table.shape[1:])

        return Decisions(
            layout=self.layout,
            states=of(self.states, rows),
            humans=of(self.humans, flat),
            seats=decisions & 1,
            history=of(self.history, flat).long(),
            partner_last=of(self.partner_last, flat).long(),
            actions=of(self.actions, flat).long(),
            rollouts=of(self.rollouts, flat),
            times=of(self.times, rows).long(),
        )

    def gather_windows(self, first: Tensor, length: Tensor) -> KitchenRollouts:
        """Windows that start at the decisions `first [R]` and run for `length [R]` steps of the same player."""
        place = torch.arange(int(length.max()), device=first.device)
        mask = place < length[:, None]
        return KitchenRollouts(self.gather(first[:, None] + 2 * torch.minimum(place, length[:, None] - 1)), mask)


def windows(games: PackedGames, chosen: Tensor, longest: int | None) -> tuple[Tensor, Tensor]:
    """The stretches of chosen joint steps `[J]` bool, cut to at most `longest`: first decisions and lengths, `[R]`.

    There is one for each human of a game; a window never spans two games.
    """
    before = torch.cat([torch.tensor([False]), chosen[:-1] & (games.game[1:] == games.game[:-1])])
    begins = chosen & ~before
    stretch = torch.cumsum(begins, 0)[chosen] - 1  # of each chosen step
    rows = chosen.nonzero()[:, 0]
    place = rows - begins.nonzero()[:, 0][stretch]  # in its stretch
    first = rows[place % longest == 0] if longest else rows[place == 0]
    ends = torch.cat([first[1:], rows.new_tensor([len(games)])])
    # The chosen steps from one first to the next are one window.
    length = torch.searchsorted(rows, ends) - torch.searchsorted(rows, first)
    is_human = torch.tensor(games.is_human)[games.game[first]]  # [R, 2]
    window, seat = is_human.nonzero(as_tuple=True)
    return 2 * first[window] + seat, length[window]


def _past_actions(games: PackedGames, lags: int) -> tuple[Tensor, Tensor]:
    """The last actions of each player and of the other, `[2J, lags]` uint8, the latest first."""
    # Steps are found by their time, because in a record with gaps the row before is not the step before.
    time = games.time.long() - int(games.time.min()) + lags
    key = games.game * (int(time.max()) + 1) + time
    past = key[:, None] - torch.arange(1, lags + 1)
    row = torch.searchsorted(key, past).clamp(max=len(games) - 1)
    actions = torch.where((key[row] == past)[..., None], games.actions[row], UNRECORDED)  # [J, lags, 2]
    own = actions.transpose(1, 2)
    return own.reshape(-1, lags), own.flip(1).reshape(-1, lags)
