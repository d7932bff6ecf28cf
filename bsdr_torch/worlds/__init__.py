"""Worlds: where people act. Each compiles to a `TabularMDP` or simulates itself; none knows of models."""

import gymnasium

from bsdr_torch.worlds.files import world_folder, world_names
from bsdr_torch.worlds.gridworld import GridWorld
from bsdr_torch.worlds.gridworld_env import GridWorldEnv

__all__ = ["GridWorld", "GridWorldEnv", "world_folder", "world_names"]

gymnasium.register(id="bsdr_torch/GridWorld-v0", entry_point="bsdr_torch.worlds.gridworld_env:GridWorldEnv")
