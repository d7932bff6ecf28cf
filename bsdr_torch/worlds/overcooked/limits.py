"""The game within limits that keep its states few. None of them looks at recorded games.

- At most `max_objects` things lie on counters when a step is over. An INTERACT that would leave one more has no
  effect, and if one of the two players has to give way, it is player 1. All other steps are those of the game; one
  person may even lay a thing down and the other take it in one step, with `max_objects=0`.
- `timers="exact"` keeps every step of cooking. `timers="cooking"` keeps one state of a pot that cooks, and it is
  ready after each step with the probability that makes the expected time right; such a graph leaves
  C = 2^pots outcomes to chance.
- More than `max_states` states are an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked.dynamics import step
from bsdr_torch.worlds.overcooked.layouts import Layout
from bsdr_torch.worlds.overcooked.rules import INTERACT, STAY
from bsdr_torch.worlds.overcooked.state import (
    FIRST_POT,
    IDLE,
    NOTHING,
    PotCode,
    counter_columns,
    pot_codes,
    pot_columns,
)

# Who INTERACTs, numbered as by `who_interacts`.
_WHO = ((STAY, STAY), (INTERACT, STAY), (STAY, INTERACT), (INTERACT, INTERACT))


@dataclass(frozen=True)
class Limits:
    """What keeps a graph finite and small; see the top of this file.

    Attributes:
        max_objects: How many things may lie on counters at a time.
        timers: "exact", or "cooking" for one state of a pot that cooks.
        max_states: How many states are too many.
    """

    max_objects: int = 0
    timers: Literal["exact", "cooking"] = "exact"
    max_states: int = 10_000_000

    def __post_init__(self) -> None:
        if isinstance(self.max_objects, bool) or not isinstance(self.max_objects, int) or self.max_objects < 0:
            raise InputError(f"max_objects must be a whole number, at least 0, got {self.max_objects!r}")
        if self.timers not in ("exact", "cooking"):
            raise InputError(f'timers must be "exact" or "cooking", got {self.timers!r}')
        if not 1 <= self.max_states < 2**31:
            raise InputError(f"max_states must be from 1 to 2^31 - 1, got {self.max_states!r}")


def interactions(layout: Layout, limits: Limits, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What follows when nobody moves, by `_WHO`: states `[N, 4, W]`, rewards `[N, 4]` and events `[N, 4, 2]`."""
    N, W = states.shape
    actions = torch.tensor(_WHO, device=states.device).repeat(N, 1)
    following, rewards, events = step(layout, states.repeat_interleave(len(_WHO), dim=0), actions)
    too_many = objects_laid(layout, following).view(N, len(_WHO)) > limits.max_objects
    nobody, only0, only1, both = torch.arange(len(_WHO), device=states.device)
    after0 = torch.where(too_many[:, 1], nobody, only0)
    after1 = torch.where(too_many[:, 2], nobody, only1)
    after_both = torch.where(too_many[:, 3], torch.where(too_many[:, 1], after1, only0), both)
    taken = torch.stack([nobody.expand(N), after0, after1, after_both], dim=1)
    taken = (taken + torch.arange(0, len(_WHO) * N, len(_WHO), device=states.device).unsqueeze(1)).view(-1)
    following = seen_by(layout, limits, following.index_select(0, taken))
    return (
        following.view(N, len(_WHO), W),
        rewards.index_select(0, taken).view(N, len(_WHO)),
        events.index_select(0, taken).view(N, len(_WHO), 2),
    )


def objects_laid(layout: Layout, states: Tensor) -> Tensor:
    """`[N, W]` -> `[N]`: how many things lie on counters."""
    return (states[:, counter_columns(layout)] != NOTHING).sum(dim=1)


def seen_by(layout: Layout, limits: Limits, states: Tensor) -> Tensor:
    """`[N, W]` -> `[N, W]`: the states of the graph that stand for these."""
    if limits.timers == "exact":
        return states
    pots = pot_columns(layout)
    states = states.clone()
    states[:, pots] = _cooking(layout, states.device).code[states[:, pots].long()].to(states.dtype)
    return states


def with_chance(layout: Layout, limits: Limits, states: Tensor, following: Tensor) -> Tensor:
    """`[N, 4, W]` that follow `states` -> `[N, 4, C, W]`: in outcome c, the pots in the bits of c are ready."""
    if limits.timers == "exact":
        return following.unsqueeze(2)
    cooking = _cooking(layout, states.device)
    outcomes = following.unsqueeze(2).repeat(1, 1, 2 ** len(layout.pots), 1)
    for pot in range(len(layout.pots)):
        column = FIRST_POT + pot
        before = states[:, column].long()
        cooks, ready = cooking.probability[before] > 0, cooking.ready[before].to(states.dtype)
        for outcome in range(outcomes.shape[2]):
            if outcome >> pot & 1:
                after = outcomes[:, :, outcome, column]
                outcomes[:, :, outcome, column] = torch.where(cooks.unsqueeze(1), ready.unsqueeze(1), after)
    return outcomes


def chances(layout: Layout, limits: Limits, states: Tensor) -> Tensor | None:
    """`[S, C]`: the probabilities of the outcomes of `with_chance`."""
    if limits.timers == "exact":
        return None
    pots = states[:, pot_columns(layout)].long()
    ready = _cooking(layout, states.device).probability[pots]
    chances = torch.ones((len(states), 1), device=states.device)
    for pot in ready.unbind(dim=1):
        chances = torch.cat([chances * (1 - pot).unsqueeze(1), chances * pot.unsqueeze(1)], dim=1)
    return chances


@dataclass(frozen=True)
class _Cooking:
    """For each pot code: the code that stands for it, the code when it is ready, the probability that it is next."""

    code: Tensor
    ready: Tensor
    probability: Tensor


@cache
def _cooking(layout: Layout, device: torch.device) -> _Cooking:
    codes = pot_codes(layout)
    code, ready, probability = [], [], []
    for number, (contents, tick) in enumerate(codes):
        time = layout.cook_times[contents]
        cooks = tick != IDLE and tick < time and time > 1
        code.append(codes.index(PotCode(contents, 1)) if cooks else number)
        ready.append(codes.index(PotCode(contents, time)) if cooks else number)
        # A pot enters with tick 1, so that it is ready after another `time - 1` steps, here on average.
        probability.append(1 / (time - 1) if cooks else 0.0)
    return _Cooking(
        torch.tensor(code, device=device), torch.tensor(ready, device=device), torch.tensor(probability, device=device)
    )
