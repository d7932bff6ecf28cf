"""The report of the recovery experiment: figures, and the words and tables around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from bsdr_torch.data.grid_people import Truth, grid_problem, simulate
from bsdr_torch.experiments.fitting import fit
from bsdr_torch.maps import map_figure
from bsdr_torch.objective import Evidence
from bsdr_torch.posterior import GridPosterior, grid_posterior
from bsdr_torch.worlds.gridworld import GridWorld

if TYPE_CHECKING:
    from bsdr_torch.experiments.recovery import Record

MEASURES = {
    "theta_R_cosine": "cosine of θ_R",
    "beta_relative_error": "relative error of β",
    "regret": "regret",
    "heldout_gap": "held-out gap",
}
BETA_GRID = torch.logspace(-1, 3, 9, dtype=torch.float64)
ANGLES = torch.linspace(0, math.pi / 2, 19, dtype=torch.float64)


def write(out: Path, records: Sequence[Record], quick: bool) -> None:
    """Draws the figures and writes report.md into `out`."""
    posterior = paper_posterior(humans=4)
    posterior_figure(posterior).savefig(out / "posterior.png", dpi=150)
    profiles = {n: cost_profile(n) for n in (1, 20)}
    profile_figure(profiles).savefig(out / "one_human.png", dpi=150)
    amounts_figure(records).savefig(out / "amounts.png", dpi=150)
    models_figure(records).savefig(out / "models.png", dpi=150)
    example_figure().savefig(out / "maps.png", dpi=150)
    temporary = out / ".report.md"
    temporary.write_text(_text(records, posterior, profiles, quick))
    temporary.replace(out / "report.md")


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
    chosen = [r for r in records if r.people == "state-dependent" and r.model == "bsdr"]
    worlds = sorted({r.world for r in chosen})
    figure = Figure(figsize=(2 + 2.9 * len(worlds), 9), layout="constrained")
    axes = figure.subplots(len(MEASURES), len(worlds), sharex=True, sharey="row", squeeze=False)
    for row, (measure, label) in zip(axes, MEASURES.items(), strict=True):
        for axis, world in zip(row, worlds, strict=True):
            for humans in sorted({r.humans for r in chosen}):
                points = []
                for rollouts in sorted({r.rollouts for r in chosen}):
                    values = [
                        _plotted(r, measure)
                        for r in chosen
                        if (r.world, r.humans, r.rollouts) == (world, humans, rollouts)
                    ]
                    if values:
                        points.append((rollouts, *mean_and_error(values)))
                x, y, error = zip(*points, strict=True)
                axis.errorbar(
                    x, y, error, marker="o", capsize=3, label=f"{humans} {'person' if humans == 1 else 'people'}"
                )
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            if measure == "theta_R_cosine":
                axis.set_title(world)
            if measure == "heldout_gap":
                axis.set_xlabel("rollouts per person")
        row[0].set_ylabel("1 - cosine of θ_R" if measure == "theta_R_cosine" else label)
    axes[0, 0].legend()
    return figure


def models_figure(records: Sequence[Record]) -> Figure:
    """Held-out gap of every model on the same people, with those whose beta is constant beside them."""
    models = ("br", "br_per_human", "irleed", "bsdr")
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, people in zip(axes, ("state-dependent", "constant"), strict=True):
        worlds = sorted({r.world for r in records})
        for m, model in enumerate(models):
            stats = [mean_and_error(_select(records, people, model, world, "heldout_gap")) for world in worlds]
            x = [w + 0.2 * (m - 1.5) for w in range(len(worlds))]
            axis.bar(x, [100 * s[0] for s in stats], 0.19, yerr=[100 * s[1] for s in stats], capsize=2, label=model)
        axis.set_xticks(range(len(worlds)), worlds)
        axis.set_title(f"people whose β is {people}")
    axes[0].set_ylabel("held-out gap to the truth (%)")
    axes[1].legend()
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


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error (NaN for a single value)."""
    tensor = torch.tensor(values, dtype=torch.float64)
    error = float(tensor.std() / math.sqrt(len(values))) if len(values) > 1 else math.nan
    return float(tensor.mean()), error


def _plotted(record: Record, measure: str) -> float:
    value = float(getattr(record, measure))
    return max(1 - value if measure == "theta_R_cosine" else value, 1e-6)


def _select(records: Sequence[Record], people: str, model: str, world: str | None, measure: str) -> list[float]:
    return [
        float(getattr(r, measure))
        for r in records
        if r.people == people and r.model == model and world in (None, r.world) and (r.humans, r.rollouts) == (20, 8)
    ]


def _text(records: Sequence[Record], posterior: GridPosterior, profiles: dict[int, Tensor], quick: bool) -> str:
    best = int(posterior.theta_R.argmax())
    amounts = _table(
        ["world", "people", "rollouts", *MEASURES.values()],
        [
            [world, str(humans), str(rollouts), *(_cell(group, m) for m in MEASURES)]
            for (world, humans, rollouts), group in _groups(
                [r for r in records if r.people == "state-dependent" and r.model == "bsdr"],
                lambda r: (r.world, r.humans, r.rollouts),
            )
        ],
    )
    models = _table(
        ["people", "world", "model", *MEASURES.values()],
        [
            [people, world, model, *(_cell(group, m) for m in MEASURES)]
            for (people, world, model), group in _groups(
                [r for r in records if (r.humans, r.rollouts) == (20, 8)], lambda r: (r.people, r.world, r.model)
            )
        ],
    )
    return f"""# Parameter recovery

Made by `scripts/experiment.py recovery{" --quick" if quick else ""} --out DIR`: {len(records)} fits, \
{sum(r.converged for r in records)} of them with a vanishing gradient. Numbers are means over \
{len({r.seed for r in records})} seeds with their standard error.

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


def _groups(
    records: Sequence[Record], key: Callable[[Record], tuple[Any, ...]]
) -> list[tuple[tuple[Any, ...], list[Record]]]:
    found: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return sorted(found.items())


def _cell(group: Sequence[Record], measure: str) -> str:
    mean, error = mean_and_error([float(getattr(r, measure)) for r in group])
    if measure == "heldout_gap":
        return f"{100 * mean:.2f} ± {100 * error:.2f} %"
    return f"{mean:.4f} ± {error:.4f}"


def _table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])
