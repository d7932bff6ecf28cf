"""Goal inference in kitchens: what will a recorded person do next? (paper, "Goal Inference")

What people do in a kitchen is a chain of subgoals: fetch an onion, put it into a pot, fetch a dish, and so on. At each
step, from the person's steps since the last INTERACT that did something, exact Bayes over what the next one will be:
one plan of the engine for each subgoal, with the person's beta_i(s). Scored by what the person then did.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.mturk import SOURCE_2019
from bsdr_torch.data.prepare import prepare
from bsdr_torch.data.splits import TEST, TRAIN, VALIDATION
from bsdr_torch.experiments import kitchen_goals_report
from bsdr_torch.experiments.habitual_steps import CountedSteps
from bsdr_torch.experiments.kitchen_stretches import (
    HANDS,
    KINDS,
    LONGEST,
    OTHER,
    WAIT,
    Stretches,
    Subgoal,
    hands,
    outcomes,
    stretches,
    subgoals,
    takes_onions,
)
from bsdr_torch.experiments.reporting import Finding
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.experiments.subgoal_people import Planned, SubgoalPeople, exchanged_people, fit_people, ways
from bsdr_torch.experiments.subgoal_plans import SubgoalPlans
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, Layout, pot_ticks, pots_ready
from bsdr_torch.worlds.overcooked.state import IDLE

FOLDER = Path("datasets/mturk_2019")
QUICK_KITCHENS = ["cramped_room", "coordination_ring"]
PARTS = (0.25, 0.5, 0.75, 1.0)  # of a stretch
DOUBTS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
BINS = 10  # of predicted probability, for calibration
LEAST = 5  # times that something was done in training, to be a subgoal
PRIOR_STRENGTH = 16.0  # stretches that what is known of coarser contexts is worth


@dataclass(frozen=True)
class Case:
    """A rationality model, or the `prior` alone; in two kitchens if `quick`."""

    model: str
    quick: bool


class Foreseen(NamedTuple):
    """R stretches whose ends are to be foreseen.

    Attributes:
        seen: the stretches.
        ended: `[R]`, how they ended; see `outcomes`.
        log_prior: `[R, G + 2]`, how likely each end was when the stretch began.
    """

    seen: Stretches
    ended: Tensor
    log_prior: Tensor


class Kitchen(NamedTuple):
    """A kitchen of the experiment.

    Attributes:
        plans: of its G subgoals.
        steps: of people on the way to where they went, to learn from.
        validation: stretches by which `DOUBTS` are compared.
        test: stretches to score.
        kind_of: `[G + 2]`, the kinds of ends.
        pairs: who played, by game.
    """

    plans: SubgoalPlans
    steps: CountedSteps
    validation: Foreseen
    test: Foreseen
    kind_of: Tensor
    pairs: list[str]


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    prepare(SOURCE_2019, FOLDER)
    models = ("bsdr", "br_per_human", "bsdr_aggregate", "br", "prior")  # what takes longest begins
    cases = [Case(model, settings.quick) for model in models]
    records = run_cases(settings.out, cases, run_case, settings.workers)
    return kitchen_goals_report.write(settings, records)


def run_case(case: Case) -> list[Record]:
    """Learns a model from stretches whose ends are known, and foresees the ends of later ones."""
    found = kitchens(case.quick)
    records: list[Record] = []
    if case.model == "prior":
        for name, kitchen in found.items():
            log_prior = kitchen.test.log_prior[:, None].expand(-1, LONGEST, -1)
            records += _records(name, kitchen, log_prior, {"model": "prior", "evidence": "own"})
        return [record | {"doubt": 0.0, "converged": True} for record in records]
    people = 1 + max(int(kitchen.steps.who.max()) for kitchen in found.values())
    model, converged = fit_people(
        case.model, {n: (kitchen.plans, kitchen.steps) for n, kitchen in found.items()}, people
    )
    doubt = best_doubt(found.values(), model)
    for name, kitchen in found.items():
        test = kitchen.test
        own = log_likelihoods(kitchen.plans, test.seen, model)
        told = {"own": own, "another walk": own[_another_walk(test.seen)]}
        if not model.alike:
            told["another's beta"] = log_likelihoods(kitchen.plans, test.seen, model, exchanged=True)
        for evidence, log_likelihood in told.items():
            log_posterior = posteriors(test.log_prior, log_likelihood, doubt)
            told_of = {"model": case.model, "evidence": evidence}
            records += _records(name, kitchen, log_posterior, told_of)
            if evidence != "another walk":
                records += _known_end_records(name, kitchen, log_likelihood, told_of)
    return [record | {"doubt": doubt, "converged": converged} for record in records]


@cache
def kitchens(quick: bool) -> dict[str, Kitchen]:
    """The kitchens by name, split within games: the same people train and test."""
    data = KitchenPeople(str(FOLDER), QUICK_KITCHENS if quick else None, "rollout", history=0)
    found = {}
    for name, games in data.kitchens.items():
        every, layout = stretches(games, data.parts[name], data.humans), games.layout
        train, *others = (every.select(every.part == part) for part in (TRAIN, VALIDATION, TEST))
        wanted = subgoals(layout, train, LEAST)
        plans = SubgoalPlans(layout, wanted, train)
        validation, test = (
            Foreseen(seen, outcomes(layout, wanted, seen), log_priors(layout, wanted, train, seen)) for seen in others
        )
        kind_of = torch.tensor([goal.kind for goal in wanted] + [WAIT, OTHER])
        pairs = [" and ".join(sorted(players)) for players in games.players]
        found[name] = Kitchen(
            plans, ways(plans, train, outcomes(layout, wanted, train)), validation, test, kind_of, pairs
        )
    return found


def log_priors(layout: Layout, wanted: list[Subgoal], train: Stretches, test: Stretches) -> Tensor:
    """`[R, G + 2]`: how likely each end of the stretches `test` is, by how often it came in `train`.

    Counted in the same seat with the same hands; of these, with pots in the same state; of these, with the same in the
    partner's hands: the coarser count is worth `PRIOR_STRENGTH` stretches to the finer one.
    """
    ended = outcomes(layout, wanted, train)
    fits = torch.tensor([goal.hands for goal in wanted]) == test.hands[:, None]
    possible = torch.cat([fits, torch.ones(len(fits), 2, dtype=torch.bool)], 1).double()
    prior = possible / possible.sum(1, keepdim=True)
    for depth in (1, 2, 3):
        keys = [_context(layout, seen, depth) for seen in (train, test)]
        counts = prior.new_zeros(1 + int(torch.cat(keys).max()), prior.shape[1])
        counts.index_put_((keys[0], ended), prior.new_ones(()), accumulate=True)
        here = counts[keys[1]]
        prior = (here + PRIOR_STRENGTH * prior) / (here.sum(1, keepdim=True) + PRIOR_STRENGTH)
    return prior.log()


@torch.no_grad()
def log_likelihoods(plans: SubgoalPlans, seen: Stretches, model: SubgoalPeople, exchanged: bool = False) -> Tensor:
    """log P(action | how the stretch ends) at each step before the last, `[R, L, G + 2]`, 0 after that.

    Whoever waits, or does what is no subgoal, acts by habit alone. If people are `exchanged`, everybody plans with the
    rationality of another person.
    """
    humans = torch.unique(seen.human)
    planned = Planned(plans, humans, model, as_if=exchanged_people(humans) if exchanged else None)
    human = seen.human[:, None].expand_as(seen.actions)

    def taken(rows: Tensor, by_plan: Tensor) -> Tensor:
        log_probs = model.log_probs(by_plan, human[rows].flatten(), seen.last[rows].flatten())
        log_probs = log_probs.gather(1, seen.actions[rows].view(-1, 1)).view_as(seen.actions[rows])
        return torch.where(seen.real[rows], log_probs, 0.0)

    everybody = torch.arange(len(seen.length))
    aimless = taken(everybody, torch.zeros(seen.actions.numel(), NUM_ACTIONS, dtype=torch.float64))
    found = aimless[..., None].repeat(1, 1, len(plans.wanted) + 2)
    for number, goal in enumerate(plans.wanted):
        rows = (seen.hands == goal.hands).nonzero()[:, 0]
        states = plans.number(number, seen.states[rows]).flatten()
        found[rows, :, number] = taken(rows, planned(states, planned.column(human[rows].flatten())))
    return found


def posteriors(log_prior: Tensor, log_likelihood: Tensor, doubt: float) -> Tensor:
    """log P(end | the first l steps), `[R, L, G + 2]`, entry l, of people who may change their mind.

    Before each step the person thinks again with probability `doubt`, which is to draw another end from the prior.
    """
    belief = log_prior
    found = [belief]
    for step in log_likelihood.unbind(1)[:-1]:
        if doubt:
            belief = torch.logaddexp(math.log1p(-doubt) + belief, math.log(doubt) + log_prior)
        belief = (belief + step).log_softmax(1)
        found.append(belief)
    return torch.stack(found, 1)


def best_doubt(found: Iterable[Kitchen], model: SubgoalPeople) -> float:
    """That of `DOUBTS` with which the validation part is foreseen best, at every step."""
    scores = torch.zeros(len(DOUBTS), dtype=torch.float64)
    for kitchen in found:
        seen, ended, log_prior = kitchen.validation
        log_likelihood = log_likelihoods(kitchen.plans, seen, model)
        view = next(view for view in views(seen) if view.seen_as == "every step")
        for number, doubt in enumerate(DOUBTS):
            posterior = posteriors(log_prior, log_likelihood, doubt)[view.rows, view.steps].exp()
            scores[number] += goal_scores(posterior, ended[view.rows], kitchen.kind_of)["log_score"].mean()
    return DOUBTS[int(scores.argmax())]


class View(NamedTuple):
    """Stretches `rows [M]` of which the first `steps [M]` were seen."""

    seen_as: str
    seen: float
    rows: Tensor
    steps: Tensor


def views(seen: Stretches) -> Iterator[View]:
    """A part of each stretch; every number of steps, which needs nothing of what comes later; the same by hands."""
    before = seen.length - 1
    rows = (before > 0).nonzero()[:, 0]
    for part in PARTS:
        yield View("part", part, rows, (before[rows] * part).ceil().long())
    row, step = seen.real.nonzero(as_tuple=True)
    yield View("every step", -1, row, step + 1)
    for held in range(len(HANDS)):
        of = seen.hands[row] == held
        yield View("hands", held, row[of], step[of] + 1)


def goal_scores(posterior: Tensor, truth: Tensor, kind_of: Tensor) -> dict[str, Tensor]:
    """What posteriors `[M, G + 2]` say of what then happened `[M]`: `[M]` each.

    `likelihood` and `log_score` are of its kind, wherever it was done; `place_log_score` is of kind and place.
    """
    by_kind = posterior @ one_hot(kind_of, len(KINDS)).double()
    of_kind = by_kind.gather(1, kind_of[truth][:, None]).squeeze(1)
    return {
        "likelihood": of_kind,
        "log_score": of_kind.log(),
        "place_log_score": posterior.gather(1, truth[:, None]).squeeze(1).log(),
    }


def calibration(posterior: Tensor, truth: Tensor, kind_of: Tensor) -> list[list[float]]:
    """For each bin of probability: how many (moment, kind) pairs, the sum of their probabilities, and how many came."""
    probability = (posterior @ one_hot(kind_of, len(KINDS)).double()).flatten()
    came = one_hot(kind_of[truth], len(KINDS)).double().flatten()
    bins = (probability * BINS).long().clamp(max=BINS - 1)
    sums = torch.zeros(BINS, 3, dtype=torch.float64)
    sums.index_add_(0, bins, torch.stack([torch.ones_like(came), probability, came], dim=1))
    return [[int(count), round(p, 3), int(hits)] for count, p, hits in sums.tolist()]


def _records(name: str, kitchen: Kitchen, log_posterior: Tensor, told: Record) -> list[Record]:
    """The scores of each game, by how much of the stretches was seen."""
    seen, ended, _ = kitchen.test
    records: list[Record] = []
    for view in views(seen):
        if view.seen_as == "hands" and told["evidence"] != "own":
            continue
        truth, game = ended[view.rows], seen.game[view.rows]
        posterior = log_posterior[view.rows, view.steps].exp()
        scores = goal_scores(posterior, truth, kitchen.kind_of)
        for number in torch.unique(game).tolist():
            of = game == number
            record = {"kitchen": name, "pair": kitchen.pairs[number], **told}
            record |= {"seen_as": view.seen_as, "seen": view.seen, "moments": int(of.sum())}
            record |= {measure: float(values[of].mean()) for measure, values in scores.items()}
            if view.seen_as == "every step":
                record["calibration"] = calibration(posterior[of], truth[of], kitchen.kind_of)
            records.append(record)
    return records


def _known_end_records(name: str, kitchen: Kitchen, log_likelihood: Tensor, told: Record) -> list[Record]:
    """The cross-entropy of each game's actions, if it were known how stretches end."""
    seen, ended, _ = kitchen.test
    row, step = seen.real.nonzero(as_tuple=True)
    loss, game = -log_likelihood[row, step, ended[row]], seen.game[row]
    return [
        {"kitchen": name, "pair": kitchen.pairs[number], **told, "seen_as": "known end", "seen": -1}
        | {"moments": int((game == number).sum()), "cross_entropy": float(loss[game == number].mean())}
        for number in torch.unique(game).tolist()
    ]


def _context(layout: Layout, seen: Stretches, depth: int) -> Tensor:
    """`[R]`: a number for what was the case when a stretch began: seat and hands, also pots, also the partner's."""
    states = seen.states[:, 0]
    found = seen.seat * len(HANDS) + seen.hands
    if depth > 1:
        ready = pots_ready(layout, states)
        cooking = (pot_ticks(layout, states) != IDLE) & ~ready
        wanting = takes_onions(layout, states)
        for pots in (ready, cooking, wanting):
            found = 2 * found + pots.any(1)
    if depth > 2:
        found = len(HANDS) * found + hands(states, 1)
    return found


def _another_walk(seen: Stretches) -> Tensor:
    """`[R]`: for each stretch another one in the same seat with the same hands, in which steps were seen, too."""
    group = (seen.seat * len(HANDS) + seen.hands) * 2 + (seen.length > 1)
    found = torch.arange(len(group))
    generator = torch.Generator().manual_seed(0)
    for number in torch.unique(group).tolist():
        rows = (group == number).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=generator)]
        found[rows] = rows.roll(1)
    return found
