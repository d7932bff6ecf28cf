"""The likelihood of rollouts and the MAP loss (paper, eq. MLE).

A rollout s_0 a_0 s_1 ... of human i has, in a deterministic world, the log-likelihood

    sum_t log pi_t(a_t|s_t) = sum_t [ r_i(s_t) + discount V_{t+1}(s_{t+1}) - V_t(s_t) ]

which without a discount telescopes to sum_t r_i(s_t) - log Z_i(s_0) for a whole rollout, and to that plus
V_L(s_L) for one that was cut after L steps. In a stochastic world the same expression is the objective of maximum
causal entropy. So the rollouts enter through two sums only: the visited states, and the states that V is taken at.
With a base measure b all of this is relative to it: the constant sum_t log b(a_t|s_t) is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bsdr_torch.data.rollouts import Rollouts
from bsdr_torch.mdp import TabularMDP


def visit_counts(states: Tensor, humans: Tensor, num_states: int, num_humans: int) -> Tensor:
    """How often each human was in each state, rho^i(s), `[S, B]` float64, from visits `[N]` of humans `[N]`."""
    flat = torch.bincount(states * num_humans + humans, minlength=num_states * num_humans)
    return flat.view(num_states, num_humans).double()


def feature_counts(visits: Tensor, phi_R: Tensor, phi_beta: Tensor) -> Tensor:
    """Phi = sum_s rho(s) phi_beta(s) phi_R(s)^T of each human, `[B, F_beta, F_R]`, from visits `[S, B]`."""
    return torch.einsum("sb,sf,sg->bfg", visits, phi_beta, phi_R)


def reward_from_feature_counts(Phi: Tensor, theta_R: Tensor, theta_beta: Tensor) -> Tensor:
    """sum_s r_i(s) = -theta_beta[i]^T Phi_i theta_R, `[B]`: the paper's form, for the identity link."""
    return -torch.einsum("bf,bfg,g->b", theta_beta, Phi, theta_R)


def reward_from_visits(visits: Tensor, reward: Tensor) -> Tensor:
    """sum_s rho^i(s) r_i(s), `[B]`: for much data in few states."""
    return (visits.to(reward.dtype) * reward).sum(0)


def reward_from_steps(states: Tensor, humans: Tensor, reward: Tensor) -> Tensor:
    """The sum of r_i(s) over visits `[N]`, `[B]`: for little data in many states."""
    return reward.new_zeros(reward.shape[1]).index_add(0, humans, reward[states, humans])


@dataclass
class Evidence:
    """What the likelihood needs to know of rollouts in one world.

    Attributes:
        states: `[N]` the visits that earn a reward, and whose they are (`humans [N]`, columns of the reward);
            None where counts are fewer than visits.
        visits: `[S, B]` the same as counts; None where visits are fewer than counts.
        value_steps: `[M]` with `value_states` and `value_humans`: where V enters, times `value_weights`.
        num_actions: how many decisions the rollouts hold.
    """

    states: Tensor | None
    humans: Tensor | None
    visits: Tensor | None
    value_steps: Tensor
    value_states: Tensor
    value_humans: Tensor
    value_weights: Tensor
    num_actions: int

    @staticmethod
    def of(
        rollouts: Rollouts, mdp: TabularMDP, num_humans: int, horizon: int | None = None, discount: float = 1.0
    ) -> Evidence:
        """The evidence in `rollouts` for a problem with this horizon or discount.

        Of the two ways to sum rewards, over visits or over counts of visits, it takes the smaller one.
        """
        steps = rollouts.steps()
        states, humans = _visited(rollouts, mdp, horizon, discount)
        terms = [
            (steps.step, steps.state, steps.human, -torch.ones(len(steps.state), dtype=torch.float64)),
            (
                steps.step + 1,
                rollouts.states[steps.rollout, steps.step + 1],
                steps.human,
                torch.full((len(steps.state),), discount, dtype=torch.float64),
            ),
        ]
        step, state, human, weight = (torch.cat(parts) for parts in zip(*terms, strict=True))
        if horizon is None:
            step = torch.zeros_like(step)
        keep = torch.ones_like(step, dtype=torch.bool) if horizon is None else step < horizon  # V_T = 0
        if mdp.terminal is not None and discount == 1.0:
            keep &= ~mdp.terminal[state]  # its V is its reward, which is counted as a visit
        rows = torch.stack([step, state, human], dim=1)[keep]
        places, where = torch.unique(rows, dim=0, return_inverse=True)
        total = torch.zeros(len(places), dtype=torch.float64).index_add_(0, where, weight[keep])
        left = total.abs() > 1e-9  # without a discount all but the first and a cut last state cancel
        by_counts = mdp.num_states * num_humans <= len(states)
        return Evidence(
            states=None if by_counts else states,
            humans=None if by_counts else humans,
            visits=visit_counts(states, humans, mdp.num_states, num_humans) if by_counts else None,
            value_steps=places[left, 0],
            value_states=places[left, 1],
            value_humans=places[left, 2],
            value_weights=total[left],
            num_actions=len(steps.state),
        )

    @property
    def needs_all_steps(self) -> bool:
        """Whether V is needed at other steps than the first."""
        return bool((self.value_steps > 0).any())

    def reward_sums(self, reward: Tensor) -> Tensor:
        """The sum of rewards of each human's rollouts, `[B]`, from the reward `[S, B]`."""
        if self.visits is not None:
            return reward_from_visits(self.visits, reward)
        assert self.states is not None
        assert self.humans is not None
        return reward_from_steps(self.states, self.humans, reward)

    def value_sums(self, values: Tensor) -> Tensor:
        """The weighted sum of V of each human's rollouts, `[B]`, from values `[T+1, S, B]` or only `[1, S, B]`."""
        at = values[self.value_steps, self.value_states, self.value_humans]
        return values.new_zeros(values.shape[2]).index_add(
            0, self.value_humans, at * self.value_weights.to(values.dtype)
        )

    def under_hypotheses(self, reward: Tensor, values: Tensor, num_humans: int) -> Tensor:
        """Log-likelihood `[B, C]` of each human's rollouts when all act by each of C hypotheses.

        Here the columns of `reward [S, C]` and `values [.., S, C]` are hypotheses, not humans.
        """
        out = reward.new_zeros(num_humans, reward.shape[1])
        if self.visits is not None:
            out += self.visits.to(reward.dtype).T @ reward
        else:
            assert self.states is not None
            assert self.humans is not None
            out.index_add_(0, self.humans, reward[self.states])
        at = values[self.value_steps, self.value_states]
        return out.index_add_(0, self.value_humans, at * self.value_weights.to(values.dtype)[:, None])


class MapLoss(NamedTuple):
    """The negative log posterior and its parts, per action: total = data + log_z + prior."""

    total: Tensor
    data: Tensor
    log_z: Tensor
    prior: Tensor


def map_loss(
    evidence: Evidence,
    reward: Tensor,
    values: Tensor,
    log_prior: Tensor,
    num_chunks: int = 1,
    total_actions: int | None = None,
) -> MapLoss:
    """The MAP objective per action, from the rewards `[S, B]` and the values of `soft_values` or `initial_values`.

    Where the rollouts are one of `num_chunks` parts of data with `total_actions` actions, the mean of the losses
    of all parts is the loss of the whole.
    """
    total = max(evidence.num_actions if total_actions is None else total_actions, 1)
    data = -evidence.reward_sums(reward).sum() * num_chunks / total
    log_z = -evidence.value_sums(values).sum() * num_chunks / total
    prior = -log_prior / total
    return MapLoss(data + log_z + prior, data, log_z, prior)


def _visited(rollouts: Rollouts, mdp: TabularMDP, horizon: int | None, discount: float) -> tuple[Tensor, Tensor]:
    """The visits that earn a reward: states where an action is taken, and a terminal state entered in time.

    With a discount the terminal state's reward comes through its V instead, which is discounted.
    """
    states = rollouts.states
    earns = torch.zeros_like(states, dtype=torch.bool)
    earns[:, : rollouts.actions.shape[1]] = rollouts.actions >= 0
    if mdp.terminal is not None and discount == 1.0:
        entered = (states >= 0) & mdp.terminal[states.clamp(min=0)]
        entered[:, 0] = False  # nobody acted to get there
        if horizon is not None:
            entered[:, horizon:] = False
        earns |= entered
    rollout, step = earns.nonzero(as_tuple=True)
    return states[rollout, step], rollouts.human[rollout]
