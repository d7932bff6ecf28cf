from __future__ import annotations

import pytest
import torch

from bsdr_torch.worlds.overcooked import (
    OVERCOOKED_AI_ACTIONS,
    happened,
    load_package_layout,
    overcooked_ai_mdp,
    shaped_rewards,
    step,
    to_overcooked,
)
from bsdr_torch.worlds.overcooked.state import DISH, HELD, NOTHING, ONION, counter_columns
from tests.worlds.overcooked.random_kitchens import random_joint_actions, random_states


@pytest.mark.parametrize("name", ["cramped_room", "asymmetric_advantages", "coordination_ring", "soup_coordination"])
def test_shaped_rewards_are_those_of_overcooked_ai(name: str, full: bool) -> None:
    layout, game = load_package_layout(name), overcooked_ai_mdp().OvercookedGridworld.from_layout_name(name)
    states = random_states(layout, 2000 if full else 1000, seed=1)
    generator = torch.Generator().manual_seed(3)
    for hand in HELD:  # hands that can do something, more often than by chance
        states[:, hand] = torch.tensor([NOTHING, NOTHING, ONION, DISH], dtype=states.dtype)[
            torch.randint(4, (len(states),), generator=generator)
        ]
    counters = states[:, counter_columns(layout)]
    counters[::4, 1:] = NOTHING  # few things, because overcooked-ai's own copies take most of the time
    counters[(torch.arange(len(states)) % 4 > 0)] = NOTHING  # dishes are rewarded where none lies about
    actions = random_joint_actions(len(states), seed=2)
    following, _, events = step(layout, states, actions)
    ours = shaped_rewards(layout, states, following, events)
    theirs = [
        game.get_state_transition(state, [OVERCOOKED_AI_ACTIONS[a0], OVERCOOKED_AI_ACTIONS[a1]])[1][
            "shaped_reward_by_agent"
        ]
        for state, (a0, a1) in zip(to_overcooked(layout, states), actions.tolist(), strict=True)
    ]
    wrong = [row for row, (one, other) in enumerate(zip(ours.tolist(), theirs, strict=True)) if one != other]
    assert not wrong, f"state {wrong[0]}: {ours[wrong[0]].tolist()} and {theirs[wrong[0]]}"
    dishes = happened(events, "dish_pickup")
    assert set(ours[dishes].tolist()) == {0.0, 3.0}, "dishes of both kinds must be seen"
    assert {3.0, 5.0} <= set(ours[~dishes].tolist())
