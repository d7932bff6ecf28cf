"""Kitchens by the thousand for those who learn by playing: two players who share what they earn."""

from __future__ import annotations

import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import (
    Layout,
    encode_features,
    shaped_rewards,
    start_states,
    step,
)


class KitchenGames:
    """Games in one kitchen, rows 0 .. G - 1 for player 0 and G .. 2G - 1 for player 1 of them.

    They are begun at different times, so that what is played at once is of all stages of a game.

    Args:
        layout: the kitchen.
        count: G, how many at once.
        horizon: steps of a game.
        stagger: games begin at multiples of so many steps; 0 for all at once.
        device: where.

    Attributes:
        shaping: how much of the rewards on the way to a soup (`shaped_rewards`) counts.
        states: `[G, W]`, packed.
    """

    def __init__(
        self, layout: Layout, count: int, horizon: int = 400, stagger: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        if count < 1 or horizon < 1:
            raise InputError(f"there must be at least one game of one step, got {count} of {horizon}")
        self.layout, self.horizon, self.shaping = layout, horizon, 0.0
        self._start = start_states(layout).to(device)
        self.states = self._start.repeat(count, 1)
        phases = torch.arange(count, device=device) * stagger
        self.steps = phases % horizon
        self.served = torch.zeros(count, device=device)
        self._finished: list[Tensor] = []
        self._whole = self.steps == 0  # a game that was begun in the middle is no measure of a game

    def observe(self) -> Tensor:
        """Planning features, `[2G, F]`."""
        return torch.cat([encode_features(self.layout, self.states, seat) for seat in (0, 1)])

    def clock(self) -> Tensor:
        """The share of the game that is over, `[2G]`."""
        return (self.steps / self.horizon).repeat(2)

    def play(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """One step by the players' actions `[2G]`."""
        joint = actions.view(2, -1).t()
        following, rewards, events = step(self.layout, self.states, joint)
        earned = rewards
        if self.shaping:
            earned = rewards + self.shaping * shaped_rewards(self.layout, self.states, following, events).sum(1)
        self.steps = self.steps + 1
        self.served = self.served + rewards
        over = self.steps >= self.horizon
        if bool(over.any()):
            self._finished.append(self.served[over & self._whole])
            self._whole = self._whole | over
        self.states = torch.where(over[:, None], self._start, following)
        self.steps, self.served = self.steps.masked_fill(over, 0), self.served.masked_fill(over, 0.0)
        return earned.repeat(2), over.repeat(2)

    def finished(self) -> Tensor:
        """What was earned by serving in each game that ended since this was asked last."""
        found, self._finished = torch.cat([self.served[:0], *self._finished]), []
        return found
