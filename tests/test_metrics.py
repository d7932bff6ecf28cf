from __future__ import annotations

import math

import pytest
import torch

from bsdr_torch.metrics import SUMS, KitchenScores, RolloutCrossEntropy
from bsdr_torch.worlds.overcooked import STAY


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


LAYOUTS = ["ring", "room", "ring", "room", "ring"]


def some_steps() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Steps of the first four rollouts, in any order; nobody moves in rollout 1."""
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(200, 6, generator=generator).mul(2).log_softmax(1)
    actions, rollouts = (torch.randint(size, (200,), generator=generator) for size in (6, 4))
    return log_probs, actions.where(rollouts != 1, STAY), rollouts


def plain_scores(log_probs: list[list[float]], actions: list[int], rollouts: list[int]) -> dict[str, float]:
    """The evaluation contract, in plain Python."""
    values: dict[str, dict[int, list[float]]] = {"ce": {}, "ce_stay": {}, "ce_moves": {}, "accuracy": {}}
    for row, action, rollout in zip(log_probs, actions, rollouts, strict=True):
        probs = [math.exp(value) for value in row]
        stays = probs[STAY]
        values["ce"].setdefault(rollout, []).append(-math.log(probs[action]))
        values["ce_stay"].setdefault(rollout, []).append(-math.log(stays if action == STAY else 1 - stays))
        if action != STAY:
            values["ce_moves"].setdefault(rollout, []).append(-math.log(probs[action] / (1 - stays)))
        values["accuracy"].setdefault(rollout, []).append(float(max(probs) == probs[action]))
    found = {}
    for measure, by_rollout in values.items():
        for layout in ("ring", "room"):
            means = [sum(v) / len(v) for rollout, v in by_rollout.items() if LAYOUTS[rollout] == layout]
            found[f"{layout}/{measure}"] = sum(means) / len(means)
        found[measure] = (found[f"ring/{measure}"] + found[f"room/{measure}"]) / 2
    return found


def test_kitchen_scores_are_averaged_by_rollout_then_kitchen() -> None:
    steps = some_steps()
    scores = KitchenScores(LAYOUTS)
    scores.update(*steps)
    expected = plain_scores(*(column.tolist() for column in steps))
    found = {name: float(value) for name, value in scores.compute().items()}
    assert found == pytest.approx(expected, rel=1e-5)


def test_kitchen_scores_of_batches_that_cut_rollouts_add_up() -> None:
    log_probs, actions, rollouts = some_steps()
    whole, parts = KitchenScores(LAYOUTS), KitchenScores(LAYOUTS)
    whole.update(log_probs, actions, rollouts)
    for rows in (slice(0, 33), slice(33, 200)):
        parts.update(log_probs[rows], actions[rows], rollouts[rows])
    torch.testing.assert_close(whole.sums, parts.sums)


def test_the_loss_is_that_of_acting_at_all_and_that_of_which_action() -> None:
    scores = KitchenScores(LAYOUTS)
    scores.update(*some_steps())
    loss, stay, move = (scores.sums[:, SUMS.index(name)] for name in ("loss", "stay_loss", "move_loss"))
    torch.testing.assert_close(loss, stay + move)


def test_kitchen_scores_have_no_floor() -> None:
    sure = torch.zeros(2, 6)
    sure[:, STAY] = 1
    scores = KitchenScores(["ring"])
    scores.update(sure.log(), torch.tensor([STAY, 0]), torch.tensor([0, 0]))
    found = scores.compute()
    assert {name: float(found[name]) for name in ("ce", "ce_stay", "ce_moves")} == dict.fromkeys(
        ("ce", "ce_stay", "ce_moves"), math.inf
    )
    assert float(found["accuracy"]) == 0.5


def test_a_kitchen_where_nobody_moves_says_nothing_about_moves() -> None:
    scores = KitchenScores(["ring", "room"])
    uniform = torch.full((2, 6), 1 / 6).log()
    scores.update(uniform, torch.tensor([STAY, 0]), torch.tensor([0, 1]))
    assert float(scores.compute()["ce_moves"]) == pytest.approx(math.log(5))


def test_kitchen_scores_refuse_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"log_probs \[N, 6\]"):
        KitchenScores(["ring"]).update(torch.zeros(3, 2), torch.zeros(3).long(), torch.zeros(3).long())
