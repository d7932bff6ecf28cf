"""Rationality models: how the shared cost and a person's rationality make the person's reward.

All say r_i(s) = -beta_i(s) c_i(s) and differ in what may vary:

    br             one beta for all people
    br_per_human   beta_i
    irleed         beta_i, and a cost weight theta_R + offset_i for each person
    bsdr           beta_i(s) = link(theta_beta[i] . phi_beta(s))

Only the product beta c enters a likelihood, so each model pins a gauge:

    unit_norm   |theta_R| = 1; with the identity link also sum theta_beta >= 0, which fixes the common sign.
                For fixed features, where nothing but a common factor is free.
    mean_one    the population mean of beta_i(s) is 1 in every state. For learned features, where any
                g(s) > 0 could move from one factor to the other.

Offsets of `irleed` have mean zero over people.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

RationalityKind = Literal["br", "br_per_human", "irleed", "bsdr"]
Gauge = Literal["unit_norm", "mean_one"]
LinkKind = Literal["identity", "softplus", "exp"]

POPULATION = -1
"""The index of a person who was never seen: the population's mean parameters."""


class Varies(NamedTuple):
    """What a rationality model lets vary."""

    by_human: bool
    by_state: bool
    cost_by_human: bool


MODELS: dict[str, Varies] = {
    "br": Varies(by_human=False, by_state=False, cost_by_human=False),
    "br_per_human": Varies(by_human=True, by_state=False, cost_by_human=False),
    "irleed": Varies(by_human=True, by_state=False, cost_by_human=True),
    "bsdr": Varies(by_human=True, by_state=True, cost_by_human=False),
}


_EXP_LIMIT = math.log(1000.0)


class Link(nn.Module):
    """From theta . phi to beta: `identity`, or `softplus` and `exp`, which keep beta positive.

    Above beta = 1000, where people are as good as perfect, `exp` goes on as its tangent, so that a bold step of an
    optimiser cannot overflow.
    """

    def __init__(self, kind: LinkKind) -> None:
        super().__init__()
        if kind not in ("identity", "softplus", "exp"):
            raise ValueError(f"unknown link {kind!r}: choose identity, softplus or exp")
        self.kind = kind

    @property
    def positive(self) -> bool:
        """Whether beta is positive whatever theta is."""
        return self.kind != "identity"

    def forward(self, raw: Tensor) -> Tensor:
        """beta of theta . phi."""
        if self.kind == "softplus":
            return functional.softplus(raw)
        if self.kind == "exp":
            return raw.clamp(max=_EXP_LIMIT).exp() * (1 + (raw - _EXP_LIMIT).clamp(min=0))
        return raw

    def inverse(self, beta: Tensor) -> Tensor:
        """theta . phi of beta > 0."""
        if self.kind == "softplus":
            return beta + (-torch.expm1(-beta)).log()
        if self.kind == "exp":
            limit = math.exp(_EXP_LIMIT)
            return beta.clamp(max=limit).log() + (beta / limit - 1).clamp(min=0)
        return beta


class Rationality(nn.Module):
    """One of the rationality models, as parameters and three functions of features.

    `humans` arguments are indices `[B]` of people; `POPULATION` stands for somebody never seen.

    Attributes:
        known: `[N]` bool, who is learned from; others are as the population is, and their parameters do nothing.

    Example:
        >>> model = Rationality("bsdr", num_humans=3, reward_width=2, rationality_width=2)
        >>> phi = torch.eye(2)
        >>> model.reward(phi, phi, torch.tensor([0, 2, POPULATION])).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        kind: RationalityKind,
        num_humans: int,
        reward_width: int,
        rationality_width: int,
        link: LinkKind = "exp",
        gauge: Gauge = "unit_norm",
    ) -> None:
        super().__init__()
        if kind not in MODELS:
            raise ValueError(f"unknown rationality model {kind!r}: choose one of {', '.join(MODELS)}")
        if num_humans < 1:
            raise ValueError(f"a model needs at least one human, got {num_humans}")
        if gauge not in ("unit_norm", "mean_one"):
            raise ValueError(f"unknown gauge {gauge!r}: choose unit_norm or mean_one")
        self.kind, self.varies = kind, MODELS[kind]
        self.gauge, self.link, self.num_humans = gauge, Link(link), num_humans
        if gauge == "mean_one" and not self.link.positive:
            raise ValueError(
                "the gauge mean_one divides by a mean of beta, which needs a positive link: softplus or exp"
            )
        if num_humans == 1 and self.varies.by_state:
            warnings.warn(
                "one human alone cannot separate cost from rationality: the fitted product beta(s) c(s) is "
                "meaningful, the two factors are not. Add people who share the cost, or use rationality=br",
                stacklevel=2,
            )
        rows = num_humans if self.varies.by_human else 1
        width = rationality_width if self.varies.by_state else 1
        # beta = 1 in a state with one active feature, and a cost that weighs all features alike.
        start = float(self.link.inverse(torch.tensor(1.0, dtype=torch.float64)))
        self.raw_theta_beta = nn.Parameter(torch.full((rows, width), start))
        self.raw_theta_R = nn.Parameter(torch.full((reward_width,), 1.0 / math.sqrt(reward_width)))
        self.raw_offset = nn.Parameter(torch.zeros(num_humans, reward_width)) if self.varies.cost_by_human else None
        self.register_buffer("known", torch.ones(num_humans, dtype=torch.bool))
        self.known: Tensor
        # theta_beta [F_beta] of somebody never seen, if more is known of them than of the population.
        self.newcomer: Tensor | None = None

    @property
    def theta_R(self) -> Tensor:
        """The weights of the cost in the gauge, `[F_R]`."""
        if self.gauge == "mean_one":
            return self.raw_theta_R
        return self._sign() * functional.normalize(self.raw_theta_R, dim=0)

    @property
    def theta_beta(self) -> Tensor:
        """The weights of rationality in the gauge, `[N or 1, F_beta or 1]`, before the link."""
        return self._sign() * self.raw_theta_beta

    @property
    def offset(self) -> Tensor | None:
        """What each person adds to theta_R, `[N, F_R]`; None but for `irleed`."""
        if self.raw_offset is None:
            return None
        mean = self.raw_offset[self.known].mean(0)
        return self._sign() * torch.where(self.known[:, None], self.raw_offset - mean, 0.0)

    @property
    def population(self) -> Tensor:
        """theta_beta of somebody never seen, `[F_beta or 1]`: the mean of those who are known."""
        return self._learned().mean(0)

    def cost(self, phi_R: Tensor) -> Tensor:
        """c(s), shared by all people, `[S]`."""
        return phi_R @ self.theta_R

    def beta(self, phi_beta: Tensor, humans: Tensor) -> Tensor:
        """beta_i(s), `[S, B]`."""
        if not self.varies.by_state:
            phi_beta = phi_beta.new_ones(phi_beta.shape[0], 1)
        theta = self.theta_beta
        newcomer = self.population if self.newcomer is None else self.newcomer
        everybody = torch.where(self.known[:, None], theta, self.population)
        beta: Tensor = self.link(phi_beta @ torch.cat([everybody, newcomer[None]])[humans].T)
        if self.gauge == "mean_one":
            beta = beta / self.link(phi_beta @ self._learned().T).mean(1, keepdim=True)
        return beta

    def reward(self, phi_R: Tensor, phi_beta: Tensor, humans: Tensor) -> Tensor:
        """r_i(s) = -beta_i(s) c_i(s), `[S, B]`."""
        cost = self.cost(phi_R)[:, None]
        offset = self.offset
        if offset is not None:
            cost = cost + phi_R @ torch.cat([offset, torch.zeros_like(offset[:1])])[humans].T
        return -self.beta(phi_beta, humans) * cost

    def _learned(self) -> Tensor:
        """theta_beta of those who are known, or the one that is everybody's."""
        return self.theta_beta[self.known] if self.varies.by_human else self.theta_beta

    def _sign(self) -> Tensor:
        """-1 where the identity link left both factors negative, else 1; without effect on their product."""
        one = self.raw_theta_beta.new_ones(())
        return one if self.link.positive else torch.where(self.raw_theta_beta.sum() < 0, -one, one)
