"""Predictors that do not look at the state."""

from __future__ import annotations

import torch
from torch import Tensor

from bsdr_torch.data.grid_people import StepBatch
from bsdr_torch.data.rollouts import Steps


class ActionFrequencies:
    """Predicts each action as often as it was taken, with one more of each for those never seen."""

    def __init__(self, num_actions: int, seen: list[Steps]) -> None:
        counts = torch.ones(num_actions, dtype=torch.float64)
        for steps in seen:
            counts += torch.bincount(steps.action, minlength=num_actions)
        self._log_probs = (counts / counts.sum()).log()

    def action_log_probs(self, batch: StepBatch) -> Tensor:
        """The same `[A]` for every decision, `[N, A]`."""
        return self._log_probs.expand(len(batch.states), -1)


def uniform(num_actions: int) -> ActionFrequencies:
    """Acting at random: frequencies of somebody never seen."""
    return ActionFrequencies(num_actions, [])
