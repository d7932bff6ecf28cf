"""The report of the recovery experiment: figures, and the words and tables around them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from bsdr_torch.data.grid_people import Truth, grid_problem, simulate
from bsdr_torch.experiments import learned_features_report
from bsdr_torch.experiments.fitting import fit
from bsdr_torch.experiments.reporting import (
    READING,
    SIMULATED_BY_BSDR,
    STYLES,
    Difference,
    Finding,
    bullets,
    chosen,
    control_sentence,
    legend_below,
    level,
    model_difference,
    shown,
    table,
    values_of,
    write_report,
)
from bsdr_torch.experiments.running import Record, Run
from bsdr_torch.experiments.statistics import Estimate, estimate
from bsdr_torch.maps import map_figure
from bsdr_torch.objective import Evidence
from bsdr_torch.posterior import GridPosterior, grid_posterior
from bsdr_torch.worlds.gridworld import GridWorld

MEASURES = {
    "theta_R_cosine": "cosine of θ_R",
    "beta_relative_error": "relative error of β",
    "regret": "regret",
    "heldout_gap": "held-out gap",
}
BETA_GRID = torch.logspace(-1, 3, 9, dtype=torch.float64)
ANGLES = torch.linspace(0, math.pi / 2, 19, dtype=torch.float64)


def write(settings: Run, records: Sequence[Record], of_features: Sequence[Record]) -> list[Finding]:
    """Draws the figures, writes report.md and returns the findings; `of_features` are from `run_features_case`."""
    posterior = paper_posterior(humans=4)
    profiles = {n: cost_profile(n) for n in (1, 20)}
    found = [*findings(records), *learned_features_report.findings(of_features)]
    figures = {
        "posterior": posterior_figure(posterior),
        "one_human": profile_figure(profiles),
        "amounts": amounts_figure(records),
        "models": models_figure(records),
        "maps": example_figure(),
        "learned_features": learned_features_report.figure(of_features),
    }
    learned = learned_features_report.section(of_features)
    write_report(settings.out, _text(settings, records, posterior, profiles, found, learned), figures)
    return found


def findings(records: Sequence[Record]) -> list[Finding]:
    """What was found, in sentences made from the intervals."""
    compared = chosen(records, humans=20, rollouts=8)
    bsdr = chosen(compared, people="state-dependent", model="bsdr")
    cosine, error = (shown(level(bsdr, measure), 4) for measure in ("theta_R_cosine", "beta_relative_error"))
    found = [
        Finding(
            f"20 people and 8 rollouts of each: the cosine of BSDR's θ_R with the true one is {cosine}, the relative "
            f"error of β is {error}"
        )
    ]
    for other in ("br_per_human", "irleed"):
        gap = model_difference(chosen(compared, people="state-dependent"), "bsdr", other, "heldout_gap")
        words = gap.sentence("the held-out gap of `bsdr`", f"that of `{other}`", "is larger than", "is smaller than")
        found.append(Finding(f"people whose β depends on the state: {words}"))
    constant = chosen(compared, people="constant")
    fewer = Difference(chosen(constant, model="br_per_human"), chosen(constant, model="bsdr"), "heldout_gap")
    return [*found, Finding(control_sentence(fewer, "the held-out gap that `bsdr` closes", "`br_per_human`", 4))]


def paper_posterior(humans: int) -> GridPosterior:
    """Posterior over a grid for people with theta_R = [0, 1] and theta_beta = [1, 100] (paper, figure 1)."""
    world = GridWorld.load("two_terrains")
    truth = Truth(torch.tensor([0.0, 1.0]), torch.tensor([[1.0, 100.0]]).repeat(humans, 1))
    return _posterior(world, truth, rollouts=8)


def cost_profile(humans: int) -> Tensor:
    """Log-likelihood of each direction of theta_R, each with its best theta_beta, `[angles]`, relative to the best.

    The features are one-hot and shared by cost and rationality, so that both can vary freely from state to state.
    """
    world = GridWorld.load("two_terrains")
    generator = torch.Generator().manual_seed(7)
    truth = Truth(torch.tensor([0.6, 0.8]), torch.exp(0.7 * torch.randn(humans, 2, generator=generator)))
    profile = _posterior(world, truth, rollouts=8, fine=True).log_likelihood.amax(2).sum(0)
    return profile - profile.max()


def _posterior(world: GridWorld, truth: Truth, rollouts: int, fine: bool = False) -> GridPosterior:
    generator = torch.Generator().manual_seed(0)
    humans = truth.theta_beta.shape[0]
    seen = simulate(world, truth, rollouts, generator)
    beta = torch.logspace(-2, 2, 41, dtype=torch.float64) if fine else BETA_GRID
    return grid_posterior(
        world.mdp,
        Evidence.of(seen, world.mdp, humans, world.horizon),
        humans,
        world.reward_features.double(),
        world.rationality_features.double(),
        theta_R=torch.stack([ANGLES.cos(), ANGLES.sin()], dim=1),
        theta_beta=torch.cartesian_prod(beta, beta),
        **grid_problem(world.mdp, world.horizon, torch.float64),
    )


def posterior_figure(posterior: GridPosterior) -> Figure:
    """Marginals of theta_R and of one person's theta_beta."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    degrees = ANGLES.rad2deg()
    left.bar(degrees, posterior.theta_R.exp(), width=4)
    left.axvline(90, color="black", linestyle="--", label="truth, θ_R = [0, 1]")
    left.set(xlabel="direction of θ_R (degrees from grass to mud)", ylabel="posterior probability", title="θ_R")
    left.legend()
    size = len(BETA_GRID)
    table = posterior.theta_beta[0].exp().view(size, size)
    shown = right.imshow(table, origin="lower", cmap="viridis", aspect="auto")
    ticks = [f"{value:.3g}" for value in BETA_GRID.tolist()]
    right.set_xticks(range(size), ticks)
    right.set_yticks(range(size), ticks)
    truth = [int((BETA_GRID - value).abs().argmin()) for value in (100.0, 1.0)]
    right.plot(*truth, "r*", markersize=14, label="truth, θ_β = [1, 100]")
    right.set(xlabel="θ_β of mud", ylabel="θ_β of grass", title="θ_β of one person")
    right.legend(loc="upper left")
    figure.colorbar(shown, ax=right, label="posterior probability")
    return figure


def profile_figure(profiles: dict[int, Tensor]) -> Figure:
    """How much the data prefer one direction of theta_R to another when rationality may vary as freely as cost."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    for humans, profile in profiles.items():
        axis.plot(ANGLES.rad2deg(), profile, "o-", label=f"{humans} human{'s' if humans > 1 else ''}")
    axis.axvline(math.degrees(math.atan2(0.8, 0.6)), color="black", linestyle="--", label="truth")
    axis.set(
        xlabel="direction of θ_R (degrees from grass to mud)",
        ylabel="log-likelihood below the best (nats)",
        title="One-hot features shared by cost and rationality",
        ylim=(min(-30.0, float(profiles[1].min()) * 1.1), 3),
    )
    axis.legend()
    return figure


def amounts_figure(records: Sequence[Record]) -> Figure:
    """Each measure against rollouts per person, a line for each number of people, a column for each world."""
    shown_records = chosen(records, people="state-dependent", model="bsdr")
    worlds = values_of(shown_records, "world")
    figure = Figure(figsize=(2 + 2.9 * len(worlds), 9), layout="constrained")
    axes = figure.subplots(len(MEASURES), len(worlds), sharex=True, sharey="row", squeeze=False)
    for row, (measure, label) in zip(axes, MEASURES.items(), strict=True):
        for axis, world in zip(row, worlds, strict=True):
            for humans, style in zip((1, 5, 20), ("br", "br_per_human", "bsdr"), strict=True):
                here = chosen(shown_records, world=world, humans=humans)
                x = sorted(values_of(here, "rollouts"))
                points = [_plotted(chosen(here, rollouts=rollouts), measure) for rollouts in x]
                axis.errorbar(
                    x,
                    [p.mean for p in points],
                    list(zip(*(p.reach for p in points), strict=True)),
                    capsize=3,
                    label=f"{humans} {'person' if humans == 1 else 'people'}",
                    **STYLES[style],
                )
            axis.set_xscale("log", base=2)
            axis.set_yscale(
                "symlog", linthresh=0.1 if measure == "beta_relative_error" else 1e-3
            )  # intervals reach zero
            if measure == "theta_R_cosine":
                axis.set_title(world)
            if measure == "heldout_gap":
                axis.set_xlabel("rollouts per person")
        row[0].set_ylabel("1 - cosine of θ_R" if measure == "theta_R_cosine" else label)
    legend_below(figure, axes[0, 0])
    figure.suptitle("BSDR; bars: 95 % interval over seeds")
    return figure


def models_figure(records: Sequence[Record]) -> Figure:
    """Held-out gap of every model on the same people, with those whose beta is constant beside them."""
    models = ("br", "br_per_human", "irleed", "bsdr")
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, people in zip(axes, ("state-dependent", "constant"), strict=True):
        compared = chosen(records, people=people, humans=20, rollouts=8)
        worlds = values_of(compared, "world")
        for m, model in enumerate(models):
            gaps = [level(chosen(compared, model=model, world=world), "heldout_gap") for world in worlds]
            axis.bar(
                [w + 0.2 * (m - 1.5) for w in range(len(worlds))],
                [100 * gap.mean for gap in gaps],
                0.19,
                yerr=[[100 * e for e in side] for side in zip(*(gap.reach for gap in gaps), strict=True)],
                capsize=2,
                label=model,
                color=STYLES[model]["color"],
            )
        axis.set_xticks(range(len(worlds)), worlds)
        axis.set_title(f"people whose β is {people}")
    axes[0].set_ylabel("held-out gap to the truth (%)")
    axes[1].legend()
    figure.suptitle("Bars: 95 % interval over seeds")
    return figure


def example_figure() -> Figure:
    """True and learned cost and beta of two people on the map."""
    from bsdr_torch.experiments.recovery import Case, people

    data = people(Case("meadow", "state-dependent", "bsdr", 20, 8, 0))
    assert data.truth is not None
    world = data.worlds["meadow"]
    model, _ = fit(data, "bsdr")
    scale = float(data.truth.theta_R.norm())
    true_beta = data.truth.beta(world) * scale
    tilt = (true_beta.log().amax(0) - true_beta.log().amin(0)).topk(2).indices.tolist()
    with torch.no_grad():
        beta = model.beta("meadow", torch.arange(20))
        panels = {}
        for i in tilt:
            panels[f"human {i}, true"] = true_beta[:, i]
            panels[f"human {i}, learned"] = beta[:, i]
        return map_figure(world, model.cost("meadow"), panels, "Learned cost, and rationality of two people")


def _plotted(records: Sequence[Record], measure: str) -> Estimate:
    """A measure that is zero where there is no error."""
    return estimate([1 - r[measure] if measure == "theta_R_cosine" else r[measure] for r in records])


def _text(
    settings: Run,
    records: Sequence[Record],
    posterior: GridPosterior,
    profiles: dict[int, Tensor],
    found: Sequence[Finding],
    learned_features: str,
) -> str:
    best = int(posterior.theta_R.argmax())
    amounts = _measures_table(
        chosen(records, people="state-dependent", model="bsdr"), {"world": "world", "humans": "people", "rollouts": ""}
    )
    models = _measures_table(
        chosen(records, humans=20, rollouts=8), {"people": "people", "world": "world", "model": "model"}
    )
    return f"""# Parameter recovery

Made by `{settings.command("recovery")}`: {len(records)} fits, {sum(r["converged"] for r in records)} of them with a \
vanishing gradient, {len(values_of(records, "seed"))} seeds.

{READING}

{SIMULATED_BY_BSDR} All of this but for the part with learned features, more fits of models that are not given these \
features, whose prior on the networks' weights was chosen; see there.

## What was found

{bullets(found)}

## The paper's figure

Four people with theta_R = [0, 1] and theta_beta = [1, 100] walk in `two_terrains`, eight rollouts each.

![posterior](posterior.png)

The most probable direction of theta_R is {float(ANGLES[best].rad2deg()):.0f} degrees \
(probability {float(posterior.theta_R.exp()[best]):.2f}; the truth is 90). Grass costs nothing, so nothing tells \
how rationally people walk on it: where theta_R is right, the posterior does not depend on theta_beta of grass. Of \
theta_beta of mud it says that it is large; beyond the point where nobody enters mud by mistake, larger values act \
alike.

## How much data it takes

![amounts](amounts.png)

{amounts}

Regret is what the best policy for the learned cost loses by the true cost, as a share of what acting at random loses. \
The held-out gap is the log-likelihood missing to that of the true parameters, as a share of it; a negative one is luck.

![maps](maps.png)

## Against the other rationality models

20 people, 8 rollouts each, the same data for every model: people whose rationality depends on the state, and people \
for whom it is constant. The beta of `irleed` is not comparable: part of it moves into the offsets of theta_R.

![models](models.png)

{models}

{learned_features}

## One human

![one human](one_human.png)

Here cost and rationality share one-hot features, so that each may take any value in each terrain. The curve is the \
log-likelihood of a direction of theta_R with the best theta_beta that goes with it. Between 10 and 80 degrees it is \
flat, to {-float(profiles[1][2:-2].min()):.2g} nats for one human, which is the coarseness of the grid: **one human \
cannot separate cost from rationality**, because a factor g(s) > 0 can move from one to the other unseen. Nor do 20 \
people help by themselves ({-float(profiles[20][2:-2].min()):.2g} nats): the same g(s) can move for all at once. What \
separates them is structure: fixed features of cost and of rationality that cross, as in the other worlds, where a \
single factor remains free and unit-norm theta_R pins it; or, for learned features, the convention that the \
population's mean of beta_i(s) is 1 in every state. With one human that convention makes BSDR the same as BR.
"""


def _measures_table(records: Sequence[Record], fields: dict[str, str]) -> str:
    """A row for each combination of the fields, which are given with their headings."""
    keys = sorted({tuple(record[field] for field in fields) for record in records})
    rows = []
    for key in keys:
        group = chosen(records, **dict(zip(fields, key, strict=True)))
        rows.append([*map(str, key), *(shown(level(group, measure), 4) for measure in MEASURES)])
    return table([*(heading or field for field, heading in fields.items()), *MEASURES.values()], rows)
