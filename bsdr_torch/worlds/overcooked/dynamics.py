"""What happens next in a kitchen: a pure function of packed states, thousands of rows at once."""

from __future__ import annotations

import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked.layouts import Layout
from bsdr_torch.worlds.overcooked.rules import ACTIONS, EVENTS, INTERACT, NUM_ACTIONS, STAY, RuleTables, rule_tables
from bsdr_torch.worlds.overcooked.state import FIRST_POT, HELD, POSE, check_shape

NUM_JOINT_ACTIONS = NUM_ACTIONS**2


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
    """
    check_shape(layout, states)
    _check_actions(states, joint_actions)
    tables = rule_tables(layout, states.device)
    choices = [
        torch.add(joint_actions[:, player].int(), states[:, POSE[player]].int(), alpha=NUM_ACTIONS) for player in (0, 1)
    ]
    following = states.clone(memory_format=torch.contiguous_format)
    deals = [_interact(tables, following, player, choices[player]) for player in (0, 1)]
    for player, poses in enumerate(_move(tables, *choices)):
        following[:, POSE[player]] = poses
    _cook(layout, tables, following)
    rewards = tables.rewards.index_select(0, deals[0]) + tables.rewards.index_select(0, deals[1])
    events = torch.stack([tables.events.index_select(0, deal) for deal in deals], dim=1)
    return following, rewards, events


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


def _move(tables: RuleTables, choice0: Tensor, choice1: Tensor) -> tuple[Tensor, Tensor]:
    """The poses of both players after their choices `[N]`."""
    moved0, moved1 = tables.moved.index_select(0, choice0), tables.moved.index_select(0, choice1)
    turned0, turned1 = tables.turned.index_select(0, choice0), tables.turned.index_select(0, choice1)
    to0, to1, from0, from1 = moved0 >> 2, moved1 >> 2, turned0 >> 2, turned1 >> 2
    blocked = (to0 == to1) | ((to0 == from1) & (to1 == from0))
    return torch.where(blocked, turned0, moved0), torch.where(blocked, turned1, moved1)


def _cook(layout: Layout, tables: RuleTables, states: Tensor) -> None:
    """Let the pots cook for a step, in place."""
    for column in range(FIRST_POT, FIRST_POT + len(layout.pots)):
        states[:, column] = tables.ticked.index_select(0, states[:, column].int())


__all__ = ["ACTIONS", "EVENTS", "INTERACT", "NUM_ACTIONS", "NUM_JOINT_ACTIONS", "STAY", "happened", "step"]
