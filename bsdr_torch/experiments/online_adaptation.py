"""Getting to know somebody new: how well are people predicted whom a model never saw, after some steps of them?

The people are real: the official split of the MTurk games of 2019. Nobody who tests is known to the model. It adapts to
the first steps of each of their games, as `Predictor.adapt` does, and predicts all steps after `LONGEST`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from bsdr_torch.contenders import contenders
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.mturk import SOURCE_2019
from bsdr_torch.data.prepare import prepare
from bsdr_torch.evaluation import standard_error
from bsdr_torch.experiments.reporting import STYLES, Finding, bullets, table, values_of, write_report
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.kitchens.adapting import Evidence, fit_person, gather_evidence, log_probs, person
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.metrics import KitchenScores, rollout_measures

FOLDER = Path("datasets/mturk_2019")
MOST_SEEDS = 3  # each is a training of minutes
SEEN = (0, 25, 50, 100, 200, 400)
LONGEST = max(SEEN)


@dataclass(frozen=True)
class Case:
    """A model of a seed, trained for one epoch in two kitchens if `quick`."""

    model: str
    seed: int
    quick: bool


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    prepare(SOURCE_2019, FOLDER)
    cases = [Case("bsdr", seed, settings.quick) for seed in range(min(settings.seeds, MOST_SEEDS))]
    records = run_cases(settings.out, cases, run_case, settings.workers)
    found = findings(records)
    write_report(settings.out, _text(settings, records, found), {"adaptation": adaptation_figure(records)})
    return found


def run_case(case: Case) -> list[Record]:
    """Trains a model and adapts it to everybody who tests: the cross-entropy of each game and number of steps seen."""
    contender, data = contenders(case.quick)[case.model], _data(case.quick, case.seed)
    model: KitchenModel = contender.fit(data, case.seed, **contender.settings)
    scores = {seen: KitchenScores([key.layout for key in data.rollouts]) for seen in SEEN}
    for steps in data.steps("test").values():
        for rollout in torch.unique(steps.rollouts).tolist():
            game = Decisions(steps.layout, *(column[steps.rollouts == rollout] for column in steps[1:]))
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
def adapted(model: KitchenModel, game: Decisions) -> dict[int, Tensor]:
    """log P(action), `[N, 6]`, at the steps of a game after `LONGEST`, by how many of its first steps were seen."""
    evidence = gather_evidence(model, game)
    late = Evidence(*(part[LONGEST:] for part in evidence))
    found = {}
    for seen in SEEN:
        somebody = person(model, None)
        if seen:
            with torch.enable_grad():
                somebody = fit_person(model, Evidence(*(part[:seen] for part in evidence)))
        found[seen] = log_probs(model, late, somebody)
    return found


def findings(records: list[Record]) -> list[Finding]:
    """What was found, in sentences made from the standard errors."""
    found = []
    for seen in SEEN[1:]:
        change, error = _estimate(records, seen, 0)
        clear = "lower" if change + 2 * error < 0 else "higher" if change - 2 * error > 0 else "not clearly different"
        found.append(
            Finding(
                f"after {seen} steps seen of a new person, the cross-entropy of BSDR on the person's later steps is "
                f"{clear}: {change:+.4f} ± {error:.4f} nats per step against none seen",
                headline=seen in (SEEN[1], LONGEST),
            )
        )
    return found


def adaptation_figure(records: list[Record]) -> Figure:
    """Cross-entropy against the number of steps seen."""
    figure = Figure(figsize=(5.5, 3.8), layout="constrained")
    axis = figure.subplots()
    for model in values_of(records, "model"):
        rows = [record for record in records if record["model"] == model]
        levels = [_estimate(rows, seen, None) for seen in SEEN]
        changes = [_estimate(rows, seen, 0) for seen in SEEN]
        style = STYLES[model] | {"capsize": 3, "markersize": 5}
        axis.errorbar(SEEN, [mean for mean, _ in levels], [error for _, error in changes], label=model, **style)
    axis.set_xscale("symlog", linthresh=25)
    axis.set_xticks(SEEN, [str(seen) for seen in SEEN])
    axis.minorticks_off()
    axis.set(
        xlabel="steps seen of a new person",
        ylabel="cross-entropy (nats per step)",
        title=f"People never seen before, their steps after {LONGEST}",
    )
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    return figure


def _text(settings: Run, records: list[Record], found: list[Finding]) -> str:
    rows = []
    for seen in SEEN:
        level, change = _estimate(records, seen, None), _estimate(records, seen, 0)
        rows.append([str(seen), f"{level[0]:.4f} ± {level[1]:.4f}", f"{change[0]:+.4f} ± {change[1]:.4f}"])
    people = len({record["rollout"] for record in records})
    return f"""# Getting to know somebody new

Made by `{settings.command("online_adaptation")}`, {len(values_of(records, "seed"))} seeds, {people} games of people \
who were never seen (the official split of the MTurk games of 2019).

The model is trained on other people. Of each game, it adapts to the first steps of a person (theta_beta, the weights \
of the person's plans and habit; all else is frozen) and predicts the steps after {LONGEST}. Cross-entropy is \
averaged as in the table of models; ± is one standard error by bootstrap over pairs of people, that of changes is \
paired.

## What was found

{bullets(found)}

## Cross-entropy by steps seen

{table(["steps seen", "cross-entropy", "change"], rows)}

![Cross-entropy against the number of steps seen](adaptation.png)

The bars of the figure are the paired errors of the change.
"""


def _estimate(records: list[Record], seen: int, against: int | None) -> tuple[float, float]:
    """The mean cross-entropy after so many steps seen, or what it has changed, over seeds; and its standard error."""
    keys = _data(records[0]["quick"], 0).rollouts
    values = torch.full((len(keys),), torch.nan, dtype=torch.float64)
    for rollout in values_of(records, "rollout"):
        here = [record for record in records if record["rollout"] == rollout]
        value = _mean(here, seen)
        values[rollout] = value if against is None else value - _mean(here, against)
    layouts = [key.layout for key in keys]
    inside = [torch.tensor([name == layout for name in layouts]) for layout in dict.fromkeys(layouts)]
    means = [values[rows].nanmean() for rows in inside if not bool(values[rows].isnan().all())]
    return float(torch.stack(means).mean()), standard_error(values, keys)


def _mean(records: list[Record], seen: int) -> float:
    found = [record["cross_entropy"] for record in records if record["seen"] == seen]
    return float(sum(found) / len(found))


@cache
def _data(quick: bool, seed: int) -> KitchenPeople:
    layouts = ["cramped_room", "coordination_ring"] if quick else None
    return KitchenPeople(str(FOLDER), layouts, "human", history=32, seed=seed)
