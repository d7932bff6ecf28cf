"""Generalization of suboptimality: does what a person is like in some worlds tell what the person does in another?
(paper, "Generalization of Learned Suboptimality")

People are watched in worlds drawn from one legend, and predicted in another one that shares only its features.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from bsdr_torch.data.grid_people import Truth, simulate
from bsdr_torch.experiments import suboptimality_transfer_report
from bsdr_torch.experiments.derived_worlds import redrawn
from bsdr_torch.experiments.fitting import fit
from bsdr_torch.experiments.reporting import Finding
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.experiments.simulated import (
    LEVEL_SPREAD,
    WORLDS,
    cross_entropy,
    draw_people,
    reward_in,
    taken_log_probs,
    watch,
)
from bsdr_torch.rationality import POPULATION, RationalityKind
from bsdr_torch.worlds.gridworld import GridWorld

FITTED: tuple[RationalityKind, ...] = ("br", "br_per_human", "bsdr")
DEPENDENCE = 1.5


@dataclass(frozen=True)
class Case:
    """People in worlds with one legend.

    `people_are` "state-dependent", each in places of their own; "constant", with a beta each; or "alike", all
    state-dependent in the same way. They are watched in `known_worlds`, `rollouts` in each, and predicted in a new one.
    """

    world: str
    people_are: str
    seed: int
    people: int = 20
    known_worlds: int = 2
    rollouts: int = 6
    held_out: int = 8


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    records = run_cases(settings.out, cases(settings), run_case, settings.workers)
    return suboptimality_transfer_report.write(settings, records)


def cases(settings: Run) -> list[Case]:
    """Legends, kinds of people, seeds."""
    worlds = ("meadow", "frozen_lake") if settings.quick else WORLDS
    kinds = ("state-dependent", "constant", "alike")
    return [Case(*case) for case in itertools.product(worlds, kinds, range(settings.seeds))]


def run_case(case: Case) -> list[Record]:
    """Simulates the people of a case, learns in the known worlds and predicts in the new one."""
    legend = GridWorld.load(case.world)
    generator = torch.Generator().manual_seed(11_000 + case.seed)
    truth = people_of(case, legend, generator)
    known = [redrawn(legend, f"{case.world} {n}", generator) for n in range(case.known_worlds)]
    new = redrawn(legend, f"{case.world}, new", generator)
    data = watch(known, truth, case.rollouts, 0, generator)
    unseen = simulate(new, truth, case.held_out, generator)

    everybody = torch.arange(case.people)
    rewards: dict[str, Tensor] = {"truth": truth.reward(new)}
    converged = {"truth": True}
    for name in FITTED:
        model, converged[name] = fit(data, name)
        rewards[name] = reward_in(model, new, everybody)
        if name == "bsdr":
            rewards["bsdr_population"] = reward_in(model, new, torch.full_like(everybody, POPULATION))
            converged["bsdr_population"] = converged[name]
    scores = {name: cross_entropy(taken_log_probs(new, reward, unseen), unseen) for name, reward in rewards.items()}
    return [
        {"model": name, "cross_entropy": ce, "excess": ce - scores["truth"], "converged": converged[name]}
        for name, ce in scores.items()
    ]


def people_of(case: Case, world: GridWorld, generator: torch.Generator) -> Truth:
    """The people of a case."""
    alike = case.people_are == "alike"
    return draw_people(
        world,
        case.people,
        0.0 if case.people_are == "constant" else DEPENDENCE,
        generator,
        common=alike,
        level_spread=0.0 if alike else LEVEL_SPREAD,
    )
