"""Parameter recovery: can the parameters of simulated people be found from their rollouts? (paper, experiment 1)

People act by the BSDR model with known parameters. The posterior over a grid is the paper's figure; MAP fits over
worlds, numbers of people and rollouts, and seeds are what the paper did not do.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from bsdr_torch.data.grid_people import Parts, RolloutData, Truth, simulate
from bsdr_torch.experiments import recovery_report
from bsdr_torch.experiments.fitting import fit
from bsdr_torch.experiments.reporting import Finding
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.human_model import HumanModel
from bsdr_torch.rationality import RationalityKind
from bsdr_torch.recovery import Recovery, TrueModel, recovery
from bsdr_torch.training import Predicts
from bsdr_torch.worlds.gridworld import GridWorld

HELD_OUT = 8  # rollouts of each person that the fit does not see


@dataclass(frozen=True)
class Case:
    """One fit: which people, which model, how much data."""

    world: str
    people: str
    model: RationalityKind
    humans: int
    rollouts: int
    seed: int


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    records = run_cases(settings.out, cases(settings.quick, settings.seeds), run_case, settings.workers)
    return recovery_report.write(settings, records)


def cases(quick: bool, seeds: int) -> list[Case]:
    """All fits: BSDR over amounts of data; every model on the same data; people whose beta is constant."""
    worlds = ["meadow"] if quick else ["meadow", "orchard", "maze", "frozen_lake"]
    amounts = [(1, 8), (5, 8), (20, 8)] if quick else list(itertools.product((1, 5, 20), (2, 8, 32)))
    found = [
        Case(world, "state-dependent", "bsdr", humans, rollouts, seed)
        for world, (humans, rollouts), seed in itertools.product(worlds, amounts, range(seeds))
    ]
    models: tuple[RationalityKind, ...] = ("br", "br_per_human", "irleed", "bsdr")
    for world, people, model, seed in itertools.product(worlds, ("state-dependent", "constant"), models, range(seeds)):
        case = Case(world, people, model, 20, 8, seed)
        if case not in found:
            found.append(case)
    return found


def run_case(case: Case) -> list[Record]:
    """Simulates the people of a case, fits its model to them and scores it.

    `heldout_gap` is (log-likelihood of the truth - that of the model) / |that of the truth| on held-out rollouts; see
    `bsdr_torch.recovery.Recovery` for the other measures.
    """
    data = people(case)
    assert data.truth is not None
    model, converged = fit(data, case.model)
    errors = model_errors(data, model)
    truth = _log_likelihood(TrueModel(data.worlds, data.truth), data)
    gap = (truth - _log_likelihood(model, data)) / abs(truth)
    return [{**errors._asdict(), "heldout_gap": gap, "converged": converged}]


def people(case: Case) -> RolloutData:
    """The people of a case: the same for every model, and the same first people whatever their number."""
    world = GridWorld.load(case.world)
    generator = torch.Generator().manual_seed(5000 + case.seed)
    theta_R = torch.rand(world.reward_features.shape[1], generator=generator) * 0.9 + 0.1
    spread = torch.randn(20, world.rationality_features.shape[1], generator=generator)
    if case.people == "constant":
        spread = spread[:, :1].expand_as(spread)
    truth = Truth(theta_R, 2.0 * torch.exp(1.0 * spread[: case.humans]))
    generator.manual_seed(6000 + case.seed)
    train, test = (simulate(world, truth, count, generator) for count in (case.rollouts, HELD_OUT))
    parts = Parts(train, validation=train.select(torch.arange(0)), test=test)
    return RolloutData([world], [f"human {i}" for i in range(case.humans)], {world.name: parts}, truth=truth)


def model_errors(data: RolloutData, model: HumanModel) -> Recovery:
    """The gauge-invariant errors of a model of people in one world."""
    (name, world), truth = next(iter(data.worlds.items())), data.truth
    assert truth is not None
    steps = data.parts[name].train.steps()
    with torch.no_grad():
        beta = model.beta(name, torch.arange(len(data.humans)))
        theta_R = model.rationality.theta_R
    return recovery(world, truth, theta_R, beta, steps.state, steps.human)


@torch.no_grad()
def _log_likelihood(predictor: Predicts, data: RolloutData) -> float:
    """Of all actions in the held-out rollouts."""
    total = 0.0
    for chunk in data.chunks("test").chunks:
        batch, actions, _ = chunk.decisions()
        total += float(predictor.action_log_probs(batch).gather(1, actions[:, None]).sum())
    return total
