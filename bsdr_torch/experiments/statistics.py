"""Intervals and tests: the only ways in which the experiments turn repetitions into claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean over independent repetitions with its confidence interval (NaN for a single one)."""

    mean: float
    low: float
    high: float
    repetitions: int

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low > 0

    @property
    def below_zero(self) -> bool:
        """Whether the whole interval is below zero."""
        return self.high < 0

    @property
    def reach(self) -> tuple[float, float]:
        """How far the interval reaches below and above the mean, as error bars want it."""
        return self.mean - self.low, self.high - self.mean


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of independent repetitions with Student's interval.

    Example:
        >>> mean, low, high, _ = estimate([1.0, 2.0, 3.0])
        >>> round(mean, 2), round(low, 2), round(high, 2)
        (2.0, -0.48, 4.48)
    """
    if not values:
        raise ValueError("an estimate needs at least one value")
    n, mean = len(values), math.fsum(values) / len(values)
    if n == 1:
        return Estimate(mean, math.nan, math.nan, 1)
    half = student_quantile((1 + CONFIDENCE) / 2, n - 1) * _deviation(values) / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, n)


def ratio_estimate(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate:
    """The ratio of two sums over independent repetitions, with the jackknife's error and Student's interval.

    Example:
        >>> ratio_estimate([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
        Estimate(mean=0.5, low=0.5, high=0.5, repetitions=3)
    """
    n, top, bottom = len(numerators), math.fsum(numerators), math.fsum(denominators)
    mean = top / bottom
    left = [(bottom - d, top - t) for t, d in zip(numerators, denominators, strict=True) if bottom > d]
    if len(left) < max(n, 2):  # a single repetition has all of it
        return Estimate(mean, math.nan, math.nan, n)
    return jackknife_estimate(mean, [t / d for d, t in left])


def jackknife_estimate(whole: float, without: Sequence[float]) -> Estimate:
    """Student's interval of a measure of a sample, from what the measure is `without` each of its members.

    Example:
        >>> jackknife_estimate(2.0, [2.5, 2.0, 1.5]) == estimate([1.0, 2.0, 3.0])  # the mean of 1, 2 and 3
        True
    """
    n = len(without)
    if n < 2:
        return Estimate(whole, math.nan, math.nan, n)
    half = student_quantile((1 + CONFIDENCE) / 2, n - 1) * _jackknife_error(without)
    return Estimate(whole, whole - half, whole + half, n)


def jackknife_p(whole: float, without: Sequence[float]) -> float:
    """Two-sided p-value of Student's that the measure of a `jackknife_estimate` is zero."""
    return _student_p(whole, _jackknife_error(without), len(without) - 1)


def _jackknife_error(without: Sequence[float]) -> float:
    return _deviation(without) * (len(without) - 1) / math.sqrt(len(without))


def half_sample_estimate(values: Sequence[float]) -> Estimate:
    """The mean over random halves of one sample of people, with Student's interval for the whole sample.

    Halves overlap, so that their number says nothing of the people; but the spread of a measure over halves is its
    standard error on all of them (the delete-half jackknife).
    """
    n, mean = len(values), math.fsum(values) / len(values)
    if n == 1:
        return Estimate(mean, math.nan, math.nan, 1)
    half = student_quantile((1 + CONFIDENCE) / 2, n - 1) * _deviation(values)
    return Estimate(mean, mean - half, mean + half, n)


def half_sample_p(values: Sequence[float]) -> float:
    """Two-sided p-value of Student's that the mean of which `values` are `half_sample_estimate`s is zero.

    Example:
        >>> round(half_sample_p([1.0, 2.0, 3.0]), 3)  # t = 2 with two degrees of freedom
        0.184
    """
    return _student_p(math.fsum(values) / len(values), _deviation(values), len(values) - 1)


def _student_p(mean: float, error: float, freedom: int) -> float:
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return 1 - 2 * _above_median(abs(mean) / error, freedom)


def student_quantile(probability: float, freedom: int) -> float:
    """The quantile, above the median, of Student's t distribution: its density integrated, then bisected."""
    if not (0.5 < probability < 1 and freedom >= 1):
        raise ValueError(f"expected a probability in (0.5, 1) and freedom >= 1, got {probability} and {freedom}")
    low, high = 0.0, 1.0
    while _above_median(high, freedom) < probability - 0.5:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _above_median(middle, freedom) < probability - 0.5 else (low, middle)
    return (low + high) / 2


def _above_median(t: float, freedom: int) -> float:
    """How likely Student's t is between 0 and `t`."""
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    x = torch.linspace(0, t, 2001, dtype=torch.float64)
    density = torch.exp(log_scale - (freedom + 1) / 2 * torch.log1p(x * x / freedom))
    return float(torch.trapezoid(density, x))


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def sign_flip_p(differences: Sequence[float]) -> float:
    """Two-sided p-value that paired differences are symmetric around zero.

    Over all 2^n flips of sign, or, where these are too many, over 2^14 random ones (always the same).

    Example:
        >>> sign_flip_p([1.0, 2.0, 1.5])
        0.25
    """
    n, values = len(differences), torch.tensor(differences, dtype=torch.float64)
    if n <= 14:
        signs = torch.cartesian_prod(*[torch.tensor([1.0, -1.0], dtype=torch.float64)] * n).view(-1, n)
    else:
        flips = torch.randint(2, (2**14, n), generator=torch.Generator().manual_seed(0))
        flips[0] = 0
        signs = 1.0 - 2.0 * flips.double()
    means = (signs @ values).abs()
    return float((means >= means[0] * (1 - 1e-9)).double().mean())


def rank_correlation(one: Tensor, other: Tensor) -> float:
    """Spearman's: the correlation of ranks, with the mean rank for those that tie; 0 if all of either tie.

    Example:
        >>> round(rank_correlation(torch.tensor([1.0, 2.0, 5.0]), torch.tensor([0.1, 0.3, 0.2])), 3)
        0.5
    """
    ranks = torch.stack([_ranks(one), _ranks(other)])
    centred = ranks - ranks.mean(1, keepdim=True)
    size = float(centred.norm(dim=1).prod())
    return float(centred[0] @ centred[1]) / size if size else 0.0


def _ranks(values: Tensor) -> Tensor:
    _, place, count = torch.unique(values, return_inverse=True, return_counts=True)
    ranks: Tensor = (count.cumsum(0) - (count + 1) / 2.0)[place].double()
    return ranks


class GroupTest(NamedTuple):
    """Whether groups differ: how much closer to one another the members of a group are than those of two groups.

    Attributes:
        within: mean distance of pairs in one group.
        between: mean distance of pairs in two groups.
        effect: (between - within) / standard deviation of all distances; if only members of a block change places, less
            the mean of that over regroupings, as groups then differ also by what blocks have in common.
        p: share of random regroupings with an effect at least as large, one-sided.
    """

    within: float
    between: float
    effect: float
    p: float


def group_test(
    distance: Tensor, group: Tensor, permutations: int, generator: torch.Generator, blocks: Tensor | None = None
) -> GroupTest:
    """Permutation test of distances `[N, N]` (their symmetric part) between members of groups `[N]`.

    Only members of the same block `[N]`, if there are any, change places: what else they have in common stays.
    """
    first, second = torch.triu_indices(len(group), len(group), offset=1)
    pairs = ((distance + distance.T) / 2)[first, second]
    within_blocks = blocks is not None
    if blocks is None:
        blocks = torch.zeros_like(group)
    shuffled = blocks + torch.rand(permutations, len(group), generator=generator, dtype=torch.float64)
    regrouped = torch.empty(1 + permutations, len(group), dtype=group.dtype)
    regrouped[0] = group
    regrouped[1:, blocks.argsort(stable=True)] = group[shuffled.argsort(1)]
    same = (regrouped[:, first] == regrouped[:, second]).to(pairs.dtype)
    within = same @ pairs / same.sum(1)
    between = (1 - same) @ pairs / (1 - same).sum(1)
    gap = between - within
    by_chance = gap[1:].mean() if within_blocks else 0.0
    return GroupTest(
        within=float(within[0]),
        between=float(between[0]),
        effect=float((gap[0] - by_chance) / pairs.std()),
        p=float((gap >= gap[0] - 1e-12).double().mean()),
    )
