"""Shared goals: do the rewards of people with the same task agree? (paper, "Shared Goals")

BR is fitted to each person alone, so that nothing in the fit makes people agree. Tasks send people to landmarks. Some
people follow their task, so that those of one task share a goal; the others choose a landmark of their own, and then
the test must not find that those of one task agree.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from bsdr_torch.data.grid_people import simulate
from bsdr_torch.data.rollouts import Rollouts
from bsdr_torch.experiments import shared_goals_report
from bsdr_torch.experiments.derived_worlds import spread_cells, with_landmarks
from bsdr_torch.experiments.fitting import fit_each_alone
from bsdr_torch.experiments.reporting import Finding
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.experiments.simulated import WORLDS, draw_people
from bsdr_torch.experiments.statistics import group_test
from bsdr_torch.reward_distance import pairwise_regret, reward_distances
from bsdr_torch.worlds.gridworld import GridWorld

GOAL_COST = -1.0  # of a step on one's landmark, where terrain costs 0.1 to 1
PERMUTATIONS = 999


@dataclass(frozen=True)
class Case:
    """People of several tasks in one world, whose goals are those of their tasks (`shared`) or their `own`."""

    world: str
    goals: str
    dependence: float
    seed: int
    tasks: int = 4
    people_per_task: int = 6
    rollouts: int = 8


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    records = run_cases(settings.out, cases(settings), run_case, settings.workers)
    return shared_goals_report.write(settings, records)


def cases(settings: Run) -> list[Case]:
    """Worlds, goals that are shared or not, how state-dependent people are, seeds."""
    worlds, dependence = (("meadow", "orchard"), (1.0,)) if settings.quick else (WORLDS, (0.0, 1.0))
    return [Case(*case) for case in itertools.product(worlds, ("shared", "own"), dependence, range(settings.seeds))]


def run_case(case: Case) -> list[Record]:
    """Simulates people, fits BR to each alone, and tests whether those of one task have closer rewards."""
    generator = torch.Generator().manual_seed(9000 + case.seed)
    ground = GridWorld.load(case.world)
    world = with_landmarks(ground, spread_cells(ground, case.tasks, generator))
    people = case.tasks * case.people_per_task
    task = torch.arange(people) // case.people_per_task
    own = torch.randint(case.tasks, (people,), generator=generator)
    rollouts = walks_to(world, task if case.goals == "shared" else own, case, generator)
    weights, converged = fit_each_alone(world, rollouts, people)

    random = torch.randn(weights.shape, generator=generator, dtype=torch.float64)
    phi_R = world.reward_features.double()
    reward = -phi_R @ torch.cat([weights, random], dim=1)
    tables = {
        "distance": reward_distances(world.mdp, reward, discount=1 - 1 / world.horizon),
        "regret": pairwise_regret(world.mdp, reward, world.horizon),
    }
    records: list[Record] = []
    for measure, table in tables.items():
        test = group_test(table[:people, :people], task, PERMUTATIONS, generator)
        to_random = (table[:people, people:].mean() + table[people:, :people].mean()) / 2
        scores = test._asdict() | {"to_random": float(to_random), "rejected": float(test.p <= 0.05)}
        records.append({"measure": measure, **scores, "converged": converged})
    return records


def walks_to(world: GridWorld, goal: Tensor, case: Case, generator: torch.Generator) -> Rollouts:
    """Rollouts of people who share the costs of terrain, and whose goals are landmarks `[N]`."""
    truth = draw_people(world, len(goal), case.dependence, generator)
    first = world.reward_feature_names.index("landmark 0")
    parts = []
    for landmark in range(case.tasks):
        theta_R = truth.theta_R.clone()
        theta_R[first + landmark] = GOAL_COST
        who = (goal == landmark).nonzero().flatten()
        if len(who) > 0:
            walked = simulate(
                world, truth._replace(theta_R=theta_R, theta_beta=truth.theta_beta[who]), case.rollouts, generator
            )
            parts.append(Rollouts(who[walked.human], walked.states, walked.actions))
    fields = ("human", "states", "actions")
    return Rollouts(*(torch.cat([getattr(part, field) for part in parts]) for field in fields))
