"""How well actions are predicted, as torchmetrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from bsdr_torch.worlds.overcooked import NUM_ACTIONS, STAY

# What is summed over the steps of each rollout, and the measures that are quotients of two sums.
SUMS = ("steps", "moves", "loss", "stay_loss", "move_loss", "correct")
MEASURES = {
    "ce": ("loss", "steps"),
    "ce_stay": ("stay_loss", "steps"),
    "ce_moves": ("move_loss", "moves"),
    "accuracy": ("correct", "steps"),
}


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


class KitchenScores(Metric):
    """The evaluation contract's measures in kitchens: averaged per rollout, then over those, then over kitchens.

    `ce` is the cross-entropy in nats per step, `ce_stay` that of STAY or not, `ce_moves` that of which action among the
    steps that are not STAY, `accuracy` how often the likeliest action was taken. There is no floor on probabilities.

    Args:
        layouts: the kitchen of each rollout, R of them.

    Attributes:
        sums: `[R, 6]` float64, `SUMS` of each rollout; 0 for those of which nothing was added.

    Example:
        >>> scores = KitchenScores(["cramped_room", "coordination_ring"])
        >>> uniform = torch.full((3, 6), 1 / 6).log()
        >>> scores.update(uniform, torch.tensor([4, 4, 0]), torch.tensor([0, 0, 1]))
        >>> {name: round(float(value), 3) for name, value in scores.compute().items() if "/" not in name}
        {'ce': 1.792, 'ce_stay': 0.987, 'ce_moves': 1.609, 'accuracy': 0.5}
    """

    is_differentiable = False
    full_state_update = False
    sums: Tensor

    def __init__(self, layouts: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layouts = list(layouts)
        self.add_state("sums", torch.zeros(len(self.layouts), len(SUMS), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, log_probs: Tensor, actions: Tensor, rollouts: Tensor) -> None:
        """Adds steps with `log_probs [N, 6]`, the `actions [N]` taken, and the `rollouts [N]` they belong to."""
        if log_probs.shape != (len(actions), NUM_ACTIONS) or actions.shape != rollouts.shape:
            raise ValueError(
                f"expected log_probs [N, {NUM_ACTIONS}] with actions and rollouts [N], got {tuple(log_probs.shape)}, "
                f"{tuple(actions.shape)} and {tuple(rollouts.shape)}"
            )
        log_probs = log_probs.double()
        taken = log_probs.gather(1, actions[:, None]).squeeze(1)
        moved = actions != STAY
        others = [action for action in range(NUM_ACTIONS) if action != STAY]
        log_move = log_probs[:, others].logsumexp(1)
        # Who is sure of STAY says nothing about moves: such a move counts as impossible.
        move_loss = (log_move - taken).nan_to_num(nan=torch.inf, posinf=torch.inf)
        columns = [
            torch.ones_like(taken),
            moved.double(),
            -taken,
            -torch.where(moved, log_move, taken),
            torch.where(moved, move_loss, 0.0),
            (log_probs.argmax(1) == actions).double(),
        ]
        self.sums.index_add_(0, rollouts, torch.stack(columns, 1))

    def compute(self) -> dict[str, Tensor]:
        """Each of `MEASURES`: the mean over kitchens, and `kitchen/measure` for each kitchen."""
        return kitchen_measures(self.sums, self.layouts)


def kitchen_measures(sums: Tensor, layouts: Sequence[str]) -> dict[str, Tensor]:
    """Each of `MEASURES` from the sums `[R, 6]` of rollouts: the mean over kitchens, and `kitchen/measure` for each.

    Rollouts without such steps do not count, nor do kitchens without such rollouts.
    """
    tested = sums[:, SUMS.index("steps")] > 0
    found: dict[str, Tensor] = {}
    for measure, values in rollout_measures(sums).items():
        by_layout = {}
        for layout in dict.fromkeys(layouts):
            inside = torch.tensor([name == layout for name in layouts], device=sums.device) & tested
            if inside.any():
                by_layout[f"{layout}/{measure}"] = values[inside].nanmean()
        found |= {measure: torch.stack(list(by_layout.values())).nanmean(), **by_layout}
    return found


def rollout_measures(sums: Tensor) -> dict[str, Tensor]:
    """`MEASURES` of each rollout from its sums `[..., R, 6]`: `[..., R]` each, NaN where there are no such steps."""
    column = {name: sums[..., place] for place, name in enumerate(SUMS)}
    return {measure: column[total] / column[count] for measure, (total, count) in MEASURES.items()}
