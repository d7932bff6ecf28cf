"""The report of the generalization of rewards in kitchens."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bsdr_torch.experiments.reporting import (
    NAMES,
    STYLES,
    Finding,
    HalvesDifference,
    bullets,
    by_unit,
    chosen,
    legend_below,
    short_name,
    shown,
    table,
    values_of,
    write_report,
)
from bsdr_torch.experiments.running import Record, Run
from bsdr_torch.experiments.statistics import CONFIDENCE, Estimate, half_sample_estimate

LEARNED = ("br", "br_per_human", "irleed", "bsdr")
OTHERS = ("random", "clone", "people")
MEASURES = {"soups": "soups in 400 steps", "returns": "rank correlation with soups"}


def write(settings: Run, records: Sequence[Record]) -> list[Finding]:
    """Draws the figures, writes report.md and returns the findings."""
    found = findings(records)
    figures = {"soups": soups_figure(records), "returns": returns_figure(records)}
    write_report(settings.out, _text(settings, records, found), figures)
    return found


def findings(records: Sequence[Record]) -> list[Finding]:
    """What was found, in sentences made from the intervals."""
    here, elsewhere = learned_here(records), learned_elsewhere(records)
    found = []
    for other, words in (("random", "a random reward"), ("clone", "another clone in the player's place")):
        gap = _difference(chosen(here, model="bsdr"), chosen(records, model=other), "soups")
        found.append(Finding(_soups(gap, "BSDR's reward", words)))
    gap = _difference(chosen(records, model="clone"), chosen(records, model="people"), "soups")
    words = gap.sentence(
        "soups served by two clones", "those of the people they are cloned from", "are more than", "are fewer than", 2
    )
    found.append(Finding(f"the partner: {words}"))
    for where, some in (("in the kitchen it was learned in", here), ("in the other kitchens", elsewhere)):
        for other in ("br", "br_per_human", "irleed"):
            gap = HalvesDifference(chosen(some, model="bsdr"), chosen(some, model=other), "soups")
            found.append(Finding(f"{where}: {_soups(gap, 'the reward of BSDR', f'that of {NAMES[other]}')}"))
    gap = _difference(chosen(elsewhere, model="bsdr"), chosen(records, model="random"), "soups")
    found.append(Finding(f"in the other kitchens: {_soups(gap, 'the reward of BSDR', 'a random reward')}"))
    for other in ("random", "br", "br_per_human", "irleed"):
        gap = _difference(chosen(here, model="bsdr"), chosen(here, model=other), "returns")
        words = gap.sentence(
            "the rank correlation with soups of what BSDR's reward says of other people's games",
            "that of a random reward" if other == "random" else f"that of {NAMES[other]}",
            "is above",
            "is below",
        )
        found.append(Finding(words, headline=other in ("random", "br")))
    few = learned_of_few(records)
    for model in LEARNED:
        gap = HalvesDifference(chosen(here, model=model), chosen(few, model=model), "soups")
        words = _soups(gap, f"the reward of {NAMES[model]} that all who teach taught", "that of a few of them")
        found.append(Finding(words, headline=model in ("br", "bsdr")))
    for other in ("br", "br_per_human", "irleed"):
        gap = HalvesDifference(chosen(few, model="bsdr"), chosen(few, model=other), "soups")
        words = _soups(gap, "the reward of BSDR", f"that of {NAMES[other]}")
        found.append(Finding(f"taught by a few people: {words}", headline=False))
    return found


def learned_here(records: Sequence[Record]) -> list[Record]:
    """Rewards that were learned of all who teach, in the kitchen that they are acted on in; and those of nobody."""
    return [r for r in records if r["source"] == r["kitchen"] and r["taught_by"] != "few"]


def learned_of_few(records: Sequence[Record]) -> list[Record]:
    """Rewards that were learned of a few of those who teach, in the kitchen that they are acted on in."""
    return chosen(records, taught_by="few")


def learned_elsewhere(records: Sequence[Record]) -> list[Record]:
    """Rewards that were learned in another kitchen."""
    return [record for record in records if record["source"] != record["kitchen"]]


def soups_figure(records: Sequence[Record]) -> Figure:
    """Soups by kitchen, for rewards that were learned there and in other kitchens."""
    kitchens = values_of(records, "kitchen")
    top = 1.25 * max(record["soups"] for record in records)  # intervals from few halves reach where no soups are
    figure = Figure(figsize=(3.0 + 2.2 * len(kitchens), 4.0), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (title, some) in zip(
        axes,
        {
            "learned in the same kitchen": learned_here(records),
            "learned in the other kitchens": [
                *learned_elsewhere(records),
                *(record for record in records if record["model"] in OTHERS),
            ],
        }.items(),
        strict=True,
    ):
        models = (*LEARNED, *OTHERS)
        for number, model in enumerate(models):
            _points(axis, number, len(models), chosen(some, model=model), kitchens, "soups")
        axis.set_xticks(range(len(kitchens)), [short_name(kitchen) for kitchen in kitchens], fontsize=8)
        axis.set_xlim(-0.5, len(kitchens) - 0.5)
        axis.set_title(f"rewards {title}", fontsize=9)
        axis.set_ylim(-0.5, top)
        axis.grid(alpha=0.3, axis="y")
    axes[0].set_ylabel("soups served in 400 steps")
    legend_below(figure, axes[0])
    figure.suptitle("Acting on a learned reward, with a cloned partner; bars: 95 % interval over people")
    return figure


def returns_figure(records: Sequence[Record]) -> Figure:
    """How well rewards rank other people's games."""
    kitchens, here = values_of(records, "kitchen"), learned_here(records)
    figure = Figure(figsize=(2.4 + 1.5 * len(kitchens), 3.8), layout="constrained")
    axis = figure.subplots()
    models = (*LEARNED, "random")
    for number, model in enumerate(models):
        _points(axis, number, len(models), chosen(here, model=model), kitchens, "returns")
    axis.axhline(0, color="black", linewidth=0.8)
    axis.set_xticks(range(len(kitchens)), [short_name(kitchen) for kitchen in kitchens], fontsize=8)
    axis.set_ylim(-1.05, 1.05)
    axis.set(
        ylabel="rank correlation with soups",
        title="What rewards say of other people's games; bars: 95 % interval over people",
    )
    axis.grid(alpha=0.3, axis="y")
    legend_below(figure, axis)
    return figure


def _points(
    axis: Axes, number: int, many: int, records: Sequence[Record], kitchens: Sequence[str], measure: str
) -> None:
    """A model's points over the kitchens that it has records in."""
    there = [kitchen for kitchen in kitchens if chosen(records, kitchen=kitchen)]
    values = [_level(chosen(records, kitchen=kitchen), measure) for kitchen in there]
    places = [kitchens.index(kitchen) + 0.8 / many * (number - (many - 1) / 2) for kitchen in there]
    errors = list(zip(*(value.reach for value in values), strict=True))
    model = records[0]["model"]
    style = STYLES[model] | {"linestyle": "none", "capsize": 3, "markersize": 5, "label": NAMES[model]}
    axis.errorbar(places, [value.mean for value in values], errors, **style)


def _difference(some: Sequence[Record], others: Sequence[Record], measure: str) -> HalvesDifference:
    """Paired by seed, in the kitchens that both have records in."""
    both = set(values_of(some, "kitchen")) & set(values_of(others, "kitchen"))
    some, others = ([record for record in of if record["kitchen"] in both] for of in (some, others))
    return HalvesDifference(some, others, measure)


def _level(records: Sequence[Record], measure: str) -> Estimate:
    return half_sample_estimate(by_unit(records, measure))


def _soups(gap: HalvesDifference, subject: str, other: str) -> str:
    return gap.sentence(
        f"soups served with {subject}", f"those with {other}", "are more than", "are fewer than", 2, " soups"
    )


def _text(settings: Run, records: Sequence[Record], found: list[Finding]) -> str:
    case, kitchens, here = records[0], values_of(records, "kitchen"), learned_here(records)
    elsewhere = learned_elsewhere(records)
    few = max(record["people"] for record in learned_of_few(records))
    tables = {}
    for name, some, models, measure in (
        ("here", here, (*LEARNED, *OTHERS), "soups"),
        ("elsewhere", elsewhere, LEARNED, "soups"),
        ("few", learned_of_few(records), LEARNED, "soups"),
        ("returns", here, (*LEARNED, "random"), "returns"),
        ("few_returns", learned_of_few(records), LEARNED, "returns"),
    ):
        tables[name] = table(
            ["reward of", *kitchens, "all"],
            [
                [NAMES[model]]
                + [shown(_level(at, measure), 2) if (at := chosen(of, kitchen=k)) else "" for k in kitchens]
                + [shown(_level(of, measure), 2)]
                for model in models
                if (of := chosen(some, model=model))
            ],
        )
    differences = table(
        ["", "against", *MEASURES.values()],
        [
            [
                where,
                NAMES[other],
                *(
                    HalvesDifference(chosen(some, model="bsdr"), chosen(some, model=other), measure).cell(2)
                    for measure in MEASURES
                ),
            ]
            for where, some in (
                ("learned there", here),
                ("learned there, of a few", learned_of_few(records)),
                ("learned elsewhere", elsewhere),
            )
            for other in ("br", "br_per_human", "irleed")
        ],
    )
    fits = {(record["kitchen"], record["seed"]): record["converged"] for record in records}
    return f"""# Generalization of rewards in kitchens

Made by `{settings.command("kitchen_rewards")}`: {len(values_of(records, "seed"))} seeds; in {sum(fits.values())} of \
{len(fits)} kitchens and seeds the fits of all models have a vanishing gradient.

With each seed, the pairs of people who were recorded in a kitchen (MTurk, 2019) are halved. At most \
{2 * case["pairs"]} people of the one half teach what people want; then a few of them, {few}, do so alone. What is \
learned is a reward for six task events and four places that are faced, which all people of a kitchen share, and how \
rational each of them is: alike (BR), each by a number (BR per person), also with an offset of the reward (IRLEED), or \
by a beta_i(s) that depends on what is in the hands, on whether a soup is ready and on whether something is faced \
(BSDR). A beta that all people share cannot be told from the reward, so its mean over people is 1 in every state; \
without identities each of these models would be BR. Habits and pauses are each person's own. Plans are exact, in a \
small version of the kitchen without the partner's place, gamma is 0.95. How state-dependent real people are cannot be \
varied; reward_generalization does so with simulated ones.

Then the shared reward is taken, and whoever acts on it plans for it anew in the same small kitchen, nearly perfectly \
and without habits or pauses, and plays {case["games"]} games of 400 steps in the full kitchen, half of them in each \
seat, with one action in ten at random. The partner is a network cloned from the other half of people, who act as \
they do with the last eight actions in mind. The control is a random reward (the mean of five). For comparison: \
another clone in the player's place, and what the other half of people served themselves in as many steps.

A reward also says what games are worth: the sum over both players' steps, in stretches of 200 steps of the other \
half's games, is compared with the soups that were served in them, by rank correlation.

Numbers are means over halves, with the {CONFIDENCE:.0%} interval for all people (delete-half jackknife: Student's, \
with the spread over halves as standard error; what halves have in common makes their number no evidence; as fewer \
than half of all people teach, it is rather too wide than too narrow). Differences are paired by half, and p is \
Student's with the same standard error. No sentence below claims a difference whose interval contains zero.

## What was found

{bullets(found)}

## Soups

![soups](soups.png)

Rewards learned in the kitchen that they are acted on in:

{tables["here"]}

Rewards learned in each of the other kitchens:

{tables["elsewhere"]}

Rewards learned in the same kitchen, of {few} people only:

{tables["few"]}

## Returns

![returns](returns.png)

{tables["returns"]}

Rewards learned of {few} people only:

{tables["few_returns"]}

## Differences

BSDR less the other model:

{differences}
"""
