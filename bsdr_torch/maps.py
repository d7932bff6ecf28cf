"""Figures of costs and rationality on the map of a GridWorld."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from torch import Tensor

from bsdr_torch.worlds.gridworld import GridWorld
from bsdr_torch.worlds.gridworld_env import draw


def map_figure(world: GridWorld, cost: Tensor, beta: Mapping[str, Tensor], title: str = "") -> Figure:
    """The world, c(s) `[S]`, and beta(s) `[S]` of each person named, side by side on the same map."""
    figure = Figure(figsize=(2.9 * (2 + len(beta)), 3.2), layout="constrained")
    axes = figure.subplots(1, 2 + len(beta))
    axes[0].imshow(draw(world))
    axes[0].set_title(world.name)
    _show(figure, axes[1], world, cost, "cost c(s)", "Reds", Normalize(min(0.0, float(cost.min())), float(cost.max())))
    norm = _common_scale(list(beta.values()))
    for axis, (name, values) in zip(axes[2:], beta.items(), strict=True):
        _show(figure, axis, world, values, f"β(s), {name}", "viridis", norm)
    for axis in axes:
        axis.set_xticks([])
        axis.set_yticks([])
    if title:
        figure.suptitle(title)
    return figure


def _common_scale(maps: list[Tensor]) -> Normalize:
    """One scale for all, of ratios where all values are positive."""
    low, high = (min(float(m.min()) for m in maps), max(float(m.max()) for m in maps)) if maps else (0.0, 1.0)
    return LogNorm(low, high) if 0 < low < high else Normalize(low, high)


def _show(
    figure: Figure, axis: Axes, world: GridWorld, values: Tensor, title: str, colors: str, norm: Normalize
) -> None:
    image = np.ma.masked_invalid(world.to_image(values).numpy())
    shown = axis.imshow(image, cmap=matplotlib.colormaps[colors].with_extremes(bad="#3b3f46"), norm=norm)
    axis.set_title(title)
    figure.colorbar(shown, ax=axis, shrink=0.8)
