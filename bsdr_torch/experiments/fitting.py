"""Full-batch MAP fits, the inner loop of experiments."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from bsdr_torch import priors
from bsdr_torch.data.grid_people import RolloutData, grid_problem
from bsdr_torch.data.rollouts import Rollouts
from bsdr_torch.human_model import HumanModel
from bsdr_torch.objective import Evidence, map_loss
from bsdr_torch.rationality import RationalityKind
from bsdr_torch.soft_bellman import soft_values
from bsdr_torch.worlds.gridworld import GridWorld

GRADIENT_TOLERANCE = 1e-5  # length of the gradient of the loss per action, below which a fit has converged


def fit(data: RolloutData, rationality: RationalityKind, **model: Any) -> tuple[HumanModel, bool]:
    """The MAP model of the training rollouts in all worlds, in float64, and whether its gradient vanished."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the experiments fit one human on purpose
        people = HumanModel(data.specs, data.humans, rationality, **model).double()
    chunks = data.chunks("train").chunks
    converged = minimise(
        lambda: torch.stack([people.loss(chunk).total for chunk in chunks]).mean(), people.rationality.parameters()
    )
    return people.eval(), converged


def fit_each_alone(
    world: GridWorld, rollouts: Rollouts, num_humans: int, prior_scale: float = 5.0
) -> tuple[Tensor, bool]:
    """BR fitted to each person alone: weights beta_i theta_R of the cost, `[F_R, N]`, and whether all converged.

    Nobody's fit depends on anybody else's; they are solved side by side because the engine likes company. The prior
    is a normal around zero, the same for every weight of everybody.
    """
    weights = torch.zeros(world.reward_features.shape[1], num_humans, dtype=torch.float64, requires_grad=True)
    evidence = Evidence.of(rollouts, world.mdp, num_humans, world.horizon)
    phi_R, problem = world.reward_features.double(), grid_problem(world.mdp, world.horizon, torch.float64)

    def loss() -> Tensor:
        reward = -phi_R @ weights
        values = soft_values(world.mdp, reward, **problem)
        return map_loss(evidence, reward, values, priors.gaussian(weights, prior_scale)).total

    converged = minimise(loss, [weights])
    return weights.detach(), converged


def minimise(loss: Callable[[], Tensor], parameters: Iterable[torch.nn.Parameter | Tensor]) -> bool:
    """Moves the parameters to a minimum of the loss by L-BFGS; whether the gradient vanished there."""
    moved = list(parameters)
    optimizer = torch.optim.LBFGS(
        moved,
        max_iter=1000,
        max_eval=2000,
        tolerance_grad=GRADIENT_TOLERANCE / 10,
        tolerance_change=1e-14,  # the default gives up where a loss per action still has a gradient of 1e-5
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]  # torch's
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]  # torch's
    closure()
    return bool(torch.nn.utils.get_total_norm([p.grad for p in moved if p.grad is not None]) < GRADIENT_TOLERANCE)
