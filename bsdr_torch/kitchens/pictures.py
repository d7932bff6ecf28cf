"""Pictures of a trained model in a kitchen: reward, values and rationality over the floor, and a replayed stretch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from bsdr_torch.data.decisions import UNRECORDED, Decisions
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.outlook import view
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import STAY, Layout, cells, draw_rollout, draw_state, ego_first, start_states
from bsdr_torch.worlds.overcooked.drawing import Picture
from bsdr_torch.worlds.overcooked.paths import floor_neighbours
from bsdr_torch.worlds.overcooked.state import DISH, NOTHING, ONION, SOUP

_CELL_PIXELS = 40
_ROWS_AT_ONCE = 16384


class Scenes(NamedTuple):
    """One's own place, view and hand changed in given situations: X of those that can be, of K situations.

    Attributes:
        states: `[X, W]`, with oneself as player 0.
        place: `[X]`, which entry of `[F, 4]` (floor cells, directions) each belongs to.
        num_cells: F.
    """

    states: Tensor
    place: Tensor
    num_cells: int

    def mean(self, values: Tensor) -> Tensor:
        """`[X, ...]` -> `[F, 4, ...]`: the mean over situations, NaN where nobody can be."""
        total = values.new_zeros((4 * self.num_cells, *values.shape[1:])).index_add_(0, self.place, values)
        count = torch.bincount(self.place, minlength=4 * self.num_cells).to(values)
        return (total / count.view(-1, *(1,) * (values.ndim - 1))).view(self.num_cells, 4, *values.shape[1:])


def scenes(layout: Layout, situations: Tensor, held: int | None = None) -> Scenes:
    """Oneself everywhere in `situations [K, W]`, in which one is player 0: on each cell in reach, looking each way.

    `held` is what one holds, or None for what one holds in the situation.
    """
    F, device = len(layout.floor), situations.device
    here, partner = cells(situations).unbind(1)
    part = _connected(layout).to(device)
    everywhere = torch.arange(F, device=device)
    possible = (part[here] == part[everywhere, None]) & (partner != everywhere[:, None])  # [F, K]
    cell, situation = possible.nonzero(as_tuple=True)
    place = (4 * cell[:, None] + torch.arange(4, device=device)).flatten()
    states = situations[situation].repeat_interleave(4, 0)
    states[:, 0] = place.to(states.dtype)
    if held is not None:
        states[:, 1] = held
    return Scenes(states, place, F)


def hands(layout: Layout) -> dict[str, int]:
    """What one may hold, by name; the soup is the one that is worth most."""
    best = max(layout.orders, key=lambda recipe: layout.rewards[recipe])
    return {"nothing": NOTHING, "an onion": ONION, "a dish": DISH, "a soup": SOUP + best}


@torch.no_grad()
def reward_figure(model: KitchenModel, layout: Layout, situations: Tensor) -> Figure:
    """What everybody wants where, by what they hold: reward r(s), and what is to be expected from there, V(s).

    If it depends on the state how much plans count, that too: log λ(s).
    """
    nobody = torch.tensor([POPULATION], device=situations.device)
    rows: dict[str, list[Tensor]] = {"reward r": [], "value V": []}
    if model.rule.phi_focus is not None:
        rows["focus log λ"] = []
    for thing in hands(layout).values():
        found = scenes(layout, situations, thing)
        features = view(layout, found.states, 0).features
        rows["reward r"].append(found.mean(model.reward(features, nobody)[:, 0]).cpu())
        rows["value V"].append(found.mean(model.engine(layout, found.states, features, nobody)[:, 0]).cpu())
        if model.rule.phi_focus is not None:
            rows["focus log λ"].append(found.mean(model.rule.log_focus(features)).cpu())
    figure = _panels(layout, len(rows), len(hands(layout)))
    also = "" if model.rule.phi_focus is None else " and how much plans count"
    figure.suptitle(f"{layout.name}: what people want (nats){also}, by what they hold; triangles are where one looks")
    axes = np.array(figure.axes).reshape(len(rows), -1)
    for line, (quantity, maps) in zip(axes, rows.items(), strict=True):
        # Only differences matter, and they are small beside what a thing in hand is worth: each panel has its own zero.
        levels = [float(values.nanmean()) for values in maps]
        norm = _around_zero([values - level for values, level in zip(maps, levels, strict=True)])
        for axis, name, values, level in zip(line, hands(layout), maps, levels, strict=True):
            _show(axis, layout, values - level, "RdBu", norm)
            axis.set_title(f"{quantity}, holding {name}\n{level:+.2f} on average", fontsize=9)
        figure.colorbar(line[0].collections[0], ax=list(line), shrink=0.8, label=f"{quantity} beside the average")
    return figure


@torch.no_grad()
def beta_figure(model: KitchenModel, layout: Layout, situations: Tensor, people: Tensor) -> Figure:
    """beta_i(s) over the floor, of the two of `people [B]` who differ most."""
    found = scenes(layout, situations)
    maps = found.mean(model.beta(view(layout, found.states, 0).features, people)).cpu()  # [F, 4, B]
    one, other = most_different(maps)
    figure = _panels(layout, 1, 3)
    figure.suptitle(f"{layout.name}: rationality of the two people who differ most")
    shown = {model.humans[int(people[i])]: maps[..., i] for i in (one, other)}
    low, high = torch.cat([values.flatten() for values in shown.values()]).nan_to_num(1.0).aminmax()
    norm = Normalize(float(low), float(high))
    axes = figure.axes
    for axis, (human, values) in zip(axes, shown.items(), strict=False):
        _show(axis, layout, values, "viridis", norm, numbers="{:.2f}")
        axis.set_title(f"β(s) of {human}", fontsize=9)
    figure.colorbar(axes[0].collections[0], ax=axes[:2], shrink=0.8, label="β (the mean of all people is 1)")
    ratio = (maps[..., one] / maps[..., other]).log()
    _show(axes[2], layout, ratio, "PuOr", _around_zero([ratio]), numbers="{:+.2f}")
    axes[2].set_title("log of their ratio", fontsize=9)
    figure.colorbar(axes[2].collections[0], ax=axes[2], shrink=0.8, label="log β / β")
    return figure


def most_different(maps: Tensor) -> tuple[int, int]:
    """The two of B people whose `maps [F, 4, B]` of beta are furthest apart, in logarithms."""
    logs = maps.clamp(min=1e-6).log().nan_to_num(0.0).flatten(0, 1).T
    one, other = divmod(int(torch.cdist(logs, logs).argmax()), len(logs))
    return min(one, other), max(one, other)


class Stretch(NamedTuple):
    """T steps of somebody, with what the other did meanwhile `[T]`."""

    decisions: Decisions
    partner: Tensor


def liveliest_stretch(steps: Decisions, length: int = 8) -> Stretch | None:
    """The stretch in which somebody does most, of decisions in the order of games and time; None if all are shorter."""
    for seat in (0, 1):
        rows = (steps.seats == seat).nonzero()[:, 0]
        if len(rows) <= length:
            continue
        rollouts, times = (of[rows].unfold(0, length + 1, 1) for of in (steps.rollouts, steps.times))
        # What the partner did is in the decision that follows.
        partner = steps.partner_last[rows].unfold(0, length + 1, 1)[:, 1:]
        whole = (rollouts[:, 0] == rollouts[:, -1]) & (times[:, -1] - times[:, 0] == length)
        whole &= (partner != UNRECORDED).all(1)
        moves = (steps.actions[rows] != STAY).int().unfold(0, length, 1)[:-1].sum(1)
        if whole.any():
            first = int(torch.where(whole, moves, -1).argmax())
            chosen = rows[first : first + length]
            return Stretch(Decisions(steps.layout, *(column[chosen] for column in steps[1:])), partner[first])
    return None


@torch.no_grad()
def replay_picture(model: KitchenModel, stretch: Stretch, columns: int = 4) -> Picture:
    """What somebody did (marked), and how likely the model thought each action to be, step by step."""
    steps = stretch.decisions
    frames = draw_rollout(
        model.layout(steps.layout),
        ego_first(steps.states, steps.seats).cpu(),
        torch.stack([steps.actions, stretch.partner], 1).cpu(),
        model.action_log_probs(steps).exp().cpu(),
        cell_pixels=_CELL_PIXELS,
    )
    blank = np.full_like(frames[0], 255)
    frames += [blank] * (-len(frames) % columns)
    lines = [np.concatenate(frames[first : first + columns], 1) for first in range(0, len(frames), columns)]
    return np.concatenate(lines, 0)


def _connected(layout: Layout) -> Tensor:
    """`[F]`: a number for each floor cell, the same for cells between which one can walk."""
    near = torch.tensor(floor_neighbours(layout))
    part = torch.arange(len(near))
    for _ in range(len(near)):
        part = torch.minimum(part, torch.where(near >= 0, part[near], len(near)).amin(1))
    return part


def _panels(layout: Layout, rows: int, columns: int) -> Figure:
    width = 3.1
    figure = Figure(figsize=(width * columns + 1, rows * (width * layout.height / layout.width + 0.6) + 0.4))
    figure.set_layout_engine("constrained")
    figure.subplots(rows, columns)
    return figure


def _show(axis: Axes, layout: Layout, values: Tensor, colors: str, norm: Normalize, numbers: str = "") -> None:
    """Values `[F, 4]` by cell and direction over the kitchen, with their mean in each cell as a number if wanted."""
    background = draw_state(layout, start_states(layout)[0], cell_pixels=_CELL_PIXELS)
    axis.imshow(background, extent=(0, layout.width, layout.height, 0))
    corner = torch.tensor(layout.floor).float()[:, None, None]  # [F, 1, 1, 2]
    outline = torch.tensor(  # north, south, east, west, from the corner of a cell
        [[[0, 0], [1, 0]], [[0, 1], [1, 1]], [[1, 0], [1, 1]], [[0, 0], [0, 1]]]
    ).float()
    triangles = torch.cat([outline, torch.full((4, 1, 2), 0.5)], 1)
    polygons = (corner + triangles).flatten(0, 1)
    painted = PolyCollection(list(polygons.numpy()), cmap=colors, norm=norm, edgecolors="none", antialiased=False)
    painted.set_array(np.ma.masked_invalid(values.flatten().numpy()))
    axis.add_collection(painted)
    axis.set_xticks([])
    axis.set_yticks([])
    if numbers:
        for (x, y), value in zip(layout.floor, values.mean(1).tolist(), strict=True):
            if np.isfinite(value):
                text = axis.text(x + 0.5, y + 0.5, numbers.format(value), ha="center", va="center", fontsize=7)
                text.set_bbox({"facecolor": "white", "alpha": 0.6, "edgecolor": "none", "pad": 1})


def _around_zero(maps: list[Tensor]) -> Normalize:
    """One scale for all, with zero in the middle; a few extremes may leave it."""
    values = torch.cat([values.flatten() for values in maps])
    reach = max(float(values[values.isfinite()].abs().quantile(0.98)), 1e-6)
    return Normalize(-reach, reach)
