"""Getting to know somebody new: how well are people predicted whom a model never saw, after some steps of them?

The people are real: the official split of the MTurk games of 2019. Nobody who tests is known to the models. They see
the first steps of each game, and predict all steps after `LONGEST` with what is known of the person from those. The
control is to predict somebody else with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from bsdr_torch.baselines import ileed
from bsdr_torch.baselines.bpd import BPD, Reminded
from bsdr_torch.baselines.ileed import ILEED, OnlineILEED
from bsdr_torch.contenders import LONG_HISTORY, contenders
from bsdr_torch.data.decisions import Decisions, RolloutKey
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.mturk import SOURCE_2019
from bsdr_torch.data.prepare import prepare
from bsdr_torch.evaluation import kitchen_mean, standard_error
from bsdr_torch.experiments.reporting import (
    NAMES,
    Difference,
    Finding,
    bullets,
    chosen,
    control_sentence,
    draw_line,
    legend_below,
    short_name,
    shown,
    table,
    values_of,
    write_report,
)
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.experiments.statistics import CONFIDENCE, Estimate
from bsdr_torch.kitchens.adapting import fit_person, gather_evidence, log_probs, person
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.predicting import Predicts
from bsdr_torch.metrics import KitchenScores, rollout_measures

FOLDER = Path("datasets/mturk_2019")
# The row of the table, and how many seeds at most: each is a training of minutes, of BPD half an hour for each kitchen.
MODELS = {
    "bsdr": ("bsdr", 3),
    "ileed": ("ileed-symmetric-online", 3),
    "bpd-inference": ("bpd-inference-tempered", 1),
    "bpd-sequence": ("bpd-sequence-tempered", 1),
}
SEEN = (0, 25, 50, 100, 200, 400)
LONGEST = max(SEEN)
_STRETCH = SEEN[1]  # the rest are multiples of it
OWN, ANOTHER = "own", "another's"  # whose first steps were seen
UNIT = " nats per step"


@dataclass(frozen=True)
class Case:
    """A model of a seed; if `quick`, hardly trained, in two kitchens, and tested by few games."""

    model: str
    seed: int
    quick: bool


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    prepare(SOURCE_2019, FOLDER)
    cases = [
        Case(model, seed, settings.quick)
        for model, (_, most) in MODELS.items()
        for seed in range(min(settings.seeds, 1 if settings.quick else most))
    ]
    records = run_cases(settings.out, cases, run_case, settings.workers)
    found = findings(records)
    write_report(settings.out, _text(settings, records, found), {"adaptation": adaptation_figure(records)})
    return found


def run_case(case: Case) -> list[Record]:
    """Trains a model and adapts it to everybody who tests: the cross-entropy of each game and number of steps seen.

    What is known of somebody predicts the rest of their game, and that of who had the same seat in the next game.
    """
    contender, data = contenders(case.quick)[MODELS[case.model][0]], _data(case.quick, case.seed)
    model: Predicts = contender.fit(data, case.seed, **contender.settings)
    layouts = [key.layout for key in data.rollouts]
    scores = {(whose, seen): KitchenScores(layouts) for whose in (OWN, ANOTHER) for seen in SEEN}
    tests = data.steps("test")
    for steps in (tests[layout] for layout in contender.kitchens(list(tests))):
        tested = torch.unique(steps.rollouts).tolist()[: 4 if case.quick else None]
        games = {rollout: steps.some(steps.rollouts == rollout) for rollout in tested}
        for rollout, game in games.items():
            same_seat = [other for other in tested if data.rollouts[other].seat == data.rollouts[rollout].seat]
            other = games[same_seat[(same_seat.index(rollout) + 1) % len(same_seat)]]
            for seen, (own, others) in adapted(model, game, [game, other]).items():
                scores[OWN, seen].update(own, game.actions[LONGEST:], game.rollouts[LONGEST:])
                scores[ANOTHER, seen].update(others, other.actions[LONGEST:], other.rollouts[LONGEST:])
    losses = {kind: rollout_measures(score.sums)["ce"].tolist() for kind, score in scores.items()}
    return [
        {"rollout": rollout, "whose": whose, "seen": seen, "cross_entropy": loss, "converged": True}
        for (whose, seen), by_rollout in losses.items()
        for rollout, loss in enumerate(by_rollout)
        if loss == loss  # those that test
    ]


@torch.no_grad()
def adapted(model: Predicts, game: Decisions, predicted: Sequence[Decisions]) -> dict[int, list[Tensor]]:
    """log P(action), `[N, 6]`, at steps of some games after `LONGEST`, by how many first steps of `game` were seen."""
    if isinstance(model, KitchenModel):
        return _with_person(model, game, predicted)
    if isinstance(model, OnlineILEED):
        return _with_omega(model.model, game, predicted)
    assert isinstance(model, Reminded)
    by = _with_belief if model.model.predict_by == "inference" else _with_memory
    return by(model.model, game, predicted)


def _with_person(model: KitchenModel, game: Decisions, predicted: Sequence[Decisions]) -> dict[int, list[Tensor]]:
    evidence = gather_evidence(model, game.some(slice(LONGEST)))
    late = [gather_evidence(model, other.some(slice(LONGEST, None))) for other in predicted]
    found = {}
    for seen in SEEN:
        somebody = fit_person(model, evidence.some(slice(seen))) if seen else person(model, None)
        found[seen] = [log_probs(model, steps, somebody) for steps in late]
    return found


def _with_omega(model: ILEED, game: Decisions, predicted: Sequence[Decisions]) -> dict[int, list[Tensor]]:
    first = game.some(slice(LONGEST))
    omega = model.omega_as_seen(ileed.gather_evidence(model.shared(first), first.actions), stretch=_STRETCH)
    late = [model.shared(other.some(slice(LONGEST, None))) for other in predicted]
    return {
        seen: [ileed.mixture_log_probs(steps.log_policy, steps.embedding @ omega[seen // _STRETCH]) for steps in late]
        for seen in SEEN
    }


def _with_belief(model: BPD, game: Decisions, predicted: Sequence[Decisions]) -> dict[int, list[Tensor]]:
    there, actions = model.seen(game)[:, None], game.actions[:, None]
    late = [model.seen(other)[LONGEST:, None] for other in predicted]
    real, belief, found = torch.ones_like(actions, dtype=torch.bool), model.belief(game.layout, 1), {}
    for seen in range(0, LONGEST + 1, _STRETCH):
        if seen:
            belief.learn(there[:seen], actions[:seen], real[:seen], gradient_steps=_STRETCH)
        if seen in SEEN:
            found[seen] = [model.at_temperature(belief.log_probs(steps).squeeze(1)) for steps in late]
    return found


def _with_memory(model: BPD, game: Decisions, predicted: Sequence[Decisions]) -> dict[int, list[Tensor]]:
    """What is remembered of the first steps goes before the last `LONG_HISTORY` steps, which all others see too."""
    there, forecaster = model.seen(game), model.population(game.layout).forecaster
    windows = []
    for other in predicted:
        window = torch.arange(LONGEST, len(other.actions)) + torch.arange(-LONG_HISTORY, 1)[:, None]
        windows.append((model.seen(other)[window], other.actions[window]))
    found = {}
    for seen in SEEN:
        memory = there.new_zeros(1, forecaster.memory)
        if seen:
            _, memory = forecaster(there[:seen, None], game.actions[:seen, None])
        raw = [forecaster(*steps, memory.expand(steps[1].shape[1], -1))[0][-1] for steps in windows]
        found[seen] = [model.at_temperature(log_probs) for log_probs in raw]
    return found


class Paired(Difference):
    """A mean as the table of models has it, over rollouts and then over kitchens, with its error by bootstrap."""

    def __init__(self, values: Tensor, rollouts: Sequence[RolloutKey]) -> None:
        mean, error, normal = kitchen_mean(values, rollouts), standard_error(values, rollouts), NormalDist()
        half = normal.inv_cdf((1 + CONFIDENCE) / 2) * error
        self.estimate = Estimate(mean, mean - half, mean + half, int((~values.isnan()).sum()))
        self.p = 2 * normal.cdf(-abs(mean) / error) if error else float(mean == 0)


class Comparison(NamedTuple):
    """Models on the same people: those of some kitchens."""

    kitchens: list[str]
    models: list[str]
    records: list[Record]
    rollouts: list[RolloutKey]

    @property
    def where(self) -> str:
        """The kitchens in words; nothing if it is all of them."""
        return "" if set(self.kitchens) == {key.layout for key in self.rollouts} else f" in {', '.join(self.kitchens)}"

    def losses(self, model: str, seen: int, whose: str = OWN) -> Tensor:
        """The cross-entropy of each rollout after so many steps seen, over seeds, `[R]`; NaN for all others."""
        sums = torch.zeros((2, len(self.rollouts)), dtype=torch.float64)
        for record in chosen(self.records, model=model, seen=seen, whose=whose):
            if self.rollouts[record["rollout"]].layout in self.kitchens:
                sums[:, record["rollout"]] += torch.tensor([record["cross_entropy"], 1.0], dtype=sums.dtype)
        return sums[0] / sums[1]

    def level(self, model: str, seen: int, whose: str = OWN) -> Estimate:
        """Mean cross-entropy."""
        return Paired(self.losses(model, seen, whose), self.rollouts).estimate

    def change(self, model: str, seen: int, whose: str = OWN) -> Paired:
        """Against nothing seen."""
        return Paired(self.losses(model, seen, whose) - self.losses(model, 0), self.rollouts)

    def difference(self, model: str, other: str, seen: int) -> Paired:
        """Between two models."""
        return Paired(self.losses(model, seen) - self.losses(other, seen), self.rollouts)


def comparisons(records: list[Record]) -> list[Comparison]:
    """The widest first: for each set of kitchens that a model is for, all models that are for these kitchens."""
    rollouts = _data(records[0]["quick"], 0).rollouts
    kitchens = {
        model: {rollouts[record["rollout"]].layout for record in chosen(records, model=model)}
        for model in values_of(records, "model")
    }
    found = []
    for some in sorted({frozenset(each) for each in kitchens.values()}, key=len, reverse=True):
        models = [model for model, each in kitchens.items() if some <= each]
        ordered = [name for name in dict.fromkeys(key.layout for key in rollouts) if name in some]
        found.append(Comparison(ordered, models, records, rollouts))
    return found


def findings(records: list[Record]) -> list[Finding]:
    """What was found, in sentences made from the intervals."""
    found, told = [], set[str]()
    for comparison in comparisons(records):
        new = [model for model in comparison.models if model not in told]
        for model in new:
            what = f"the cross-entropy of {NAMES[model]} on a new person's later steps{comparison.where}"
            for seen in (SEEN[1], LONGEST):
                found.append(Finding(_lower(comparison.change(model, seen), what, f"after {seen} steps", "after none")))
            if not model.startswith("bpd"):  # which knows nothing of people: anybody's steps tell it something
                saved = comparison.losses(model, 0) - comparison.losses(model, LONGEST, ANOTHER)
                subject = f"cross-entropy of {NAMES[model]} that {LONGEST} steps of somebody else save"
                words = control_sentence(Paired(saved, comparison.rollouts), subject, "none", 4, UNIT)
                found.append(Finding(words))
            own = comparison.losses(model, LONGEST) - comparison.losses(model, LONGEST, ANOTHER)
            one, other = f"after {LONGEST} steps of the person", "after as many of somebody else"
            found.append(Finding(_lower(Paired(own, comparison.rollouts), what, one, other)))
        first = comparison.models[0]
        for model in new:
            if model != first:
                gap, what = comparison.difference(first, model, LONGEST), f"the cross-entropy{comparison.where}"
                words = _lower(gap, what, f"of {NAMES[first]}", f"of {NAMES[model]}")
                found.append(Finding(f"with {LONGEST} steps seen, {words}"))
        told.update(new)
    return found


def _lower(gap: Paired, what: str, one: str, other: str) -> str:
    return gap.sentence(f"{what} {one}", f"that {other}", "is higher than", "is lower than", 4, UNIT)


def adaptation_figure(records: list[Record]) -> Figure:
    """Cross-entropy against the number of steps seen, a panel for each comparison."""
    every = comparisons(records)
    figure = Figure(figsize=(0.5 + 5 * len(every), 4.6), layout="constrained")
    axes = figure.subplots(1, len(every), squeeze=False)[0]
    for axis, comparison in zip(axes, every, strict=True):
        for model in comparison.models:
            for whose, line in ((OWN, "-"), (ANOTHER, ":")):
                draw_line(axis, SEEN, [_level_of_change(comparison, model, seen, whose) for seen in SEEN], model, line)
        axis.set_xscale("symlog", linthresh=25)
        axis.set_xticks(SEEN, [str(seen) for seen in SEEN])
        axis.minorticks_off()
        axis.set(xlabel="steps seen (solid: of the person, dotted: of somebody else)")
        axis.set(ylabel="cross-entropy (nats per step)")
        kitchens = ", ".join(short_name(name, " ") for name in comparison.kitchens)
        axis.set_title(kitchens if comparison.where else "all kitchens", fontsize=10)
        axis.grid(alpha=0.3)
    legend_below(figure, axes[-1])  # the last comparison is between all models
    figure.suptitle(f"People never seen before, their steps after {LONGEST}")
    return figure


def _level_of_change(comparison: Comparison, model: str, seen: int, whose: str) -> Estimate:
    """Mean cross-entropy with the interval of its change: people differ by far more than what is learned of them."""
    level, change = comparison.level(model, seen, whose).mean, comparison.change(model, seen, whose).estimate
    return Estimate(level, level - change.reach[0], level + change.reach[1], change.repetitions)


def _text(settings: Run, records: list[Record], found: list[Finding]) -> str:
    tables = []
    for comparison in comparisons(records):
        rows = []
        for model in comparison.models:
            for seen in SEEN:
                own, control = (comparison.change(model, seen, whose).estimate for whose in (OWN, ANOTHER))
                changes = [shown(own, 4, sign=True), shown(control, 4, sign=True)] if seen else ["", ""]
                rows.append([NAMES[model], str(seen), shown(comparison.level(model, seen), 4), *changes])
        title = f"In {', '.join(comparison.kitchens)}:" if comparison.where else "In all kitchens:"
        header = ["model", "steps seen", "cross-entropy", "less none seen", "control: somebody else's, less none seen"]
        tables.append(f"{title}\n\n{table(header, rows)}")
    seeds = ", ".join(
        f"{len(values_of(chosen(records, model=model), 'seed'))} of {NAMES[model]}"
        for model in values_of(records, "model")
    )
    people = len({record["rollout"] for record in records})
    return f"""# Getting to know somebody new

Made by `{settings.command("online_adaptation")}`, {people} games of people who were never seen (the official split of \
the MTurk games of 2019). Seeds: {seeds}.

Of each game, a model sees the first steps of a person and predicts the steps after {LONGEST}; what it knows of the \
person is from the first steps alone.

- BSDR, trained on other people: theta_beta, the weights of the person's plans and habit; all else is frozen.
- ILEED (`ileed-symmetric`), trained on the same people: omega.
- BPD (`bpd-...-tempered`), of which nothing but a temperature is fitted to people, by inference: a Gaussian over z. \
By the network that watched: its memory after the first steps, from which it goes on with the {LONG_HISTORY} steps \
before each step that it predicts.

At each step that they predict, BSDR and ILEED see the last {LONG_HISTORY} own actions, BPD by inference none. The \
control is to see the first steps of somebody else, in the same seat and kitchen: a model that learns who plays \
does not gain from them. One that knew nothing of people does, as it learns of them what people have in common.

Cross-entropy is averaged as in the table of models, over games and then over kitchens. Brackets are {CONFIDENCE:.0%} \
intervals by bootstrap over pairs of people (of the control, those who are predicted), paired for changes and \
differences, and p is that of the same normal distribution. No sentence below claims a difference whose interval \
contains zero.

## What was found

{bullets(found)}

## Cross-entropy by steps seen

{(chr(10) * 2).join(tables)}

![Cross-entropy against the number of steps seen](adaptation.png)

The bars of the figure are the intervals of the change against none seen.
"""


@cache
def _data(quick: bool, seed: int) -> KitchenPeople:
    layouts = ["cramped_room", "asymmetric_advantages"] if quick else None
    return KitchenPeople(str(FOLDER), layouts, "human", history=LONG_HISTORY, seed=seed)
