"""The report of the shared goals experiment."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from bsdr_torch.experiments.reporting import (
    READING,
    SIMULATED_BY_BSDR,
    Difference,
    Finding,
    bullets,
    by_unit,
    chosen,
    legend_below,
    level,
    p_value,
    panels,
    shown,
    table,
    values_of,
    write_report,
)
from bsdr_torch.experiments.running import Record, Run
from bsdr_torch.experiments.statistics import estimate, sign_flip_p

MEASURES = {"distance": "canonical distance", "regret": "regret"}
PEOPLE = {"shared": "people who share the goal of their task", "own": "control, people with goals of their own"}
PAIRS = {"within": "people of one task", "between": "people of two tasks", "to_random": "people and random weights"}
COLORS = {"within": "#0072B2", "between": "#E69F00", "to_random": "#999999"}


def write(settings: Run, records: Sequence[Record]) -> list[Finding]:
    """Draws the figures, writes report.md and returns the findings."""
    found = findings(records)
    figures = {"distances": distances_figure(records), "p_values": p_figure(records)}
    write_report(settings.out, _text(settings, records, found), figures)
    return found


def findings(records: Sequence[Record]) -> list[Finding]:
    """What was found, in sentences made from the intervals."""
    found = []
    for goals, people in PEOPLE.items():
        for measure, name in MEASURES.items():
            here = chosen(records, goals=goals, measure=measure)
            effects = by_unit(here, "effect")
            effect, p = estimate(effects), sign_flip_p(effects)
            share = f"the permutation test rejects in {sum(r['rejected'] for r in here):.0f} of {len(here)} groups"
            numbers = f"effect {shown(effect, 2)}, {p_value(p)}; {share}"
            if effect.above_zero:
                verdict = f"by {name} the rewards of one task agree more than those of two tasks"
            elif effect.below_zero:
                verdict = f"by {name} the rewards of one task agree less than those of two tasks"
            else:
                verdict = f"by {name} nothing says that people of one task share a goal"
            found.append(Finding(f"{people}: {verdict} ({numbers})"))
    for measure, name in MEASURES.items():
        here = chosen(records, goals="shared", measure=measure)
        gap = Difference(_renamed(here, "within"), _renamed(here, "to_random"), "value")
        words = gap.sentence(
            "the rewards of one task", "random weights", "are farther apart than from", "are closer than"
        )
        found.append(Finding(f"{PEOPLE['shared']}: by {name} {words}", headline=False))
    return found


def distances_figure(records: Sequence[Record]) -> Figure:
    """Both measures between people of one task, of two, and to random weights; state-dependence pooled."""
    worlds = values_of(records, "world")
    figure = Figure(figsize=(9.5, 6), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey="row")
    for row, (measure, name) in zip(axes, MEASURES.items(), strict=True):
        for axis, (goals, people) in zip(row, PEOPLE.items(), strict=True):
            here = chosen(records, measure=measure, goals=goals)
            for number, (pair, label) in enumerate(PAIRS.items()):
                values = [level(chosen(here, world=world), pair) for world in worlds]
                axis.bar(
                    [w + 0.27 * (number - 1) for w in range(len(worlds))],
                    [v.mean for v in values],
                    0.25,
                    yerr=list(zip(*(v.reach for v in values), strict=True)),
                    capsize=3,
                    label=label,
                    color=COLORS[pair],
                )
            axis.set_xticks(range(len(worlds)), worlds)
            if measure == "distance":
                axis.set_title(people)
        row[0].set_ylabel(
            f"{name}\n" + ("(0 same, 1 opposite)" if measure == "distance" else "(share of random's loss)")
        )
    legend_below(figure, axes[0, 0])
    figure.suptitle("Rewards of BR fitted to each person alone; bars: 95 % interval over seeds")
    return figure


def p_figure(records: Sequence[Record]) -> Figure:
    """The share of groups with a p-value below each level: the diagonal where there is nothing to find."""
    figure, axes = panels(2, 3.2, 3.2)
    for axis, (measure, name) in zip(axes, MEASURES.items(), strict=True):
        for goals, color, line in (("shared", "#0072B2", "-"), ("own", "#D55E00", "--")):
            p = sorted(record["p"] for record in chosen(records, measure=measure, goals=goals))
            share = [(n + 1) / len(p) for n in range(len(p))]
            axis.step([0, *p, 1], [0, *share, 1], where="post", color=color, linestyle=line, label=PEOPLE[goals])
        axis.plot([0, 1], [0, 1], color="#999999", linestyle=":", label="nothing to find")
        axis.set(title=name, xlabel="p-value of the permutation test")
    axes[0].set_ylabel("share of groups with a p-value this small")
    axes[1].legend(fontsize=7, loc="lower right")
    figure.suptitle("Permutation tests, one for each world, seed and state-dependence")
    return figure


def _text(settings: Run, records: Sequence[Record], found: list[Finding]) -> str:
    case, worlds = records[0], values_of(records, "world")
    rows = []
    for goals in PEOPLE:
        for measure, name in MEASURES.items():
            for dependence in values_of(records, "dependence"):
                for world in worlds:
                    here = chosen(records, goals=goals, measure=measure, dependence=dependence, world=world)
                    numbers = [shown(level(here, field)) for field in (*PAIRS, "effect")]
                    rejected = f"{sum(r['rejected'] for r in here):.0f} of {len(here)}"
                    rows.append([goals, name, f"{dependence:g}", world, *numbers, rejected])
    header = ["goals", "measure", "state-dependence", "world", *PAIRS.values(), "effect", "p ≤ 0.05"]
    fits = chosen(records, measure="distance")
    people = case["tasks"] * case["people_per_task"]
    return f"""# Shared goals

Made by `{settings.command("shared_goals")}`: {len(values_of(records, "seed"))} seeds, {len(fits)} groups of people, \
in {sum(r["converged"] for r in fits)} of which the fits of all have a vanishing gradient.

In each world, {people} people are given one of {case["tasks"]} tasks, {case["people_per_task"]} people each. A task \
says which of {case["tasks"]} landmarks to go to; all else that steps cost is the same in all tasks. People who share \
the goal of their task go there; the control are people who go to a landmark of their own, whatever the task. \
BR is fitted to each person alone, from {case["rollouts"]} rollouts, with a weight for each terrain and each landmark, \
and is not told of tasks. *State-dependence* is the standard deviation of log beta within a person, of which BR knows \
nothing.

Two measures compare rewards, and both ignore scale and shaping. The *canonical distance* is half the distance between \
the advantages under the random policy (which no shaping changes), scaled to length 1: 0 is the same reward, 1 the \
opposite, 0.71 unrelated. The *regret* is what the best policy for one person's reward loses under another's, as a \
share of what acting at random loses. *Effect* is the mean between two tasks less that within a task, in standard \
deviations of all pairs; its p-value comes from permuting tasks among people. Random weights are independent normals.

{READING}

{SIMULATED_BY_BSDR}

## What was found

{bullets(found)}

## Distances

![distances](distances.png)

## Permutation tests

![p-values](p_values.png)

## All numbers

{table(header, rows)}
"""


def _renamed(records: Sequence[Record], field: str) -> list[Record]:
    return [{"seed": record["seed"], "value": record[field]} for record in records]
