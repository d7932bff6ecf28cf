"""The report of the experiment on the generalization of suboptimality."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from bsdr_torch.experiments.reporting import (
    NAMES,
    READING,
    SIMULATED_BY_BSDR,
    STYLES,
    Difference,
    Finding,
    bullets,
    chosen,
    control_sentence,
    level,
    model_difference,
    panels,
    shown,
    table,
    values_of,
    write_report,
)
from bsdr_torch.experiments.running import Record, Run

MODELS = ("br", "br_per_human", "bsdr_population", "bsdr")
KINDS = {
    "state-dependent": "people state-dependent, each in their own places",
    "constant": "people whose β is constant",
    "alike": "people who are all alike",
}


def write(settings: Run, records: Sequence[Record]) -> list[Finding]:
    """Draws the figure, writes report.md and returns the findings."""
    found = findings(records)
    write_report(settings.out, _text(settings, records, found), {"excess": excess_figure(records)})
    return found


def findings(records: Sequence[Record]) -> list[Finding]:
    """What was found, in sentences made from the intervals."""
    found = []
    subject = "the cross-entropy, in a new world, of a person's own theta_beta"
    of_people = chosen(records, people_are="state-dependent")
    for other, name in (("bsdr_population", "that of the population's"), ("br_per_human", "that of the person's beta")):
        words = model_difference(of_people, "bsdr", other, "excess").sentence(
            subject, name, "is higher than", "is lower than", unit=" nats per step"
        )
        found.append(Finding(f"{KINDS['state-dependent']}: {words}"))
    words = model_difference(of_people, "bsdr_population", "br", "excess").sentence(
        "the cross-entropy of the population's theta_beta, all there is for somebody never seen,",
        "that of BR",
        "is higher than",
        "is lower than",
        unit=" nats per step",
    )
    found.append(Finding(f"{KINDS['state-dependent']}: {words}"))
    for kind, other in (("constant", "br_per_human"), ("alike", "bsdr_population")):
        here = chosen(records, people_are=kind)
        saved = Difference(chosen(here, model=other), chosen(here, model="bsdr"), "excess")
        against = "the person's beta" if other == "br_per_human" else "the population's theta_beta"
        words = control_sentence(saved, "cross-entropy that theta_beta[i] saves", against, 4, " nats per step")
        found.append(Finding(f"{KINDS[kind]}: {words}"))
    return found


def excess_figure(records: Sequence[Record]) -> Figure:
    """Cross-entropy above that of the people's own policy, a panel for each kind of people."""
    worlds = values_of(records, "world")
    figure, axes = panels(len(KINDS), 3.6, 3.3)
    for axis, (kind, title) in zip(axes, KINDS.items(), strict=True):
        for number, model in enumerate(MODELS):
            values = [level(chosen(records, world=w, people_are=kind, model=model), "excess") for w in worlds]
            axis.errorbar(
                [w + 0.16 * (number - 1.5) for w in range(len(worlds))],
                [v.mean for v in values],
                list(zip(*(v.reach for v in values), strict=True)),
                capsize=3,
                linestyle="none",
                label=NAMES[model],
                **STYLES[model],
            )
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set_xticks(range(len(worlds)), worlds, fontsize=8)
        axis.set_title(title, fontsize=9)
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel(
        "cross-entropy in the new world above that of\nthe people's own policy (nats per step)", fontsize=9
    )
    axes[1].legend(fontsize=8)
    figure.suptitle("Learned in some worlds, used in another; bars: 95 % interval over seeds")
    return figure


def _text(settings: Run, records: Sequence[Record], found: list[Finding]) -> str:
    case, worlds = records[0], values_of(records, "world")
    pooled = table(
        ["people", *(NAMES[model] for model in (*MODELS, "truth"))],
        [
            [
                title,
                *(
                    shown(level(chosen(records, people_are=kind, model=model), "cross_entropy"))
                    for model in (*MODELS, "truth")
                ),
            ]
            for kind, title in KINDS.items()
        ],
    )
    differences = table(
        ["people", "legend", *(f"BSDR less {NAMES[other]}" for other in MODELS if other != "bsdr")],
        [
            [
                title,
                world,
                *(
                    model_difference(chosen(records, people_are=kind, world=world), "bsdr", other, "excess").cell(4)
                    for other in MODELS
                    if other != "bsdr"
                ),
            ]
            for kind, title in KINDS.items()
            for world in worlds
        ],
    )
    fits = [r for r in records if r["model"] in ("br", "br_per_human", "bsdr")]
    return f"""# Generalization of suboptimality

Made by `{settings.command("suboptimality_transfer")}`: {len(values_of(records, "seed"))} seeds, {len(fits)} fits, \
{sum(r["converged"] for r in fits)} of them with a vanishing gradient.

With each seed, {case["known_worlds"] + 1} worlds are drawn from each legend ({", ".join(worlds)}): random patches of \
its terrains and regions, and a goal. {case["people"]} people are watched in {case["known_worlds"]} of them, \
{case["rollouts"]} rollouts of each person in each, and predicted in the last one, {case["held_out"]} rollouts. *BSDR* \
uses the person's own theta_beta, *BSDR, population* the mean of all people's, *BR per person* the person's beta, *BR* \
one beta for all; each with the cost it learned in the known worlds.

There are two controls. For people whose beta is constant, theta_beta has nothing to add to beta. For people who are \
all alike, the person's own theta_beta has nothing to add to the population's.

{READING}

{SIMULATED_BY_BSDR}

## What was found

{bullets(found)}

## Cross-entropy in the new world

![excess](excess.png)

All legends together, nats per step:

{pooled}

## Differences

Nats per step; negative says that a person's own theta_beta predicts better:

{differences}
"""
