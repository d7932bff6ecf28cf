"""Figures of costs and rationality on the map of a GridWorld."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib
import numpy as np
from matplotlib.axes import Axes
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
    _show(figure, axes[1], world, cost, "cost c(s)", "Reds", float(cost.max()))
    top = max((float(values.max()) for values in beta.values()), default=1.0)
    for axis, (name, values) in zip(axes[2:], beta.items(), strict=True):
        _show(figure, axis, world, values, f"β(s), {name}", "viridis", top)
    for axis in axes:
        axis.set_xticks([])
        axis.set_yticks([])
    if title:
        figure.suptitle(title)
    return figure


def _show(figure: Figure, axis: Axes, world: GridWorld, values: Tensor, title: str, colors: str, top: float) -> None:
    image = world.to_image(values).numpy()
    colormap = matplotlib.colormaps[colors].with_extremes(bad="#3b3f46")
    shown = axis.imshow(np.ma.masked_invalid(image), cmap=colormap, vmin=min(0.0, float(values.min())), vmax=top)
    axis.set_title(title)
    figure.colorbar(shown, ax=axis, shrink=0.8)
