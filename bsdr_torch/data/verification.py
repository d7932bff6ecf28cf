"""Recorded games replayed through the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch

from bsdr_torch.data.games import Game
from bsdr_torch.data.packed_games import AGREES, DIFFERS, UNKNOWN, PackedGames, pack
from bsdr_torch.worlds.overcooked import happened, step

# What is done with a game that the simulator does not follow: `keep` all its recorded states, `cut` it after the
# first step whose outcome differs, or `drop` it.
OnBreak = Literal["keep", "cut", "drop"]


@dataclass(frozen=True)
class Replay:
    """What replaying the games of one kitchen found.

    Attributes:
        transitions: joint steps whose next state is recorded.
        agree: those where the simulator leads to that state.
        unknown: joint steps whose next state is not recorded (the last of a game, or before a missing row).
        rewards_agree: joint steps, of all, where the simulator gives the recorded reward.
        broken_games: the games in which a transition differs.
        on_break: what was done with them.
        removed_steps: joint steps that this took away.
    """

    transitions: int
    agree: int
    unknown: int
    rewards_agree: int
    broken_games: list[str]
    on_break: OnBreak
    removed_steps: int

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def __str__(self) -> str:
        share = 100 * self.agree / max(self.transitions, 1)
        text = f"{self.agree:,} of {self.transitions:,} transitions agree ({share:.2f} %)"
        steps = self.transitions + self.unknown
        if self.rewards_agree < steps:
            text += f"; {steps - self.rewards_agree:,} rewards differ: kept as recorded"
        if self.broken_games:
            done = {"keep": "kept as recorded", "cut": "cut at the break", "drop": "dropped"}[self.on_break]
            text += f"; {len(self.broken_games)} games differ: {done}, {self.removed_steps:,} steps removed"
        return text


def verify(games: Sequence[Game], on_break: OnBreak = "keep") -> tuple[PackedGames, Replay]:
    """The games of one kitchen, all replayed in one call by the rules of their year, and what that found."""
    packed, recorded_next = pack(games)
    following, rewards, events = step(packed.layout, packed.states, packed.actions)
    known = packed.agrees != UNKNOWN
    same = (following == recorded_next).all(1)
    agrees = torch.where(known, torch.where(same, AGREES, DIFFERS), UNKNOWN).to(torch.int8)
    packed = replace(packed, agrees=agrees, soups=happened(events, "soup_served").sum(1).to(torch.uint8))
    differs = agrees == DIFFERS
    breaks = torch.zeros(len(packed.games), dtype=torch.int64).index_add_(0, packed.game, differs.long())
    kept = torch.ones(len(packed), dtype=torch.bool)
    if on_break == "drop":
        kept = breaks[packed.game] == 0
    elif on_break == "cut":
        # Breaks before a row of its game: the row with the first break is the last that is kept, for its state and
        # its actions still follow from all before.
        before = torch.cumsum(differs, 0) - differs.long()
        kept = before == before[packed.first][packed.game]
    return packed.select(kept), Replay(
        transitions=int(known.sum()),
        agree=int((agrees == AGREES).sum()),
        unknown=int((~known).sum()),
        rewards_agree=int((rewards == packed.rewards).sum()),
        broken_games=[packed.games[int(g)] for g in breaks.nonzero()[:, 0]],
        on_break=on_break,
        removed_steps=int((~kept).sum()),
    )
