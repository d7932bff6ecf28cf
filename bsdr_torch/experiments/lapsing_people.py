"""Simulated people who are unreliable in places, but not by the rule of BSDR: now and then they act at random."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from bsdr_torch.data.grid_people import Truth, grid_problem
from bsdr_torch.data.rollouts import Rollouts
from bsdr_torch.experiments.simulated import MEDIAN_BETA, draw_people, taken_log_probs
from bsdr_torch.soft_bellman import action_log_probs, soft_values
from bsdr_torch.worlds.gridworld import GridWorld

LAPSE_LOGIT = -1.5  # of the median person: a random action in 18 % of steps


class LapsingPeople(NamedTuple):
    """People who plan with one beta each, and act at random in some places more often than in others.

    They do not know of it when they plan. It is how ILEED sees people.

    Attributes:
        truth: their cost and their beta.
        lapses: `[S, N]`, the probability of a random action in each state.
    """

    truth: Truth
    lapses: Tensor

    def mixed(self, planned: Tensor, states: Tensor, humans: Tensor, num_actions: int) -> Tensor:
        """log P `[M, ..]` of actions that are planned with log P `planned`, at states and humans `[M]`."""
        lapses = self.lapses[states, humans].view(-1, *[1] * (planned.ndim - 1))
        return torch.logaddexp(planned + torch.log1p(-lapses), (lapses / num_actions).log())


def draw_lapsing_people(world: GridWorld, humans: int, dependence: float, generator: torch.Generator) -> LapsingPeople:
    """People who share a cost; `dependence` is the standard deviation, within a person, of the logit of lapses."""
    truth = draw_people(world, humans, 0.0, generator)
    tilt = draw_people(world, humans, dependence, generator, level_spread=0.0).theta_beta.log() - math.log(MEDIAN_BETA)
    logit = LAPSE_LOGIT + world.rationality_features.double() @ tilt.double().T
    return LapsingPeople(truth, torch.sigmoid(logit))


def simulate_lapsing(world: GridWorld, people: LapsingPeople, rollouts: int, generator: torch.Generator) -> Rollouts:
    """`rollouts` of each of the people, sampled step by step."""
    mdp, problem = world.mdp, grid_problem(world.mdp, world.horizon, torch.float64)
    values = soft_values(mdp, people.truth.reward(world), **problem)
    humans = torch.arange(people.lapses.shape[1]).repeat_interleave(rollouts)
    state = torch.multinomial(mdp.start, len(humans), replacement=True, generator=generator)
    going = torch.ones_like(humans, dtype=torch.bool)
    states, actions = [state], []
    for t in range(world.horizon):
        if mdp.terminal is not None:
            going = going & ~mdp.terminal[state]
        planned = action_log_probs(mdp, values, state, humans, torch.full_like(state, t), **problem)
        policy = people.mixed(planned, state, humans, mdp.num_actions).exp()
        action = torch.multinomial(policy, 1, generator=generator).squeeze(1)
        outcomes = mdp.next_state[state, action].long()
        chance = torch.ones(outcomes.shape) if mdp.probability is None else mdp.probability[state, action]
        outcome = torch.multinomial(chance, 1, generator=generator)
        state = outcomes.gather(1, outcome).squeeze(1)
        states.append(torch.where(going, state, -1))
        actions.append(torch.where(going, action, -1))
    return Rollouts(humans, torch.stack(states, dim=1), torch.stack(actions, dim=1))


def lapsing_log_probs(world: GridWorld, people: LapsingPeople, rollouts: Rollouts) -> Tensor:
    """log P of every action taken, `[R, L]`, 0 after the end of a rollout."""
    planned = taken_log_probs(world, people.truth.reward(world), rollouts)
    steps = rollouts.steps()
    taken = planned[steps.rollout, steps.step]
    planned[steps.rollout, steps.step] = people.mixed(taken, steps.state, steps.human, world.mdp.num_actions)
    return planned
