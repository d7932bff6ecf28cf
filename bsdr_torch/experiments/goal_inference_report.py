"""The report of the goal inference experiment."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from matplotlib.figure import Figure

from bsdr_torch.experiments.reporting import (
    NAMES,
    READING,
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
from bsdr_torch.experiments.statistics import estimate

MODELS = ("br", "br_per_human", "bsdr", "truth")


def write(settings: Run, records: Sequence[Record]) -> list[str]:
    """Draws the figures, writes report.md and returns the findings."""
    found = findings(records)
    figures = {
        "likelihood": likelihood_figure(records),
        "gain": gain_figure(records),
        "calibration": calibration_figure(records),
    }
    write_report(settings.out, _text(settings, records, found), figures)
    return found


def findings(records: Sequence[Record]) -> list[str]:
    """What was found, in sentences made from the intervals."""
    found = []
    for dependence in values_of(records, "dependence"):
        of_people = chosen(records, dependence=dependence)
        for fraction in (0.25, 1.0):
            seen = chosen(of_people, fraction=fraction)
            what = "the likelihood of the true goal under BSDR"
            over_alone = model_difference(seen, "bsdr", "br_per_human", "likelihood")
            if dependence == 0:
                found.append(
                    f"{control_sentence(over_alone, what, 'BR per person')} (first {fraction:.0%} of the walk)"
                )
                continue
            where = f"state-dependence {dependence:g}, first {fraction:.0%} of the walk"
            for other, difference in {
                "BR per person": over_alone,
                "BR": model_difference(seen, "bsdr", "br", "likelihood"),
            }.items():
                words = difference.sentence(what, f"that under {other}", "is higher than", "is lower than")
                found.append(f"{where}: {words}")
    return found


def likelihood_figure(records: Sequence[Record]) -> Figure:
    """Likelihood of the true goal over the part of the walk that was seen: a column for each world."""
    worlds, levels = values_of(records, "world"), values_of(records, "dependence")
    figure, axes = panels(len(worlds) * len(levels), 2.6, 2.3, rows=len(levels))
    for number, axis in enumerate(axes):
        dependence, world = levels[number // len(worlds)], worlds[number % len(worlds)]
        here = chosen(records, world=world, dependence=dependence)
        fractions = values_of(here, "fraction")
        for m, model in enumerate(MODELS):
            values = [level(chosen(here, model=model, fraction=f), "likelihood") for f in fractions]
            draw_line(axis, dodged([100 * f for f in fractions], m, len(MODELS), 1.5), values, model)
        axis.axhline(1 / here[0]["candidates"], color="#999999", linestyle=":", label="chance")
        axis.set_xticks([25, 50, 75, 100])
        axis.set_ylim(0, 1)
        axis.set_title(f"{world}, dependence {dependence:g}", fontsize=9)
        if number % len(worlds) == 0:
            axis.set_ylabel("likelihood of\nthe true goal")
        if number // len(worlds) == len(levels) - 1:
            axis.set_xlabel("part of the walk seen (%)")
    legend_below(figure, axes[0])
    figure.suptitle("Inferring the goal of a walk; bars: 95 % interval over seeds")
    return figure


def gain_figure(records: Sequence[Record]) -> Figure:
    """What BSDR gains over both kinds of BR, paired, all worlds together, a panel for each dependence."""
    levels = values_of(records, "dependence")
    figure, axes = panels(len(levels), 2.9, 3.0)
    for axis, dependence in zip(axes, levels, strict=True):
        here = chosen(records, dependence=dependence)
        fractions = values_of(here, "fraction")
        for number, other in enumerate(("br", "br_per_human")):
            gains = [
                model_difference(chosen(here, fraction=f), "bsdr", other, "likelihood").estimate for f in fractions
            ]
            draw_line(axis, dodged([100 * f for f in fractions], number, 2, 2), gains, other)
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set_xticks([25, 50, 75, 100])
        axis.set(title=f"state-dependence {dependence:g}", xlabel="part of the walk seen (%)")
    axes[0].set_ylabel("likelihood of the true goal:\nBSDR less the other model")
    legend_below(figure, axes[0])
    figure.suptitle("What BSDR gains, on the same people; bars: 95 % interval over seeds")
    return figure


def calibration_figure(records: Sequence[Record]) -> Figure:
    """How often goals that were given a probability were true, all worlds and parts of walks together."""
    levels = values_of(records, "dependence")
    figure, axes = panels(len(levels), 2.9, 3.0)
    for axis, dependence in zip(axes, levels, strict=True):
        axis.plot([0, 1], [0, 1], color="#999999", linestyle=":", label="calibrated")
        for model in MODELS:
            here = chosen(records, dependence=dependence, model=model)
            seeds = [
                torch.tensor([r["calibration"] for r in chosen(here, seed=seed)], dtype=torch.float64).sum(0)
                for seed in values_of(here, "seed")
            ]
            bins = torch.stack(seeds)  # [seeds, bins, 3]
            used = (bins[:, :, 0] >= 10).all(0).nonzero().flatten().tolist()
            total = bins.sum(0)
            rates = [estimate((bins[:, b, 2] / bins[:, b, 0]).tolist()) for b in used]
            x = [float(total[b, 1] / total[b, 0]) for b in used]
            draw_line(axis, x, rates, model)
        axis.set(title=f"state-dependence {dependence:g}", xlabel="probability given to a goal", ylim=(-0.02, 1.02))
    axes[0].set_ylabel("share of those goals that were true")
    legend_below(figure, axes[0])
    figure.suptitle("Calibration; bars: 95 % interval over seeds")
    return figure


def _text(settings: Run, records: Sequence[Record], found: list[str]) -> str:
    case = records[0]
    fractions, levels, worlds = (values_of(records, name) for name in ("fraction", "dependence", "world"))
    likelihood = table(
        ["state-dependence", "model", *(f"first {f:.0%}" for f in fractions), "calibration error"],
        [
            [
                f"{dependence:g}",
                NAMES[model],
                *(shown(level(chosen(here, fraction=f), "likelihood")) for f in fractions),
                shown(level(here, "calibration_error")),
            ]
            for dependence in levels
            for model in MODELS
            if (here := chosen(records, dependence=dependence, model=model))
        ],
    )
    gains = table(
        ["state-dependence", "world", "against", *(f"first {f:.0%}" for f in fractions)],
        [
            [
                f"{dependence:g}",
                world,
                NAMES[other],
                *(model_difference(chosen(here, fraction=f), "bsdr", other, "likelihood").cell() for f in fractions),
            ]
            for dependence in levels
            for world in worlds
            for other in ("br", "br_per_human")
            if (here := chosen(records, dependence=dependence, world=world))
        ],
    )
    fits = [r for r in records if r["model"] != "truth" and r["fraction"] == fractions[0]]
    return f"""# Goal inference

Made by `{settings.command("goal_inference")}`: {len(values_of(records, "seed"))} seeds, {len(fits)} fits, \
{sum(r["converged"] for r in fits)} of them with a vanishing gradient.

{case["people"]} people in each world share a cost of terrain and differ in rationality; *state-dependence* is the \
standard deviation of log beta between the features of one person (at 0, the control, beta is constant). They are \
sampled step by step from their policy. Each model is fitted to {case["earlier_rollouts"]} walks of each person to \
each of {case["earlier_goals"]} goals. Then each person walks {case["trajectories"]} times to one of \
{case["candidates"]} other goals, none of which the fits have seen, and the posterior over these is computed by exact \
Bayes from the first part of the walk: one plan of the engine for each goal, a flat prior. Goals are drawn anew with \
each seed. That a walk ends is not told; a goal that was walked over and left is ruled out, for every model alike. The \
true parameters are the best that inference can do.

{READING}

## What was found

{bullets(found)}

## Likelihood of the true goal

![likelihood](likelihood.png)

All worlds together ({", ".join(worlds)}). The calibration error is the mean distance between probability and \
frequency over ten bins of probability, weighted by their size.

{likelihood}

## What state-dependence gains

![gain](gain.png)

BSDR less the other model, likelihood of the true goal:

{gains}

## Calibration

![calibration](calibration.png)

Bins with fewer than ten goals in some seed are left out.
"""
