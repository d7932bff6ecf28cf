"""Full-batch MAP fits, the inner loop of experiments."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import nll_loss

from bsdr_torch import priors
from bsdr_torch.baselines.ileed import mixture_log_probs
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


def fit_networks(
    data: RolloutData,
    rationality: RationalityKind,
    seed: int,
    weight_scale: float,
    steps: int = 150,
    learning_rate: float = 0.05,
    **model: Any,
) -> HumanModel:
    """A model of the training rollouts whose features are networks, after some steps of Adam on all data at once.

    Everything is MAP as in `fit`, and the weights of the networks have a normal prior around zero with standard
    deviation `weight_scale`, which enters as weight decay. `seed` is that of the weights that the fit starts from.
    """
    chunks = data.chunks("train").chunks
    decay = 1 / (weight_scale**2 * chunks[0].total_actions)  # the loss is per action
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        people = HumanModel(
            data.specs,
            data.humans,
            rationality,
            features="mlp",
            learning_rate=learning_rate,
            weight_decay=decay,
            **model,
        ).double()
    optimizer = people.configure_optimizers()
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.stack([people.loss(chunk).total for chunk in chunks]).mean().backward()  # type: ignore[no-untyped-call]  # torch's
        optimizer.step()
        schedule.step()
    return people.eval()


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


class FittedILEED(NamedTuple):
    """ILEED in one world.

    Attributes:
        log_probs: `[S, N, A]`, log P_i(a|s).
        expertise: `[S, N]`, rho_i(s).
        converged: whether the gradient vanished.
    """

    log_probs: Tensor
    expertise: Tensor
    converged: bool


def fit_ileed(
    world: GridWorld, rollouts: Rollouts, num_humans: int, policy_scale: float = 2.0, prior_scale: float = 2.0
) -> FittedILEED:
    """ILEED of the people in some rollouts; see `bsdr_torch.baselines.ileed`.

    The policy is a table, with a normal prior on its logits; what expertise depends on are the features that BSDR's
    rationality is given. omega has a normal prior around an expertise of 0.95, where the fit starts. The scales were
    the best of four pairs on people who are in no experiment.
    """
    mdp, steps, phi = world.mdp, rollouts.steps(), world.rationality_features.double()
    start = math.log(0.95 / 0.05)  # the features of a state sum to 1
    logits = torch.zeros(mdp.num_states, mdp.num_actions, dtype=torch.float64, requires_grad=True)
    omega = torch.full((num_humans, phi.shape[1]), start, dtype=torch.float64, requires_grad=True)

    def loss() -> Tensor:
        skill = (phi[steps.state] * omega[steps.human]).sum(1)
        log_probs = mixture_log_probs(logits.log_softmax(1)[steps.state], skill)
        log_prior = priors.gaussian(logits, policy_scale) + priors.gaussian(omega - start, prior_scale)
        return nll_loss(log_probs, steps.action) - log_prior / len(steps.action)

    converged = minimise(loss, [logits, omega])
    with torch.no_grad():
        skill = phi @ omega.T
        log_probs = mixture_log_probs(logits.log_softmax(1).repeat_interleave(num_humans, 0), skill.flatten())
    return FittedILEED(log_probs.view(*skill.shape, -1), skill.sigmoid(), converged)


def minimise(
    loss: Callable[[], Tensor],
    parameters: Iterable[torch.nn.Parameter | Tensor],
    tolerance: float = GRADIENT_TOLERANCE,
) -> bool:
    """Moves the parameters to a minimum of the loss by L-BFGS; whether the gradient vanished there."""
    moved = list(parameters)
    optimizer = torch.optim.LBFGS(
        moved,
        max_iter=1000,
        max_eval=2000,
        tolerance_grad=tolerance / 10,
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
    return bool(torch.nn.utils.get_total_norm([p.grad for p in moved if p.grad is not None]) < tolerance)
