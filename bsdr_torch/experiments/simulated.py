"""Simulated people, more or less state-dependent, and their rollouts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bsdr_torch.data.grid_people import Parts, RolloutData, Truth, grid_problem, simulate
from bsdr_torch.data.rollouts import Rollouts
from bsdr_torch.human_model import HumanModel
from bsdr_torch.soft_bellman import action_log_probs, soft_values
from bsdr_torch.worlds.gridworld import GridWorld

WORLDS = ("meadow", "orchard", "maze", "frozen_lake")
MEDIAN_BETA = 2.0
LEVEL_SPREAD = 0.5  # standard deviation of log beta between people


def draw_people(
    world: GridWorld,
    humans: int,
    dependence: float,
    generator: torch.Generator,
    common: bool = False,
    level_spread: float = LEVEL_SPREAD,
) -> Truth:
    """People who share a cost, each with a level of rationality and, by `dependence`, a rationality for each feature.

    `dependence` is the standard deviation of log beta between the features of one person; at 0 beta is constant.
    The same generator gives people who differ in nothing else, whatever the dependence. If it is `common`, all are
    more rational in the same places, and differ in their level only.
    """
    theta_R = torch.rand(world.reward_features.shape[1], generator=generator) * 0.9 + 0.1
    level = level_spread * torch.randn(humans, 1, generator=generator)
    features = world.rationality_features.shape[1]
    tilt = torch.randn(humans, features, generator=generator)
    tilt = (tilt - tilt.mean(1, keepdim=True)) / math.sqrt((features - 1) / features)
    if common:
        tilt = tilt[:1].expand_as(tilt)
    return Truth(theta_R, MEDIAN_BETA * torch.exp(level + dependence * tilt))


def watch(worlds: Sequence[GridWorld], truth: Truth, train: int, test: int, generator: torch.Generator) -> RolloutData:
    """`train` and `test` rollouts of each person in each world, sampled step by step."""
    parts = {}
    for world in worlds:
        seen = simulate(world, truth, train, generator)
        nothing = seen.select(torch.arange(0))
        unseen = simulate(world, truth, test, generator) if test else nothing
        parts[world.name] = Parts(seen, validation=nothing, test=unseen)
    return RolloutData(worlds, [f"human {i}" for i in range(len(truth.theta_beta))], parts, truth=truth)


@torch.no_grad()
def reward_in(model: HumanModel, world: GridWorld, humans: Tensor) -> Tensor:
    """r_i(s) of `humans [B]` in a world that need not be among those the model was fitted in, `[S, B]`."""
    phi_R, phi_beta = world.reward_features.double(), world.rationality_features.double()
    return model.rationality.reward(phi_R, phi_beta, humans)


@torch.no_grad()
def taken_log_probs(world: GridWorld, reward: Tensor, rollouts: Rollouts) -> Tensor:
    """log P of every action taken by people with rewards `[S, N]`, `[R, L]`, 0 after the end of a rollout.

    Where the world would have ended before the action, the action is impossible: -inf.
    """
    problem = grid_problem(world.mdp, world.horizon, torch.float64)
    values = soft_values(world.mdp, reward, **problem)
    steps = rollouts.steps()
    every = action_log_probs(world.mdp, values, steps.state, steps.human, steps.step, **problem)
    return on_rollouts(world, every, rollouts)


def on_rollouts(world: GridWorld, log_probs: Tensor, rollouts: Rollouts) -> Tensor:
    """Of log P(action) `[N, A]` at all steps of the rollouts, those of the actions taken, `[R, L]`."""
    steps = rollouts.steps()
    taken = log_probs.gather(1, steps.action[:, None]).squeeze(1)
    if world.mdp.terminal is not None:
        taken = torch.where(world.mdp.terminal[steps.state], -torch.inf, taken)
    table = taken.new_zeros(rollouts.actions.shape)
    table[steps.rollout, steps.step] = taken
    return table


def cross_entropy(taken: Tensor, rollouts: Rollouts) -> float:
    """Nats per step of log-probabilities `[R, L]`: averaged in each rollout, then over rollouts."""
    lengths = (rollouts.actions >= 0).sum(1)
    acted = lengths > 0
    return float(-(taken.sum(1)[acted] / lengths[acted]).mean())
