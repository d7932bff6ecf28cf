"""The report of shared goals in kitchens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from bsdr_torch.experiments.reporting import (
    READING_PAIRS,
    Difference,
    Finding,
    bullets,
    chosen,
    legend_below,
    level,
    p_value,
    short_name,
    shown,
    table,
    values_of,
    write_report,
)
from bsdr_torch.experiments.running import Record, Run
from bsdr_torch.experiments.statistics import GroupTest, group_test
from bsdr_torch.experiments.task_kitchens import EVENTS, PLACES

PERMUTATIONS = 999
ACTIONS = {"as they were": "people's rewards", "at random": "control, fitted to actions at random"}
WHOSE = {
    "own": "the person",
    "same seat": "others in the same seat",
    "other seat": "others in the other seat",
    "self elsewhere": "the person in other kitchens",
    "others elsewhere": "others in other kitchens",
    "random": "nobody (random weights)",
    "nothing": "nobody (no reward)",
}
COLORS = {
    "own": "#000000",
    "same seat": "#0072B2",
    "other seat": "#56B4E9",
    "self elsewhere": "#009E73",
    "others elsewhere": "#E69F00",
    "random": "#999999",
    "nothing": "#CC79A7",
}


COMPARED = (
    ("same seat", "other seat"),
    ("same seat", "others elsewhere"),
    ("other seat", "others elsewhere"),
    ("same seat", "random"),
    ("own", "same seat"),
)

Tested = dict[str, dict[str, GroupTest]]


def write(settings: Run, fits: Sequence[Record], records: Sequence[Record]) -> list[Finding]:
    """Draws the figures, writes report.md and returns the findings."""
    compared = comparisons(fits, records)
    tests = {actions: permutation_tests(chosen(records, actions=actions)) for actions in ACTIONS}
    found = findings(compared, tests)
    figures = {
        "similarity": means_figure(compared, "similarity", "similarity of rewards (cosine)"),
        "losses": means_figure(compared, "loss", "cross-entropy of later steps (nats)"),
        "matrix": matrix_figure(chosen(records, actions="as they were")),
    }
    write_report(settings.out, _text(settings, fits, compared, tests, found), figures)
    return found


def comparisons(fits: Sequence[Record], records: Sequence[Record]) -> list[Record]:
    """For each person, kitchen and `WHOSE` rewards: the mean similarity to them and the mean loss with them.

    The rewards of whoever played with the person are left out: they saw the same games.
    """
    found: list[Record] = []
    for record in records:
        sources = chosen(fits, actions=record["actions"])
        values: dict[str, list[tuple[float, float]]] = {whose: [] for whose in WHOSE}
        for source, similarity, loss in zip(sources, record["similarities"], record["losses"], strict=True):
            here, self_ = source["kitchen"] == record["kitchen"], source["human"] == record["human"]
            if source["pair"] == record["pair"] and not self_:
                continue
            whose = "self elsewhere" if self_ else "others elsewhere"
            if here:
                whose = "own" if self_ else "same seat" if source["seat"] == record["seat"] else "other seat"
            values[whose].append((similarity, loss))
        values["random"].append((record["similarity_to_random"], record["loss_of_random"]))
        values["nothing"].append((0.0, record["loss_of_nothing"]))
        fields = {name: record[name] for name in ("kitchen", "actions", "human", "pair", "seat")}
        found += [
            {
                **fields,
                "whose": whose,
                "similarity": sum(s for s, _ in of) / len(of),
                "loss": sum(x for _, x in of) / len(of),
            }
            for whose, of in values.items()
            if of
        ]
    return found


def permutation_tests(records: Sequence[Record]) -> dict[str, dict[str, GroupTest]]:
    """Do rewards go together by kitchen, by seat in a kitchen, and by person? By question and measure.

    Kitchens change places within people, seats within kitchens, and people within kitchens and seats.
    """
    kitchen, human, seat = (_numbers(records, field) for field in ("kitchen", "human", "seat"))
    losses = torch.tensor([record["losses"] for record in records], dtype=torch.float64)
    distances = {
        "similarity": 1 - torch.tensor([record["similarities"] for record in records], dtype=torch.float64),
        "loss": losses - losses.mean(1, keepdim=True),  # some people are harder to predict, whatever the reward
    }
    generator = torch.Generator().manual_seed(0)
    groups = {
        "one kitchen": (kitchen, human),
        "one seat of a kitchen": (2 * kitchen + seat, kitchen),
        "one person": (human, 2 * kitchen + seat),
    }
    return {
        question: {name: group_test(of, group, PERMUTATIONS, generator, blocks) for name, of in distances.items()}
        for question, (group, blocks) in groups.items()
    }


def findings(compared: Sequence[Record], tests: Mapping[str, Tested]) -> list[Finding]:
    """What was found, in sentences made from the intervals."""
    found = []
    for actions, people in ACTIONS.items():
        here = chosen(compared, actions=actions)
        real = actions == "as they were"
        for whose, other in COMPARED:
            if whose != "own":
                gap = _difference(here, whose, other, "similarity")
                words = gap.sentence(
                    f"the similarity to the rewards of {WHOSE[whose]}",
                    f"that to the rewards of {WHOSE[other]}",
                    "is above",
                    "is below",
                )
                found.append(Finding(f"{people}: {words}", headline=real or other == "others elsewhere"))
            gap = _difference(here, whose, other, "loss")
            words = gap.sentence(
                f"the loss with the reward of {WHOSE[whose]}",
                f"that with the reward of {WHOSE[other]}",
                "is higher than",
                "is lower than",
                unit=" nats per step",
            )
            found.append(Finding(f"{people}: {words}", headline=real and other != "random"))
        for groups, by_measure in tests[actions].items():
            test = by_measure["similarity"]
            clear = "are" if test.p < 0.05 else "are not clearly"
            words = (
                f"the rewards of {groups} {clear} more alike than others (effect {test.effect:.2f}, {p_value(test.p)})"
            )
            found.append(Finding(f"{people}, permutation test: {words}"))
    for whose, other in COMPARED:
        for measure in ("similarity", "loss") if whose != "own" else ("loss",):
            words = _beyond_the_control(compared, whose, other, measure).sentence(
                f"the difference in {measure} between the rewards of {WHOSE[whose]} and those of {WHOSE[other]}",
                "that in the control",
                "is above",
                "is below",
            )
            found.append(Finding(f"people less the control: {words}", headline=measure == "loss" and other != "random"))
    here = chosen(compared, actions="as they were")
    words = _difference(here, "self elsewhere", "others elsewhere", "loss").sentence(
        "the loss with the person's own reward from other kitchens",
        "that with the rewards of others from there",
        "is higher than",
        "is lower than",
        unit=" nats per step",
    )
    return [*found, Finding(words)]


def means_figure(compared: Sequence[Record], measure: str, label: str) -> Figure:
    """A measure by whose rewards, for each kitchen: people, and the control."""
    kitchens = values_of(compared, "kitchen")
    figure = Figure(figsize=(2.4 + 2.1 * len(kitchens), 4.0), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    shown_ = [whose for whose in WHOSE if measure == "loss" or whose not in ("own", "nothing")]
    for axis, (actions, title) in zip(axes, ACTIONS.items(), strict=True):
        for number, whose in enumerate(shown_):
            here = chosen(compared, actions=actions, whose=whose)
            values = [level(chosen(here, kitchen=kitchen), measure, "pair") for kitchen in kitchens]
            axis.errorbar(
                [k + 0.11 * (number - (len(shown_) - 1) / 2) for k in range(len(kitchens))],
                [value.mean for value in values],
                list(zip(*(value.reach for value in values), strict=True)),
                fmt="os<D^Xv"[number],
                color=COLORS[whose],
                capsize=3,
                markersize=5,
                label=WHOSE[whose],
            )
        axis.set_xticks(range(len(kitchens)), [short_name(kitchen) for kitchen in kitchens], fontsize=8)
        axis.set_title(title, fontsize=9)
        axis.grid(alpha=0.3, axis="y")
        if measure == "similarity":
            axis.axhline(0, color="black", linewidth=0.8)
    axes[0].set_ylabel(label)
    legend_below(figure, axes[0])
    figure.suptitle("BR fitted to each person alone; bars: 95 % interval over pairs")
    return figure


def matrix_figure(records: Sequence[Record]) -> Figure:
    """The similarity of all rewards, by kitchen and seat."""
    order = sorted(range(len(records)), key=lambda number: (records[number]["kitchen"], records[number]["seat"]))
    values = torch.tensor([record["similarities"] for record in records], dtype=torch.float64)
    values = ((values + values.T) / 2)[order][:, order]
    figure = Figure(figsize=(6.6, 5.6), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(values.numpy(), cmap="PuOr_r", vmin=-1, vmax=1, interpolation="nearest")
    kitchens = [records[number]["kitchen"] for number in order]
    first = {kitchen: kitchens.index(kitchen) for kitchen in dict.fromkeys(kitchens)}
    for place in list(first.values())[1:]:
        axis.axhline(place - 0.5, color="black", linewidth=1)
        axis.axvline(place - 0.5, color="black", linewidth=1)
    seats = [records[number]["seat"] for number in order]
    for place in range(1, len(seats)):
        if seats[place - 1] < seats[place]:
            axis.axhline(place - 0.5, color="black", linewidth=0.5, linestyle=":")
            axis.axvline(place - 0.5, color="black", linewidth=0.5, linestyle=":")
    middles = [place + kitchens.count(kitchen) / 2 for kitchen, place in first.items()]
    names = [short_name(kitchen) for kitchen in first]
    axis.set_xticks(middles, names, fontsize=7)
    axis.set_yticks(middles, names, fontsize=7)
    figure.colorbar(image, label="similarity of rewards (cosine)")
    axis.set_title("Rewards of all people; dotted: between the two seats of a kitchen", fontsize=10)
    return figure


def _difference(compared: Sequence[Record], whose: str, other: str, measure: str) -> Difference:
    some, others = chosen(compared, whose=whose), chosen(compared, whose=other)
    both = {(r["human"], r["kitchen"]) for r in some} & {(r["human"], r["kitchen"]) for r in others}
    some, others = ([r for r in of if (r["human"], r["kitchen"]) in both] for of in (some, others))
    return Difference(some, others, measure, "pair")


def _beyond_the_control(compared: Sequence[Record], whose: str, other: str, measure: str) -> Difference:
    """By how much a difference between whose rewards is larger in people than in the control, on the same people."""
    gaps: dict[str, list[Record]] = {}
    for actions in ACTIONS:
        here = chosen(compared, actions=actions)
        values = {of: {(r["human"], r["kitchen"]): r for r in chosen(here, whose=of)} for of in (whose, other)}
        gaps[actions] = [
            {"key": key, "pair": record["pair"], "gap": record[measure] - values[other][key][measure]}
            for key, record in values[whose].items()
            if key in values[other]
        ]
    people, control = gaps.values()
    both = {record["key"] for record in people} & {record["key"] for record in control}
    people, control = ([record for record in of if record["key"] in both] for of in (people, control))
    return Difference(people, control, "gap", "pair")


def _numbers(records: Sequence[Record], field: str) -> Tensor:
    values = values_of(records, field)
    return torch.tensor([values.index(record[field]) for record in records])


def _text(
    settings: Run,
    fits: Sequence[Record],
    compared: Sequence[Record],
    tests: Mapping[str, Tested],
    found: list[Finding],
) -> str:
    kitchens = values_of(compared, "kitchen")
    means = {
        measure: table(
            ["rewards of", "fitted to actions", *kitchens, "all"],
            [
                [WHOSE[whose], actions]
                + [shown(level(chosen(here, kitchen=kitchen), measure, "pair")) for kitchen in kitchens]
                + [shown(level(here, measure, "pair"))]
                for actions in ACTIONS
                for whose in WHOSE
                if (here := chosen(compared, actions=actions, whose=whose))
                and (measure == "loss" or whose not in ("own", "nothing"))
            ],
        )
        for measure in ("similarity", "loss")
    }
    rows = [
        [
            question,
            actions,
            measure,
            f"{test.within:.3f}",
            f"{test.between:.3f}",
            f"{test.effect:.2f}",
            f"{test.p:.3f}",
        ]
        for actions in ACTIONS
        for question, of in tests[actions].items()
        for measure, test in of.items()
    ]
    header = ["groups", "fitted to actions", "measure", "within", "between", "effect", "p"]
    real = chosen(fits, actions="as they were")
    features = (*EVENTS, *PLACES)
    spread = [record | dict(zip(features, record["weights"], strict=True)) for record in real]
    weights = table(
        ["weight of", *kitchens],
        [
            [feature, *(shown(level(chosen(spread, kitchen=kitchen), feature, "pair"), 1) for kitchen in kitchens)]
            for feature in features
        ],
    )
    return f"""# Shared goals in kitchens

Made by `{settings.command("kitchen_shared_goals")}`: {len(real)} fits of the people of \
{len(values_of(real, "pair"))} pairs of the MTurk games of 2019, each in each kitchen that the person played in; \
{sum(record["converged"] for record in fits)} of {len(fits)}, with those of the control, have a vanishing gradient.

BR is fitted to each person alone, on the first two thirds of the person's game in one kitchen: a reward with a \
weight for each of {len(EVENTS)} task events and {len(PLACES)} places that are faced, habits and pauses, all of it \
the person's own. Plans are exact, in a small version of the kitchen: the person's place, look and hands, and the \
pots; what partners do to pots and what lies on counters happens by chance, as often as it did (gamma is 0.95). So \
nothing in a fit makes people agree, and nothing but what they did makes them differ.

Rewards are compared in two ways. The *similarity* of two rewards is the cosine of their advantages under the random \
policy, which no shaping changes, in the kitchen of one of them: 1 is the same up to scale and shaping, 0 unrelated, \
-1 opposite. The *loss* with another's reward is the cross-entropy of a person's steps in the last third of the game, \
if the person wanted what the other wants, with own habits, at the scale (of four) that fits the first two thirds \
best. Rewards of whoever played with the person are not compared. The control are fits to the same steps with each \
person's actions in random order and moves in random directions: nothing to learn of goals. Where rewards are worth a \
little in the control, too, differences of that size mean nothing; sentences about *people less the control* take them \
away, person by person.

The permutation tests ask whether rewards go together by kitchen (kitchens change places among those of one person), \
by seat (seats change places within a kitchen) and by person (people change places within a kitchen and seat); \
distances are 1 less the similarity, and losses less the mean of the person who is predicted. *Effect* is the mean \
between groups less that within, and less what that is on average after changing places, in standard deviations.

{READING_PAIRS}

## What was found

{bullets(found)}

## Similarity

![similarity](similarity.png)

{means["similarity"]}

![matrix](matrix.png)

## Loss with another's reward

![losses](losses.png)

{means["loss"]}

## Permutation tests

{table(header, rows)}

## Weights

Mean over pairs of what BR finds, which is defined up to shaping only: the prior (normal, the same for all) chooses.

{weights}
"""
