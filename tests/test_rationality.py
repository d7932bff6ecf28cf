from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bsdr_torch.rationality import MODELS, POPULATION, Link, Rationality

PHI_R = torch.rand(6, 3, generator=torch.Generator().manual_seed(0)).double()
PHI_BETA = torch.rand(6, 2, generator=torch.Generator().manual_seed(1)).double()
EVERYONE = torch.arange(4)


def randomised(kind: str, **options: str) -> Rationality:
    torch.manual_seed(0)
    model = Rationality(kind, 4, 3, 2, **options).double()  # type: ignore[arg-type]  # options are words
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    return model


def test_what_each_model_lets_vary() -> None:
    for kind, varies in MODELS.items():
        model = randomised(kind)
        beta = model.beta(PHI_BETA, EVERYONE)
        assert beta.shape == (6, 4)
        assert bool((beta.std(0) > 1e-6).any()) == varies.by_state
        assert bool((beta.std(1) > 1e-6).any()) == varies.by_human
        implied_cost = -model.reward(PHI_R, PHI_BETA, EVERYONE) / beta
        assert bool((implied_cost.std(1) > 1e-6).any()) == varies.cost_by_human


def test_reward_is_minus_beta_times_cost() -> None:
    model = randomised("bsdr", link="identity")
    expected = -(PHI_BETA @ model.theta_beta.T) * (PHI_R @ model.theta_R)[:, None]
    torch.testing.assert_close(model.reward(PHI_R, PHI_BETA, EVERYONE), expected)


@pytest.mark.parametrize("link", ["identity", "softplus", "exp"])
def test_unit_norm_gauge_makes_a_common_factor_invisible(link: str) -> None:
    model = randomised("bsdr", link=link)
    theta_R, reward = model.theta_R, model.reward(PHI_R, PHI_BETA, EVERYONE)
    torch.testing.assert_close(theta_R.norm(), torch.ones((), dtype=torch.float64))
    with torch.no_grad():
        model.raw_theta_R *= 7.0
    torch.testing.assert_close(model.theta_R, theta_R)
    torch.testing.assert_close(model.reward(PHI_R, PHI_BETA, EVERYONE), reward)


def test_identity_link_pins_the_common_sign() -> None:
    model = randomised("bsdr", link="identity")
    reward = model.reward(PHI_R, PHI_BETA, EVERYONE)
    theta_R, theta_beta = model.theta_R.clone(), model.theta_beta.clone()
    assert bool(theta_beta.sum() >= 0)
    with torch.no_grad():
        model.raw_theta_R *= -1.0
        model.raw_theta_beta *= -1.0
    torch.testing.assert_close(model.theta_R, theta_R)
    torch.testing.assert_close(model.theta_beta, theta_beta)
    torch.testing.assert_close(model.reward(PHI_R, PHI_BETA, EVERYONE), reward)


@pytest.mark.parametrize("kind", MODELS)
def test_mean_one_gauge_holds_in_every_state(kind: str) -> None:
    model = randomised(kind, gauge="mean_one", link="softplus")
    mean = model.beta(PHI_BETA, EVERYONE).mean(1)
    torch.testing.assert_close(mean, torch.ones_like(mean))


def test_offsets_of_irleed_have_mean_zero() -> None:
    offset = randomised("irleed").offset
    assert offset is not None
    torch.testing.assert_close(offset.mean(0), torch.zeros(3, dtype=torch.float64))


def test_somebody_never_seen_gets_the_mean_parameters() -> None:
    model = randomised("bsdr")
    beta = model.beta(PHI_BETA, torch.tensor([POPULATION]))[:, 0]
    torch.testing.assert_close(beta, (PHI_BETA @ model.theta_beta.mean(0)).exp())
    population = randomised("irleed")
    offsets_gone = -population.beta(PHI_BETA, torch.tensor([POPULATION]))[:, 0] * population.cost(PHI_R)
    torch.testing.assert_close(population.reward(PHI_R, PHI_BETA, torch.tensor([POPULATION]))[:, 0], offsets_gone)


def test_people_in_any_order_get_their_own_column() -> None:
    model = randomised("bsdr")
    whole = model.reward(PHI_R, PHI_BETA, EVERYONE)
    torch.testing.assert_close(model.reward(PHI_R, PHI_BETA, torch.tensor([3, 1])), whole[:, [3, 1]])


@pytest.mark.parametrize("kind", ["identity", "softplus", "exp"])
def test_links_invert(kind: str) -> None:
    link = Link(kind)  # type: ignore[arg-type]  # one of the three
    beta = torch.tensor([1e-3, 0.5, 1.0, 30.0, 400.0, 7000.0], dtype=torch.float64)
    torch.testing.assert_close(link(link.inverse(beta)), beta)
    raw = torch.tensor([-3.0, 0.0, 2.0])
    assert bool((link(raw) > 0).all()) == link.positive


def test_the_exp_link_is_smooth_and_does_not_overflow() -> None:
    link = Link("exp")
    raw = torch.tensor([0.0, 3.0, math.log(1000.0) - 1e-9, math.log(1000.0) + 1e-9, 50.0]).double().requires_grad_()
    (slope,) = torch.autograd.grad(link(raw).sum(), raw)
    torch.testing.assert_close(slope[:2], raw[:2].exp())
    torch.testing.assert_close(slope[3], slope[2])
    assert float(link(raw)[-1].detach()) < 1e5


def test_one_human_alone_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="one human alone cannot separate cost from rationality"):
        Rationality("bsdr", 1, 2, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "nonsense"}, "choose one of br, br_per_human, irleed, bsdr"),
        ({"num_humans": 0}, "at least one human"),
        ({"link": "cubic"}, "choose identity, softplus or exp"),
        ({"gauge": "none"}, "choose unit_norm or mean_one"),
        ({"gauge": "mean_one", "link": "identity"}, "positive link"),
    ],
)
def test_bad_settings_are_refused_with_a_reason(options: dict, message: str) -> None:
    settings = {"kind": "bsdr", "num_humans": 2, "reward_width": 2, "rationality_width": 2} | options
    with pytest.raises(ValueError, match=message):
        Rationality(**settings)


def test_gradients_reach_every_parameter() -> None:
    for kind in MODELS:
        model = randomised(kind)
        model.reward(PHI_R, PHI_BETA, EVERYONE).square().sum().backward()
        gradients: list[Tensor | None] = [parameter.grad for parameter in model.parameters()]
        assert all(g is not None and bool((g != 0).any()) for g in gradients)


def test_people_who_are_not_known_are_as_the_population_is_and_stand_for_nobody() -> None:
    torch.manual_seed(0)
    for kind in ("br_per_human", "irleed", "bsdr"):
        model = Rationality(kind, 4, 3, 2, "exp", "mean_one")
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        model.known.copy_(torch.tensor([True, False, True, True]))
        phi_R, phi_beta = torch.randn(6, 3), torch.randn(6, 2)
        everybody = torch.arange(4)
        beta = model.beta(phi_beta, everybody)
        torch.testing.assert_close(beta[:, model.known].mean(1), torch.ones(6))
        torch.testing.assert_close(beta[:, 1:2], model.beta(phi_beta, torch.tensor([POPULATION])))
        model.reward(phi_R, phi_beta, everybody).square().sum().backward()
        for parameter in (model.raw_theta_beta, model.raw_offset):
            if parameter is not None and parameter.grad is not None:
                assert not bool(parameter.grad[1].any())
                assert bool(parameter.grad[0].any())
