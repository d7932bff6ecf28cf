"""Generalization of rewards in kitchens: are learned wishes good to act by? (paper, "Generalization of Learned
Rewards")

Half of the recorded pairs teach what people want, by each rationality model. Somebody nearly perfect, without habits or
pauses, plans for it and plays with a partner cloned from the other half: how many soups are served? In the kitchen that
the reward was learned in, and in the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bsdr_torch import priors
from bsdr_torch.baselines.cloning import Cloning
from bsdr_torch.data.decisions import UNRECORDED, Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.mturk import SOURCE_2019
from bsdr_torch.data.packed_games import PackedGames
from bsdr_torch.data.prepare import prepare
from bsdr_torch.data.splits import TEST, TRAIN, VALIDATION
from bsdr_torch.experiments import kitchen_rewards_report
from bsdr_torch.experiments.fitting import minimise
from bsdr_torch.experiments.habitual_steps import NUM_HABITS, CountedSteps
from bsdr_torch.experiments.kitchen_stretches import HANDS
from bsdr_torch.experiments.reporting import Finding
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.experiments.statistics import rank_correlation
from bsdr_torch.experiments.task_kitchens import EVENTS, PLACES, TaskKitchen
from bsdr_torch.kitchens.predicting import fit
from bsdr_torch.rationality import POPULATION, Rationality, RationalityKind
from bsdr_torch.soft_bellman import Problem, action_log_probs, initial_values, log_policy, uniform_base
from bsdr_torch.solver import Solver, WarmStart
from bsdr_torch.worlds.overcooked import INTERACT, NUM_ACTIONS, ego_first, start_states, step

FOLDER = Path("datasets/mturk_2019")
QUICK_KITCHENS = ["cramped_room", "coordination_ring"]  # rewards are learned in the first
MODELS: tuple[RationalityKind, ...] = ("br", "br_per_human", "irleed", "bsdr")
BETA_FEATURES = (*HANDS, "a soup is ready", "facing something to use")
DISCOUNT = 0.95
COST_SCALE, SPREAD, OFFSET_SCALE, HABIT_SCALE = 10.0, 0.5, 1.0, 3.0  # expected of theta_R, theta_beta, offsets, habits
SHARPNESS = 100.0  # the length of the weights of whoever acts; that of people's is about 15
LAPSES = 0.1  # the share of actions at random, so that nobody is stuck behind a partner for ever
STEPS, WINDOW = 400, 200
RANDOM = 5  # rewards
FEW = 1  # pair, against all who teach
_TOLERANCE = 1e-6  # of plans


@dataclass(frozen=True)
class Case:
    """A kitchen, and a seed by which its pairs are halved.

    Attributes:
        kitchen: in which rewards are learned and acted on.
        seed: of halves, clones and games.
        pairs: how many pairs of the one half teach rewards, at most; the other half is cloned.
        gradient: its length at which a fit ends, per step of people.
        epochs: of the clone.
        games: with each reward.
    """

    kitchen: str
    seed: int
    pairs: int
    gradient: float
    epochs: int
    games: int


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    prepare(SOURCE_2019, FOLDER)
    names = QUICK_KITCHENS if settings.quick else list(KitchenPeople(str(FOLDER), history=0).kitchens)
    size = (3, 1e-2, 4, 8) if settings.quick else (4, 4e-3, 10, 16)
    cases = [Case(name, seed, *size) for seed in range(settings.seeds) for name in names]
    teaching = [case for case in cases if case.kitchen == names[0]] if settings.quick else cases
    fits = run_cases(settings.out / "fits", teaching, fit_case, settings.workers)
    records = run_cases(settings.out, cases, partial(play_case, fits), settings.workers)
    return kitchen_rewards_report.write(settings, records)


class Halves(NamedTuple):
    """The people of a kitchen, halved.

    Attributes:
        data: of which the cloned half trains and validates, and the teaching half tests.
        kitchen: the small world, as the teaching half knows it.
        steps: of those who teach.
        people: how many of them there are.
        others: `[J]` bool, the joint steps of the cloned half.
    """

    data: KitchenPeople
    kitchen: TaskKitchen
    steps: CountedSteps
    people: int
    others: Tensor


@cache
def halves(case: Case) -> Halves:
    """Halves the pairs of a kitchen by the seed."""
    data = KitchenPeople(str(FOLDER), [case.kitchen], history=8, seed=case.seed)
    games = data.kitchens[case.kitchen]
    order = torch.randperm(len(games.games), generator=torch.Generator().manual_seed(case.seed))
    teaching = (len(order) + 1) // 2
    part_of = torch.full((len(order),), -1, dtype=torch.int8)
    part_of[order[: min(teaching, case.pairs)]] = TEST
    part_of[order[teaching:]] = TRAIN
    part_of[order[-1]] = VALIDATION
    data.parts = {case.kitchen: part_of[games.game]}
    seen = data.steps("test")[case.kitchen]
    _, who = torch.unique(seen.rollouts, return_inverse=True)
    kitchen = TaskKitchen(games, data.parts[case.kitchen] == TEST)
    state = kitchen.number(ego_first(seen.states, seen.seats))
    steps = CountedSteps.of(state, who, seen.history[:, 0], seen.actions)
    others = torch.isin(data.parts[case.kitchen], torch.tensor([TRAIN, VALIDATION], dtype=torch.int8))
    return Halves(data, kitchen, steps, 1 + int(who.max()), others)


def fit_case(case: Case) -> list[Record]:
    """Fits every rationality model to those who teach, and to a few of them.

    The weights are those of the shared reward, of length 1; `people` counts those who taught it.
    """
    records: list[Record] = []
    for taught_by, half in (("all", halves(case)), ("few", halves(replace(case, pairs=FEW)))):
        simpler = None
        for kind in MODELS:
            found, converged = fit_wishes(kind, half, simpler, case.gradient)
            simpler = simpler or found
            weights = -nn.functional.normalize(found.rationality.theta_R, dim=0)
            taught = {"model": kind, "taught_by": taught_by, "people": half.people}
            records.append(taught | {"weights": weights.tolist(), "converged": converged})
    return records


def play_case(fits: Sequence[Record], case: Case) -> list[Record]:
    """Soups served in a kitchen by whoever acts on the rewards of each model, learned here or in another kitchen.

    `source` is the kitchen in which a reward was learned, `taught_by` says whether of all who teach or of a few. Also
    what rewards say of the games of the cloned half.
    """
    half = halves(case)
    with torch.random.fork_rng():
        torch.manual_seed(case.seed)
        partner = Cloning(half.data.specs, half.data.humans, half.data.named, [256, 256], history=8, dropout=0.3)
        fit(partner, half.data, case.epochs)
    rewards = [
        record
        for record in fits
        if record["seed"] == case.seed and (record["kitchen"] == case.kitchen or record["taught_by"] == "all")
    ]
    generator = torch.Generator().manual_seed(case.seed)
    random = torch.randn(RANDOM, len(EVENTS) + len(PLACES), generator=generator, dtype=torch.float64)
    weights = torch.tensor([record["weights"] for record in rewards], dtype=torch.float64)
    weights = torch.cat([weights, nn.functional.normalize(random, dim=1)]).T
    labels = [
        {"source": record["kitchen"]} | {name: record[name] for name in ("model", "taught_by", "people")}
        for record in rewards
    ]
    nobody = {"source": case.kitchen, "taught_by": "nobody", "people": 0}
    labels += [nobody | {"model": "random"}] * RANDOM
    played = soups(half.kitchen, policies(half.kitchen, weights), partner, case.games, generator)
    said = said_returns(half, weights)
    records = [
        label | {"soups": float(found), "returns": value}
        for label, found, value in zip(labels, played, said, strict=False)
    ]
    records.append(nobody | {"model": "clone", "soups": float(played[-1])})
    people = STEPS * float(half.data.kitchens[case.kitchen].soups[half.others].double().mean())
    records.append(nobody | {"model": "people", "soups": people})
    converged = all(record["converged"] for record in rewards)
    return [record | {"converged": converged} for record in records]


class Wishes(nn.Module):
    """What people want, r_i(s, a) = beta_i(s) (w + o_i) . phi(s, a), with habits of each person.

    Nobody can tell a rationality that all people share from the cost, if what is done depends on what is in the hands:
    the mean of beta over people is 1 in every state.

    Args:
        kind: the rationality model.
        people: B, how many there are.
    """

    def __init__(self, kind: RationalityKind, people: int) -> None:
        super().__init__()
        widths = len(EVENTS) + len(PLACES), len(BETA_FEATURES)
        self.rationality = Rationality(kind, people, *widths, gauge="mean_one")
        nn.init.constant_(self.rationality.raw_theta_R, -1.0)  # everything is worth something
        self.habits = nn.Parameter(torch.zeros(people, NUM_HABITS))
        self.pauses = nn.Parameter(torch.zeros(people, 3))
        self.alike = not self.rationality.varies.by_human
        self.double()

    @torch.no_grad()
    def start_from(self, simpler: Wishes) -> None:
        """Takes over habits and the cost."""
        self.habits.copy_(simpler.habits)
        self.pauses.copy_(simpler.pauses)
        self.rationality.raw_theta_R.copy_(simpler.rationality.theta_R)

    def plans(self, kitchen: TaskKitchen, steps: CountedSteps, solver: Solver) -> Tensor:
        """log P(a) by plans alone in the states of the steps, `[U, 6]`."""
        people = torch.arange(1 if self.alike else len(self.habits))
        phi = nn.functional.pad(kitchen.events, (0, len(PLACES))), nn.functional.pad(kitchen.places, (len(EVENTS), 0))
        of_events, of_places = (self.rationality.reward(part, beta_features(kitchen), people) for part in phi)
        before = of_events.new_zeros(len(of_events), INTERACT, len(people))
        problem: Problem = {
            "discount": DISCOUNT,
            "action_reward": torch.cat([before, of_events[:, None]], 1),
            "log_base": uniform_base(kitchen.mdp, torch.float64),
            "solver": solver,
        }
        values = initial_values(kitchen.mdp, of_places, **problem)[None]
        who = torch.zeros_like(steps.who) if self.alike else steps.who
        return action_log_probs(kitchen.mdp, values, steps.state, who, torch.zeros_like(who), **problem)

    def log_prior(self) -> Tensor:
        """log P(theta), up to a constant."""
        model = self.rationality
        log_prior = priors.gaussian(self.habits, HABIT_SCALE) + priors.gaussian(self.pauses, HABIT_SCALE)
        log_prior = log_prior + priors.gaussian(model.theta_R, COST_SCALE)
        if not self.alike:
            log_prior = log_prior + priors.hierarchical(model.theta_beta, SPREAD)
        return log_prior if model.offset is None else log_prior + priors.gaussian(model.offset, OFFSET_SCALE)


def fit_wishes(
    kind: RationalityKind, half: Halves, simpler: Wishes | None = None, gradient: float = 1e-3
) -> tuple[Wishes, bool]:
    """The MAP model of those who teach, from a simpler model or from habits, and whether its gradient vanished."""
    steps = half.steps
    model, solver = Wishes(kind, half.people), Solver(tolerance=_TOLERANCE, warm_start=WarmStart())

    def loss(by_plan: Tensor) -> Tensor:
        log_likelihood = steps.log_likelihood(by_plan, model.habits, model.pauses)
        return -(log_likelihood.sum() + model.log_prior()) / steps.times.sum()

    if simpler is None:
        nothing = torch.zeros(len(steps.state), NUM_ACTIONS, dtype=torch.float64)
        minimise(lambda: loss(nothing), [model.habits, model.pauses], gradient)
    else:
        model.start_from(simpler)
    learned = [part for part in model.parameters() if part.numel() > 1 or not model.alike]  # one beta is 1
    converged = minimise(lambda: loss(model.plans(half.kitchen, steps, solver)), learned, gradient)
    return model.requires_grad_(False), converged


def beta_features(kitchen: TaskKitchen) -> Tensor:
    """`[S, len(BETA_FEATURES)]`: what rationality may depend on."""
    ready, facing = kitchen.ready.double(), kitchen.places.amax(1)
    return torch.cat([nn.functional.one_hot(kitchen.hands, len(HANDS)).double(), ready[:, None], facing[:, None]], 1)


@torch.no_grad()
def policies(kitchen: TaskKitchen, weights: Tensor) -> Tensor:
    """P(a|s), `[S, 6, B]`, of whoever acts nearly perfectly on rewards `weights [F, B]` of length 1."""
    of_states, of_actions = kitchen.rewards(SHARPNESS * weights)
    problem: Problem = {
        "discount": DISCOUNT,
        "action_reward": of_actions,
        "log_base": uniform_base(kitchen.mdp, torch.float64),
        "solver": Solver(tolerance=_TOLERANCE),
    }
    best = log_policy(kitchen.mdp, initial_values(kitchen.mdp, of_states, **problem), **problem).exp()
    return (1 - LAPSES) * best + LAPSES / NUM_ACTIONS


@torch.no_grad()
def soups(kitchen: TaskKitchen, acting: Tensor, partner: Cloning, games: int, generator: torch.Generator) -> Tensor:
    """Soups served in a game with a clone, `[B + 1]`: by each of the policies `acting [S, 6, B]`, and by another clone.

    All games of all policies are played side by side, half of them in each seat.
    """
    layout, B = kitchen.layout, acting.shape[2]
    column = torch.arange(B + 1).repeat_interleave(games)
    seat = torch.arange(games).repeat(B + 1) % 2
    planning = (column < B).nonzero()[:, 0]
    states = start_states(layout, len(column))
    history = torch.full((len(column), 2, partner.history), UNRECORDED)
    nobody, nothing = torch.full_like(column, POPULATION), torch.zeros_like(column)
    served = torch.zeros(B + 1, dtype=torch.float64)
    # Each pair of a game and a seat in which a clone sits.
    game = torch.cat([torch.arange(len(column)), (column == B).nonzero()[:, 0]])
    cloned = torch.cat([1 - seat, seat[column == B]])
    for _ in range(STEPS):
        batch = Decisions(
            layout.name, states[game], nobody[game], cloned, history[game, cloned], *(nothing[game] for _ in range(4))
        )
        actions = torch.empty(len(column), 2, dtype=torch.int64)
        actions[game, cloned] = torch.multinomial(partner.action_log_probs(batch).exp(), 1, generator=generator)[:, 0]
        own = kitchen.number(ego_first(states[planning], seat[planning]))
        chosen = torch.multinomial(acting[own, :, column[planning]], 1, generator=generator)[:, 0]
        actions[planning, seat[planning]] = chosen
        states, earned, _ = step(layout, states, actions)
        served.index_add_(0, column, (earned > 0).double())
        history = torch.cat([actions[:, :, None], history], 2)[:, :, : partner.history]
    return served / games


def said_returns(half: Halves, weights: Tensor) -> list[float]:
    """How well rewards `weights [F, B]` rank stretches of `WINDOW` steps of other people's games by soups served.

    The rank correlation of soups and of what the reward says of both players' steps.
    """
    games: PackedGames = half.data.kitchens[half.kitchen.layout.name]
    others = half.others.nonzero()[:, 0]
    place = others - games.first[games.game[others]]
    full = place < (games.lengths[games.game[others]] // WINDOW) * WINDOW
    others, place = others[full], place[full]
    _, window = torch.unique(games.game[others] * 10**6 + place // WINDOW, return_inverse=True)
    served = torch.zeros(1 + int(window.max()), dtype=torch.float64)
    served.index_add_(0, window, games.soups[others].double())
    value = torch.zeros(len(served), weights.shape[1], dtype=torch.float64)
    for seat in (0, 1):
        state = half.kitchen.number(ego_first(games.states[others], seat))
        using = (games.actions[others, seat] == INTERACT).double()[:, None]
        features = torch.cat([using * half.kitchen.events[state], half.kitchen.places[state]], 1)
        value.index_add_(0, window, features @ weights)
    return [rank_correlation(served, column) for column in value.T]
