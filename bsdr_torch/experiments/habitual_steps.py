"""Recorded steps of people who plan and have habits, those that are alike counted.

    P_i(a|s, h) = rho_i(h) 1[a = STAY] + (1 - rho_i(h)) softmax_a( log b_i(a|h) + Q_i(s, a) )

as in `bsdr_torch.kitchens.planning`, with the simplest habit: h is the person's action before.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bsdr_torch.data.decisions import UNRECORDED
from bsdr_torch.kitchens.choosing import choice_log_probs
from bsdr_torch.kitchens.habit import Habit
from bsdr_torch.worlds.overcooked import INTERACT, NUM_ACTIONS, STAY


class CountedSteps(NamedTuple):
    """Kinds of steps: who did what, where, after what.

    Attributes:
        state: `[U]`, numbered states, -1 where people had no plan.
        who: `[U]`, who was in them.
        place: `[M]`, which of the U each kind of step was taken in.
        last: `[M]`, the action before, or `UNRECORDED`.
        action: `[M]`, the action.
        times: `[M]`, how often.
    """

    state: Tensor
    who: Tensor
    place: Tensor
    last: Tensor
    action: Tensor
    times: Tensor

    @staticmethod
    def of(state: Tensor, who: Tensor, last: Tensor, action: Tensor) -> CountedSteps:
        """The steps `[N]` of people in numbered states."""
        rows, times = torch.unique(torch.stack([state, who, last, action], 1), dim=0, return_counts=True)
        pairs, place = torch.unique(rows[:, :2], dim=0, return_inverse=True)
        return CountedSteps(pairs[:, 0], pairs[:, 1], place, rows[:, 2], rows[:, 3], times.double())

    def log_likelihood(self, by_plan: Tensor, habits: Tensor, pauses: Tensor) -> Tensor:
        """log P of each kind of step, times how often it was taken, `[M]`.

        Args:
            by_plan: `[U, 6]`, Q up to a constant.
            habits: `[B, NUM_HABITS]` of all people, or `[1, NUM_HABITS]` if they are alike.
            pauses: `[B, 3]`.
        """
        log_probs = act(by_plan[self.place], habits, pauses, self.who[self.place], self.last)
        return self.times * log_probs.gather(1, self.action[:, None]).squeeze(1)


def act(by_plan: Tensor, habits: Tensor, pauses: Tensor, who: Tensor, last: Tensor) -> Tensor:
    """log P(a) `[N, 6]` of people `who [N]`, with plans `[N, 6]`, after their actions `last [N]`.

    `habits [B or 1, NUM_HABITS]` are log b by how an action relates to the one before, relative to STAY; `pauses
    [B, 3]` are logits after a move, after a STAY and after an INTERACT.
    """
    log_base = torch.cat([torch.zeros_like(habits[:, :1]), habits], 1)
    log_base = log_base[who[:, None] if len(habits) > 1 else 0, _RELATIONS[last]]
    pause = pauses[who, _AFTER[last]]
    habit = Habit(log_base, log_base, pause, torch.zeros_like(pause))
    return choice_log_probs(habit, torch.zeros_like(by_plan, dtype=torch.bool), by_plan)


def _relations() -> Tensor:
    """`[7, 6]`: how an action relates to the one before, in a way that holds in all directions alike; 0 for STAY."""
    found = torch.zeros(UNRECORDED + 1, NUM_ACTIONS, dtype=torch.int64)
    moves = torch.arange(STAY)
    same, opposite = moves[:, None] == moves, (moves[:, None] ^ 1) == moves  # north 0, south 1; east 2, west 3
    found[:STAY, :STAY] = torch.where(same, 1, torch.where(opposite, 2, 3))
    found[:STAY, INTERACT] = 4
    for last, first in ((STAY, 5), (UNRECORDED, 5), (INTERACT, 7)):
        found[last, :STAY], found[last, INTERACT] = first, first + 1
    return found


_RELATIONS = _relations()
_AFTER = torch.tensor([0, 0, 0, 0, 1, 2, 1])
NUM_HABITS = int(_RELATIONS.max())
