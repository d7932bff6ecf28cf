"""The report of the action prediction experiment."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from bsdr_torch.experiments.reporting import (
    NAMES,
    READING,
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

FITTED = ("br", "br_per_human", "irleed", "ileed", "bsdr")
RULES = {"bsdr": "people by BSDR's rule", "lapses": "people who lapse"}
MODELS = ("truth", "bsdr", "irleed", "br_per_human", "br", "ileed", "optimal", "random")


def write(settings: Run, records: Sequence[Record]) -> list[Finding]:
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
            "cross-entropy above the\npeople's own (nats per step)",
            "What the fitted models miss",
        ),
    }
    write_report(settings.out, _text(settings, records, found), figures)
    return found


def findings(records: Sequence[Record]) -> list[Finding]:
    """What was found, in sentences made from the intervals."""
    found = []
    for rule, who in RULES.items():
        for dependence in values_of(records, "dependence"):
            here = chosen(records, rule=rule, dependence=dependence)
            if dependence == 0:
                saved = Difference(chosen(here, model="br_per_human"), chosen(here, model="bsdr"), "excess")
                words = control_sentence(saved, "cross-entropy that BSDR saves", "BR per person", 4, " nats per step")
                found.append(Finding(f"{who}: {words}"))
                continue
            for other in ("br_per_human", "irleed", "ileed"):
                words = model_difference(here, "bsdr", other, "excess").sentence(
                    "the cross-entropy of BSDR",
                    f"that of {NAMES[other]}",
                    "is higher than",
                    "is lower than",
                    4,
                    " nats per step",
                )
                headline = other in ("br_per_human", "ileed") and dependence == max(values_of(records, "dependence"))
                found.append(Finding(f"{who}, state-dependence {dependence:g}: {words}", headline))
        strongest = chosen(records, rule=rule, dependence=max(values_of(records, "dependence")))
        missed = {model: shown(level(chosen(strongest, model=model), "excess")) for model in ("bsdr", "br_per_human")}
        found.append(
            Finding(
                f"{who}, state-dependence {strongest[0]['dependence']:g}: to the people's own policy BSDR misses "
                f"{missed['bsdr']} nats per step, BR per person {missed['br_per_human']}"
            )
        )
    return found


def line_figure(records: Sequence[Record], models: Sequence[str], measure: str, label: str, title: str) -> Figure:
    """A measure over state-dependence, a column for each world, a row for each rule of acting."""
    worlds = values_of(records, "world")
    figure, axes = panels(len(RULES) * len(worlds), 2.6, 2.6, rows=len(RULES))
    for number, axis in enumerate(axes):
        rule, world = list(RULES)[number // len(worlds)], worlds[number % len(worlds)]
        for m, model in enumerate(models):
            here = chosen(records, rule=rule, world=world, model=model)
            x = values_of(here, "dependence")
            values = [level(chosen(here, dependence=d), measure) for d in x]
            draw_line(axis, dodged(x, m, len(models), 0.02), values, model)
        axis.set_title(f"{world}, {RULES[rule]}", fontsize=8)
        axis.grid(axis="y", alpha=0.3)
        if number % len(worlds) == 0:
            axis.set_ylabel(label, fontsize=9)
        if number >= len(worlds):
            axis.set_xlabel("state-dependence\n(s.d. within a person)")
    legend_below(figure, axes[0])
    figure.suptitle(f"{title}; bars: 95 % interval over seeds")
    return figure


def _text(settings: Run, records: Sequence[Record], found: list[Finding]) -> str:
    case, worlds, levels = records[0], values_of(records, "world"), values_of(records, "dependence")
    pooled = table(
        ["people", "model", *(f"state-dependence {d:g}" for d in levels)],
        [
            [
                who,
                NAMES[m],
                *(shown(level(chosen(records, rule=rule, model=m, dependence=d), "cross_entropy")) for d in levels),
            ]
            for rule, who in RULES.items()
            for m in MODELS
        ],
    )
    differences = table(
        ["people", "world", "BSDR less", *(f"state-dependence {d:g}" for d in levels)],
        [
            [
                who,
                world,
                NAMES[other],
                *(
                    model_difference(
                        chosen(records, rule=rule, world=world, dependence=d), "bsdr", other, "excess"
                    ).cell(4)
                    for d in levels
                ),
            ]
            for rule, who in RULES.items()
            for world in worlds
            for other in ("br", "br_per_human", "irleed", "ileed")
        ],
    )
    optimal = chosen(records, model="optimal", rule="bsdr")
    shares = ", ".join(
        f"{100 * level(chosen(optimal, dependence=d), 'best_actions').mean:.0f} % at state-dependence {d:g}"
        for d in levels
    )
    fits = [r for r in records if r["model"] in FITTED]
    return f"""# Action prediction in GridWorld

Made by `{settings.command("action_prediction")}`: {len(values_of(records, "seed"))} seeds, {len(fits)} fits, \
{sum(r["converged"] for r in fits)} of them with a vanishing gradient.

{case["people"]} people in each world ({", ".join(worlds)}) share a cost. There are two kinds of people. Those who \
act *by BSDR's rule* have a beta that depends on the state, and plan with it; *state-dependence* is the standard \
deviation of log beta between the features of one person. Those who *lapse* plan with one beta each, and in some \
places act at random more often than in others, which they do not plan for; *state-dependence* is the standard \
deviation of the logit of lapses between the features of one person. Of the fitted models \
only ILEED has that rule, with one policy for all people. Nothing else changes with state-dependence; at 0, the \
control, people are the same everywhere. All are sampled step by step.

ILEED knows nothing of costs and dynamics: its policy is a table, which is the same at every step of a rollout. What \
expertise depends on are the features that BSDR's rationality is given.

Models learn from {case["rollouts"]} rollouts of each person and predict {case["held_out"]} others, in nats per step, \
averaged in each rollout and then over rollouts; no floor on probabilities. The people's own policy (*true \
parameters*) is the least that anybody can reach but by luck: its cross-entropy estimates the entropy of their choices.

*Optimal* stands for self-play: the best policy for the true cost. By itself its cross-entropy is infinite, because \
people take actions that it never takes: those who act by BSDR's rule take one of its best actions in {shares}. So it \
is given lapses: with a probability fitted to the training rollouts it acts at random.

BPD is not among the models. Its network has to be trained for each world and each cost that is drawn. It was tried \
five times in meadow, on people of the first seed, with different alpha, 1/beta and lengths of training, by no command \
of this repository. The longest try (state-dependence 0; alpha = 1, 1/beta = 0.05; 400 rounds of 64 games, 34 seconds \
of one core) came to 1.48 nats per step, over all steps alike, where chance is 1.61 and the people's own policy about \
0.92. Nothing was tuned, nor trained until it got no better: that says what a try costs, about 23 minutes for all 40 \
worlds and costs, and not what BPD can do.

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
