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


def hierarchical(
    theta: Tensor, scale: float, center: float = 0.0, strength: float = 2.0, center_strength: float = 0.1
) -> Tensor:
    """People `[N, F]` scattered around a common mean with a common covariance, a scalar up to a constant.

    theta[i] ~ N(mean, Cov), Cov ~ InverseWishart(F + strength, strength scale^2 I), mean ~ N(center, Cov /
    center_strength). Mean and covariance are integrated out in closed form, which leaves

        -(F + strength + N) / 2 log det(strength scale^2 I + scatter + k (theta_mean - center)(theta_mean - center)^T)

    with k = center_strength N / (center_strength + N). So there is no spread to shrink to zero, as joint MAP over
    theta and the spread would, and features that go together in all people borrow from each other. `scale` is the
    spread that is expected beforehand, the strengths are how many people that expectation and `center` are worth.
    """
    for name, value in (("scale", scale), ("strength", strength), ("center_strength", center_strength)):
        _check_positive(name, value)
    if theta.ndim != 2:
        raise ValueError(f"the hierarchical prior wants one row per person [N, F], got shape {tuple(theta.shape)}")
    N, F = theta.shape
    mean = theta.mean(0)
    shift = (mean - center)[:, None]
    spread = strength * scale**2 * torch.eye(F, dtype=theta.dtype, device=theta.device)
    spread = spread + (theta - mean).T @ (theta - mean) + center_strength * N / (center_strength + N) * shift @ shift.T
    log_det: Tensor = torch.linalg.slogdet(spread).logabsdet
    return -(F + strength + N) / 2 * log_det


def _check_positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"the {name} of a prior must be positive and finite, got {value}")
