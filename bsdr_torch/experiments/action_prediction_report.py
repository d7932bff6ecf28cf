"""The report of the action prediction experiment."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from bsdr_torch.experiments.reporting import (
    NAMES,
    READING,
    Difference,
    bullets,
    chosen,
    control_sentence,
    dodged,
    draw_line,
    legend_below,
    level,
    model_difference,
    panels,
    shown,
    table,
    values_of,
    write_report,
)
from bsdr_torch.experiments.running import Record, Run

FITTED = ("br", "br_per_human", "irleed", "bsdr")
MODELS = ("truth", "bsdr", "irleed", "br_per_human", "br", "optimal", "random")


def write(settings: Run, records: Sequence[Record]) -> list[str]:
    """Draws the figures, writes report.md and returns the findings."""
    found = findings(records)
    figures = {
        "cross_entropy": line_figure(
            records, MODELS, "cross_entropy", "cross-entropy (nats per step)", "Predicting held-out rollouts"
        ),
        "excess": line_figure(
            records,
            FITTED,
            "excess",
            "cross-entropy above that of the\npeople's own policy (nats per step)",
            "What the fitted models miss",
        ),
    }
    write_report(settings.out, _text(settings, records, found), figures)
    return found


def findings(records: Sequence[Record]) -> list[str]:
    """What was found, in sentences made from the intervals."""
    found = []
    for dependence in values_of(records, "dependence"):
        here = chosen(records, dependence=dependence)
        if dependence == 0:
            saved = Difference(chosen(here, model="br_per_human"), chosen(here, model="bsdr"), "excess")
            found.append(control_sentence(saved, "cross-entropy that BSDR saves", "BR per person", 4, " nats per step"))
            continue
        for other in ("br_per_human", "irleed"):
            words = model_difference(here, "bsdr", other, "excess").sentence(
                "the cross-entropy of BSDR",
                f"that of {NAMES[other]}",
                "is higher than",
                "is lower than",
                unit=" nats per step",
            )
            found.append(f"state-dependence {dependence:g}: {words}")
    strongest = chosen(records, dependence=max(values_of(records, "dependence")))
    left = level(chosen(strongest, model="bsdr"), "excess")
    found.append(
        f"state-dependence {strongest[0]['dependence']:g}: what BSDR misses to the people's own policy is "
        f"{shown(left)} nats per step, BR per person {shown(level(chosen(strongest, model='br_per_human'), 'excess'))}"
    )
    return found


def line_figure(records: Sequence[Record], models: Sequence[str], measure: str, label: str, title: str) -> Figure:
    """A measure over state-dependence, a panel for each world."""
    worlds = values_of(records, "world")
    figure, axes = panels(len(worlds), 2.6, 3.2)
    for axis, world in zip(axes, worlds, strict=True):
        for number, model in enumerate(models):
            here = chosen(records, world=world, model=model)
            x = values_of(here, "dependence")
            values = [level(chosen(here, dependence=d), measure) for d in x]
            draw_line(axis, dodged(x, number, len(models), 0.02), values, model)
        axis.set(title=world, xlabel="state-dependence\n(s.d. of log β within a person)")
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel(label)
    legend_below(figure, axes[0])
    figure.suptitle(f"{title}; bars: 95 % interval over seeds")
    return figure


def _text(settings: Run, records: Sequence[Record], found: list[str]) -> str:
    case, worlds, levels = records[0], values_of(records, "world"), values_of(records, "dependence")
    pooled = table(
        ["model", *(f"state-dependence {d:g}" for d in levels)],
        [
            [NAMES[m], *(shown(level(chosen(records, model=m, dependence=d), "cross_entropy")) for d in levels)]
            for m in MODELS
        ],
    )
    differences = table(
        ["world", "BSDR less", *(f"state-dependence {d:g}" for d in levels)],
        [
            [
                world,
                NAMES[other],
                *(
                    model_difference(chosen(records, world=world, dependence=d), "bsdr", other, "excess").cell(4)
                    for d in levels
                ),
            ]
            for world in worlds
            for other in ("br", "br_per_human", "irleed")
        ],
    )
    optimal = chosen(records, model="optimal")
    shares = ", ".join(
        f"{100 * level(chosen(optimal, dependence=d), 'best_actions').mean:.0f} % at state-dependence {d:g}"
        for d in levels
    )
    fits = [r for r in records if r["model"] in FITTED]
    return f"""# Action prediction in GridWorld

Made by `{settings.command("action_prediction")}`: {len(values_of(records, "seed"))} seeds, {len(fits)} fits, \
{sum(r["converged"] for r in fits)} of them with a vanishing gradient.

{case["people"]} people in each world ({", ".join(worlds)}) share a cost and differ in rationality; \
*state-dependence* is the standard deviation of log beta between the features of one person, and nothing else changes \
with it; at 0, the control, beta is constant. Models learn from {case["rollouts"]} rollouts of each person and predict \
{case["held_out"]} others, in nats per step, averaged in each rollout and then over rollouts; no floor on \
probabilities. The people's own policy, with the true parameters, is the least that anybody can reach but by luck: its \
cross-entropy estimates the entropy of their choices.

*Optimal* stands for self-play: the best policy for the true cost. By itself its cross-entropy is infinite, because \
people take actions that it never takes (they take one of its best actions in {shares}), so it is given lapses: with \
a probability fitted to the training rollouts it acts at random.

{READING}

## What was found

{bullets(found)}

## Cross-entropy

![cross-entropy](cross_entropy.png)

All worlds together, nats per step:

{pooled}

## Differences

![excess](excess.png)

BSDR less the other model, nats per step; negative is better:

{differences}
"""
