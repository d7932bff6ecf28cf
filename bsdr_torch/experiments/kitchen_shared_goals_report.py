"""The report of shared goals in kitchens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from bsdr_torch.experiments.reporting import (
    Finding,
    Gap,
    bullets,
    chosen,
    control_sentence,
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
from bsdr_torch.experiments.statistics import (
    CONFIDENCE,
    Estimate,
    GroupTest,
    group_test,
    jackknife_estimate,
    jackknife_p,
)
from bsdr_torch.experiments.task_kitchens import EVENTS, PLACES

PERMUTATIONS = 999
ACTIONS = {"as they were": "people's rewards", "at random": "control, people who act at random"}
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
_NOBODY, _NO_PAIR = -1, -2  # in place of the number of a pair

COMPARED = (
    ("same seat", "other seat"),
    ("same seat", "others elsewhere"),
    ("other seat", "others elsewhere"),
    ("same seat", "random"),
    ("own", "same seat"),
    ("self elsewhere", "others elsewhere"),
)

Tested = dict[str, dict[str, GroupTest]]


def write(settings: Run, fits: Sequence[Record], records: Sequence[Record]) -> list[Finding]:
    """Draws the figures, writes report.md and returns the findings."""
    by_actions = {actions: chosen(records, actions=actions) for actions in ACTIONS}
    compared = {actions: Comparisons.of(chosen(fits, actions=actions), by_actions[actions]) for actions in ACTIONS}
    tests = {actions: permutation_tests(of) for actions, of in by_actions.items()}
    found = findings(compared, tests)
    figures = {
        "similarity": means_figure(compared, "similarity", "similarity of rewards (cosine)"),
        "losses": means_figure(compared, "loss", "cross-entropy of later steps (nats)"),
        "matrix": matrix_figure(by_actions["as they were"]),
    }
    write_report(settings.out, _text(settings, fits, compared, tests, found), figures)
    return found


class Comparisons(NamedTuple):
    """The rewards of N people of kitchens, each compared with M others: those of all of them, random ones and none.

    The rewards of whoever played with the person are left out: they saw the same games.

    Attributes:
        kitchens: `[N]` names.
        pairs: `[N]`, by number, who played together.
        pairs_of_others: `[M]`, the same of those whose rewards they are, or `_NOBODY`.
        values: `[N, M]`, by measure.
        whose: `[N, M]` bool, by `WHOSE` rewards they are.
    """

    kitchens: list[str]
    pairs: Tensor
    pairs_of_others: Tensor
    values: dict[str, Tensor]
    whose: dict[str, Tensor]

    @staticmethod
    def of(fits: Sequence[Record], records: Sequence[Record]) -> Comparisons:
        """From the results of the experiment, for the same `actions`."""
        both = [*records, *fits]
        human, pair, kitchen, seat = (_numbers(both, field) for field in ("human", "pair", "kitchen", "seat"))
        N = len(records)
        same = {
            "person": human[:N, None] == human[N:],
            "pair": pair[:N, None] == pair[N:],
            "kitchen": kitchen[:N, None] == kitchen[N:],
            "seat": seat[:N, None] == seat[N:],
        }
        others = ~same["pair"]
        whose = {
            "own": same["person"] & same["kitchen"],
            "same seat": others & same["kitchen"] & same["seat"],
            "other seat": others & same["kitchen"] & ~same["seat"],
            "self elsewhere": same["person"] & ~same["kitchen"],
            "others elsewhere": others & ~same["kitchen"],
        }
        none, all_ = torch.zeros(N, 1, dtype=torch.bool), torch.ones(N, 1, dtype=torch.bool)
        whose = {name: torch.cat([mask, none, none], 1) for name, mask in whose.items()}
        nobodys = torch.zeros_like(whose["own"][:, :-2])
        whose |= {"random": torch.cat([nobodys, all_, none], 1), "nothing": torch.cat([nobodys, none, all_], 1)}
        values = {
            "similarity": [[*r["similarities"], r["similarity_to_random"], 0.0] for r in records],
            "loss": [[*r["losses"], r["loss_of_random"], r["loss_of_nothing"]] for r in records],
        }
        return Comparisons(
            [record["kitchen"] for record in records],
            pair[:N],
            torch.cat([pair[N:], torch.tensor([_NOBODY, _NOBODY])]),
            {name: torch.tensor(of, dtype=torch.float64) for name, of in values.items()},
            whose,
        )

    def level(self, whose: str, measure: str, kitchen: str | None = None) -> Estimate:
        """The mean of a measure over pairs, in one kitchen or in all."""
        return jackknife_estimate(*self._without_each(whose, None, measure, kitchen))

    def gap(self, whose: str, other: str, measure: str) -> Gap:
        """By how much a measure is larger with these rewards than with others, of people who are compared with both."""
        whole, without = self._without_each(whose, other, measure, None)
        return Gap(jackknife_estimate(whole, without), jackknife_p(whole, without))

    def _without_each(
        self, whose: str, other: str | None, measure: str, kitchen: str | None
    ) -> tuple[float, list[float]]:
        """The mean over pairs; and without each of the pairs, neither as those compared nor as those compared with."""
        here = torch.tensor([kitchen in (None, name) for name in self.kitchens])
        pairs = torch.unique(self.pairs[here]).tolist()
        whole, *without = (self._mean(whose, other, measure, here, pair) for pair in (_NO_PAIR, *pairs))
        return whole, without

    def _mean(self, whose: str, other: str | None, measure: str, here: Tensor, without: int) -> float:
        found = torch.zeros(len(here), dtype=torch.float64)
        for sign, name in ((1, whose), (-1, other)):
            if name is not None:
                mask = self.whose[name] & (self.pairs_of_others != without)
                found = found + sign * (self.values[measure] * mask).sum(1) / mask.sum(1)
        there = here & ~found.isnan() & (self.pairs != without)
        by_pair = [found[there & (self.pairs == pair)].mean() for pair in torch.unique(self.pairs[there])]
        return float(torch.stack(by_pair).mean())


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


def findings(compared: Mapping[str, Comparisons], tests: Mapping[str, Tested]) -> list[Finding]:
    """What was found, in sentences made from the intervals."""
    people, control = (compared[actions] for actions in ACTIONS)
    found = []
    for whose, other in COMPARED:
        if whose != "own":
            words = people.gap(whose, other, "similarity").sentence(
                f"the similarity to the rewards of {WHOSE[whose]}",
                f"that to the rewards of {WHOSE[other]}",
                "is above",
                "is below",
            )
            found.append(Finding(words))
        words = people.gap(whose, other, "loss").sentence(
            f"the loss with the reward of {WHOSE[whose]}",
            f"that with the reward of {WHOSE[other]}",
            "is higher than",
            "is lower than",
            unit=" nats per step",
        )
        found.append(Finding(words, headline=other != "random"))
    for whose, other in COMPARED:
        against = f"rewards of {WHOSE[whose]}", f"those of {WHOSE[other]}"
        if whose != "own":
            gap = control.gap(whose, other, "similarity")
            words = control_sentence(gap, f"similarity to the {against[0]}", against[1])
            found.append(Finding(words, headline=other == "others elsewhere"))
        gap = control.gap(other, whose, "loss")
        words = control_sentence(gap, f"loss that is saved by the {against[0]}", against[1], unit=" nats per step")
        found.append(Finding(words, headline=other == "others elsewhere"))
    for actions, who in ACTIONS.items():
        for groups, by_measure in tests[actions].items():
            test = by_measure["similarity"]
            clear = "are" if test.p < 0.05 else "are not clearly"
            words = (
                f"the rewards of {groups} {clear} more alike than others (effect {test.effect:.2f}, {p_value(test.p)})"
            )
            found.append(Finding(f"permutation test, {who}: {words}"))
    return found


def means_figure(compared: Mapping[str, Comparisons], measure: str, label: str) -> Figure:
    """A measure by whose rewards, for each kitchen: people, and the control."""
    kitchens = list(dict.fromkeys(compared["as they were"].kitchens))
    figure = Figure(figsize=(2.4 + 2.1 * len(kitchens), 4.0), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    shown_ = [whose for whose in WHOSE if measure == "loss" or whose not in ("own", "nothing")]
    for axis, (actions, title) in zip(axes, ACTIONS.items(), strict=True):
        for number, whose in enumerate(shown_):
            values = [compared[actions].level(whose, measure, kitchen) for kitchen in kitchens]
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


def _numbers(records: Sequence[Record], field: str) -> Tensor:
    values = values_of(records, field)
    return torch.tensor([values.index(record[field]) for record in records])


def _text(
    settings: Run,
    fits: Sequence[Record],
    compared: Mapping[str, Comparisons],
    tests: Mapping[str, Tested],
    found: list[Finding],
) -> str:
    kitchens = values_of(fits, "kitchen")
    means = {
        measure: table(
            ["rewards of", "actions", *kitchens, "all"],
            [
                [WHOSE[whose], actions]
                + [shown(compared[actions].level(whose, measure, kitchen)) for kitchen in (*kitchens, None)]
                for actions in ACTIONS
                for whose in WHOSE
                if measure == "loss" or whose not in ("own", "nothing")
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
    header = ["groups", "actions", "measure", "within", "between", "effect", "p"]
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
if the person wanted what the other wants, with own habits, at the scale (of five, one of them 0) that fits \
the first two thirds best. Rewards of whoever played with the person are not compared. The control are people without \
goals: the same steps with each person's actions in random order and moves in random directions, both where the person \
is fitted and where the person is predicted.

The permutation tests ask whether rewards go together by kitchen (kitchens change places among those of one person), \
by seat (seats change places within a kitchen) and by person (people change places within a kitchen and seat); \
distances are 1 less the similarity, and losses less the mean of the person who is predicted. *Effect* is the mean \
between groups less that within, and less what that is on average after changing places, in standard deviations.

Numbers are means over pairs of people who played together. Each reward is compared with those of many people, who \
are thus not independent of one another: intervals ({CONFIDENCE:.0%}, Student's) and p are the jackknife's, which \
leaves out one pair after the other, both where they are predicted and where others are compared with them. No \
sentence below claims a difference whose interval contains zero.

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
