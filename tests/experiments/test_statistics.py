from __future__ import annotations

import math

import pytest
import torch

from bsdr_torch.experiments.statistics import estimate, group_test, ratio_estimate, sign_flip_p, student_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.3027), (9, 2.2622), (30, 2.0423), (1000, 1.9623)]
)
def test_quantiles_are_those_of_the_printed_table(freedom: int, quantile: float) -> None:
    assert abs(student_quantile(0.975, freedom) - quantile) < 1e-3 * quantile


def test_an_interval_covers_the_mean_as_often_as_it_says() -> None:
    draws = torch.randn(2000, 5, generator=torch.Generator().manual_seed(0)).tolist()
    covered = sum(e.low < 0 < e.high for e in map(estimate, draws)) / len(draws)
    assert abs(covered - 0.95) < 0.015


def test_one_repetition_supports_no_claim() -> None:
    alone = estimate([3.0])
    assert math.isnan(alone.low)
    assert not alone.above_zero
    assert not alone.below_zero


def test_the_interval_of_a_ratio_covers_it_as_often_as_it_says() -> None:
    generator = torch.Generator().manual_seed(1)
    below = 1 + torch.rand(500, 12, generator=generator)
    above = 0.4 * below + 0.1 * torch.randn(500, 12, generator=generator)
    found = [ratio_estimate(a, b) for a, b in zip(above.tolist(), below.tolist(), strict=True)]
    covered = sum(e.low < 0.4 < e.high for e in found) / len(found)
    assert abs(covered - 0.95) < 0.03
    assert math.isnan(ratio_estimate([1.0, 0.0], [2.0, 0.0]).low)  # one of them has all of it


def test_sign_flips_count_all_signs_and_ignore_direction() -> None:
    assert sign_flip_p([1.0] * 10) == 2 / 1024
    assert sign_flip_p([-1.0] * 10) == 2 / 1024
    assert sign_flip_p([1.0, -1.0]) == 1.0
    assert sign_flip_p([1.0] * 30) < 0.001
    assert abs(sign_flip_p([1.0] * 17 + [-1.0] * 13) - 0.584) < 0.02  # a fair coin, 30 throws


def clusters(gap: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    points = torch.randn(16, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    group = torch.arange(16) // 4
    points += (
        gap * torch.nn.functional.one_hot(group, 4).double() @ torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]).double()
    )
    return torch.cdist(points, points), group


def test_groups_that_differ_are_found_and_others_are_not() -> None:
    generator = torch.Generator().manual_seed(1)
    found = group_test(*clusters(10.0, 0), 199, generator)
    assert found.p == 1 / 200
    assert found.between > found.within
    p = [group_test(*clusters(0.0, seed), 99, generator).p for seed in range(200)]
    assert sum(value <= 0.05 for value in p) / len(p) < 0.09
    assert abs(sum(p) / len(p) - 0.5) < 0.07


def test_members_of_groups_change_places_within_their_block_only() -> None:
    distance, group = clusters(gap=2.0, seed=3)
    generator = torch.Generator().manual_seed(0)
    assert group_test(distance, group, 199, generator).p < 0.05
    alone = group_test(distance, group, 199, generator, blocks=torch.arange(len(group)))
    assert alone.p == 1.0  # nobody can change places with anybody
    assert group_test(distance, group, 199, generator, blocks=group).p == 1.0
    halves = torch.arange(len(group)) % 2
    assert group_test(distance, group, 199, generator, blocks=halves).p < 0.05
