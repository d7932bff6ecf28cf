"""The report of the experiment on the generalization of learned rewards."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from bsdr_torch.experiments.reporting import (
    NAMES,
    READING,
    SIMULATED_BY_BSDR,
    Difference,
    Finding,
    bullets,
    chosen,
    control_sentence,
    dodged,
    draw_line,
    legend_below,
    level,
    model_difference,
    shown,
    table,
    values_of,
    write_report,
)
from bsdr_torch.experiments.running import Record, Run

MODELS = ("br", "br_per_human", "irleed", "bsdr", "bsdr_aggregate")
MEASURES = {
    "regret": "regret, same world",
    "new_goal_regret": "regret, new goals",
    "cosine": "cosine of θ_R",
    "return_correlation": "correlation of returns",
}


def write(settings: Run, records: Sequence[Record]) -> list[Finding]:
    """Draws the figures, writes report.md and returns the findings."""
    found = findings(records)
    figures = {
        "regret": lines_figure(
            records, ("regret", "new_goal_regret"), "Acting by the learned cost, all worlds", log=True
        ),
        "returns": lines_figure(records, ("return_correlation",), "Predicted against true returns of rollouts"),
    }
    write_report(settings.out, _text(settings, records, found), figures)
    return found


def findings(records: Sequence[Record]) -> list[Finding]:
    """What was found, in sentences made from the intervals; regret is that with new goals."""
    found = []
    for kind in _kinds(records):
        for people in (1, max(values_of(records, "people"))):
            here = chosen(records, people=people, **kind)
            if kind["dependence"] == 0:
                saved = Difference(chosen(here, model="br_per_human"), chosen(here, model="bsdr"), "new_goal_regret")
                words = control_sentence(saved, "regret that BSDR's cost saves", "that of BR per person", 4)
                found.append(Finding(f"{words} ({_people(people)})", headline=people > 1))
                continue
            if kind["dependence"] < max(values_of(records, "dependence")):
                continue
            for other in ("br_per_human",) if people == 1 else ("br", "br_per_human", "irleed", "bsdr_aggregate"):
                gap = model_difference(here, "bsdr", other, "new_goal_regret")
                words = gap.sentence(
                    "the regret of BSDR's cost", f"that of {NAMES[other]}", "is higher than", "is lower than", 4
                )
                headline = other in ("br_per_human", "bsdr_aggregate") and (people > 1 or kind["places"] == "own")
                found.append(Finding(f"{_people(people)}, {_named(kind)}: {words}", headline))
    return found


def lines_figure(records: Sequence[Record], measures: Sequence[str], title: str, log: bool = False) -> Figure:
    """Measures over the number of people, a column for each kind of people, worlds pooled."""
    kinds = _kinds(records)
    figure = Figure(figsize=(1 + 2.7 * len(kinds), 1 + 2.7 * len(measures)), layout="constrained")
    axes = figure.subplots(len(measures), len(kinds), sharex=True, sharey="row", squeeze=False)
    people = values_of(records, "people")
    for row, measure in zip(axes, measures, strict=True):
        for axis, kind in zip(row, kinds, strict=True):
            for number, model in enumerate(MODELS):
                here = chosen(records, model=model, **kind)
                values = [level(chosen(here, people=n), measure) for n in people]
                draw_line(axis, dodged(range(len(people)), number, len(MODELS), 0.06), values, model)
            axis.set_xticks(range(len(people)), [str(n) for n in people])
            if log:
                axis.set_yscale("symlog", linthresh=1e-3)  # intervals reach zero
            axis.grid(axis="y", alpha=0.3)
        row[0].set_ylabel(MEASURES[measure] + ("\n(share of random's loss)" if log else ""))
    for axis, kind in zip(axes[0], kinds, strict=True):
        axis.set_title(_named(kind), fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("number of people")
    legend_below(figure, axes[0, 0])
    figure.suptitle(f"{title}; bars: 95 % interval over seeds")
    return figure


def _text(settings: Run, records: Sequence[Record], found: list[Finding]) -> str:
    case, worlds, people = records[0], values_of(records, "world"), values_of(records, "people")
    pooled = table(
        ["people", "how many", "model", *MEASURES.values()],
        [
            [_named(kind), str(n), NAMES[model], *(shown(level(here, measure), 4) for measure in MEASURES)]
            for kind in _kinds(records)
            for n in people
            for model in MODELS
            if (here := chosen(records, people=n, model=model, **kind))
        ],
    )
    most = max(people)
    by_world = table(
        ["people", "world", "BSDR less", *MEASURES.values()],
        [
            [
                _named(kind),
                world,
                NAMES[other],
                *(model_difference(here, "bsdr", other, measure).cell(4) for measure in MEASURES),
            ]
            for kind in _kinds(records)
            for world in worlds
            for other in MODELS
            if other != "bsdr" and (here := chosen(records, people=most, world=world, **kind))
        ],
    )
    return f"""# Generalization of learned rewards

Made by `{settings.command("reward_generalization")}`: {len(values_of(records, "seed"))} seeds, {len(records)} fits, \
{sum(r["converged"] for r in records)} of them with a vanishing gradient.

People share a cost of terrain and differ in rationality. *State-dependence* is the standard deviation of log beta \
between the features of one person; at 0, the control, beta is constant. Where somebody is less rational is an *own* \
affair of each person, or *common* to all. Each model learns from {case["rollouts"]} rollouts of each person in one \
of the worlds {", ".join(worlds)}. The best policy for its cost is then judged by the true cost, exactly: in the same \
world, and on the same ground with each of four goals that nobody was seen to walk to. *Regret* is what it loses, as \
a share of what acting at random loses. The correlation is between the returns that the learned and the true cost give \
to {case["held_out"]} unseen rollouts of each person.

BSDR knows who acted, and so do BR per person and IRLEED. *BSDR without identities* is fitted as if one person had \
done everything. BR is also what BR per person and IRLEED become without identities, and with one person BSDR is the \
same with and without them.

{READING}

{SIMULATED_BY_BSDR}

## What was found

{bullets(found)}

## Regret

![regret](regret.png)

## Returns

![returns](returns.png)

## All worlds together

{pooled}

## World by world, {most} people

{by_world}
"""


def _kinds(records: Sequence[Record]) -> list[Record]:
    """The kinds of people, in order."""
    kinds = dict.fromkeys((record["places"], record["dependence"]) for record in records)
    return [{"places": places, "dependence": dependence} for places, dependence in kinds]


def _named(kind: Record) -> str:
    if kind["dependence"] == 0:
        return "state-dependence 0"
    return f"state-dependence {kind['dependence']:g}, {kind['places']} places"


def _people(number: int) -> str:
    return "one person" if number == 1 else f"{number} people"
