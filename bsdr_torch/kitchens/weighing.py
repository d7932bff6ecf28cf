"""Models in kitchens that they may be wrong about: how much they count beside habit is found while people play.

What was learned in some kitchens may hold in another or not, and for one person more than for the next. With

    P_w(a) ~ habit(a)^(1 - w) model(a)^w

the weight w is 0 where nothing but habit holds, 1 where the model is right, and more where people are surer of it than
elsewhere. Each step predicts by the exact posterior over w, from the steps of the same person in the same game before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.kitchens.newcomers import Memory
from bsdr_torch.kitchens.predicting import Predicts

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""All weights that there are, as likely as one another before anything was seen."""

Model = TypeVar("Model", bound=Predicts)


class Weighed(Generic[Model]):
    """A model whose weight beside habit is inferred; see the module.

    It remembers the decisions that it was asked about, see `Memory`.

    Args:
        model: as it was trained.
        habit: log P(action) at decisions, `[N, 6]`, by what does not depend on the kitchen.
    """

    def __init__(self, model: Model, habit: Callable[[Decisions], Tensor]) -> None:
        self.model, self.habit = model, habit
        self._memory = Memory()

    @torch.no_grad()
    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        habit = self.habit(batch)
        weights = torch.tensor(WEIGHTS, dtype=habit.dtype, device=habit.device)
        change = self.model.action_log_probs(batch) - habit
        by_weight = (habit + weights[:, None, None] * change).log_softmax(2)  # [w, N, 6]
        taken = by_weight.gather(2, batch.actions.expand(len(WEIGHTS), -1)[..., None]).squeeze(2).T
        found = torch.empty_like(habit)
        everybody = torch.ones_like(batch.actions, dtype=torch.bool)
        for rows, (seen,) in self._memory.games(batch, everybody, taken):
            before = seen.double().cumsum(0) - seen
            posterior = before[-len(rows) :].log_softmax(1).to(habit.dtype)
            found[rows] = (posterior.T[..., None] + by_weight[:, rows]).logsumexp(0)
        return found
