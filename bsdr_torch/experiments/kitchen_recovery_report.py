"""The report of the recovery experiment in a kitchen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from bsdr_torch.experiments.reporting import (
    NAMES,
    READING,
    STYLES,
    Difference,
    Finding,
    bullets,
    by_unit,
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
from bsdr_torch.kitchens.simulated_people import SITUATIONS

AIM = 0.8
MODELS = ("br", "br_per_human", "bsdr")
KINDS = {"state-dependent": "β depends on person and state", "alike": "all alike: control"}
SETTINGS = {
    ("exact", "events"): "exact plans, a cost of task events",
    ("exact", "learned"): "exact plans, a learned cost",
    ("neural", "events"): "plans of a network, a cost of task events",
    ("neural", "learned"): "plans of a network and a learned cost, as on real people",
}
FIRST, AS_ON_PEOPLE = ("exact", "events"), ("neural", "learned")
UNIT = " nats per step"
RANKS = {
    "beta_rank": "over people and states",
    "beta_rank_of_people": "over people, in a state",
    "beta_rank_of_states": "over states, about a person's mean",
}
MEASURES = {name: f"ranks {over}" for name, over in RANKS.items()} | {
    "beta_spread": "spread of log β",
    "true_spread": "true spread",
}


def write(settings: Run, records: Sequence[Record]) -> list[Finding]:
    """Draws the figures, writes report.md and returns the findings."""
    found = findings(records)
    figures = {"ranks": ranks_figure(records), "excess": excess_figure(records)}
    write_report(settings.out, _text(settings, records, found), figures)
    return found


def compared(records: Sequence[Record], people: str, engine: str, reward: str) -> list[Record]:
    """The fits of every model to the most data, of one engine and one cost, without a focus."""
    here = chosen(records, engine=engine, reward=reward, people=people, focus=False)
    return [record for record in here if record["games"] == max(values_of(here, "games"))]


def findings(records: Sequence[Record]) -> list[Finding]:
    """What was found, in sentences made from the intervals."""
    found = []
    for setting, who in SETTINGS.items():
        people, alike = (compared(records, kind, *setting) for kind in KINDS)
        if people:
            rank, *more = _recovered(people)
            found.append(Finding(f"{who}: {rank.words}"))
            summed_up = setting in (FIRST, AS_ON_PEOPLE)
            found += [Finding(f"{who}: {words}", headline and summed_up) for words, headline in more]
            if setting != FIRST:
                words = _against_the_first(chosen(people, model="bsdr"), records)
                found.append(Finding(f"{who}: {words}", setting == AS_ON_PEOPLE))
        if alike:
            found += [Finding(f"{who}: {words}") for words in _control(alike, chosen(people, model="bsdr"))]
    for kind, title in KINDS.items():
        focused = chosen(records, people=kind, focus=True)
        if focused:
            without = chosen(compared(records, kind, *AS_ON_PEOPLE), model="bsdr")
            who = f"{SETTINGS[AS_ON_PEOPLE]}, {title.removesuffix(': control')}"
            found += [Finding(f"{who}: {words}") for words in _focus(focused, without)]
    return found


def _focus(focused: list[Record], without: list[Record]) -> list[str]:
    """What a model finds that expects a focus and hesitation, in people who have neither."""
    saved = Difference(without, focused, "excess")
    rank = Difference(focused, without, "beta_rank")
    words = [
        control_sentence(saved, "cross-entropy that focus and hesitation save BSDR", "none of them", 4, UNIT),
        f"control, people without focus: the spread of log λ(s) that BSDR learns is "
        f"{shown(level(focused, 'focus_spread'))}, where there is none",
    ]
    if any(record["true_spread"] > 0 for record in focused):
        names = "the rank correlation of β_i(s) with focus and hesitation", "that without them"
        words.append(rank.sentence(*names, "is above", "is below"))
    return words


def _recovered(people: list[Record]) -> list[Finding]:
    """How well beta is found in people who differ, and what it is good for."""
    bsdr, alone = chosen(people, model="bsdr"), chosen(people, model="br_per_human")
    found = [Finding(_rank_sentence(bsdr))]
    states = shown(level(bsdr, "beta_rank_of_states"))
    found.append(
        Finding(
            f"about each person's own mean, which leaves what depends on the state, the rank correlation is {states}"
        )
    )
    if alone:
        rank = shown(level(alone, "beta_rank"))
        found.append(Finding(f"one β for each person, BR per person, comes to a rank correlation of {rank}", False))
    for other in [model for model in ("br_per_human", "br") if chosen(people, model=model)]:
        words = model_difference(people, "bsdr", other, "excess").sentence(*_bsdr_against(other), 4, UNIT)
        found.append(Finding(words, other == "br_per_human"))
    if all("replanned_excess" in record for record in people):
        words = model_difference(people, "bsdr", "br_per_human", "replanned_excess").sentence(
            *_bsdr_against("br_per_human"), 4, UNIT
        )
        found.append(Finding(f"with plans made anew, exactly, from the learned rewards, {words}"))
    return found


def _bsdr_against(other: str) -> tuple[str, str, str, str]:
    return "the cross-entropy of BSDR", f"that of {NAMES[other]}", "is higher than", "is lower than"


def _control(alike: list[Record], people: list[Record]) -> list[str]:
    """What is found in people who are all alike, and how far that is from what is found in people who are not."""
    learned = chosen(alike, model="bsdr")
    saved = Difference(chosen(alike, model="br"), learned, "excess")
    spread, of_people, true = (
        shown(level(some, measure))
        for some, measure in ((learned, "beta_spread"), (people, "beta_spread"), (people, "true_spread"))
    )
    return [
        control_sentence(saved, "cross-entropy that BSDR saves", "BR", 4, UNIT),
        f"control, people who are all alike: the spread of log β that BSDR learns is {spread}, where there is none; of "
        f"people who differ it is {of_people}, where there is {true}",
    ]


def _against_the_first(bsdr: list[Record], records: Sequence[Record]) -> str:
    """Whether beta is found as well as by `FIRST`, on the seeds that both have."""
    seeds = values_of(bsdr, "seed")
    first = chosen(compared(records, "state-dependent", *FIRST), model="bsdr")
    first = [record for record in first if record["seed"] in seeds]
    return Difference(bsdr, first, "beta_rank").sentence(
        "this rank correlation", f"that with {SETTINGS[FIRST]}", "is above", "is below"
    )


def _rank_sentence(records: Sequence[Record]) -> str:
    rank = level(records, "beta_rank")
    verdict = f"no clear answer, the interval contains {AIM:g}"
    if rank.low > AIM:
        verdict = f"above {AIM:g}"
    elif rank.high < AIM:
        verdict = f"below {AIM:g}"
    elif rank.repetitions == 1:
        verdict = "one seed alone"
    case = records[0]
    return (
        f"the rank correlation of BSDR's β_i(s) with the true one, over people and visited states, is "
        f"{shown(rank)} ({verdict}; {rank.repetitions} seeds, {case['humans']} people, {case['decisions']:,} decisions "
        "of each)"
    )


def ranks_figure(records: Sequence[Record]) -> Figure:
    """Rank correlations of beta, a panel for each kind of them: by plans, cost and amount of data."""
    figure, axes = panels(len(RANKS), width=2.9)
    people = chosen(records, people="state-dependent", focus=False)
    kinds = ("engine", "reward", "decisions")
    places = _kinds_of_fits(people, kinds)
    for axis, (measure, title) in zip(axes, RANKS.items(), strict=True):
        for number, model in enumerate(("bsdr", "br_per_human")):
            fits = [chosen(people, model=model, **dict(zip(kinds, place, strict=True))) for place in places]
            x = dodged([place for place, here in enumerate(fits) if here], number, 2, 0.3)
            fits = [here for here in fits if here]
            draw_line(axis, x, [level(here, measure) for here in fits], model, "none")
            for place, here in zip(x, fits, strict=True):
                seeds = by_unit(here, measure)
                axis.plot([place + 0.12] * len(seeds), seeds, ".", color=STYLES[model]["color"], alpha=0.4)
        axis.axhline(AIM, color="black", linestyle="--", linewidth=0.8, label=f"aim, {AIM:g}")
        names = [f"{engine}\n{reward}\n{many:,}" for engine, reward, many in places]
        axis.set_xticks(range(len(places)), names, fontsize=8)
        axis.set_xlim(-0.6, len(places) - 0.4)
        axis.set_xlabel("plans, cost, decisions of each person", fontsize=9)
        axis.set_title(title, fontsize=9)
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("rank correlation of learned and true β", fontsize=9)
    legend_below(figure, axes[0])
    figure.suptitle("Is β recovered? Bars: 95 % interval over seeds; dots: seeds", fontsize=11)
    return figure


def excess_figure(records: Sequence[Record]) -> Figure:
    """Cross-entropy above that of the people's own policy, a panel for each kind of people."""
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    axes = figure.subplots(1, len(KINDS), sharey=True, width_ratios=[3, 2])
    for axis, (kind, title) in zip(axes, KINDS.items(), strict=True):
        places = {}
        for engine, reward in SETTINGS:
            if here := compared(records, kind, engine, reward):
                places[f"{engine}\n{reward}"] = here, "excess"
                if engine == "neural":
                    places[f"{engine}\n{reward},\nanew"] = here, "replanned_excess"
        for number, model in enumerate(MODELS):
            fits = [(chosen(here, model=model), measure) for here, measure in places.values()]
            x = dodged([place for place, (here, _) in enumerate(fits) if here], number, len(MODELS), 0.2)
            draw_line(axis, x, [level(here, measure) for here, measure in fits if here], model, "none")
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set_xticks(range(len(places)), list(places), fontsize=8)
        axis.set_xlim(-0.6, len(places) - 0.4)
        axis.set_xlabel("plans, cost", fontsize=9)
        axis.set_title(title, fontsize=9)
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("cross-entropy of held-out games above\nthe people's own policy (nats per step)", fontsize=9)
    legend_below(figure, axes[0])
    figure.suptitle("What the models miss; bars: 95 % interval over seeds", fontsize=11)
    return figure


def _kinds_of_fits(records: Sequence[Record], fields: Sequence[str]) -> list[tuple[Any, ...]]:
    """The different values of engine, reward and other fields, settings in their order, and most data first."""
    kinds = {tuple(record[field] for field in fields) for record in records}
    settings = list(SETTINGS)
    return sorted(kinds, key=lambda kind: (settings.index(kind[:2]), [-many for many in kind[2:]]))


def _if_measured(records: Sequence[Record], measure: str, digits: int) -> str:
    """A cell of those records that have the measure, with their number if others do not."""
    measured = [record for record in records if measure in record]
    some = f", {len(measured)} seeds" if len(measured) < len(records) else ""
    return f"{shown(level(measured, measure), digits)}{some}" if measured else "-"


def _text(settings: Run, records: Sequence[Record], found: list[Finding]) -> str:
    people = [r for r in chosen(records, people="state-dependent", focus=False) if r["model"] != "br"]
    rows, kinds = [], ("engine", "reward", "humans", "decisions")
    for kind in _kinds_of_fits(people, kinds):
        same = chosen(people, **dict(zip(kinds, kind, strict=True)))
        for model in values_of(same, "model"):
            here = chosen(same, model=model)
            measured = [shown(level(here, measure), 2) for measure in MEASURES]
            size = [f"{number:,}" for number in (*kind[2:], len(here))]
            measured += [shown(level(here, "excess"), 4), _if_measured(here, "replanned_excess", 4)]
            measured += [_if_measured(here, measure, 2) for measure in ("cost_rank", "positive_cost")]
            rows.append([NAMES[model], *kind[:2], *size, *measured])
    header = ["model", "plans", "cost", "people", "decisions of each", "seeds", *MEASURES.values(), "excess"]
    header += ["excess of exact plans from its reward", "ranks of costs", "share of costs above 0"]
    recovered = table(header, rows)
    rows = []
    for who, title in KINDS.items():
        for engine, reward in SETTINGS:
            here = compared(records, who, engine, reward)
            if here:
                fits = [chosen(here, model=model) for model in MODELS]
                scores = [shown(level(some, "cross_entropy"), 4) if some else "not fitted" for some in fits]
                bounds = [shown(level(here, measure), 4) for measure in ("truth", "unaware")]
                rows.append([title, engine, reward, *scores, *bounds])
    seeds = len(values_of(chosen(records, engine="neural"), "seed"))
    few_seeds = f" With {seeds} seeds, no p is below {2 / 2**seeds:.3f}." if seeds else ""
    names = [NAMES[model] for model in MODELS]
    models = table(["people", "plans", "cost", *names, "own policies", "mean policy, less own"], rows)
    return f"""# Recovery in a kitchen

Made by `{settings.command("kitchen_recovery")}`: {len(values_of(records, "seed"))} seeds, {len(records)} fits.

People play in a kitchen of two rooms with one pot between them, 1,871 states, next to a partner whose policy is \
known. They share a cost, which is positive, made of what is in hands and pot and of what an INTERACT would do, and \
least while a soup cooks. Their beta depends on the situation ({", ".join(SITUATIONS)}), differently for each of \
them; its mean over people is 1 in every state. Their plans solve the Bellman equation with a habit and pauses; \
games of 60 steps are sampled step by step.

`KitchenModel`, the model for real people, learns from the games. It is given none of these situations: the features \
of its beta are a network of everything in the kitchen, as on real people. Its cost is linear in task events, or \
learned by a network. With exact plans, all data are fitted at once, for a number of steps. With the plans of a \
network, it is trained as on real people, by batches and with the same weights and learning rate, for as many epochs; \
the kitchen is small, so its networks are smaller, batches mix situations, and plans are to hold in fewer situations \
that nobody was in. Its plans do not move the pause and count as much in all states (no `hesitation`, no `focus`), as \
those of these people do; as a second control, it is also fitted with both, which then have nothing to find. It \
sees no history and no names of people, as nothing of habit depends on these. Held-out games are other games of the \
same people. The control are people whose beta is 1.

What cannot be found: a constant that is added to the reward of a person changes none of their plans. So where beta c \
is known up to a constant for each person, the convention that the mean of beta is 1 leaves a family of betas. Where \
beta depends on the state, a cost that turns negative turns the order of people around; `KitchenModel` starts from a \
positive cost, which does not keep it positive. Where each person has one beta, the sign of the cost means nothing.

How this was chosen: the kitchen, its cost, the amounts of data and the steps of the fits were settled in about twenty \
single trials that looked at the recovered beta, some of them on the people of the first seed, and most came to less \
than what is reported. They changed several things at a time, so they do not tell which of them matter. This says \
that recovery is possible here, not that it is to be expected elsewhere. How a network is trained was looked at in \
eight trials on the people of seed 100, who are not among those reported: two to 24 epochs, batches that keep \
situations together or mix them, larger networks, and a Bellman residual that weighs ten times as much. With the \
settings reported, which have the table's number of epochs, learning rate and weight, the rank correlation was 0.76; \
with 24 epochs 0.82, and predictions were better (an excess of 0.010 instead of 0.019); with the heavier residual \
0.74, and after 24 epochs 0.73, and predictions were not better. These are single fits: longer training may find more.

{READING}

## What was found

{bullets(found)}

## How well rationality is recovered

![ranks](ranks.png)

Rank correlations of learned and true beta: over all people and all visited states; over people in each state, in the \
mean over states; and over people and states after the mean of log beta over states is taken from each person, which \
leaves how a person's rationality depends on the state. Spreads are standard deviations of log beta. The excess is the \
cross-entropy of held-out games above that of the people's own policies, in nats per step; for plans of a network, \
also that of exact plans from the reward it learned. The ranks of costs are those of learned and true cost over \
visited states, where they were recorded, as is the share of these whose learned cost is positive.{few_seeds}

{recovered}

## Against the other rationality models

![excess](excess.png)

Anew: plans are made again, exactly, from the reward that was learned with the plans of a network. The network's \
values have directions of their own for each person, which the Bellman residual ties to the reward only by a small \
weight. So as trained, a model may predict what its reward does not explain, and where models differ less as trained \
than anew, their difference as trained says little of whether people differ. On real people, plans are made anew by \
another network, which was not tried here.

Cross-entropy of held-out games, as trained, nats per step:

{models}
"""
