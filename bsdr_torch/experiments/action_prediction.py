"""Action prediction: cross-entropy as people become more state-dependent (paper, "Action Prediction")."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from bsdr_torch.data.grid_people import Parts, RolloutData, Truth, simulate
from bsdr_torch.data.rollouts import Rollouts
from bsdr_torch.experiments import action_prediction_report
from bsdr_torch.experiments.fitting import fit, fit_ileed
from bsdr_torch.experiments.lapsing_people import draw_lapsing_people, lapsing_log_probs, simulate_lapsing
from bsdr_torch.experiments.reporting import Finding
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.experiments.simulated import (
    WORLDS,
    cross_entropy,
    draw_people,
    on_rollouts,
    reward_in,
    taken_log_probs,
)
from bsdr_torch.rationality import RationalityKind
from bsdr_torch.soft_bellman import optimal_policy
from bsdr_torch.worlds.gridworld import GridWorld

FITTED: tuple[RationalityKind, ...] = ("br", "br_per_human", "irleed", "bsdr")


@dataclass(frozen=True)
class Case:
    """People in one world, `rollouts` of each to learn from and `held_out` to predict.

    They act by the rule of "bsdr", or by that of "lapses"; see `lapsing_people`.
    """

    rule: str
    world: str
    dependence: float
    seed: int
    people: int = 20
    rollouts: int = 8
    held_out: int = 8


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    records = run_cases(settings.out, cases(settings), run_case, settings.workers)
    return action_prediction_report.write(settings, records)


def cases(settings: Run) -> list[Case]:
    """Worlds, how state-dependent people are, seeds."""
    worlds = ("meadow", "frozen_lake") if settings.quick else WORLDS
    dependence = (0.0, 2.0) if settings.quick else (0.0, 0.5, 1.0, 1.5, 2.0)
    return [Case(*case) for case in itertools.product(("bsdr", "lapses"), worlds, dependence, range(settings.seeds))]


def run_case(case: Case) -> list[Record]:
    """Simulates the people of a case, fits every model and scores it on the held-out rollouts."""
    world = GridWorld.load(case.world)
    generator = torch.Generator().manual_seed(8000 + case.seed)
    if case.rule == "lapses":
        people = draw_lapsing_people(world, case.people, case.dependence, generator)
        truth = people.truth
        seen, unseen = (simulate_lapsing(world, people, n, generator) for n in (case.rollouts, case.held_out))
        own = lapsing_log_probs(world, people, unseen)
    else:
        truth = draw_people(world, case.people, case.dependence, generator)
        seen, unseen = (simulate(world, truth, n, generator) for n in (case.rollouts, case.held_out))
        own = taken_log_probs(world, truth.reward(world), unseen)
    parts = Parts(seen, validation=seen.select(torch.arange(0)), test=unseen)
    data = RolloutData([world], [f"human {i}" for i in range(case.people)], {world.name: parts})
    best = cross_entropy(own, unseen)
    records: list[Record] = [{"model": "truth", "cross_entropy": best, "excess": 0.0, "converged": True}]

    def score(model: str, taken: Tensor, converged: bool = True, **also: float) -> None:
        ce = cross_entropy(taken, unseen)
        scores = {"cross_entropy": ce, "excess": ce - best, "converged": converged}
        records.append({"model": model, **scores, **also})

    for name in FITTED:
        model, converged = fit(data, name)
        score(name, taken_log_probs(world, reward_in(model, world, torch.arange(case.people)), unseen), converged)
    ileed, steps = fit_ileed(world, seen, case.people), unseen.steps()
    score("ileed", on_rollouts(world, ileed.log_probs[steps.state, steps.human], unseen), ileed.converged)
    random = 1 / world.mdp.num_actions
    lapses = fitted_lapses(optimal_probability(world, truth, seen), random, seen)
    optimal = optimal_probability(world, truth, unseen)
    best_actions = float((optimal > 0)[unseen.actions >= 0].double().mean())
    score("optimal", with_lapses(optimal, lapses, random, unseen), lapses=lapses, best_actions=best_actions)
    score("random", with_lapses(optimal, 1.0, random, unseen))
    return records


def optimal_probability(world: GridWorld, truth: Truth, rollouts: Rollouts) -> Tensor:
    """P of the actions taken, `[R, L]`, by somebody who picks any of the best actions for the true cost."""
    mdp, steps = world.mdp, rollouts.steps()
    values, _ = optimal_policy(mdp, -truth.cost(world)[:, None], horizon=world.horizon)
    after = values[(steps.step + 1)[:, None, None], mdp.next_state[steps.state].long(), 0]  # [N, A, K]
    if mdp.probability is not None:
        after = after * mdp.probability[steps.state]
    gain = after.sum(2)
    best = (gain >= gain.amax(1, keepdim=True) - 1e-9).double()
    return on_rollouts(world, (best / best.sum(1, keepdim=True)).log(), rollouts).exp()


def with_lapses(optimal: Tensor, lapses: float, random: float, rollouts: Rollouts) -> Tensor:
    """log P of the actions taken, `[R, L]`, if with probability `lapses` any action is taken instead of a best one."""
    return torch.where(rollouts.actions >= 0, ((1 - lapses) * optimal + lapses * random).log(), 0.0)


def fitted_lapses(optimal: Tensor, random: float, rollouts: Rollouts) -> float:
    """The share of lapses, in whole percent, that predicts the rollouts best."""
    shares = [percent / 100 for percent in range(1, 101)]
    return min(shares, key=lambda share: cross_entropy(with_lapses(optimal, share, random, rollouts), rollouts))
