"""The part of the recovery report about learned features: a figure, findings, and the words and tables around them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bsdr_torch.experiments.reporting import (
    STYLES,
    Difference,
    Finding,
    chosen,
    control_sentence,
    dodged,
    level,
    model_difference,
    shown,
    table,
    values_of,
)
from bsdr_torch.experiments.running import Record
from bsdr_torch.experiments.statistics import Estimate

MEASURES = {
    "heldout_gap": "held-out gap",
    "cost_correlation": "correlation of cost",
    "regret": "regret",
    "regret_as_is": "regret, costs as they are",
    "beta_rank": "ranks of β: people and states",
    "beta_rank_of_states": "states, about a person's mean",
    "beta_relative_error": "relative error of β",
}
DRAWN = {
    "heldout_gap": ("held-out gap to the truth", "share of its log-likelihood (%)"),
    "cost_correlation": ("learned and true cost", "correlation over states"),
    "regret": ("regret of the learned cost", "share of what chance loses (%)"),
    "beta_rank": ("learned and true β, people and states", "rank correlation"),
    "beta_rank_of_states": ("the same about a person's mean", "rank correlation"),
}
FEATURES: dict[str, dict[str, Any]] = {
    "given": STYLES["bsdr"] | {"label": "features given"},
    "cell": STYLES["br"] | {"label": "learned from the cell"},
    "window": STYLES["irleed"] | {"label": "learned from a window"},
}
COMPARED = 8  # rollouts of what is told first


def findings(records: Sequence[Record]) -> list[Finding]:
    """What was found, in sentences made from the intervals; with more rollouts not for the page that sums up."""
    found = []
    for view, rollouts in itertools.product(_learned(records), values_of(records, "rollouts")):
        here = chosen(records, features=view, rollouts=rollouts)
        people, constant = (chosen(here, people=kind) for kind in ("state-dependent", "constant"))
        who = f"features learned from the {view}, {rollouts} rollouts"
        cost, loss, ranks, states = (
            shown(level(chosen(people, model="bsdr"), measure))
            for measure in ("cost_correlation", "regret", "beta_rank", "beta_rank_of_states")
        )
        fewer = model_difference(constant, "br_per_human", "bsdr", "heldout_gap")
        sentences = [
            f"the correlation of BSDR's cost with the true one is {cost}, its regret is {loss}, the rank "
            f"correlation of β is {ranks}, and about each person's mean {states}",
            _against_given(records, view, rollouts, "heldout_gap").sentence(
                "the held-out gap of `bsdr`", "that with given features", "is larger than", "is smaller than"
            ),
            model_difference(people, "bsdr", "br_per_human", "heldout_gap").sentence(
                "the held-out gap of `bsdr`", "that of `br_per_human`", "is larger than", "is smaller than"
            ),
            control_sentence(fewer, "the held-out gap that `bsdr` closes", "`br_per_human`", 4),
        ]
        found += [Finding(f"{who}: {words}", rollouts == COMPARED) for words in sentences]
    for rollouts in values_of(records, "rollouts"):
        here = chosen(records, model="bsdr", rollouts=rollouts)
        spreads = ", ".join(
            f"{shown(level(chosen(here, people='constant', features=view), 'beta_spread'))} ({FEATURES[view]['label']})"
            for view in values_of(here, "features")
        )
        found.append(
            Finding(
                f"control, people whose β is constant, {rollouts} rollouts: the spread of log β over states, about a "
                f"person's mean, that `bsdr` learns is {spreads}, where there is none; of people whose β depends on "
                f"the state the true one is {shown(level(chosen(here, people='state-dependent'), 'true_spread'))}",
                rollouts == COMPARED,
            )
        )
    return found


def figure(records: Sequence[Record]) -> Figure:
    """Each measure over rollouts for given and learned features, and the spread of log beta with the control."""
    drawing = Figure(figsize=(10.5, 6.6), layout="constrained")
    axes = drawing.subplots(2, 3).flatten().tolist()
    bsdr = chosen(records, model="bsdr")
    people = chosen(bsdr, people="state-dependent")
    amounts = sorted(values_of(people, "rollouts"))
    styles = {view: style for view, style in FEATURES.items() if chosen(bsdr, features=view)}
    for axis, (measure, (title, unit)) in zip(axes, DRAWN.items(), strict=False):
        for number, (view, style) in enumerate(styles.items()):
            points = [level(chosen(people, features=view, rollouts=amount), measure) for amount in amounts]
            x = dodged(range(len(amounts)), number, len(styles), 0.06)
            _draw(axis, x, points, style, 100 if "%" in unit else 1)
        axis.set_xticks(range(len(amounts)), [str(amount) for amount in amounts])
        axis.set(xlabel="rollouts per person", ylabel=unit, title=title, xlim=(-0.4, len(amounts) - 0.6))
    last = axes[-1]
    for place, kind in enumerate(("state-dependent", "constant")):
        few = chosen(bsdr, people=kind, rollouts=COMPARED)
        for number, (view, style) in enumerate(styles.items()):
            spread = level(chosen(few, features=view), "beta_spread")
            _draw(last, dodged([place], number, len(styles), 0.15), [spread], style | {"label": None})
        true = level(few, "true_spread").mean
        last.hlines(true, place - 0.3, place + 0.3, color="black", linestyle="--", label=None if place else "true")
    last.set_xticks([0, 1], ["β depends on the state", "β is constant"])
    last.set(title=f"spread of log β over states, {COMPARED} rollouts", ylabel="standard deviation (nats)")
    for axis in axes:
        axis.title.set_fontsize(10)
        axis.grid(axis="y", alpha=0.3)
    handles = [*axes[0].get_legend_handles_labels()[0], *last.get_legend_handles_labels()[0]]
    drawing.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    worlds = " and ".join(values_of(records, "world"))
    drawing.suptitle(
        f"BSDR with given and with learned features, {worlds}; bars: 95 % interval over seeds", fontsize=11
    )
    return drawing


def section(records: Sequence[Record]) -> str:
    """The section of the report."""
    people = chosen(records, people="state-dependent", model="bsdr")
    levels = _rows(people, ("world", "rollouts", "features"), tuple(MEASURES))
    differences = [
        [view, str(amount), *(_against_given(records, view, amount, measure).cell() for measure in MEASURES)]
        for view in _learned(records)
        for amount in values_of(people, "rollouts")
    ]
    control = _rows(records, ("people", "rollouts", "features", "model"), ("heldout_gap", "beta_spread", "true_spread"))
    return f"""## With learned features

{len(records)} more fits, to the same people ({people[0]["humans"]}), of models that are not given what people's cost \
and rationality are made of, beside BSDR with given features. phi_R and phi_beta are two networks (one hidden layer of \
32, seven features and a constant: `HumanModel` with `features: mlp`) of what the world shows: 0 or 1 for wall, goal, \
every terrain and every region, of the `cell` alone, or of a `window` of 3 x 3 cells around it. So the true features \
are among what the networks see; they have to find which of it matters, and for what. No two cells of these worlds \
have the same window, so that networks which see it could fit any cost and any beta.

With learned features only the product of beta and cost can be found, and the convention is that the mean of beta over \
people is 1 in every state. Here the truth and all models, also those with given features, are brought to this gauge \
and compared over the states that people visited; regret is of the whole world. Only `{MEASURES["regret_as_is"]}` \
takes the model's cost by the true cost without it, where a part of the regret may be the gauge's. Correlations of \
cost are linear. Ranks are Spearman's: of beta over people and the states that each visited, and of log beta less the \
mean of the person. Everything is in [learned_features/results.json](learned_features/results.json).

Networks are fitted by Adam on all data at once, 150 steps from one start, with a normal prior on their weights whose \
standard deviation is 1, divided by the side of the window. This was chosen among 18 settings on people of other seeds \
(100 and 102 in meadow, 101 and 103 in orchard, 8 rollouts) by what they recovered and predicted. There a window of \
5 x 5, the library's default, was no better than one of 3 x 3, and L-BFGS came to no better objective in as much time.

![learned features](learned_features.png)

{levels}

Learned less given, all worlds together:

{table(["features", "rollouts", *MEASURES.values()], differences)}

Against one beta for each person, and the control, all worlds together. The spread is the standard deviation of log \
beta over the visits of a person, about the person's mean:

{control}"""


def _learned(records: Sequence[Record]) -> list[str]:
    return [view for view in values_of(records, "features") if view != "given"]


def _against_given(records: Sequence[Record], view: str, rollouts: int, measure: str) -> Difference:
    people = chosen(records, people="state-dependent", model="bsdr", rollouts=rollouts)
    return Difference(chosen(people, features=view), chosen(people, features="given"), measure)


def _rows(records: Sequence[Record], fields: tuple[str, ...], measures: tuple[str, ...]) -> str:
    """A table with a row for each combination of the fields."""
    names = MEASURES | {"beta_spread": "spread of log β", "true_spread": "true spread"}
    rows = []
    for key in itertools.product(*(values_of(records, field) for field in fields)):
        here = chosen(records, **dict(zip(fields, key, strict=True)))
        if here:
            rows.append([*map(str, key), *(shown(level(here, measure)) for measure in measures)])
    return table([*fields, *(names[measure] for measure in measures)], rows)


def _draw(axis: Axes, x: Sequence[float], points: Sequence[Estimate], style: dict[str, Any], scale: float = 1) -> None:
    errors = [[scale * reach for reach in side] for side in zip(*(point.reach for point in points), strict=True)]
    means = [scale * point.mean for point in points]
    axis.errorbar(x, means, errors, capsize=3, markersize=5, linewidth=1.2, **style)
