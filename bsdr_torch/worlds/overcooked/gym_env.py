"""Kitchens for Gymnasium: one at a time, or thousands at once on any device. The partner is part of the world."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked.drawing import describe_state, draw_state
from bsdr_torch.worlds.overcooked.dynamics import step
from bsdr_torch.worlds.overcooked.layout_files import load_layout
from bsdr_torch.worlds.overcooked.layouts import Layout
from bsdr_torch.worlds.overcooked.records import start_states
from bsdr_torch.worlds.overcooked.rules import ACTIONS, NUM_ACTIONS
from bsdr_torch.worlds.overcooked.shaping import shaped_rewards
from bsdr_torch.worlds.overcooked.state import swap_players

# Packed states [N, W] -> the probabilities of the partner's actions [N, 6].
Partner = Callable[[Tensor], Tensor]
# The kitchen, packed states [N, W] and the ego's seat -> what the ego observes [N, ...].
Observation = Callable[[Layout, Tensor, int], Tensor]

_METADATA = {"render_modes": ["ansi", "rgb_array"], "render_fps": 6}


def uniform_partner(states: Tensor) -> Tensor:
    """A partner who does anything with the same probability."""
    return torch.full((len(states), NUM_ACTIONS), 1 / NUM_ACTIONS, device=states.device)


def packed_observation(_layout: Layout, states: Tensor, seat: int) -> Tensor:
    """The packed state `[N, W]` with the ego as player 0: all there is to know."""
    return states if seat == 0 else swap_players(states)


class OvercookedEnv(gymnasium.Env[npt.NDArray[Any], np.int64]):
    """A kitchen for one agent, registered as "bsdr_torch/Overcooked-v0".

    The reward is what both earn by serving. `info` has `shaped_reward` (of both, see `shaped_rewards`), `events` `[2]`
    (see `happened`), the `partner_action`, and the packed `state`.

    Args:
        layout: A kitchen or its name.
        partner: From packed states to the probabilities of the partner's actions; uniform if not given.
        seat: Which player the agent is, 0 or 1.
        horizon: Steps until truncation, the layout's if not given.
        observation: What the agent observes, the packed state with itself as player 0 if not given.
        render_mode: "ansi", "rgb_array" or None.

    Example:
        >>> env = gymnasium.make("bsdr_torch/Overcooked-v0", layout="coordination_ring", seat=1)
    """

    metadata: dict[str, Any] = _METADATA

    def __init__(
        self,
        layout: str | Path | Layout = "cramped_room",
        partner: Partner = uniform_partner,
        seat: int = 0,
        horizon: int | None = None,
        observation: Observation = packed_observation,
        render_mode: str | None = None,
    ) -> None:
        _check_render_mode(render_mode)
        self.render_mode = render_mode
        self._kitchens = _Kitchens(layout, 1, partner, seat, horizon, observation, torch.device("cpu"))
        self.layout = self._kitchens.layout
        self.observation_space = self._kitchens.observation_space
        self.action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        """The first observation of a game."""
        super().reset(seed=seed)
        if seed is not None or not self._kitchens.seeded:
            self._kitchens.seed(int(self.np_random.integers(2**63)))
        self._kitchens.restart()
        return self._observation(), {"state": self._kitchens.states[0].numpy().copy()}

    def step(self, action: np.int64 | int) -> tuple[npt.NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Observation, reward, False (nobody wins), whether the horizon is reached, and `info`."""
        if not self._kitchens.seeded:
            raise gymnasium.error.ResetNeeded("call reset() before the first step()")
        if not self.action_space.contains(action):
            raise InputError(
                f"an action is a number from 0 to {NUM_ACTIONS - 1} ({', '.join(ACTIONS)}), got {action!r}"
            )
        played = self._kitchens.play(torch.tensor([int(action)]))
        info = {
            "shaped_reward": float(played.shaped_rewards[0]),
            "events": played.events[0].numpy(),
            "partner_action": int(played.partner_actions[0]),
            "state": self._kitchens.states[0].numpy().copy(),
        }
        return self._observation(), float(played.rewards[0]), False, bool(self._kitchens.over()[0]), info

    def render(self) -> Any:
        """The kitchen as text, or as a picture `[height, width, 3]` uint8; None without a render mode."""
        return self._kitchens.render(0, self.render_mode)

    def _observation(self) -> npt.NDArray[Any]:
        observation: npt.NDArray[Any] = self._kitchens.observe()[0].numpy()
        return observation.copy()  # the next step must not change what the agent keeps


class OvercookedVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Thousands of kitchens at once: `gymnasium.make_vec("bsdr_torch/Overcooked-v0", num_envs=8192)`.

    As `OvercookedEnv`, with a first dimension N = `num_envs` everywhere. A game that is over starts again with the
    next step, which ignores its action. Gives NumPy arrays, as Gymnasium's wrappers expect; with `tensors=True` all
    stays on `device` as tensors. Actions may be either.
    """

    metadata: dict[str, Any] = {**_METADATA, "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(
        self,
        num_envs: int = 1,
        layout: str | Path | Layout = "cramped_room",
        partner: Partner = uniform_partner,
        seat: int = 0,
        horizon: int | None = None,
        observation: Observation = packed_observation,
        device: torch.device | str = "cpu",
        tensors: bool = False,
        render_mode: str | None = None,
    ) -> None:
        _check_render_mode(render_mode)
        if num_envs < 1:
            raise InputError(f"num_envs must be at least 1, got {num_envs!r}")
        self.num_envs, self.render_mode, self.tensors = num_envs, render_mode, tensors
        self._kitchens = _Kitchens(layout, num_envs, partner, seat, horizon, observation, torch.device(device))
        self.layout = self._kitchens.layout
        self.single_observation_space = self._kitchens.observation_space
        self.single_action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The first observations `[N, ...]` of N games."""
        super().reset(seed=seed)
        if seed is not None or not self._kitchens.seeded:
            self._kitchens.seed(int(self.np_random.integers(2**63)))
        self._kitchens.restart()
        return self._given(self._kitchens.observe()), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Observations `[N, ...]`, rewards `[N]`, terminated `[N]` (False), truncated `[N]`, and `info`."""
        kitchens = self._kitchens
        if not kitchens.seeded:
            raise gymnasium.error.ResetNeeded("call reset() before the first step()")
        actions = torch.as_tensor(actions, device=kitchens.device)
        if tuple(actions.shape) != (self.num_envs,):
            raise InputError(f"expected an action for each of {self.num_envs} kitchens, got {tuple(actions.shape)}")
        again = kitchens.over()
        played = kitchens.play(actions)
        kitchens.restart(again)
        info: dict[str, Any] = {}
        for name, value in (
            ("shaped_reward", played.shaped_rewards),
            ("events", played.events),
            ("partner_action", played.partner_actions),
        ):
            info[name] = self._given(value)
            info[f"_{name}"] = self._given(~again)  # Gymnasium's sign for where the entry means something
        rewards = played.rewards.masked_fill(again, 0.0)
        truncated = kitchens.over()
        return (
            self._given(kitchens.observe()),
            self._given(rewards),
            self._given(torch.zeros_like(truncated)),
            self._given(truncated),
            info,
        )

    def render(self) -> Any:
        """The kitchens as texts or as pictures; None without a render mode."""
        if self.render_mode is None:
            return None
        return tuple(self._kitchens.render(row, self.render_mode) for row in range(self.num_envs))

    @property
    def states(self) -> Tensor:
        """`[N, W]`: the packed states."""
        return self._kitchens.states

    def _given(self, value: Tensor) -> Any:
        return value if self.tensors else value.cpu().numpy()


class _Played(NamedTuple):
    rewards: Tensor
    shaped_rewards: Tensor
    events: Tensor
    partner_actions: Tensor


class _Kitchens:
    """N games with a partner: states, clocks, and the partner's dice."""

    def __init__(
        self,
        layout: str | Path | Layout,
        count: int,
        partner: Partner,
        seat: int,
        horizon: int | None,
        observation: Observation,
        device: torch.device,
    ) -> None:
        self.layout = layout if isinstance(layout, Layout) else load_layout(layout)
        self.horizon = self.layout.horizon if horizon is None else horizon
        if self.horizon < 1:
            raise InputError(f"horizon must be at least 1 step, got {horizon!r}")
        if seat not in (0, 1):
            raise InputError(f"seat must be 0 or 1, got {seat!r}")
        self.partner, self.seat, self.observation, self.device = partner, seat, observation, device
        self.seeded = False
        self._dice = torch.Generator(device)
        self._start = start_states(self.layout).to(device)
        self.states = self._start.repeat(count, 1)
        self.steps = torch.zeros(count, dtype=torch.int32, device=device)
        self.observation_space = _space_of(self.observe()[0])

    def seed(self, seed: int) -> None:
        self._dice.manual_seed(seed)
        self.seeded = True

    def restart(self, which: Tensor | None = None) -> None:
        """Start the games `which` `[N]` bool again, all of them if not given."""
        if which is None:
            which = torch.ones(len(self.states), dtype=torch.bool, device=self.device)
        self.states = torch.where(which.unsqueeze(1), self._start, self.states)
        self.steps = self.steps.masked_fill(which, 0)

    def play(self, actions: Tensor) -> _Played:
        """One step of all games; `actions` `[N]` are the ego's."""
        probabilities = self.partner(self.states)
        if tuple(probabilities.shape) != (len(self.states), NUM_ACTIONS):
            raise InputError(
                f"the partner must give {NUM_ACTIONS} probabilities for each of {len(self.states)} states, got shape "
                f"{tuple(probabilities.shape)}"
            )
        partner_actions = torch.multinomial(probabilities, 1, generator=self._dice).squeeze(1)
        joint = [actions.long(), partner_actions] if self.seat == 0 else [partner_actions, actions.long()]
        following, rewards, events = step(self.layout, self.states, torch.stack(joint, dim=1))
        shaped = shaped_rewards(self.layout, self.states, following, events).sum(dim=1)
        self.states, self.steps = following, self.steps + 1
        return _Played(rewards, shaped, events, partner_actions)

    def over(self) -> Tensor:
        """`[N]` bool: which games have reached the horizon?"""
        return self.steps >= self.horizon

    def observe(self) -> Tensor:
        """`[N, ...]`: what the ego observes."""
        return self.observation(self.layout, self.states, self.seat)

    def render(self, row: int, mode: str | None) -> Any:
        """One kitchen as text or as a picture."""
        if mode == "ansi":
            step_ = f"{self.layout.name}, step {int(self.steps[row])} of {self.horizon}"
            return f"{step_}\n{describe_state(self.layout, self.states[row])}\n"
        return draw_state(self.layout, self.states[row]) if mode == "rgb_array" else None


def _space_of(observation: Tensor) -> gymnasium.spaces.Box:
    """The space of one observation, from an example."""
    dtype = observation.cpu().numpy().dtype
    if not np.issubdtype(dtype, np.number):
        raise InputError(f"an observation must be numbers, got a tensor of {observation.dtype}")
    low, high = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return gymnasium.spaces.Box(low, high, tuple(observation.shape), dtype.type)


def _check_render_mode(render_mode: str | None) -> None:
    modes = _METADATA["render_modes"]
    if render_mode is not None and render_mode not in modes:  # type: ignore[operator]
        raise InputError(f"render_mode must be one of {modes}, got {render_mode!r}")
