"""The report of the transfer of suboptimality between kitchens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from bsdr_torch.contenders import LONG_HISTORY
from bsdr_torch.experiments.reporting import (
    NAMES,
    READING_PAIRS,
    Difference,
    Finding,
    bullets,
    chosen,
    control_sentence,
    legend_below,
    level,
    short_name,
    shown,
    table,
    values_of,
    write_report,
)
from bsdr_torch.experiments.running import Record, Run
from bsdr_torch.experiments.subgoal_plans import FEATURES

WHOSE = {
    "own": "the person's own",
    "own plans": "own plans (habits of the population)",
    "own habits": "own habits (plans of the population)",
    "population": "the population's",
    "another's plans": "another's plans (habits of the population)",
    "another": "another person's",
}
STYLES: dict[str, dict[str, Any]] = {
    "own": {"color": "#0072B2", "marker": "o"},
    "own plans": {"color": "#56B4E9", "marker": "s"},
    "own habits": {"color": "#009E73", "marker": "^"},
    "another's plans": {"color": "#E69F00", "marker": "D"},
    "another": {"color": "#D55E00", "marker": "v"},
}
UNIT = " nats per step"


def write(settings: Run, records: Sequence[Record]) -> list[Finding]:
    """Draws the figure, writes report.md and returns the findings."""
    found = findings(records)
    write_report(settings.out, _text(settings, records, found), {"gains": gains_figure(records)})
    return found


def findings(records: Sequence[Record]) -> list[Finding]:
    """What was found, in sentences made from the intervals."""
    exact, network = (chosen(records, engine=engine) for engine in ("exact", "network"))
    found = []
    for model in ("bsdr", "br_per_human"):
        here, name = chosen(exact, model=model), NAMES[model]
        words = _lower_or_higher(
            _difference(here, "own", "population"),
            f"the cross-entropy, in a new kitchen, of {name} with a person's own beta",
            "that with the population's",
        )
        found.append(Finding(f"exact plans: {words}"))
        words = _lower_or_higher(
            _difference(here, "own", "another"),
            f"the cross-entropy of {name} with a person's own beta",
            "that with another person's",
        )
        found.append(Finding(f"exact plans: {words}"))
        saved = _difference(here, "population", "another")
        words = control_sentence(
            saved, f"cross-entropy that another's beta saves in {name}", "the population's", 4, UNIT
        )
        found.append(Finding(f"exact plans: {words}", headline=model == "bsdr"))
    own = chosen(exact, whose="own")
    for other in ("br_per_human", "bsdr_aggregate", "br"):
        gap = Difference(chosen(own, model="bsdr"), chosen(own, model=other), "cross_entropy", "pair")
        words = _lower_or_higher(gap, "the cross-entropy of BSDR with own theta_beta", f"that of {NAMES[other]}")
        found.append(Finding(f"exact plans: {words}"))
    for planner in values_of(network, "planner"):
        here = chosen(network, planner=planner)
        for whose, against, named in (
            ("own", "population", "all of the population's"),
            ("own plans", "population", "all of the population's"),
            ("own habits", "population", "all of the population's"),
            ("own", "another", "another person's"),
        ):
            words = _lower_or_higher(
                _difference(here, whose, against), f"the cross-entropy with {WHOSE[whose]}", f"that with {named}"
            )
            found.append(Finding(f"KitchenModel, {planner}: {words}", headline=planner == "planned anew"))
        for whose in ("another", "another's plans"):
            saved = _difference(here, "population", whose)
            words = control_sentence(
                saved, f"cross-entropy that {WHOSE[whose]} saves", "all of the population's", 4, UNIT
            )
            found.append(
                Finding(f"KitchenModel, {planner}: {words}", headline=(whose, planner) == ("another", "planned anew"))
            )
    return found


def _lower_or_higher(gap: Difference, what: str, other: str) -> str:
    return gap.sentence(what, other, "is higher than", "is lower than", 4, UNIT)


def gains_figure(records: Sequence[Record]) -> Figure:
    """What it changes to predict people with their own and with another's, against the population's, by kitchen."""
    kitchens = values_of(chosen(records, engine="exact"), "kitchen")
    rows = [("exact", model, f"exact plans, {NAMES[model]}") for model in ("bsdr", "br_per_human")]
    rows += [
        (planner, "bsdr", f"KitchenModel, {planner}")
        for planner in values_of(chosen(records, engine="network"), "planner")
    ]
    figure = Figure(figsize=(10.5, 6.0), layout="constrained")
    axes = list(figure.subplots(2, 2, sharey="row").flat)
    for axis, (planner, model, title) in zip(axes, rows, strict=False):
        here = chosen(records, planner=planner, model=model)
        shown_ = [whose for whose in STYLES if chosen(here, whose=whose)]
        for number, whose in enumerate(shown_):
            there = [kitchen for kitchen in kitchens if chosen(here, kitchen=kitchen)]
            gaps = [_difference(chosen(here, kitchen=kitchen), whose, "population").estimate for kitchen in there]
            gaps.append(_difference(here, whose, "population").estimate)
            places = [*(kitchens.index(kitchen) for kitchen in there), len(kitchens)]
            axis.errorbar(
                [place + 0.13 * (number - (len(shown_) - 1) / 2) for place in places],
                [gap.mean for gap in gaps],
                list(zip(*(gap.reach for gap in gaps), strict=True)),
                label=WHOSE[whose].split(" (")[0],
                **STYLES[whose] | {"linestyle": "none", "capsize": 3, "markersize": 5},
            )
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set_xticks(range(len(kitchens) + 1), [*map(short_name, kitchens), "all"], fontsize=8)
        axis.set_title(title, fontsize=9)
        axis.set_ylabel("cross-entropy less that with\nthe population's (nats per step)", fontsize=8)
        axis.grid(alpha=0.3, axis="y")
    legend_below(figure, axes[-1])
    figure.suptitle("Predicting people in a new kitchen, by whose plans and habits; bars: 95 % interval over pairs")
    return figure


def _difference(records: Sequence[Record], whose: str, other: str) -> Difference:
    return Difference(chosen(records, whose=whose), chosen(records, whose=other), "cross_entropy", "pair")


def _text(settings: Run, records: Sequence[Record], found: list[Finding]) -> str:
    exact, network = (chosen(records, engine=engine) for engine in ("exact", "network"))
    exact_rows = [
        [
            NAMES[model],
            WHOSE[whose] if model in ("bsdr", "br_per_human") else "everybody's",
            shown(level(here, "cross_entropy", "pair"), 4),
            _difference(chosen(exact, model=model), whose, "population").cell(4)
            if whose != "population" and chosen(exact, model=model, whose="population")
            else "",
        ]
        for model in ("bsdr", "br_per_human", "bsdr_aggregate", "br")
        for whose in WHOSE
        if (here := chosen(exact, model=model, whose=whose))
    ]
    network_rows = [
        [
            planner,
            WHOSE[whose],
            shown(level(here, "cross_entropy", "pair"), 4),
            "" if whose == "population" else _difference(chosen(network, planner=planner), whose, "population").cell(4),
        ]
        for planner in values_of(network, "planner")
        for whose in WHOSE
        if (here := chosen(network, planner=planner, whose=whose))
    ]
    fits = {(record["model"], record["kitchen"]): record["converged"] for record in exact}
    return f"""# Transfer of suboptimality between kitchens

Made by `{settings.command("kitchen_transfer")}`: {len(values_of(records, "pair"))} pairs of the MTurk games of 2019; \
exact plans in {len(values_of(exact, "kitchen"))} new kitchens ({sum(fits.values())} of {len(fits)} fits with a \
vanishing gradient), `KitchenModel` in {len(values_of(network, "kitchen"))} ({len(values_of(network, "seed"))} \
seeds).

What somebody is like is learned in all kitchens but one, and used to predict the person in that one. Everybody who \
is predicted was seen in another kitchen.

*Exact plans*: people on the way to known subgoals (see kitchen_goals for what is assumed): it is known what the \
person will do next, and the steps to it are predicted by a plan with the person's beta_i(s) = exp(theta_beta[i] . \
phi(s)), phi(s) being {", ".join(FEATURES)}. Nothing but beta changes hands: habits are everybody's, pauses each \
person's own. How often partners move and things become usable is taken from the new kitchen.

*KitchenModel*: BSDR with learned features, which predicts people from states and their last {LONG_HISTORY} actions \
and never saw the kitchen. A person has plans (theta_beta, and the values that follow from it) and habits. *As \
trained* it uses its network of values; *planned anew*, only the reward, for which it plans in the new kitchen.

The control is to predict a person with what is another person's.

{READING_PAIRS}

## What was found

{bullets(found)}

## Gains

![gains](gains.png)

Below zero is better. Where only plans or only habits are somebody's, the other ones are the population's.

## Exact plans

{table(["model", "beta of", "cross-entropy", "less the population's"], exact_rows)}

## KitchenModel

{table(["planner", "plans and habits", "cross-entropy", "less the population's"], network_rows)}
"""
