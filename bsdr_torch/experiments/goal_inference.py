"""Goal inference: does knowing where a person is unreliable tell sooner where the person is going? (paper, "Goal
Inference")

People walk to goals. What they are like is learned from their walks to some goals; then, from the beginning of a walk
to another goal, exact Bayes over candidate goals, one plan for each of them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from bsdr_torch.data.grid_people import Truth, simulate
from bsdr_torch.data.rollouts import Rollouts
from bsdr_torch.experiments import goal_inference_report
from bsdr_torch.experiments.derived_worlds import spread_cells, with_goal
from bsdr_torch.experiments.fitting import fit
from bsdr_torch.experiments.reporting import Finding
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.experiments.simulated import WORLDS, draw_people, reward_in, taken_log_probs, watch
from bsdr_torch.rationality import RationalityKind
from bsdr_torch.worlds.gridworld import GridWorld

FITTED: tuple[RationalityKind, ...] = ("br", "br_per_human", "bsdr")
PARTS = (0.25, 0.5, 0.75, 1.0)  # of a walk
STEPS = (1, 2, 4, 8)
BINS = 10  # of predicted probability, for calibration


@dataclass(frozen=True)
class Case:
    """People in one world.

    `earlier_goals` and `earlier_rollouts` (to each of them) are what the fits see; `trajectories` of each person, each
    to one of the `candidates`, are what goals are inferred from.
    """

    world: str
    dependence: float
    seed: int
    people: int = 20
    trajectories: int = 8
    candidates: int = 5
    earlier_goals: int = 3
    earlier_rollouts: int = 4


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    records = run_cases(settings.out, cases(settings), run_case, settings.workers)
    return goal_inference_report.write(settings, records)


def cases(settings: Run) -> list[Case]:
    """Worlds, how state-dependent people are, seeds."""
    worlds, dependence = (("meadow", "maze"), (0.0, 1.5)) if settings.quick else (WORLDS, (0.0, 0.75, 1.5))
    return [Case(*case) for case in itertools.product(worlds, dependence, range(settings.seeds))]


def run_case(case: Case) -> list[Record]:
    """Simulates the people of a case, learns from their earlier walks and infers the goals of the later ones."""
    ground = GridWorld.load(case.world)
    generator = torch.Generator().manual_seed(7000 + case.seed)
    truth = draw_people(ground, case.people, case.dependence, generator)
    cells = spread_cells(ground, case.candidates + case.earlier_goals, generator)
    worlds = [with_goal(ground, cell, never_start=cells) for cell in cells]
    candidates, earlier = worlds[: case.candidates], worlds[case.candidates :]
    data = watch(earlier, truth, case.earlier_rollouts, 0, generator)
    walks, goal = later_walks(candidates, truth, case.trajectories, generator)

    everybody = torch.arange(case.people)
    rewards = {"truth": truth.reward(candidates[0])}  # goals differ in where episodes end, not in what states cost
    fits = {name: fit(data, name) for name in FITTED}
    rewards |= {name: reward_in(model, candidates[0], everybody) for name, (model, _) in fits.items()}
    converged = {str(name): converged for name, (_, converged) in fits.items()} | {"truth": True}
    records: list[Record] = []
    for name, reward in rewards.items():
        log_likelihood = goal_log_likelihoods(candidates, reward, walks)
        for seen_as, seen, rows, steps in views(walks):
            evidence = log_likelihood[rows, steps - 1]
            if seen_as == "steps":
                evidence = evidence.masked_fill(arrivals(candidates, walks)[rows, steps - 1], -torch.inf)
            scores = posterior_scores(evidence.log_softmax(1), goal[rows])  # a flat prior
            records.append({"model": name, "seen_as": seen_as, "seen": seen, **scores, "converged": converged[name]})
    return records


def views(walks: Rollouts) -> list[tuple[str, float, Tensor, Tensor]]:
    """What is seen of walks: how it is counted, how much, of which walks `[M]`, and the number of steps `[M]`.

    A part of each walk, at least a step; or a number of steps, of the walks that then go on, which is seen too.
    """
    length = (walks.actions >= 0).sum(1)
    everyone = torch.arange(len(length))
    found = [("part", part, everyone, (length * part).ceil().long().clamp(min=1)) for part in PARTS]
    for steps in STEPS:
        going_on = (length > steps).nonzero().flatten()
        if len(going_on) > 0:
            found.append(("steps", steps, going_on, torch.full_like(going_on, steps)))
    return found


def later_walks(
    worlds: list[GridWorld], truth: Truth, trajectories: int, generator: torch.Generator
) -> tuple[Rollouts, Tensor]:
    """Walks of each person, each to the goal of one of the worlds, and which, `[R]`."""
    of_each = [simulate(world, truth, trajectories, generator) for world in worlds]
    goal = torch.randint(len(worlds), of_each[0].human.shape, generator=generator)
    rows = torch.arange(len(goal))
    states, actions = (torch.stack([getattr(w, name) for w in of_each])[goal, rows] for name in ("states", "actions"))
    return Rollouts(of_each[0].human, states, actions), goal


def goal_log_likelihoods(worlds: list[GridWorld], reward: Tensor, walks: Rollouts) -> Tensor:
    """log P(the first steps of each walk | goal), `[R, L, K]`: entry l is that of the first l + 1 steps.

    `worlds` are the K hypotheses, `reward [S, N]` is that of each person. That a walk ends where it does is not told,
    but a goal that somebody has walked over and left is ruled out.
    """
    return torch.stack([taken_log_probs(world, reward, walks).cumsum(1) for world in worlds], dim=2)


def arrivals(worlds: list[GridWorld], walks: Rollouts) -> Tensor:
    """Whether the first l + 1 steps of a walk led to the goal of each world, `[R, L, K]`: if it goes on, that is not
    its goal."""
    at_goal = [
        world.mdp.terminal[walks.states[:, 1:].clamp(min=0)] for world in worlds if world.mdp.terminal is not None
    ]
    return torch.stack(at_goal, dim=2) & (walks.states[:, 1:] >= 0)[..., None]


def posterior_scores(log_posterior: Tensor, goal: Tensor) -> Record:
    """What the log posteriors `[R, K]` say of the true goals `[R]`.

    `calibration` has a line for each bin of probability: how many (walk, goal) pairs, the sum of their probabilities,
    and how many of the goals were true.
    """
    posterior, of_truth = log_posterior.exp(), log_posterior.gather(1, goal[:, None]).squeeze(1)
    hit = torch.nn.functional.one_hot(goal, posterior.shape[1]).double().flatten()
    probability = posterior.flatten()
    bins = (probability * BINS).long().clamp(max=BINS - 1)
    sums = torch.zeros(BINS, 3, dtype=torch.float64)
    sums.index_add_(0, bins, torch.stack([torch.ones_like(hit), probability, hit], dim=1))
    return {
        "likelihood": float(of_truth.exp().mean()),
        "log_score": float(of_truth.mean()),
        "accuracy": float((posterior.argmax(1) == goal).double().mean()),
        "calibration": [[int(count), round(p, 4), int(hits)] for count, p, hits in sums.tolist()],
    }
