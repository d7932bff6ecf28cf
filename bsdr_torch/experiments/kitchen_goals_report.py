"""The report of goal inference in kitchens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from bsdr_torch.experiments.kitchen_stretches import HANDS, LONGEST
from bsdr_torch.experiments.reporting import (
    NAMES,
    READING_PAIRS,
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
from bsdr_torch.experiments.statistics import Estimate, ratio_estimate

MODELS = ("prior", "br", "br_per_human", "bsdr_aggregate", "bsdr")
AGAINST = ("br", "br_per_human", "bsdr_aggregate")
MEASURES = {
    "likelihood": "likelihood of what was done",
    "log_score": "its log score (nats)",
    "place_log_score": "log score of what and where (nats)",
}


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
    own = chosen(records, evidence="own")
    every = chosen(own, seen_as="every step")
    found = []
    for model in ("br", "bsdr"):
        gap = model_difference(every, model, "prior", "log_score", "pair")
        words = gap.sentence(f"the log score of {NAMES[model]}", "that of the prior alone", "is above", "is below")
        found.append(Finding(f"what people do next, foreseen at every step: {words}"))
    for other in AGAINST:
        gap = model_difference(every, "bsdr", other, "log_score", "pair")
        words = gap.sentence("the log score of BSDR", f"that of {NAMES[other]}", "is above", "is below")
        found.append(Finding(f"at every step: {words}"))
    for part in (0.25, 1.0):
        for other in AGAINST:
            seen = chosen(own, seen_as="part", seen=part)
            gap = model_difference(seen, "bsdr", other, "likelihood", "pair")
            words = gap.sentence(
                "the likelihood of what was done under BSDR",
                f"that under {NAMES[other]}",
                "is higher than",
                "is lower than",
            )
            found.append(Finding(f"{part:.0%} of the way: {words}", headline=other == "br_per_human"))
    known = chosen(own, seen_as="known end")
    for other in AGAINST:
        gap = model_difference(known, "bsdr", other, "cross_entropy", "pair")
        words = gap.sentence(
            "the cross-entropy of people's steps under BSDR",
            f"that under {NAMES[other]}",
            "is higher than",
            "is lower than",
        )
        found.append(Finding(f"if it were known what comes next: {words}", headline=other == "br_per_human"))
    everything = chosen(records, seen_as="every step", model="bsdr")
    walk, beta = (chosen(everything, evidence=evidence) for evidence in ("another walk", "another's beta"))
    gap = Difference(walk, chosen(every, model="prior"), "log_score", "pair")
    words = control_sentence(gap, "the log score of BSDR told somebody else's walk", "the prior alone")
    found.append(Finding(words))
    gap = Difference(chosen(every, model="bsdr"), beta, "log_score", "pair")
    words = gap.sentence(
        "the log score with a person's own beta", "with another person's", "is above that", "is below that"
    )
    found.append(Finding(words))
    for other in ("br", "br_per_human"):
        ours, theirs = (_calibration_errors(chosen(every, model=model)) for model in ("bsdr", other))
        words = Difference(ours, theirs, "error", "pair").sentence(
            "the calibration error of BSDR", f"that of {NAMES[other]}", "is larger than", "is smaller than"
        )
        found.append(Finding(f"at every step: {words}", headline=False))
    return found


def likelihood_figure(records: Sequence[Record]) -> Figure:
    """Likelihood of what was done over the part of the way that was seen, a panel for each kitchen."""
    here = chosen(records, evidence="own", seen_as="part")
    kitchens, parts = values_of(here, "kitchen"), values_of(here, "seen")
    figure, axes = panels(len(kitchens), max(2.5, 9 / len(kitchens)), 3.1)
    for axis, kitchen in zip(axes, kitchens, strict=True):
        for number, model in enumerate(MODELS):
            some = chosen(here, kitchen=kitchen, model=model)
            levels = [level(chosen(some, seen=part), "likelihood", "pair") for part in parts]
            draw_line(axis, dodged([100 * part for part in parts], number, len(MODELS), 2.5), levels, model)
        axis.set_xticks([25, 50, 75, 100])
        axis.set_title(kitchen, fontsize=9)
        axis.set_xlabel("part of the way seen (%)")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("likelihood of what was done next")
    legend_below(figure, axes[0])
    figure.suptitle("Foreseeing the next INTERACT of recorded people; bars: 95 % interval over pairs")
    return figure


def gain_figure(records: Sequence[Record]) -> Figure:
    """What BSDR gains over the others, paired, by the part seen; and what controls gain over the prior."""
    here = chosen(records, seen_as="part")
    own, parts = chosen(here, evidence="own"), values_of(here, "seen")
    x = [100 * part for part in parts]
    figure = Figure(figsize=(9.5, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, other in enumerate(AGAINST):
        gaps = [model_difference(chosen(own, seen=part), "bsdr", other, "log_score", "pair").estimate for part in parts]
        draw_line(left, dodged(x, number, len(AGAINST), 2), gaps, other)
    left.legend(frameon=False, fontsize=8, title="against", title_fontsize=8)
    prior = chosen(own, model="prior")
    of_bsdr = chosen(here, model="bsdr")
    for number, (evidence, color, marker) in enumerate(
        (("own", "#0072B2", "o"), ("another's beta", "#E69F00", "^"), ("another walk", "#999999", "X"))
    ):
        some = chosen(of_bsdr, evidence=evidence)
        gaps = [
            Difference(chosen(some, seen=part), chosen(prior, seen=part), "log_score", "pair").estimate
            for part in parts
        ]
        _draw(right, dodged(x, number, 3, 2), gaps, {"own": "own walk and beta"}.get(evidence, evidence), color, marker)
    right.legend(frameon=False, fontsize=8)
    left.set(title="BSDR less another model", ylabel="log score, paired (nats)")
    right.set(title="BSDR less the prior alone, with controls", ylabel="log score, paired (nats)")
    for axis in (left, right):
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set_xticks([25, 50, 75, 100])
        axis.set_xlabel("part of the way seen (%)")
        axis.grid(alpha=0.3)
    figure.suptitle("Log score of what was done next, all kitchens; bars: 95 % interval over pairs")
    return figure


def calibration_figure(records: Sequence[Record]) -> Figure:
    """How often what was given a probability came, at every step."""
    every = chosen(records, evidence="own", seen_as="every step")
    figure, axes = panels(len(MODELS), 2.4, 2.7)
    for axis, model in zip(axes, MODELS, strict=True):
        axis.plot([0, 1], [0, 1], color="#999999", linestyle=":", label="calibrated")
        bins = _bins(chosen(every, model=model))
        used = (bins[:, :, 0].sum(0) >= 50).nonzero()[:, 0].tolist()
        rates = [ratio_estimate(bins[:, b, 2].tolist(), bins[:, b, 0].tolist()) for b in used]
        total = bins.sum(0)
        draw_line(axis, [float(total[b, 1] / total[b, 0]) for b in used], rates, model)
        axis.set(title=NAMES[model], xlabel="probability given", xlim=(0, 1), ylim=(0, 1))
        axis.title.set_fontsize(9)
        axis.set_xticks([0, 0.5, 1])
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("how often it came")
    figure.suptitle("What comes next, at every step: probability and frequency; bars: 95 % interval over pairs")
    return figure


def _draw(axis: Axes, x: list[float], values: list[Estimate], label: str, color: str, marker: str) -> None:
    errors = list(zip(*(value.reach for value in values), strict=True))
    style: dict[str, Any] = {"capsize": 3, "markersize": 5, "linewidth": 1.2, "color": color, "marker": marker}
    axis.errorbar(x, [value.mean for value in values], errors, label=label, **style)


def _bins(records: Sequence[Record]) -> Tensor:
    """`[pairs, bins, 3]`: the calibration of each pair, over all kitchens."""
    pairs = values_of(records, "pair")
    lines = [[record["calibration"] for record in chosen(records, pair=pair)] for pair in sorted(pairs)]
    return torch.stack([torch.tensor(of_pair, dtype=torch.float64).sum(0) for of_pair in lines])


def _calibration_errors(records: Sequence[Record]) -> list[Record]:
    """For each pair, the mean distance of probability and frequency over bins, weighted by their size."""
    bins = _bins(records)
    errors = (bins[:, :, 1] - bins[:, :, 2]).abs().sum(1) / bins[:, :, 0].sum(1)
    pairs = sorted(values_of(records, "pair"))
    return [{"pair": pair, "error": error} for pair, error in zip(pairs, errors.tolist(), strict=True)]


def _text(settings: Run, records: Sequence[Record], found: list[Finding]) -> str:
    own = chosen(records, evidence="own")
    parts, every = chosen(own, seen_as="part"), chosen(own, seen_as="every step")
    fractions = values_of(parts, "seen")
    by_part = table(
        ["model", *(f"{part:.0%}" for part in fractions)],
        [
            [NAMES[m], *(shown(level(chosen(parts, model=m, seen=part), "likelihood", "pair")) for part in fractions)]
            for m in MODELS
        ],
    )
    gains = table(
        ["measure", "part", *(NAMES[other] for other in AGAINST)],
        [
            [
                name,
                f"{part:.0%}",
                *(
                    model_difference(chosen(parts, seen=part), "bsdr", other, measure, "pair").cell()
                    for other in AGAINST
                ),
            ]
            for measure, name in MEASURES.items()
            for part in fractions
        ],
    )
    at_every_step = table(
        ["model", *MEASURES.values(), "calibration error", "doubt"],
        [
            [
                NAMES[m],
                *(shown(level(here, measure, "pair")) for measure in MEASURES),
                shown(level(_calibration_errors(here), "error", "pair")),
                f"{here[0]['doubt']:g}",
            ]
            for m in MODELS
            if (here := chosen(every, model=m))
        ],
    )
    by_hands = table(
        ["model", *HANDS],
        [
            [
                NAMES[m],
                *(shown(level(chosen(own, seen_as="hands", seen=h, model=m), "log_score", "pair")) for h in range(4)),
            ]
            for m in MODELS
        ],
    )
    controls = table(
        ["model", "evidence", "log score", "less the prior's"],
        [
            [
                NAMES[m],
                evidence,
                shown(level(here, "log_score", "pair")),
                Difference(here, chosen(every, model="prior"), "log_score", "pair").cell(),
            ]
            for m in MODELS[1:]
            for evidence in ("own", "another's beta", "another walk")
            if (here := chosen(records, model=m, evidence=evidence, seen_as="every step"))
        ],
    )
    known = chosen(records, seen_as="known end")
    steps = table(
        ["model", "evidence", "cross-entropy (nats per step)", "less that of BR"],
        [
            [
                NAMES[m],
                evidence,
                shown(level(here, "cross_entropy", "pair")),
                Difference(here, chosen(known, model="br"), "cross_entropy", "pair").cell() if m != "br" else "",
            ]
            for m in MODELS[1:]
            for evidence in ("own", "another's beta")
            if (here := chosen(known, model=m, evidence=evidence))
        ],
    )
    moments = sum(record["moments"] for record in chosen(every, model="bsdr"))
    fits = {record["model"]: record["converged"] for record in records if record["model"] != "prior"}
    return f"""# Goal inference in kitchens

Made by `{settings.command("kitchen_goals")}`: {len(values_of(records, "pair"))} pairs of the MTurk games of 2019 in \
{len(values_of(records, "kitchen"))} kitchens, {moments:,} moments of the last third of their games; \
{sum(fits.values())} of {len(fits)} fits with a vanishing gradient.

The game of each person is cut into stretches, from one INTERACT that did something to the next, which is what the \
person was about to do: fetch an onion, a dish or a soup, put an onion into a pot, plate a soup, serve, put something \
down; or *wait*, to do none of it for {LONGEST} steps. The subgoals of a kitchen are those kinds of INTERACT and \
places that were seen five times in training; all else is one more hypothesis, *other*. From the person's steps since \
the last INTERACT, exact Bayes over subgoals. What is assumed:

- Each subgoal is a problem of its own, solved by the engine: poses of the person and cells of the partner, who walks \
about at random as often as people do; what cannot be used yet (a pot that cooks, a counter that is taken) comes to \
be usable at random, as often as in training. A step costs 1 until the INTERACT is done, gamma is 0.9, and the \
person's reward is -beta_i(s) for each step.
- beta is one number (BR), one for each person (BR per person), exp(theta_beta . phi(s)) for everybody (BSDR without \
identities) or for each person (BSDR), where phi(s) says what is in the hands, whether the partner is at most two \
cells away and whether the cell has at most two neighbours. All of it is learned from the first part of each game, \
where it is known what people went for.
- Whatever the model, people also act by habit, which depends on the action before, and pause, each as often as they \
do. Whoever waits or does something else acts by habit alone.
- People change their mind: before each step they think again with a probability, *doubt*, that was chosen for each \
model on the validation part; at 0 it is plain Bayes.
- The prior comes from training: how often what was done in this kitchen, in this seat, with this in the hands, the \
pots like this and this in the partner's hands, the finer counts shrunk to the coarser ones.

*Part of the way*: of the steps before the INTERACT, which is never seen itself; how long the way will be is not \
known to somebody who has to foresee it, and says something of its end. *Every step* needs no such knowledge: at each \
step but the first of every stretch, what will be done next. Controls: BSDR that is told the walk of *another* \
stretch with the same hands in the same seat, from which nothing can be learned; and BSDR in which each person has \
*another person's* beta.

{READING_PAIRS}

## What was found

{bullets(found)}

## Likelihood of what was done next

![likelihood](likelihood.png)

All kitchens together, by the part of the way seen:

{by_part}

## What state-dependence gains

![gain](gain.png)

BSDR less the other model:

{gains}

## At every step

{at_every_step}

Log score by what is in the hands:

{by_hands}

## How people go where they go

The cross-entropy of the same steps, if it were known what comes next. This is what beta was learned for:

{steps}

## Controls

Log score at every step:

{controls}

## Calibration

![calibration](calibration.png)

Bins with fewer than 50 moments are left out. The calibration error is the mean distance of probability and frequency \
over ten bins, weighted by their size, of each pair.
"""
