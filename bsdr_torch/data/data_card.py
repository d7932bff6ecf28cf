"""What a prepared set looks like: the table of its summary and the figures of its data card."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from bsdr_torch.data.arrow_files import write_files
from bsdr_torch.data.packed_games import PackedGames
from bsdr_torch.data.prepared import PreparedSet
from bsdr_torch.worlds.overcooked import ACTIONS, INTERACT, STAY, cells

_ACTION_COLORS = ("#1b4f72", "#2e86c1", "#85c1e9", "#d6eaf8", "#d5d8dc", "#e67e22")
_HEADINGS = ("layout", "games", "humans", "steps", "decisions", "STAY", "INTERACT", "soups/game", "verified")


def summary_table(prepared: PreparedSet) -> str:
    """One line per kitchen and one for all; steps are joint steps, shares are of people's decisions."""
    lines = [_line(name, [games], prepared) for name, games in prepared.kitchens.items()]
    lines.append(_line("all", list(prepared.kitchens.values()), prepared))
    columns = list(zip(_HEADINGS, *lines, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    rows = [_HEADINGS, *lines]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def human_decisions(games: PackedGames) -> tuple[Tensor, Tensor]:
    """The joint steps and seats of all decisions of people, `[D]` each."""
    rows, seats = torch.tensor(games.is_human)[games.game].nonzero(as_tuple=True)
    return rows, seats


def figure_paths(folder: Path | str) -> tuple[Path, Path]:
    """Where the figures of the set in a folder are: where people stand, and what each of them does."""
    folder = Path(folder)
    return folder.with_name(f"{folder.name}_places.png"), folder.with_name(f"{folder.name}_actions.png")


def draw_figures(folder: Path | str, prepared: PreparedSet) -> None:
    """Draws the figures of a set beside its folder."""
    places, actions = figure_paths(folder)
    write_files({places: _saved(_draw_places(prepared)), actions: _saved(_draw_actions(prepared))})


def _line(name: str, kitchens: list[PackedGames], prepared: PreparedSet) -> tuple[str, ...]:
    actions = []
    for games in kitchens:
        rows, seats = human_decisions(games)
        actions.append(games.actions[rows, seats])
    counts = torch.bincount(torch.cat(actions).long(), minlength=len(ACTIONS))
    decisions, num_games = int(counts.sum()), sum(len(games.games) for games in kitchens)
    replays = [prepared.replays[games.layout.name] for games in kitchens]
    agree, transitions = sum(r.agree for r in replays), sum(r.transitions for r in replays)
    return (
        name,
        f"{num_games:,}",
        f"{len({human for games in kitchens for human in games.humans}):,}",
        f"{sum(map(len, kitchens)):,}",
        f"{decisions:,}",
        f"{100 * int(counts[STAY]) / decisions:.1f} %",
        f"{100 * int(counts[INTERACT]) / decisions:.1f} %",
        f"{sum(int(games.soups.sum()) for games in kitchens) / num_games:.1f}",
        f"{100 * agree / transitions:.2f} %" if transitions else "-",
    )


def _draw_places(prepared: PreparedSet) -> Figure:
    """A heat map of where people stand, for each kitchen."""
    across = min(3, len(prepared.kitchens))
    down = math.ceil(len(prepared.kitchens) / across)
    figure = Figure(figsize=(4.6 * across, 3.4 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).reshape(-1)
    for axis, (name, games) in zip(axes, prepared.kitchens.items(), strict=False):
        _draw_kitchen(figure, axis, name, games)
    for axis in axes[len(prepared.kitchens) :]:
        axis.axis("off")
    figure.suptitle(
        f"Where people stand: share of their steps on each cell ({prepared.provenance.source})\n"
        "P pot, O onions, T tomatoes, D dishes, S serving, X counter"
    )
    return figure


def _draw_kitchen(figure: Figure, axis: Axes, name: str, games: PackedGames) -> None:
    layout = games.layout
    rows, seats = human_decisions(games)
    visits = torch.bincount(cells(games.states)[rows, seats], minlength=len(layout.floor))
    picture = np.full((layout.height, layout.width), np.nan)
    for (x, y), count in zip(layout.floor, visits.tolist(), strict=True):
        picture[y, x] = 100 * count / len(rows)
    image = axis.imshow(picture, cmap="viridis", vmin=0)
    axis.set_facecolor("#e5e7e9")
    for y, row in enumerate(layout.grid):
        for x, terrain in enumerate(row):
            if terrain != " ":
                axis.text(
                    x, y, terrain, ha="center", va="center", fontsize=9, color="#99a3a4" if terrain == "X" else "k"
                )
    axis.set(title=name, xlabel="x (cells)", ylabel="y (cells)")
    axis.set_xticks(range(layout.width))
    axis.set_yticks(range(layout.height))
    figure.colorbar(image, ax=axis, label="% of steps", shrink=0.8)


def _draw_actions(prepared: PreparedSet) -> Figure:
    """The shares of the six actions of each human, over all kitchens, by their share of STAY."""
    numbers = {human: number for number, human in enumerate(prepared.humans)}
    counts = torch.zeros(len(numbers), len(ACTIONS))
    for games in prepared.kitchens.values():
        rows, seats = human_decisions(games)
        seat_humans = [[numbers.get(player, 0) for player in players] for players in games.players]
        humans = torch.tensor(seat_humans)[games.game][rows, seats]
        counts.index_put_((humans, games.actions[rows, seats].long()), torch.ones(len(rows)), accumulate=True)
    shares = 100 * counts / counts.sum(1, keepdim=True)
    order = torch.argsort(shares[:, STAY], descending=True)
    figure = Figure(figsize=(max(6.4, 0.22 * len(numbers)), 4.2), layout="constrained")
    axis = figure.subplots()
    bottom = np.zeros(len(numbers))
    for action in (STAY, INTERACT, *range(STAY)):
        heights = shares[order, action].numpy()
        axis.bar(range(len(numbers)), heights, bottom=bottom, color=_ACTION_COLORS[action], label=ACTIONS[action])
        bottom += heights
    axis.set(
        title=f"What each human does ({prepared.provenance.source}, all kitchens)",
        xlabel="human (the first letters of the id; pair/seat in 2019)",
        ylabel="share of actions (%)",
        ylim=(0, 100),
        xlim=(-0.6, len(numbers) - 0.4),
    )
    axis.set_xticks(range(len(numbers)), [prepared.humans[h][:8] for h in order.tolist()], rotation=90, fontsize=7)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


def _saved(figure: Figure) -> Callable[[Path], None]:
    return lambda path: figure.savefig(path, dpi=110)
