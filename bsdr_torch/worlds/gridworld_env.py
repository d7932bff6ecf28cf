"""GridWorld to step through and to look at: the Gymnasium environment and its pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.gridworld import ACTIONS, GridWorld


class GridWorldEnv(gymnasium.Env[np.int64, np.int64]):
    """A GridWorld for Gymnasium, registered as "bsdr_torch/GridWorld-v0"; it observes the number of the state.

    A step earns minus the cost of the state it leaves; the step that enters a goal also earns minus the cost of
    the goal, so that an episode earns the sum of -c(s) over the states it visits. `cost` is `[S]`, or weights of
    reward features by name (theta_R); by default it is 1 everywhere but on goals.

    Example:
        >>> env = gymnasium.make("bsdr_torch/GridWorld-v0", world="meadow", cost={"mud": 2.0, "grass": 1.0})
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(
        self,
        world: str | Path | GridWorld = "two_rooms",
        cost: npt.ArrayLike | Mapping[str, float] | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise InputError(f"render_mode must be one of {self.metadata['render_modes']}, got {render_mode!r}")
        self.world = world if isinstance(world, GridWorld) else GridWorld.load(world)
        self.render_mode = render_mode
        mdp = self.world.mdp
        self.observation_space = gymnasium.spaces.Discrete(mdp.num_states)
        self.action_space = gymnasium.spaces.Discrete(mdp.num_actions)
        self._cost = _state_cost(self.world, cost)
        self._next_state = mdp.next_state.numpy()
        self._probability = None if mdp.probability is None else mdp.probability.numpy()
        self._start = mdp.start.numpy()
        self._terminal = np.zeros(mdp.num_states, dtype=bool) if mdp.terminal is None else mdp.terminal.numpy()
        self._state: int | None = None
        self._steps = 0
        self._last_action: int | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """A first state from the start distribution."""
        super().reset(seed=seed)
        self._state = int(self.np_random.choice(len(self._start), p=self._start))
        self._steps, self._last_action = 0, None
        return np.int64(self._state), self._info(self._state)

    def step(self, action: np.int64 | int) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """State, reward, whether it is a goal, whether the horizon is reached, and where that is on the map."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset() before the first step()")
        if not self.action_space.contains(action):
            raise InputError(
                f"an action is a number from 0 to {len(ACTIONS) - 1} ({', '.join(ACTIONS)}), got {action!r}"
            )
        outcome = 0
        if self._probability is not None:
            chances = self._probability[self._state, action]
            outcome = int(self.np_random.choice(len(chances), p=chances))
        left, self._state = self._state, int(self._next_state[self._state, action, outcome])
        self._steps, self._last_action = self._steps + 1, int(action)
        terminated = bool(self._terminal[self._state])
        cost = self._cost[left] + (self._cost[self._state] if terminated else 0.0)
        truncated = not terminated and self._steps >= self.world.horizon
        return np.int64(self._state), -float(cost), terminated, truncated, self._info(self._state)

    def render(self) -> Any:
        """The map as text, or as a picture `[height, width, 3]` uint8; None without a render mode."""
        if self.render_mode == "ansi":
            return describe(self.world, self._state, self._steps, self._last_action)
        if self.render_mode == "rgb_array":
            return draw(self.world, self._state)
        return None

    def _info(self, state: int) -> dict[str, Any]:
        row, col = self.world.cells[state].tolist()
        return {"cell": (row, col)}


def describe(world: GridWorld, state: int | None = None, steps: int = 0, last_action: int | None = None) -> str:
    """The map in text with the agent as @, under a line that says what happened last."""
    rows = [list(row) for row in world.rows]
    if state is not None:
        row, col = world.cells[state].tolist()
        rows[row][col] = "@"
    happened = "start" if last_action is None else f"step {steps} of {world.horizon}: {ACTIONS[last_action]}"
    legend = "  ".join(f"{char} {kind['name']}" for char, kind in world.spec["terrain"].items())
    return (
        "\n".join([f"{world.name}, {happened}", *("".join(row) for row in rows), f"@ agent  # wall  {legend}"]) + "\n"
    )


def draw(world: GridWorld, state: int | None = None, cell_pixels: int | None = None) -> npt.NDArray[np.uint8]:
    """A picture, `[H * cell_pixels, W * cell_pixels, 3]`: dots are starts, stars goals, the red disc the agent."""
    height, width = world.shape
    cell = cell_pixels or max(12, min(48, 640 // max(height, width)))
    # Drawn three times as large and shrunk, which makes the edges of discs and stars smooth.
    size = 3 * cell
    ground = _cell_colors(world).repeat(size, axis=0).repeat(size, axis=1)
    lines = np.arange(max(height, width) * size) % size < 3
    ground[lines[: height * size]] *= 0.9
    ground[:, lines[: width * size]] *= 0.9
    picture = Image.fromarray(ground.round().astype(np.uint8))
    pen = ImageDraw.Draw(picture)

    def disc(index: int, radius: float, fill: str, outline: str, line: float) -> None:
        row, col = world.cells[index].tolist()
        x, y, r = (col + 0.5) * size, (row + 0.5) * size, radius * size
        pen.ellipse([x - r, y - r, x + r, y + r], fill=fill, outline=outline, width=max(1, round(line * size)))

    for index in (world.mdp.start > 0).nonzero().flatten().tolist():
        disc(index, 0.09, "#ffffff", "#555555", 0.03)
    if world.mdp.terminal is not None:
        for row, col in world.cells[world.mdp.terminal].tolist():
            points = _star((col + 0.5) * size, (row + 0.52) * size, 0.42 * size)
            pen.polygon(points, fill="#f6c445", outline="#7a5b00", width=max(1, round(0.04 * size)))
    if state is not None:
        disc(state, 0.34, "#d7263d", "#ffffff", 0.06)
    small = picture.resize((width * cell, height * cell), Image.Resampling.LANCZOS)
    return np.asarray(small, dtype=np.uint8)


_PALETTE = ("#a8cf8e", "#b08d6a", "#ead9a4", "#9cc9e6", "#c9b6dc", "#d8d8d8")
_WALL_COLOR = "#3b3f46"


def _cell_colors(world: GridWorld) -> npt.NDArray[np.float64]:
    """The colour of each cell, `[H, W, 3]` from 0 to 255: its terrain's, tinted by its region's."""
    ground = np.zeros((*world.shape, 3))
    ground[world.layers["wall"].numpy()] = _rgb(_WALL_COLOR)
    terrains = [kind["name"] for kind in world.spec["terrain"].values()]
    for number, name in enumerate(terrains):
        ground[world.layers[name].numpy()] = _rgb(world.colors.get(name, _PALETTE[number % len(_PALETTE)]))
    for name in world.colors.keys() - set(terrains):
        here = world.layers[name].numpy()
        ground[here] = 0.65 * ground[here] + 0.35 * _rgb(world.colors[name])
    return ground


def _rgb(color: str) -> npt.NDArray[np.float64]:
    return np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)], dtype=np.float64)


def _star(x: float, y: float, radius: float) -> list[tuple[float, float]]:
    """The ten corners of a five-pointed star around (x, y), one point up."""
    corners = []
    for corner in range(10):
        angle, length = math.pi * corner / 5, radius * (1 if corner % 2 == 0 else 0.42)
        corners.append((x + length * math.sin(angle), y - length * math.cos(angle)))
    return corners


def _state_cost(world: GridWorld, cost: npt.ArrayLike | Mapping[str, float] | None) -> npt.NDArray[np.float64]:
    """What leaving each state costs, `[S]`."""
    S = world.mdp.num_states
    if cost is None:
        terminal = world.mdp.terminal
        return np.ones(S) if terminal is None else np.where(terminal.numpy(), 0.0, 1.0)
    if isinstance(cost, Mapping):
        unknown = [name for name in cost if name not in world.reward_feature_names]
        if unknown:
            raise InputError(
                f"{world.name}: cost has no feature {unknown[0]!r}; the reward features are "
                f"{', '.join(world.reward_feature_names)}"
            )
        theta_R = torch.tensor([float(cost.get(name, 0.0)) for name in world.reward_feature_names], dtype=torch.float64)
        values = (world.reward_features.double() @ theta_R).numpy()
    else:
        values = np.asarray(cost, dtype=np.float64)
    if values.shape != (S,) or not np.isfinite(values).all():
        raise InputError(
            f"{world.name}: cost must be a finite number for each of {S} states, or weights of reward features "
            f"by name, got shape {list(values.shape)}"
        )
    return values
