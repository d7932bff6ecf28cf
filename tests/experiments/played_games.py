"""Games that nobody recorded, for tests: two people who act at random, with some liking for INTERACT."""

from __future__ import annotations

import torch

from bsdr_torch.data.packed_games import AGREES, PackedGames
from bsdr_torch.worlds.overcooked import load_layout, start_states, step

CHANCES = torch.tensor([0.18, 0.18, 0.18, 0.18, 0.08, 0.2])


def random_games(name: str, games: int = 4, steps: int = 300, seed: int = 0) -> PackedGames:
    """Games in a kitchen, step by step."""
    layout, generator = load_layout(name), torch.Generator().manual_seed(seed)
    states = start_states(layout, games)
    seen, taken, earned = [], [], []
    for _ in range(steps):
        actions = torch.multinomial(CHANCES.expand(2 * games, -1), 1, generator=generator).view(games, 2)
        seen.append(states)
        taken.append(actions)
        states, rewards, _ = step(layout, states, actions)
        earned.append(rewards)
    rewards = torch.stack(earned, 1).flatten()
    return PackedGames(
        layout=layout,
        games=[f"game {number}" for number in range(games)],
        players=[(f"{number}a", f"{number}b") for number in range(games)],
        is_human=[(True, True)] * games,
        official=["train"] * games,
        game=torch.arange(games).repeat_interleave(steps),
        time=torch.arange(steps, dtype=torch.int32).repeat(games),
        states=torch.stack(seen, 1).flatten(0, 1),
        actions=torch.stack(taken, 1).flatten(0, 1).to(torch.uint8),
        rewards=rewards,
        soups=(rewards > 0).to(torch.uint8),
        agrees=torch.full((games * steps,), AGREES, dtype=torch.int8),
    )
