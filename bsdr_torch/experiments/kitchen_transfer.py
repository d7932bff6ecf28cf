"""Transfer of suboptimality between kitchens: does what somebody is like in four kitchens tell what the person does in
the fifth? (paper, "Generalization of Learned Suboptimality")

The people are real. In two ways: the exact plans of people on the way to known subgoals, in which nothing but beta is
carried over; and `KitchenModel`, which carries over plans and habits. Each person is predicted in a new kitchen with
what is the person's own, with what is the population's, and, for the control, with what is another person's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from bsdr_torch.contenders import LONG_HISTORY, contenders
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.mturk import SOURCE_2019
from bsdr_torch.data.prepare import prepare
from bsdr_torch.experiments import kitchen_transfer_report
from bsdr_torch.experiments.habitual_steps import CountedSteps
from bsdr_torch.experiments.kitchen_stretches import Stretches, outcomes, stretches, subgoals
from bsdr_torch.experiments.reporting import Finding
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.experiments.subgoal_people import Planned, SubgoalPeople, exchanged_people, fit_people, ways
from bsdr_torch.experiments.subgoal_plans import SubgoalPlans
from bsdr_torch.kitchens.adapting import Person, gather_evidence, log_probs, person
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.replanning import plan_anew
from bsdr_torch.rationality import POPULATION

FOLDER = Path("datasets/mturk_2019")
QUICK_KITCHENS = ["cramped_room", "coordination_ring"]  # the second is new
EXACT = ("br", "bsdr", "br_per_human", "bsdr_aggregate")
LEAST = 5  # times that something was done in a kitchen, to be a subgoal
MOST_SEEDS = 1  # of networks, each of which is trained for every kitchen
QUICK_PLANNING = {"steps": 40, "imagined": 20}
QUICK_PEOPLE = 12  # the first of all


@dataclass(frozen=True)
class Case:
    """A kitchen that is new to a model.

    Attributes:
        engine: `exact`, plans for known subgoals, or `network`, `KitchenModel`.
        kitchen: the new one.
        model: the rationality model.
        seed: of a network.
        quick: whether there are two kitchens and few people only, and networks are trained for an epoch.
    """

    engine: str
    kitchen: str
    model: str
    seed: int
    quick: bool


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    prepare(SOURCE_2019, FOLDER)
    quick = settings.quick
    names = QUICK_KITCHENS if quick else list(KitchenPeople(str(FOLDER), history=0).kitchens)
    seeds = 1 if quick else min(settings.seeds, MOST_SEEDS)
    new = names[1:] if quick else names
    cases = []
    for name in new:
        cases += [Case("exact", name, model, 0, quick) for model in EXACT]
        cases += [Case("network", name, "bsdr", seed, quick) for seed in range(seeds)]
    records = run_cases(settings.out, cases, run_case, settings.workers)
    return kitchen_transfer_report.write(settings, records)


def run_case(case: Case) -> list[Record]:
    """The cross-entropy of each game in the new kitchen, by whose the person's qualities are."""
    return exact_case(case) if case.engine == "exact" else network_case(case)


class Kitchen(NamedTuple):
    """A kitchen in which it is known where people go.

    Attributes:
        plans: of its subgoals.
        seen: R stretches.
        ended: `[R]`, how they ended.
        steps: of people on their ways.
        pairs: who played, by game.
    """

    plans: SubgoalPlans
    seen: Stretches
    ended: Tensor
    steps: CountedSteps
    pairs: list[str]


@cache
def kitchens(quick: bool) -> tuple[dict[str, Kitchen], int]:
    """All kitchens by name, and how many people there are."""
    data = KitchenPeople(str(FOLDER), QUICK_KITCHENS if quick else None, "rollout", validation=0.0, history=0)
    found = {}
    for name, games in data.kitchens.items():
        seen = stretches(games, torch.zeros(len(games), dtype=torch.int8), data.humans)
        if quick:
            seen = seen.select(seen.human < QUICK_PEOPLE)
        wanted = subgoals(games.layout, seen, LEAST)
        plans, ended = SubgoalPlans(games.layout, wanted, seen), outcomes(games.layout, wanted, seen)
        pairs = [" and ".join(sorted(players)) for players in games.players]
        found[name] = Kitchen(plans, seen, ended, ways(plans, seen, ended), pairs)
    return found, len(data.humans)


def exact_case(case: Case) -> list[Record]:
    """A model of subgoals, learned in all kitchens but one, there."""
    found, people = kitchens(case.quick)
    elsewhere = _elsewhere(case.kitchen, case.quick)
    simpler, converged = boltzmann_rational(case.kitchen, case.quick)
    model = simpler
    if case.model != "br":
        model, converged = fit_people(case.model, elsewhere, people, simpler)
    known = torch.unique(torch.cat([of.who for _, of in elsewhere.values()]))
    new = found[case.kitchen]
    kept = torch.isin(new.seen.human, known)
    new = new._replace(seen=new.seen.select(kept), ended=new.ended[kept])
    whose = ("own",) if model.alike else ("own", "population", "another")
    records: list[Record] = []
    for of in whose:
        losses = known_end_losses(new, model, of)
        records += [
            {"planner": "exact", "whose": of, "pair": new.pairs[game], "cross_entropy": loss, "converged": converged}
            for game, loss in losses.items()
        ]
    return records


@cache
def boltzmann_rational(new: str, quick: bool) -> tuple[SubgoalPeople, bool]:
    """BR in all kitchens but one, where the other models start, and whether its gradient vanished."""
    return fit_people("br", _elsewhere(new, quick), kitchens(quick)[1])


def _elsewhere(new: str, quick: bool) -> dict[str, tuple[SubgoalPlans, CountedSteps]]:
    """Plans and steps of people in all kitchens but one."""
    return {name: (of.plans, of.steps) for name, of in kitchens(quick)[0].items() if name != new}


@torch.no_grad()
def known_end_losses(kitchen: Kitchen, model: SubgoalPeople, whose: str) -> dict[int, float]:
    """The cross-entropy of the steps of each game, by its number, if everybody planned with this rationality."""
    humans = torch.unique(kitchen.seen.human)
    as_if = {"own": humans, "population": torch.full_like(humans, POPULATION), "another": exchanged_people(humans)}[
        whose
    ]
    planned = Planned(kitchen.plans, humans, model, as_if=as_if)
    row, step = kitchen.seen.real.nonzero(as_tuple=True)
    state = kitchen.plans.numbers(kitchen.seen, kitchen.ended)[row, step]
    human, last = kitchen.seen.human[row], kitchen.seen.last[row, step]
    found = model.log_probs(planned(state, planned.column(human)), human, last)
    loss = -found.gather(1, kitchen.seen.actions[row, step][:, None]).squeeze(1)
    game = kitchen.seen.game[row]
    return {number: float(loss[game == number].mean()) for number in torch.unique(game).tolist()}


def network_case(case: Case) -> list[Record]:
    """`KitchenModel`, trained in all kitchens but one, there: as trained, and planned anew from its reward."""
    used = QUICK_KITCHENS if case.quick else None
    data = KitchenPeople(str(FOLDER), used, "layout", case.kitchen, history=LONG_HISTORY, seed=case.seed)
    contender = contenders(case.quick)[case.model]
    model: KitchenModel = contender.fit(data, case.seed, **contender.settings)
    anew = plan_anew(model, data, case.seed, lookahead=0, **(QUICK_PLANNING if case.quick else {}))
    steps = data.steps("test")[case.kitchen]
    if case.quick:
        steps = steps.some(steps.humans < QUICK_PEOPLE)
    games = data.kitchens[case.kitchen]
    first = min(number for number, key in enumerate(data.rollouts) if key.layout == case.kitchen)
    known = torch.unique(steps.humans[steps.humans != POPULATION])
    swapped = dict(zip(known.tolist(), exchanged_people(known).tolist(), strict=True))
    records: list[Record] = []
    for planner, planning in (("as trained", model), ("planned anew", anew)):
        for rollout in torch.unique(steps.rollouts[steps.humans != POPULATION]).tolist():
            game = steps.some(steps.rollouts == rollout)
            human = int(game.humans[0])
            pair = " and ".join(sorted(games.players[(rollout - first) // 2]))
            records += [
                {"planner": planner, "whose": whose, "pair": pair, "cross_entropy": loss, "converged": True}
                for whose, loss in network_losses(planning, game, human, swapped[human]).items()
            ]
    return records


@torch.no_grad()
def network_losses(model: KitchenModel, game: Decisions, human: int, other: int) -> dict[str, float]:
    """The cross-entropy of somebody's steps in a game, by what of the person is whose."""
    evidence = gather_evidence(model, game)
    own, anybody, somebody = person(model, human), person(model, None), person(model, other)
    mixtures: dict[str, Person] = {
        "own": own,
        "own plans": own._replace(habit=anybody.habit),
        "own habits": anybody._replace(habit=own.habit),
        "population": anybody,
        "another": somebody,
        "another's plans": anybody._replace(theta_beta=somebody.theta_beta, plans=somebody.plans),
    }
    return {
        whose: float(-log_probs(model, evidence, mixed).gather(1, game.actions[:, None]).mean())
        for whose, mixed in mixtures.items()
    }
