"""Getting to know somebody new: how well are people predicted whom a model never saw, after some steps of them?

The people are real: the official split of the MTurk games of 2019. Nobody who tests is known to the models. They see
the first steps of each game, and predict all steps after `LONGEST` with what is known of the person from those.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from bsdr_torch.baselines import ileed
from bsdr_torch.baselines.bpd import BPD, Reminded
from bsdr_torch.baselines.ileed import ILEED, OnlineILEED
from bsdr_torch.contenders import LONG_HISTORY, Predicts, contenders
from bsdr_torch.data.decisions import Decisions, RolloutKey
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.mturk import SOURCE_2019
from bsdr_torch.data.prepare import prepare
from bsdr_torch.evaluation import kitchen_mean, standard_error
from bsdr_torch.experiments.reporting import NAMES, STYLES, Finding, bullets, chosen, table, values_of, write_report
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.kitchens.adapting import fit_person, gather_evidence, log_probs, person
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.metrics import KitchenScores, rollout_measures

FOLDER = Path("datasets/mturk_2019")
# The row of the table, and how many seeds at most: each is a training of minutes, of BPD half an hour for each kitchen.
MODELS = {
    "bsdr": ("bsdr", 3),
    "ileed": ("ileed-symmetric-online", 3),
    "bpd-inference": ("bpd-inference", 1),
    "bpd-sequence": ("bpd-sequence", 1),
}
SEEN = (0, 25, 50, 100, 200, 400)
LONGEST = max(SEEN)
_STRETCH = SEEN[1]  # the rest are multiples of it


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
    """Trains a model and adapts it to everybody who tests: the cross-entropy of each game and number of steps seen."""
    contender, data = contenders(case.quick)[MODELS[case.model][0]], _data(case.quick, case.seed)
    model: Predicts = contender.fit(data, case.seed, **contender.settings)
    scores = {seen: KitchenScores([key.layout for key in data.rollouts]) for seen in SEEN}
    tests = data.steps("test")
    for steps in (tests[layout] for layout in contender.kitchens(list(tests))):
        for rollout in torch.unique(steps.rollouts).tolist()[: 4 if case.quick else None]:
            game = steps.some(steps.rollouts == rollout)
            for seen, found in adapted(model, game).items():
                scores[seen].update(found, game.actions[LONGEST:], game.rollouts[LONGEST:])
    losses = {seen: rollout_measures(score.sums)["ce"].tolist() for seen, score in scores.items()}
    return [
        {"rollout": rollout, "seen": seen, "cross_entropy": loss, "converged": True}
        for seen, by_rollout in losses.items()
        for rollout, loss in enumerate(by_rollout)
        if loss == loss  # those that test
    ]


@torch.no_grad()
def adapted(model: Predicts, game: Decisions) -> dict[int, Tensor]:
    """log P(action), `[N, 6]`, at the steps of a game after `LONGEST`, by how many of its first steps were seen."""
    if isinstance(model, KitchenModel):
        return _with_person(model, game)
    if isinstance(model, OnlineILEED):
        return _with_omega(model.model, game)
    assert isinstance(model, Reminded)
    return _with_belief(model.model, game) if model.model.predict_by == "inference" else _with_memory(model.model, game)


def _with_person(model: KitchenModel, game: Decisions) -> dict[int, Tensor]:
    evidence = gather_evidence(model, game)
    late = evidence.some(slice(LONGEST, None))
    found = {}
    for seen in SEEN:
        somebody = fit_person(model, evidence.some(slice(seen))) if seen else person(model, None)
        found[seen] = log_probs(model, late, somebody)
    return found


def _with_omega(model: ILEED, game: Decisions) -> dict[int, Tensor]:
    shared = model.shared(game)
    evidence = ileed.gather_evidence(shared, game.actions)
    omega = model.omega_as_seen(ileed.Evidence(*(part[:LONGEST] for part in evidence)), stretch=_STRETCH)
    late = ileed.Shared(*(part[LONGEST:] for part in shared))
    return {seen: ileed.mixture_log_probs(late.log_policy, late.embedding @ omega[seen // _STRETCH]) for seen in SEEN}


def _with_belief(model: BPD, game: Decisions) -> dict[int, Tensor]:
    there, actions = model.seen(game)[:, None], game.actions[:, None]
    real, belief, found = torch.ones_like(actions, dtype=torch.bool), model.belief(game.layout, 1), {}
    for seen in range(0, LONGEST + 1, _STRETCH):
        if seen:
            belief.learn(there[:seen], actions[:seen], real[:seen], gradient_steps=_STRETCH)
        if seen in SEEN:
            found[seen] = belief.log_probs(there[LONGEST:]).squeeze(1)
    return found


def _with_memory(model: BPD, game: Decisions) -> dict[int, Tensor]:
    """What is remembered of the first steps goes before the last `LONG_HISTORY` steps, which all others see too."""
    there, forecaster = model.seen(game), model.population(game.layout).forecaster
    late = torch.arange(LONGEST, len(there))
    window = late + torch.arange(-LONG_HISTORY, 1)[:, None]
    found = {}
    for seen in SEEN:
        memory = there.new_zeros(1, forecaster.memory)
        if seen:
            _, memory = forecaster(there[:seen, None], game.actions[:seen, None])
        found[seen] = forecaster(there[window], game.actions[window], memory.expand(len(late), -1))[0][-1]
    return found


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

    def losses(self, model: str, seen: int) -> Tensor:
        """The cross-entropy of each rollout after so many steps seen, over seeds, `[R]`; NaN for all others."""
        sums = torch.zeros((2, len(self.rollouts)), dtype=torch.float64)
        for record in chosen(self.records, model=model, seen=seen):
            if self.rollouts[record["rollout"]].layout in self.kitchens:
                sums[:, record["rollout"]] += torch.tensor([record["cross_entropy"], 1.0], dtype=sums.dtype)
        return sums[0] / sums[1]

    def level(self, model: str, seen: int) -> tuple[float, float]:
        """Mean cross-entropy and its standard error."""
        return self._estimate(self.losses(model, seen))

    def change(self, model: str, seen: int) -> tuple[float, float]:
        """Against nothing seen, paired."""
        return self._estimate(self.losses(model, seen) - self.losses(model, 0))

    def difference(self, model: str, other: str, seen: int) -> tuple[float, float]:
        """Between two models, paired."""
        return self._estimate(self.losses(model, seen) - self.losses(other, seen))

    def _estimate(self, values: Tensor) -> tuple[float, float]:
        return kitchen_mean(values, self.rollouts), standard_error(values, self.rollouts)


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
    """What was found, in sentences made from the standard errors."""
    found, told = [], set[str]()
    for comparison in comparisons(records):
        new = [model for model in comparison.models if model not in told]
        for model in new:
            for seen in (SEEN[1], LONGEST):
                amount = _in_words(*comparison.change(model, seen))
                words = f"the cross-entropy of {NAMES[model]} on the person's later steps{comparison.where} is {amount}"
                found.append(Finding(f"after {seen} steps seen of a new person, {words} against none seen"))
        first = comparison.models[0]
        for model in new:
            if model != first:
                amount = _in_words(*comparison.difference(first, model, LONGEST))
                words = f"the cross-entropy of {NAMES[first]}{comparison.where} is {amount} against {NAMES[model]}"
                found.append(Finding(f"with {LONGEST} steps seen, {words}"))
        told.update(new)
    return found


def _in_words(difference: float, error: float) -> str:
    clear = "lower" if difference + 2 * error < 0 else "higher" if difference - 2 * error > 0 else None
    return f"{clear or 'not clearly different'}: {difference:+.4f} ± {error:.4f} nats per step"


def adaptation_figure(records: list[Record]) -> Figure:
    """Cross-entropy against the number of steps seen, a panel for each comparison."""
    every = comparisons(records)
    figure = Figure(figsize=(0.5 + 5 * len(every), 4.3), layout="constrained")
    for axis, comparison in zip(figure.subplots(1, len(every), squeeze=False)[0], every, strict=True):
        for model in comparison.models:
            levels = [comparison.level(model, seen)[0] for seen in SEEN]
            errors = [comparison.change(model, seen)[1] for seen in SEEN]
            style = STYLES[model] | {"capsize": 3, "markersize": 5, "label": NAMES[model]}
            axis.errorbar(SEEN, levels, errors, **style)
        axis.set_xscale("symlog", linthresh=25)
        axis.set_xticks(SEEN, [str(seen) for seen in SEEN])
        axis.minorticks_off()
        axis.set(xlabel="steps seen of a new person", ylabel="cross-entropy (nats per step)")
        axis.set_title(", ".join(comparison.kitchens) if comparison.where else "all kitchens", fontsize=10)
        axis.grid(alpha=0.3)
    legend = figure.axes[-1].get_legend_handles_labels()  # the last comparison is between all models
    figure.legend(*legend, loc="outside lower center", ncols=len(legend[0]), frameon=False)
    figure.suptitle(f"People never seen before, their steps after {LONGEST}")
    return figure


def _text(settings: Run, records: list[Record], found: list[Finding]) -> str:
    tables = []
    for comparison in comparisons(records):
        rows = []
        for seen in SEEN:
            cells = ["{:.4f} ± {:.4f}".format(*comparison.level(model, seen)) for model in comparison.models]
            if seen:
                changes = ("{:+.4f} ± {:.4f}".format(*comparison.change(model, seen)) for model in comparison.models)
                cells = [", ".join(pair) for pair in zip(cells, changes, strict=True)]
            rows.append([str(seen), *cells])
        title = f"In {', '.join(comparison.kitchens)}:" if comparison.where else "In all kitchens:"
        tables.append(f"{title}\n\n{table(['steps seen', *(NAMES[model] for model in comparison.models)], rows)}")
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
- BPD, trained on no people, by inference: a Gaussian over z. By the network that watched: its memory after the first \
steps, from which it goes on with the {LONG_HISTORY} steps before each step that it predicts.

At each step that they predict, BSDR and ILEED see the last {LONG_HISTORY} own actions, BPD by inference none. \
Cross-entropy is averaged as in the table of models; ± is one standard error by bootstrap over pairs of people, paired \
for changes and differences.

## What was found

{bullets(found)}

## Cross-entropy by steps seen

After the comma, the change against none seen.

{(chr(10) * 2).join(tables)}

![Cross-entropy against the number of steps seen](adaptation.png)

The bars of the figure are the paired errors of the change.
"""


@cache
def _data(quick: bool, seed: int) -> KitchenPeople:
    layouts = ["cramped_room", "asymmetric_advantages"] if quick else None
    return KitchenPeople(str(FOLDER), layouts, "human", history=LONG_HISTORY, seed=seed)
