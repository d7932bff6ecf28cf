"""Generalization of learned rewards: is the learned cost good to act by? (paper, "Generalization of Learned Rewards")

The best policy for the learned cost is judged by the true one, in the world it was learned in and with goals that
nobody was seen to walk to; and the returns that the learned cost predicts for people's rollouts by the true returns.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bsdr_torch.data.grid_people import Parts, RolloutData, Truth
from bsdr_torch.data.rollouts import Rollouts
from bsdr_torch.experiments import reward_generalization_report
from bsdr_torch.experiments.derived_worlds import spread_cells, with_goal
from bsdr_torch.experiments.fitting import fit
from bsdr_torch.experiments.reporting import Finding
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.experiments.simulated import WORLDS, draw_people, watch
from bsdr_torch.rationality import RationalityKind
from bsdr_torch.reward_distance import pairwise_regret
from bsdr_torch.worlds.gridworld import GridWorld

MODELS: dict[str, tuple[RationalityKind, bool]] = {
    "br": ("br", True),
    "br_per_human": ("br_per_human", True),
    "irleed": ("irleed", True),
    "bsdr": ("bsdr", True),
    "bsdr_aggregate": ("bsdr", False),
}
"""The rationality model, and whether it is told who acted. BR is the same either way, and is what BR per person and
IRLEED become when they are not told: IRLEED's offsets have mean zero."""
NEW_GOALS = 4


@dataclass(frozen=True)
class Case:
    """People in one world; where they are less rational is each one's `own` affair, or `common` to all."""

    world: str
    places: str
    dependence: float
    people: int
    seed: int
    rollouts: int = 8
    held_out: int = 8


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    records = run_cases(settings.out, cases(settings), run_case, settings.workers)
    return reward_generalization_report.write(settings, records)


def cases(settings: Run) -> list[Case]:
    """Worlds, how state-dependent people are, how many there are, seeds."""
    worlds = ("meadow", "orchard") if settings.quick else WORLDS
    people = (1, 20) if settings.quick else (1, 5, 20)
    kinds = [("own", 0.0), ("own", 2.0), ("common", 2.0)]
    if not settings.quick:
        kinds[1:1] = [("own", 1.0)]
    found = itertools.product(worlds, kinds, people, range(settings.seeds))
    return [Case(world, *kind, humans, seed) for world, kind, humans, seed in found]


def run_case(case: Case) -> list[Record]:
    """Simulates the people of a case, fits every model, and acts by what it learned."""
    world = GridWorld.load(case.world)
    generator = torch.Generator().manual_seed(10_000 + case.seed)
    truth = draw_people(world, case.people, case.dependence, generator, common=case.places == "common")
    data = watch([world], truth, case.rollouts, case.held_out, generator)
    goals = spread_cells(world, NEW_GOALS, generator)
    learned: dict[str, Tensor] = {}
    converged: dict[str, bool] = {}
    for name, (kind, identities) in MODELS.items():
        model, converged[name] = fit(data if identities else nameless(data), kind)
        learned[name] = model.rationality.theta_R.detach()
    regret = regrets([world], truth, learned)
    elsewhere = regrets([with_goal(world, goal, ()) for goal in goals], truth, learned)
    test = data.parts[world.name].test
    return [
        {
            "model": name,
            "regret": regret[name],
            "new_goal_regret": elsewhere[name],
            "cosine": float(torch.cosine_similarity(theta_R, truth.theta_R.double(), dim=0)),
            "return_correlation": return_correlation(world, theta_R, truth.theta_R.double(), test),
            "converged": converged[name],
        }
        for name, theta_R in learned.items()
    ]


def nameless(data: RolloutData) -> RolloutData:
    """The same rollouts as if one person had done them all."""
    parts = {
        world: Parts(*(Rollouts(torch.zeros_like(part.human), part.states, part.actions) for part in of_world))
        for world, of_world in data.parts.items()
    }
    return RolloutData(list(data.worlds.values()), ["anybody"], parts)


def regrets(worlds: list[GridWorld], truth: Truth, learned: Mapping[str, Tensor]) -> dict[str, float]:
    """The regret of the best policy for each learned theta_R under the true one, averaged over worlds."""
    theta = torch.stack([truth.theta_R.double(), *learned.values()], dim=1)
    tables = [pairwise_regret(w.mdp, -w.reward_features.double() @ theta, w.horizon)[0, 1:] for w in worlds]
    return dict(zip(learned, torch.stack(tables).mean(0).tolist(), strict=True))


def return_correlation(world: GridWorld, theta_R: Tensor, true_theta_R: Tensor, rollouts: Rollouts) -> float:
    """Pearson's correlation, over rollouts, of the return that theta_R predicts with the true one."""
    steps = rollouts.steps()
    features = torch.zeros(len(rollouts), len(theta_R), dtype=torch.float64)
    features.index_add_(0, steps.rollout, world.reward_features.double()[steps.state])
    return float(torch.corrcoef(torch.stack([features @ theta_R, features @ true_theta_R]))[0, 1])
