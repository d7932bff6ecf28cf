"""Rewards on the way to a soup, as overcooked-ai gives them by default to help learners."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from bsdr_torch.worlds.overcooked.dynamics import happened
from bsdr_torch.worlds.overcooked.layouts import CONTENTS, DISHES, MAX_INGREDIENTS, Layout
from bsdr_torch.worlds.overcooked.state import DISH, HELD, IDLE, POSE, counter_objects, pot_contents, pot_ticks

POTTED, USEFUL_DISH, SOUP_TAKEN = 3.0, 3.0, 5.0


def shaped_rewards(layout: Layout, states: Tensor, following: Tensor, events: Tensor) -> Tensor:
    """What each player did for a soup in a step: `[N, 2]` float32.

    3 for an ingredient put into a pot, 5 for a soup taken from one, and 3 for a dish taken from the dispenser while
    no dish lies on a counter and fewer are in hands than there are pots on their way to a soup.

    Args:
        layout: The kitchen.
        states: `[N, W]` before the step.
        following: `[N, W]` after it.
        events: `[N, 2]`, what `step` says happened.
    """
    held = states[:, HELD].long()
    potted = happened(events, "onion_potted") | happened(events, "tomato_potted")
    soup_from_pot = happened(events, "soup_pickup") & (held == DISH)  # from a counter one takes it with empty hands
    contents = pot_contents(layout, states)
    # overcooked-ai counts a pot with one or two ingredients, and one that cooks, but not a full one that waits.
    waits = _full(states.device)[contents] & (pot_ticks(layout, states) == IDLE)
    pots = ((contents > 0) & ~waits).sum(dim=1)
    # Player 0's INTERACT comes first: what player 1 finds on counters and in player 0's hand is what follows.
    dishes_lying = torch.stack([_dishes_lying(layout, states), _dishes_lying(layout, following)], dim=1)
    dishes_held = torch.stack([held[:, 1] == DISH, following[:, HELD[0]] == DISH], dim=1).long()
    useful = (dishes_lying == 0) & (dishes_held < pots.unsqueeze(1))
    at_dispenser = _faces_dishes(layout, states.device)[states[:, POSE].long()]
    useful_dish = happened(events, "dish_pickup") & at_dispenser & useful
    return POTTED * potted.float() + USEFUL_DISH * useful_dish.float() + SOUP_TAKEN * soup_from_pot.float()


def _dishes_lying(layout: Layout, states: Tensor) -> Tensor:
    return (counter_objects(layout, states) == DISH).sum(dim=1)


@cache
def _full(device: torch.device) -> Tensor:
    """`[contents]` bool: is there no room for another ingredient?"""
    return torch.tensor([sum(ingredients) == MAX_INGREDIENTS for ingredients in CONTENTS], device=device)


@cache
def _faces_dishes(layout: Layout, device: torch.device) -> Tensor:
    """`[poses]` bool: does somebody in this pose face a dish dispenser?"""
    return torch.tensor([layout.terrain(cell) == DISHES for cell in layout.faced], device=device)
