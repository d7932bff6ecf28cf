"""Shared goals in kitchens: do the rewards of recorded people agree? (paper, "Shared Goals")

BR is fitted to each person alone in each kitchen, so that nothing in the fit makes people agree. Then rewards are
compared: those of people in one kitchen, of people in two, and random ones. The control are people without goals: the
same steps with each person's actions in a random order and moves in random directions, where they are fitted and where
they are predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import torch
from torch import Tensor

from bsdr_torch import priors
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.mturk import SOURCE_2019
from bsdr_torch.data.prepare import prepare
from bsdr_torch.data.splits import TEST, Part
from bsdr_torch.experiments import kitchen_shared_goals_report
from bsdr_torch.experiments.fitting import minimise
from bsdr_torch.experiments.habitual_steps import NUM_HABITS, CountedSteps
from bsdr_torch.experiments.reporting import Finding
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.experiments.task_kitchens import EVENTS, PLACES, TaskKitchen
from bsdr_torch.reward_distance import canonical_reward
from bsdr_torch.soft_bellman import Problem, action_log_probs, initial_values, uniform_base
from bsdr_torch.solver import Solver, WarmStart
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, STAY, ego_first

FOLDER = Path("datasets/mturk_2019")
QUICK_KITCHENS = ["cramped_room", "forced_coordination"]
ACTIONS = ("as they were", "at random")
DISCOUNT = 0.95
REWARD_SCALE, HABIT_SCALE = 4.0, 3.0  # standard deviations expected
SCALES = (0.0, 0.25, 0.5, 1.0, 2.0)  # by which a reward may be multiplied
_COLUMNS_AT_ONCE = 16
RANDOM = 2  # rewards for each person, so that people have nothing in common through them
_TOLERANCE = 1e-6  # of plans
_GRADIENT = 1e-3  # of fits


@dataclass(frozen=True)
class Case:
    """The people of a kitchen, and their actions: as they were or, for the control, at random."""

    kitchen: str
    actions: str


class People(NamedTuple):
    """Who played in a kitchen, each in one seat of one game.

    Attributes:
        kitchen: the world.
        names: of the B people.
        pairs: the names of both people of their games.
        seats: in which they played.
        train: the steps from the first two thirds of their games.
        test: the others.
    """

    kitchen: TaskKitchen
    names: list[str]
    pairs: list[str]
    seats: list[int]
    train: CountedSteps
    test: CountedSteps


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    prepare(SOURCE_2019, FOLDER)
    names = QUICK_KITCHENS if settings.quick else list(KitchenPeople(str(FOLDER), history=0).kitchens)
    cases = [Case(name, actions) for name in names for actions in ACTIONS]
    fits = run_cases(settings.out / "fits", cases, fit_case, settings.workers)
    records = run_cases(settings.out, cases, partial(compare_case, fits), settings.workers, version=1)
    return kitchen_shared_goals_report.write(settings, fits, records)


def fit_case(case: Case) -> list[Record]:
    """Fits BR to everybody in a kitchen, each alone."""
    people = people_of(case.kitchen, case.actions)
    found = fit_each_alone(people)
    weights, habits, pauses = (part.tolist() for part in (found.weights.T, found.habits, found.pauses))
    return [
        {
            "human": human,
            "pair": pair,
            "seat": seat,
            "weights": w,
            "habits": h,
            "pauses": p,
            "converged": found.converged,
        }
        for human, pair, seat, w, h, p in zip(
            people.names, people.pairs, people.seats, weights, habits, pauses, strict=True
        )
    ]


def compare_case(fits: Sequence[Record], case: Case) -> list[Record]:
    """Compares everybody's reward in a kitchen with those of all people, in all kitchens, and with random ones.

    `similarities` and `losses` are lists in the order of the fits: the cosine of the canonical forms of both rewards in
    this kitchen; and the cross-entropy of the person's later steps with the other's reward in place of the person's
    own, at the scale which fits the person's earlier steps best.
    """
    people = people_of(case.kitchen, case.actions)
    sources = [record for record in fits if record["actions"] == case.actions]
    mine = [number for number, record in enumerate(sources) if record["kitchen"] == case.kitchen]
    own = [sources[number] for number in mine]
    weights, habits, pauses = (
        torch.tensor([record[name] for record in of], dtype=torch.float64)
        for name, of in (("weights", sources), ("habits", own), ("pauses", own))
    )
    generator = torch.Generator().manual_seed(crc32(case.kitchen.encode()))
    random = torch.randn(RANDOM * len(own), weights.shape[1], generator=generator, dtype=torch.float64)
    weights = torch.cat([weights, random]).T
    of_states, of_actions = people.kitchen.rewards(weights)
    canonical = canonical_reward(people.kitchen.mdp, of_states[:, None] + of_actions, DISCOUNT).flatten(0, 1)
    similarities = canonical[:, mine].T @ canonical
    losses = exchanged_losses(people, weights, habits, pauses)
    many = len(sources)
    found: list[Record] = []
    for number, (record, similarity, loss) in enumerate(zip(own, similarities, losses, strict=True)):
        for_them = slice(many + RANDOM * number, many + RANDOM * (number + 1))
        found.append(
            {
                "human": record["human"],
                "pair": record["pair"],
                "seat": record["seat"],
                "similarities": similarity[:many].tolist(),
                "similarity_to_random": float(similarity[for_them].mean()),
                "losses": loss[:many].tolist(),
                "loss_of_random": float(loss[for_them].mean()),
                "loss_of_nothing": float(loss[-1]),
                "converged": record["converged"],
            }
        )
    return found


@cache
def people_of(name: str, actions: str) -> People:
    """The people of a kitchen and their steps."""
    data = KitchenPeople(str(FOLDER), [name], "rollout", validation=0.0, history=1)
    games = data.kitchens[name]
    kitchen = TaskKitchen(games, data.parts[name] != TEST)
    first = min(number for number, key in enumerate(data.rollouts) if key.layout == name)
    found = []
    parts: tuple[Part, ...] = ("train", "test")
    for seed, part in enumerate(parts):
        steps = data.steps(part)[name]
        who, taken = steps.rollouts - first, steps.actions
        if actions == "at random":
            taken = _at_random(taken, who, seed)
        state = kitchen.number(ego_first(steps.states, steps.seats))
        found.append(CountedSteps.of(state, who, steps.history[:, 0], taken))
    keys = data.rollouts
    pairs = [" and ".join(sorted(games.players[number // 2])) for number in range(len(keys))]
    return People(kitchen, [key.human for key in keys], pairs, [key.seat for key in keys], *found)


def _at_random(actions: Tensor, who: Tensor, seed: int) -> Tensor:
    """Actions `[N]` in a random order, each person's among themselves, and moves in random directions."""
    generator = torch.Generator().manual_seed(seed)
    order = (who + torch.rand(len(who), generator=generator, dtype=torch.float64)).argsort()
    shuffled = torch.empty_like(actions).index_copy_(0, who.argsort(stable=True), actions[order])
    return torch.where(shuffled < STAY, torch.randint(STAY, shuffled.shape, generator=generator), shuffled)


class Fits(NamedTuple):
    """BR of B people: `weights [F, B]`, `habits [B, NUM_HABITS]`, `pauses [B, 3]`, and whether gradients vanished."""

    weights: Tensor
    habits: Tensor
    pauses: Tensor
    converged: bool


def fit_each_alone(people: People) -> Fits:
    """BR of each person. Nobody's fit depends on anybody else's; they are solved side by side."""
    B, seen = len(people.names), people.train
    weights = torch.zeros(len(EVENTS) + len(PLACES), B, dtype=torch.float64, requires_grad=True)
    habits = torch.zeros(B, NUM_HABITS, dtype=torch.float64, requires_grad=True)
    pauses = torch.zeros(B, 3, dtype=torch.float64, requires_grad=True)
    solver = Solver(tolerance=_TOLERANCE, warm_start=WarmStart())

    def loss(by_plan: Tensor) -> Tensor:
        log_prior = priors.gaussian(weights, REWARD_SCALE)
        log_prior = log_prior + priors.gaussian(habits, HABIT_SCALE) + priors.gaussian(pauses, HABIT_SCALE)
        return -(seen.log_likelihood(by_plan, habits, pauses).sum() + log_prior) / seen.times.sum()

    nothing = torch.zeros(len(seen.state), NUM_ACTIONS, dtype=torch.float64)
    minimise(lambda: loss(nothing), [habits, pauses], _GRADIENT)  # without plans, to start from
    converged = minimise(
        lambda: loss(plan(people.kitchen, weights, seen.state, seen.who, solver)), [weights, habits, pauses], _GRADIENT
    )
    return Fits(weights.detach(), habits.detach(), pauses.detach(), converged)


def plan(kitchen: TaskKitchen, weights: Tensor, states: Tensor, columns: Tensor, solver: Solver) -> Tensor:
    """log P(a) by plans alone `[N, 6]` at numbered `states [N]`, with the rewards `columns [N]` of `weights [F, B]`."""
    of_states, of_actions = kitchen.rewards(weights)
    problem: Problem = {
        "discount": DISCOUNT,
        "action_reward": of_actions,
        "log_base": uniform_base(kitchen.mdp, torch.float64),
        "solver": solver,
    }
    values = initial_values(kitchen.mdp, of_states, **problem)[None]
    return action_log_probs(kitchen.mdp, values, states, columns, torch.zeros_like(states), **problem)


@torch.no_grad()
def exchanged_losses(people: People, weights: Tensor, habits: Tensor, pauses: Tensor) -> Tensor:
    """The cross-entropy of B people's later steps, if each wanted what is wanted in each of `weights [F, M]`.

    Each person keeps habits and pauses, and takes the reward at that of `SCALES` which fits the earlier steps best.
    The result is `[B, M + 1]`; the last column is that of no reward.
    """
    B, seen = len(people.names), (people.train, people.test)
    solver = Solver(tolerance=_TOLERANCE)
    found = []
    for some in torch.split(weights, _COLUMNS_AT_ONCE, 1):
        columns = torch.cat([scale * some for scale in SCALES], 1)
        losses = []
        for steps in seen:
            many = columns.shape[1]
            rows = CountedSteps(
                steps.state.repeat(many),
                steps.who.repeat(many),
                _shifted(steps.place, len(steps.state), many),
                steps.last.repeat(many),
                steps.action.repeat(many),
                steps.times.repeat(many),
            )
            column = torch.arange(many).repeat_interleave(len(steps.state))
            by_plan = plan(people.kitchen, columns, rows.state, column, solver)
            losses.append(_by_person(rows.log_likelihood(by_plan, habits, pauses), steps, B))
        earlier, later = (loss.view(len(SCALES), some.shape[1], B) for loss in losses)
        found.append(later.gather(0, earlier.argmin(0, keepdim=True)).squeeze(0))
    nothing = torch.zeros(len(people.test.state), NUM_ACTIONS, dtype=torch.float64)
    found.append(_by_person(people.test.log_likelihood(nothing, habits, pauses), people.test, B))
    return torch.cat(found).T


def _shifted(place: Tensor, by: int, many: int) -> Tensor:
    """Indices `[M]` into a table -> those into as many copies of it, one after the other, `[many * M]`."""
    return (place + by * torch.arange(many)[:, None]).flatten()


def _by_person(log_likelihood: Tensor, steps: CountedSteps, B: int) -> Tensor:
    """The cross-entropy of each person `[many, B]`, from that of each kind of step `[many * M]`."""
    who = steps.who[steps.place]
    total = log_likelihood.new_zeros(len(log_likelihood) // len(who), B)
    total.index_add_(1, who, log_likelihood.view(-1, len(who)))
    return -total / torch.zeros(B, dtype=torch.float64).index_add_(0, who, steps.times)
