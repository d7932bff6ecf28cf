"""What happens next in a kitchen: pure functions of packed states, thousands of rows at once."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked.layouts import Layout
from bsdr_torch.worlds.overcooked.rules import ACTIONS, EVENTS, INTERACT, NUM_ACTIONS, RuleTables, rule_tables
from bsdr_torch.worlds.overcooked.state import FIRST_POT, HELD, POSE, check_kitchen, counter_columns

# Joint action `6 * a0 + a1` is (a0, a1).
JOINT_ACTIONS = tuple((a0, a1) for a0 in range(NUM_ACTIONS) for a1 in range(NUM_ACTIONS))


def step(layout: Layout, states: Tensor, joint_actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step of N kitchens.

    INTERACTs resolve first, player 0's before player 1's; then both move at once, except that nobody moves where
    they would meet on one cell or swap (they still turn); then the pots cook.

    Args:
        layout: The kitchen.
        states: `[N, W]`, packed as in `state`.
        joint_actions: `[N, 2]` integers 0..5, in the order of `ACTIONS`.

    Returns:
        The next states `[N, W]`; what was earned by serving `[N]` float32; what each player's INTERACT did
        `[N, 2]` int16, bits of `EVENTS` (see `happened`).

    Example:
        >>> from bsdr_torch.worlds.overcooked import load_layout, start_states
        >>> kitchen = load_layout("cramped_room")
        >>> states, rewards, events = step(kitchen, start_states(kitchen, 8), torch.randint(6, (8, 2)))
        >>> states.shape
        torch.Size([8, 10])
    """
    check_kitchen(layout, states)
    _check_actions(states, joint_actions)
    tables = rule_tables(layout, states.device)
    actions = [joint_actions[:, player].int() for player in (0, 1)]
    poses = [states[:, POSE[player]].int() for player in (0, 1)]
    following = states.clone(memory_format=torch.contiguous_format)
    deals = [
        _interact(tables, following, player, torch.add(actions[player], poses[player], alpha=NUM_ACTIONS))
        for player in (0, 1)
    ]
    pair = torch.add(poses[1], poses[0], alpha=tables.poses)
    joint_action = torch.add(actions[1], actions[0], alpha=NUM_ACTIONS)
    move = torch.add(joint_action, pair, alpha=len(JOINT_ACTIONS))
    for player in (0, 1):
        following[:, POSE[player]] = tables.poses_after[player].view(-1).index_select(0, move)
    _cook(layout, tables, following)
    rewards = tables.rewards.index_select(0, deals[0]) + tables.rewards.index_select(0, deals[1])
    events = torch.stack([tables.events.index_select(0, deal) for deal in deals], dim=1)
    return following, rewards, events


def successors(layout: Layout, states: Tensor) -> Tensor:
    """`[N, W]` -> `[N, 36, W]`: the next state for each of `JOINT_ACTIONS`, much faster than 36 steps."""
    tables, kitchens, _ = _four_kitchens(layout, states)
    N, W = states.shape
    _cook(layout, tables, kitchens.view(-1, W))
    rows = torch.arange(N, device=states.device).view(-1, 1) + N * who_interacts(states.device)
    following = kitchens.view(-1, W).index_select(0, rows.view(-1)).view(N, len(JOINT_ACTIONS), W)
    pair = torch.add(states[:, POSE[1]].int(), states[:, POSE[0]].int(), alpha=tables.poses)
    for player in (0, 1):
        following[:, :, POSE[player]] = tables.poses_after[player].index_select(0, pair)
    return following


def successor_outcomes(layout: Layout, states: Tensor) -> tuple[Tensor, Tensor]:
    """`[N, W]` -> rewards `[N, 36]` and events `[N, 36, 2]` of the steps to `successors`."""
    tables, _, deals = _four_kitchens(layout, states)
    # By kitchen: what player 0's and player 1's INTERACT did in it, if they did one.
    rewards = [torch.zeros(len(states), device=states.device)] + [tables.rewards.index_select(0, d) for d in deals]
    events = [torch.zeros_like(rewards[0], dtype=torch.int16)] + [tables.events.index_select(0, d) for d in deals]
    nobody, only0, only1, after0 = range(4)
    by_kitchen = ((nobody, nobody), (only0, nobody), (nobody, only1), (only0, after0))
    reward = torch.stack([rewards[one] + rewards[other] for one, other in by_kitchen], dim=1)
    event = torch.stack([torch.stack([events[one], events[other]], dim=1) for one, other in by_kitchen], dim=1)
    who = who_interacts(states.device)
    return reward.index_select(1, who), event.index_select(1, who)


@cache
def who_interacts(device: torch.device) -> Tensor:
    """`[36]`: who INTERACTs in each joint action: 0 nobody, 1 player 0, 2 player 1, 3 both."""
    return torch.tensor([int(a0 == INTERACT) + 2 * int(a1 == INTERACT) for a0, a1 in JOINT_ACTIONS], device=device)


def happened(events: Tensor, event: str) -> Tensor:
    """`[..., 2]` events -> `[..., 2]` bool: did each player's INTERACT do this, one of `EVENTS`?"""
    if event not in EVENTS:
        raise InputError(f"there is no event {event!r}: choose one of {', '.join(EVENTS)}")
    return (events & (1 << EVENTS.index(event))) != 0


def _check_actions(states: Tensor, joint_actions: Tensor) -> None:
    if states.ndim != 2 or tuple(joint_actions.shape) != (len(states), 2):
        raise InputError(
            f"expected states [N, W] and joint actions [N, 2], got shapes {tuple(states.shape)} and "
            f"{tuple(joint_actions.shape)}"
        )
    if joint_actions.dtype.is_floating_point or joint_actions.dtype == torch.bool:
        raise InputError(f"actions are integers 0..{NUM_ACTIONS - 1}, got {joint_actions.dtype}")
    if not len(states):
        return
    low, high = torch.aminmax(joint_actions)
    if int(low) < 0 or int(high) >= NUM_ACTIONS:
        row, player = (int(i) for i in ((joint_actions < 0) | (joint_actions >= NUM_ACTIONS)).nonzero()[0])
        raise InputError(
            f"joint_actions[{row}, {player}] is {int(joint_actions[row, player])}; the actions are 0 to "
            f"{NUM_ACTIONS - 1} ({', '.join(ACTIONS)})"
        )


def _interact(tables: RuleTables, states: Tensor, player: int, choice: Tensor) -> Tensor:
    """Resolve a player's INTERACTs in place (other choices leave all as it is); returns the deals `[N]`."""
    N, W = states.shape
    faced = torch.arange(0, N * W, W, device=states.device) + tables.column.index_select(0, choice)
    values = states.view(-1)
    deal = torch.add(tables.faces.index_select(0, choice), states[:, HELD[player]], alpha=tables.values)
    deal += values.index_select(0, faced)
    values.scatter_(0, faced, tables.value.index_select(0, deal))
    states[:, HELD[player]] = tables.held.index_select(0, deal)
    return deal


def _four_kitchens(layout: Layout, states: Tensor) -> tuple[RuleTables, Tensor, list[Tensor]]:
    """The kitchens `[4, N, W]` before anybody moves, where nobody, player 0, player 1, and both INTERACT.

    All else that a joint action can do is to move. Also the deals `[N]` of player 0, of player 1 alone, and of
    player 1 after player 0.
    """
    check_kitchen(layout, states)
    if states.ndim != 2:
        raise InputError(f"expected states [N, W], got shape {tuple(states.shape)}")
    tables = rule_tables(layout, states.device)
    choices = [states[:, POSE[player]].int() * NUM_ACTIONS + INTERACT for player in (0, 1)]
    kitchens = states.new_empty((4, *states.shape))
    kitchens[:3] = states
    deals = [_interact(tables, kitchens[1], 0, choices[0]), _interact(tables, kitchens[2], 1, choices[1])]
    kitchens[3] = kitchens[1]
    deals.append(_interact(tables, kitchens[3], 1, choices[1]))
    return tables, kitchens, deals


def _cook(layout: Layout, tables: RuleTables, states: Tensor) -> None:
    """Let the pots cook for a step, in place."""
    for column in range(FIRST_POT, counter_columns(layout).start):
        states[:, column] = tables.ticked.index_select(0, states[:, column].int())
