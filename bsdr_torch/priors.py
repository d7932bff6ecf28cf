"""log P(theta): what is believed of parameters before any rollout is seen."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

PriorKind = Literal["gaussian", "hierarchical"]


def gaussian(theta: Tensor, scale: float) -> Tensor:
    """Independent normals around zero, a scalar."""
    _check_positive("scale", scale)
    return -0.5 * (theta / scale).square().sum() - theta.numel() * math.log(scale * math.sqrt(2 * math.pi))


def unit_sphere(theta: Tensor) -> Tensor:
    """Uniform over vectors of length 1 (paper, appendix A), a scalar; other lengths are an error.

    Example:
        >>> unit_sphere(torch.tensor([0.6, 0.8])).exp() * 2 * math.pi  # the circle is 2 pi long
        tensor(1.)
    """
    length = float(theta.detach().norm())
    if not abs(length - 1) < 1e-3:
        raise ValueError(f"the unit-sphere prior wants a vector of length 1, got length {length:.4g}: normalise theta")
    half = theta.numel() / 2
    log_area = math.log(2) + half * math.log(math.pi) - math.lgamma(half)
    return theta.sum() * 0 - log_area


def hierarchical(theta: Tensor, scale: float, strength: float = 1.0) -> Tensor:
    """People `[N, F]` scattered around a common mean by a common spread, feature by feature; a scalar.

    theta[i, f] ~ N(mean_f, var_f) with a flat prior on mean_f and var_f ~ InverseGamma(strength, strength scale^2).
    Both are integrated out in closed form, which leaves, up to a constant,

        -(strength + (N - 1) / 2) sum_f log(strength scale^2 + sum_i (theta[i, f] - mean_f)^2 / 2)

    so that there is no spread to shrink to zero, as joint MAP over theta and the spread would. `scale` is the
    spread expected beforehand, `strength` how many people that expectation is worth, halved.
    """
    _check_positive("scale", scale)
    _check_positive("strength", strength)
    if theta.ndim != 2:
        raise ValueError(f"the hierarchical prior wants one row per person [N, F], got shape {tuple(theta.shape)}")
    scatter = (theta - theta.mean(0)).square().sum(0) / 2
    return -(strength + (theta.shape[0] - 1) / 2) * torch.log(strength * scale**2 + scatter).sum()


def _check_positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"the {name} of a prior must be positive and finite, got {value}")
