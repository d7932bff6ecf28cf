"""Predictors that do not look at the state."""

from __future__ import annotations

import torch
from torch import Tensor

from bsdr_torch.data.decisions import UNRECORDED, Decisions
from bsdr_torch.data.grid_people import StepBatch
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.rollouts import Steps
from bsdr_torch.worlds.overcooked import NUM_ACTIONS


class ActionFrequencies:
    """Predicts each action as often as it was taken, with one more of each for those never seen."""

    def __init__(self, num_actions: int, seen: list[Steps]) -> None:
        counts = torch.zeros(num_actions, dtype=torch.float64)
        for steps in seen:
            counts += torch.bincount(steps.action, minlength=num_actions)
        self._log_probs = _smoothed(counts)

    def action_log_probs(self, batch: StepBatch | Decisions) -> Tensor:
        """The same `[A]` for every decision, `[N, A]`."""
        return self._log_probs.expand(len(batch.states), -1)


def uniform(num_actions: int) -> ActionFrequencies:
    """Acting at random: frequencies of somebody never seen."""
    return ActionFrequencies(num_actions, [])


class KitchenFrequencies:
    """Predicts each action as often as it was taken in the kitchen; in a new kitchen, as often as in all others.

    There is nothing to stop early, so it counts the training and the validation part.

    Args:
        data: people in kitchens, split by a protocol.
        after_own_last: count apart what people did after each own last action.
    """

    def __init__(self, data: KitchenPeople, after_own_last: bool = False) -> None:
        self._after_own_last = after_own_last
        seen = torch.zeros(UNRECORDED + 1, NUM_ACTIONS, dtype=torch.float64)
        counts: dict[str, Tensor] = {}
        for part in (data.steps("train"), data.steps("validation")):
            for layout, steps in part.items():
                row = counts.setdefault(layout, seen.clone())
                row.index_put_((self._rows(steps), steps.actions), row.new_tensor(1.0), accumulate=True)
        self._new = _smoothed(torch.stack(list(counts.values())).sum(0))
        self._log_probs = {layout: _smoothed(row) for layout, row in counts.items()}

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]` float64."""
        return self._log_probs.get(batch.layout, self._new).to(batch.actions.device)[self._rows(batch)]

    def _rows(self, batch: Decisions) -> Tensor:
        return batch.history[:, 0] if self._after_own_last else torch.zeros_like(batch.actions)


def _smoothed(counts: Tensor) -> Tensor:
    """Log-probabilities from counts `[..., A]`, with one more of each for those never seen."""
    return ((counts + 1) / (counts + 1).sum(-1, keepdim=True)).log()
