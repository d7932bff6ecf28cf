"""The report of the goal inference experiment."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

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
    panels,
    shown,
    table,
    values_of,
    write_report,
)
from bsdr_torch.experiments.running import Record, Run
from bsdr_torch.experiments.statistics import estimate

MODELS = ("br", "br_per_human", "bsdr", "truth")


def write(settings: Run, records: Sequence[Record]) -> list[Finding]:
    """Draws the figures, writes report.md and returns the findings."""
    found = findings(records)
    figures = {
        "likelihood": likelihood_figure(records),
        "gain": gain_figure(records),
        "calibration": calibration_figure(records),
    }
    write_report(settings.out, _text(settings, records, found), figures)
    return found


def findings(records: Sequence[Record]) -> list[Finding]:
    """What was found, in sentences made from the intervals."""
    found = []
    strongest = max(values_of(records, "dependence"))
    for dependence in values_of(records, "dependence"):
        of_people = chosen(records, dependence=dependence, seen_as="part")
        for fraction in (0.25, 1.0):
            seen = chosen(of_people, seen=fraction)
            what = "the likelihood of the true goal under BSDR"
            over_alone = model_difference(seen, "bsdr", "br_per_human", "likelihood")
            if dependence == 0:
                words = control_sentence(over_alone, what, "BR per person")
                found.append(Finding(f"{words} (first {fraction:.0%} of the walk)", headline=fraction < 1))
                continue
            where = f"state-dependence {dependence:g}, first {fraction:.0%} of the walk"
            for other, difference in {
                "BR per person": over_alone,
                "BR": model_difference(seen, "bsdr", "br", "likelihood"),
            }.items():
                words = difference.sentence(what, f"that under {other}", "is higher than", "is lower than")
                found.append(Finding(f"{where}: {words}", headline=dependence == strongest))
        by_steps = chosen(records, dependence=dependence, seen_as="steps")
        errors = {m: _calibration_errors(chosen(by_steps, model=m)) for m in ("bsdr", "br_per_human")}
        words = Difference(errors["bsdr"], errors["br_per_human"], "error").sentence(
            "the calibration error of BSDR", "that of BR per person", "is larger than", "is smaller than"
        )
        words = f"state-dependence {dependence:g}, after a number of steps: {words}"
        found.append(Finding(words, headline=dependence == strongest))
    return found


def likelihood_figure(records: Sequence[Record]) -> Figure:
    """Likelihood of the true goal over the part of the walk that was seen: a column for each world."""
    worlds, levels = values_of(records, "world"), values_of(records, "dependence")
    figure, axes = panels(len(worlds) * len(levels), 2.6, 2.3, rows=len(levels))
    for number, axis in enumerate(axes):
        dependence, world = levels[number // len(worlds)], worlds[number % len(worlds)]
        here = chosen(records, world=world, dependence=dependence, seen_as="part")
        fractions = values_of(here, "seen")
        for m, model in enumerate(MODELS):
            values = [level(chosen(here, model=model, seen=f), "likelihood") for f in fractions]
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
        here = chosen(records, dependence=dependence, seen_as="part")
        fractions = values_of(here, "seen")
        for number, other in enumerate(("br", "br_per_human")):
            gains = [model_difference(chosen(here, seen=f), "bsdr", other, "likelihood").estimate for f in fractions]
            draw_line(axis, dodged([100 * f for f in fractions], number, 2, 2), gains, other)
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set_xticks([25, 50, 75, 100])
        axis.set(title=f"state-dependence {dependence:g}", xlabel="part of the walk seen (%)")
    axes[0].set_ylabel("likelihood of the true goal:\nBSDR less the other model", fontsize=9)
    legend_below(figure, axes[0])
    figure.suptitle("What BSDR gains, on the same people; bars: 95 % interval over seeds")
    return figure


def calibration_figure(records: Sequence[Record]) -> Figure:
    """How often goals that were given a probability were true, all worlds together."""
    levels = values_of(records, "dependence")
    figure, axes = panels(2 * len(levels), 2.9, 2.9, rows=2)
    for number, axis in enumerate(axes):
        seen_as, dependence = ("steps", "part")[number // len(levels)], levels[number % len(levels)]
        axis.plot([0, 1], [0, 1], color="#999999", linestyle=":", label="calibrated")
        for model in MODELS:
            bins = _bins(chosen(records, dependence=dependence, model=model, seen_as=seen_as))
            used = (bins[:, :, 0] >= 10).all(0).nonzero().flatten().tolist()
            total = bins.sum(0)
            rates = [estimate((bins[:, b, 2] / bins[:, b, 0]).tolist()) for b in used]
            if rates:
                draw_line(axis, [float(total[b, 1] / total[b, 0]) for b in used], rates, model)
        axis.set(title=f"by {seen_as}, state-dependence {dependence:g}", ylim=(-0.02, 1.02))
        if number >= len(levels):
            axis.set_xlabel("probability given to a goal")
        if number % len(levels) == 0:
            axis.set_ylabel("share of those goals\nthat were true")
    legend_below(figure, axes[0])
    figure.suptitle("Calibration; bars: 95 % interval over seeds")
    return figure


def _bins(records: Sequence[Record]) -> Tensor:
    """The lines of `calibration` added up for each seed, `[seeds, bins, 3]`."""
    lines = [[record["calibration"] for record in chosen(records, seed=seed)] for seed in values_of(records, "seed")]
    return torch.stack([torch.tensor(of_seed, dtype=torch.float64).sum(0) for of_seed in lines])


def _calibration_errors(records: Sequence[Record]) -> list[Record]:
    """For each seed, the mean distance of probability and frequency over bins, weighted by their size."""
    bins = _bins(records)
    errors = (bins[:, :, 1] - bins[:, :, 2]).abs().sum(1) / bins[:, :, 0].sum(1)
    seeds = values_of(records, "seed")
    return [{"seed": seed, "error": error} for seed, error in zip(seeds, errors.tolist(), strict=True)]


def _text(settings: Run, records: Sequence[Record], found: list[Finding]) -> str:
    case = records[0]
    levels, worlds = (values_of(records, name) for name in ("dependence", "world"))
    by_part = chosen(records, seen_as="part")
    fractions = values_of(by_part, "seen")
    likelihood = table(
        ["state-dependence", "model", *(f"first {f:.0%}" for f in fractions)],
        [
            [
                f"{dependence:g}",
                NAMES[model],
                *(shown(level(chosen(here, seen=f), "likelihood")) for f in fractions),
            ]
            for dependence in levels
            for model in MODELS
            if (here := chosen(by_part, dependence=dependence, model=model))
        ],
    )
    calibration = table(
        ["state-dependence", "model", "by steps", "by part"],
        [
            [
                f"{dependence:g}",
                NAMES[model],
                *(
                    shown(level(_calibration_errors(chosen(of_people, model=model, seen_as=seen_as)), "error"))
                    for seen_as in ("steps", "part")
                ),
            ]
            for dependence in levels
            for model in MODELS
            if (of_people := chosen(records, dependence=dependence))
        ],
    )
    gains = table(
        ["state-dependence", "world", "against", *(f"first {f:.0%}" for f in fractions)],
        [
            [
                f"{dependence:g}",
                world,
                NAMES[other],
                *(model_difference(chosen(here, seen=f), "bsdr", other, "likelihood").cell() for f in fractions),
            ]
            for dependence in levels
            for world in worlds
            for other in ("br", "br_per_human")
            if (here := chosen(by_part, dependence=dependence, world=world))
        ],
    )
    steps = values_of(chosen(records, seen_as="steps"), "seen")
    fits = [r for r in by_part if r["model"] != "truth" and r["seen"] == fractions[0]]
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

{SIMULATED_BY_BSDR}

## What was found

{bullets(found)}

## Likelihood of the true goal

![likelihood](likelihood.png)

All worlds together ({", ".join(worlds)}):

{likelihood}

## What state-dependence gains

![gain](gain.png)

BSDR less the other model, likelihood of the true goal:

{gains}

## Calibration

![calibration](calibration.png)

Posteriors are looked at in two ways: after a number of steps ({", ".join(str(n) for n in steps)}; walks that then go \
on), and after a part of the walk, as the paper has it. How long a walk will be says something about the goal, and a \
part of it cannot be cut off without knowing that; no posterior that does not know it can be calibrated there, not \
even that of the true parameters. Bins with fewer than ten goals in some seed are left out of the figure. The \
calibration error is the mean distance of probability and frequency over ten bins, weighted by their size, all worlds \
together:

{calibration}
"""
