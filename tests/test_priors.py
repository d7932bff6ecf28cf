from __future__ import annotations

import math

import pytest
import torch

from bsdr_torch import priors


def test_gaussian_is_the_normal_density() -> None:
    theta = torch.tensor([[0.3, -1.2], [2.0, 0.0]], dtype=torch.float64)
    expected = torch.distributions.Normal(0.0, 0.7).log_prob(theta).sum()
    torch.testing.assert_close(priors.gaussian(theta, 0.7), expected)


@pytest.mark.parametrize(("size", "area"), [(1, 2.0), (2, 2 * math.pi), (3, 4 * math.pi), (4, 2 * math.pi**2)])
def test_unit_sphere_is_uniform_over_its_area(size: int, area: float) -> None:
    theta = torch.ones(size, dtype=torch.float64) / math.sqrt(size)
    assert math.isclose(float(priors.unit_sphere(theta).exp()), 1 / area)


def test_unit_sphere_refuses_other_lengths() -> None:
    with pytest.raises(ValueError, match="length 2"):
        priors.unit_sphere(torch.tensor([2.0, 0.0]))


def test_hierarchical_is_the_integral_over_mean_and_variance() -> None:
    """One feature: compares ratios of densities with a sum over a fine grid of means and variances."""
    scale, center, strength, weight = 0.8, 0.5, 2.0, 0.1

    def by_sum(theta: torch.Tensor) -> torch.Tensor:
        log_variance = torch.linspace(-9, 12, 1500, dtype=torch.float64)
        mean = torch.linspace(-60, 60, 4001, dtype=torch.float64)
        variance = log_variance.exp()[:, None]
        shape = (1 + strength) / 2  # InverseWishart in one dimension
        log_density = -(shape + 1) * variance.log() - strength * scale**2 / (2 * variance) + log_variance[:, None]
        log_density = log_density + torch.distributions.Normal(center, (variance / weight).sqrt()).log_prob(mean)
        for value in theta.tolist():
            log_density = log_density + torch.distributions.Normal(mean, variance.sqrt()).log_prob(torch.tensor(value))
        return torch.logsumexp(log_density.flatten(), dim=0)

    first = torch.tensor([0.1, 0.7, 1.5], dtype=torch.float64)
    second = torch.tensor([-2.0, 0.4, 3.0], dtype=torch.float64)
    difference = priors.hierarchical(first[:, None], scale, center, strength, weight) - priors.hierarchical(
        second[:, None], scale, center, strength, weight
    )
    assert math.isclose(float(difference), float(by_sum(first) - by_sum(second)), rel_tol=1e-3)


def test_hierarchical_prefers_people_who_are_alike_and_has_a_finite_peak() -> None:
    alike, unlike = torch.zeros(5, 2), torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    assert float(priors.hierarchical(alike, 1.0)) > float(priors.hierarchical(unlike, 1.0))
    assert math.isfinite(float(priors.hierarchical(alike, 1.0)))


def test_hierarchical_learns_which_features_go_together() -> None:
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(30, 1, generator=generator).double()
    together = common.repeat(1, 2)
    apart = together + torch.tensor([0.5, -0.5]) * torch.sign(torch.randn(30, 1, generator=generator))
    independent = torch.randn(30, 2, generator=generator).double()
    loss_if_correlated = priors.hierarchical(together, 0.1) - priors.hierarchical(apart, 0.1)
    shifted = independent + torch.tensor([0.5, -0.5]) * torch.sign(torch.randn(30, 1, generator=generator))
    loss_if_not = priors.hierarchical(independent, 0.1) - priors.hierarchical(shifted, 0.1)
    assert float(loss_if_correlated) > float(loss_if_not) + 10


@pytest.mark.parametrize("prior", [priors.gaussian, priors.hierarchical])
def test_priors_refuse_a_scale_that_is_not_positive(prior) -> None:
    with pytest.raises(ValueError, match="scale"):
        prior(torch.zeros(2, 2), 0.0)


def test_hierarchical_wants_one_row_per_person() -> None:
    with pytest.raises(ValueError, match="one row per person"):
        priors.hierarchical(torch.zeros(3), 1.0)
