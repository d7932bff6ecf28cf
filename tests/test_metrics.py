from __future__ import annotations

import math

import pytest
import torch

from bsdr_torch.metrics import RolloutCrossEntropy


def test_averages_per_rollout_then_over_rollouts() -> None:
    log_probs = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]]).log()
    metric = RolloutCrossEntropy()
    metric.update(log_probs, torch.tensor([0, 0, 0]), torch.tensor([4, 4, 7]))
    per_rollout = [-(math.log(0.5) + math.log(0.9)) / 2, -math.log(0.2)]
    assert math.isclose(float(metric.compute()), sum(per_rollout) / 2, rel_tol=1e-6)


def test_batches_of_whole_rollouts_add_up() -> None:
    torch.manual_seed(0)
    log_probs = torch.log_softmax(torch.randn(20, 3), dim=1)
    actions, rollout = torch.randint(3, (20,)), torch.arange(20) // 5
    whole, parts = RolloutCrossEntropy(), RolloutCrossEntropy()
    whole.update(log_probs, actions, rollout)
    for rows in (slice(0, 5), slice(5, 20)):
        parts.update(log_probs[rows], actions[rows], rollout[rows])
    torch.testing.assert_close(whole.compute(), parts.compute())


def test_an_impossible_action_is_infinitely_bad() -> None:
    metric = RolloutCrossEntropy()
    metric.update(torch.tensor([[1.0, 0.0]]).log(), torch.tensor([1]), torch.tensor([0]))
    assert float(metric.compute()) == math.inf


def test_shapes_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"log_probs \[N, A\]"):
        RolloutCrossEntropy().update(torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64), torch.zeros(2))
