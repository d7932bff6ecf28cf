"""The posterior over a grid of theta_R and theta_beta values (paper, figure "posteriors")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor

from bsdr_torch.mdp import TabularMDP
from bsdr_torch.objective import Evidence
from bsdr_torch.soft_bellman import Problem, initial_values, soft_values


@dataclass(frozen=True)
class GridPosterior:
    """A normalised posterior over theta_R (G values, shared) and theta_beta (H values, one for each human).

    Attributes:
        log_likelihood: `[N, G, H]`, of each human's rollouts under each pair of values.
        log_prior_R: `[G]`, normalised.
        log_prior_beta: `[H]`, normalised.
    """

    log_likelihood: Tensor
    log_prior_R: Tensor
    log_prior_beta: Tensor

    @property
    def theta_R(self) -> Tensor:
        """log P(theta_R | all rollouts), `[G]`: every human's theta_beta summed out."""
        return torch.log_softmax(self.log_prior_R + self._evidence_of_R().sum(0), dim=0)

    @property
    def joint(self) -> Tensor:
        """log P(theta_R, theta_beta[i] | all rollouts), `[N, G, H]`: the other humans' theta_beta summed out."""
        given_R = self.log_likelihood + self.log_prior_beta - self._evidence_of_R()[..., None]
        return self.theta_R[:, None] + given_R

    @property
    def theta_beta(self) -> Tensor:
        """log P(theta_beta[i] | all rollouts), `[N, H]`."""
        return torch.logsumexp(self.joint, dim=1)

    def _evidence_of_R(self) -> Tensor:
        """log P(rollouts of i | theta_R), `[N, G]`."""
        return torch.logsumexp(self.log_likelihood + self.log_prior_beta, dim=2)


@torch.no_grad()
def grid_posterior(
    mdp: TabularMDP,
    evidence: Evidence,
    num_humans: int,
    phi_R: Tensor,
    phi_beta: Tensor,
    theta_R: Tensor,
    theta_beta: Tensor,
    link: Callable[[Tensor], Tensor] = lambda raw: raw,
    log_prior_R: Tensor | None = None,
    log_prior_beta: Tensor | None = None,
    chunk: int = 512,
    progress: Callable[[range], range] = lambda hypotheses: hypotheses,
    **problem: Unpack[Problem],
) -> GridPosterior:
    """The posterior over all pairs of `theta_R [G, F_R]` and `theta_beta [H, F_beta]`; flat priors by default.

    Hypotheses are the columns of the engine, `chunk` of them at a time; `progress` may wrap the loop over chunks
    (a tqdm).
    """
    for name, phi, theta in (("R", phi_R, theta_R), ("beta", phi_beta, theta_beta)):
        if theta.ndim != 2 or theta.shape[1] != phi.shape[1]:
            raise ValueError(
                f"theta_{name} must be [values, {phi.shape[1]}], one column per feature, got {tuple(theta.shape)}"
            )
    cost, beta = phi_R @ theta_R.T, link(phi_beta @ theta_beta.T)  # [S, G], [S, H]
    G, H = theta_R.shape[0], theta_beta.shape[0]
    log_likelihood = cost.new_empty(num_humans, G * H)
    for first in progress(range(0, G * H, chunk)):
        pair = torch.arange(first, min(first + chunk, G * H), device=cost.device)
        reward = -cost[:, pair // H] * beta[:, pair % H]
        solve = soft_values if evidence.needs_all_steps else _first_values
        log_likelihood[:, pair] = evidence.under_hypotheses(reward, solve(mdp, reward, **problem), num_humans)
    return GridPosterior(
        log_likelihood.view(num_humans, G, H),
        _normalised(log_prior_R, G, cost),
        _normalised(log_prior_beta, H, cost),
    )


def _first_values(mdp: TabularMDP, reward: Tensor, **problem: Unpack[Problem]) -> Tensor:
    return initial_values(mdp, reward, **problem)[None]


def _normalised(log_prior: Tensor | None, size: int, like: Tensor) -> Tensor:
    log_prior = like.new_zeros(size) if log_prior is None else log_prior
    if tuple(log_prior.shape) != (size,):
        raise ValueError(f"a prior over {size} values must have shape ({size},), got {tuple(log_prior.shape)}")
    return torch.log_softmax(log_prior, dim=0)
