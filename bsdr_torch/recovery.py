"""How close learned parameters come to known ones, in measures that no choice of gauge can change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from bsdr_torch.data.grid_people import StepBatch, Truth, grid_problem
from bsdr_torch.objective import visit_counts
from bsdr_torch.soft_bellman import action_log_probs, optimal_policy, policy_return, soft_values, visitation
from bsdr_torch.worlds.gridworld import GridWorld


class Recovery(NamedTuple):
    """Gauge-invariant errors of a fitted model.

    Attributes:
        theta_R_cosine: of the learned and the true weights of the cost.
        beta_relative_error: mean over people and the states they visited, weighted by visits, of
            |beta - true beta| / true beta, with |theta_R| = 1 in both.
        regret: what the policy that is best for the learned cost loses by the true cost, as a share of
            what acting at random loses; 0 is perfect.
    """

    theta_R_cosine: float
    beta_relative_error: float
    regret: float


class TrueModel:
    """Predicts with the parameters of simulated people: what no model can beat but by luck."""

    def __init__(self, worlds: Mapping[str, GridWorld], truth: Truth) -> None:
        self._worlds, self._truth = worlds, truth

    @torch.no_grad()
    def action_log_probs(self, batch: StepBatch) -> Tensor:
        """log P(action) at each decision, `[N, A]`."""
        world = self._worlds[batch.world]
        problem = grid_problem(world.mdp, world.horizon, torch.float64)
        values = soft_values(world.mdp, self._truth.reward(world), **problem)
        return action_log_probs(world.mdp, values, batch.states, batch.humans, batch.steps, **problem)


@torch.no_grad()
def recovery(
    world: GridWorld, truth: Truth, theta_R: Tensor, beta: Tensor, visited: Tensor, humans: Tensor
) -> Recovery:
    """Compares `theta_R [F_R]` and `beta [S, N]` with the truth, over the states `visited [M]` by `humans [M]`."""
    theta_R, beta, true_R = theta_R.double(), beta.double(), truth.theta_R.double()
    counts = visit_counts(visited, humans, *beta.shape)
    true_beta = truth.beta(world) * true_R.norm()
    error = (beta * theta_R.norm() - true_beta).abs() / true_beta.abs()
    error = torch.where(counts > 0, error, 0.0)  # elsewhere beta may be 0, as on goals
    return Recovery(
        theta_R_cosine=float(torch.cosine_similarity(theta_R, true_R, dim=0)),
        beta_relative_error=float((error * counts).sum() / counts.sum()),
        regret=regret(world, world.reward_features.double() @ theta_R, truth.cost(world)),
    )


def regret(world: GridWorld, learned_cost: Tensor, true_cost: Tensor) -> float:
    """(best - achieved) / (best - random): returns under the true cost `[S]`, from the start distribution."""
    mdp, horizon, reward = world.mdp, world.horizon, -true_cost[:, None]
    best = optimal_policy(mdp, reward, horizon=horizon)[0][0]
    _, actions = optimal_policy(mdp, -learned_cost[:, None], horizon=horizon)
    achieved = policy_return(mdp, reward, actions, horizon=horizon)
    start = mdp.start.double()
    at_random = visitation(mdp, torch.zeros_like(reward), **grid_problem(mdp, horizon, reward.dtype)) * reward
    return float(start @ (best - achieved) / (start @ best - at_random.sum()))
