"""How well actions are predicted, as torchmetrics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class RolloutCrossEntropy(Metric):
    """Natural-log cross-entropy per step, averaged per rollout, then over rollouts (the evaluation contract).

    Example:
        >>> metric = RolloutCrossEntropy()
        >>> uniform = torch.full((3, 2), 0.5).log()
        >>> metric.update(uniform, torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]))
        >>> metric.compute()
        tensor(0.6931)
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    total: Tensor
    rollouts: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("total", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("rollouts", torch.tensor(0, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, log_probs: Tensor, actions: Tensor, rollout: Tensor) -> None:
        """Adds steps with `log_probs [N, A]`, the `actions [N]` taken, and the `rollout [N]` each belongs to.

        A rollout must be whole within one call.
        """
        if log_probs.ndim != 2 or log_probs.shape[0] != actions.shape[0] or actions.shape != rollout.shape:
            raise ValueError(
                f"expected log_probs [N, A] with actions and rollout [N], got {tuple(log_probs.shape)}, "
                f"{tuple(actions.shape)} and {tuple(rollout.shape)}"
            )
        if len(actions) == 0:
            return
        loss = -log_probs.gather(1, actions[:, None]).squeeze(1).double()
        _, group, size = torch.unique(rollout, return_inverse=True, return_counts=True)
        sums = torch.zeros(len(size), dtype=torch.float64, device=loss.device).index_add_(0, group, loss)
        self.total += (sums / size).sum()
        self.rollouts += len(size)

    def compute(self) -> Tensor:
        """The mean over rollouts, in nats per step."""
        return (self.total / self.rollouts).float()
