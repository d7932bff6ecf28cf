"""The best that two people can do in an enumerated kitchen: exact value iteration over joint actions.

    V_0 = 0        Q_{n+1}(s, a0, a1) = r(s, a0, a1) + discount * E V_n(s')        V_n(s) = max over a0, a1 of Q_n

It is what self-play should learn, and the measure of how well it did.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bsdr_torch.worlds.overcooked import NUM_ACTIONS, KitchenGraph

_ROWS_AT_ONCE = 2**16


def best_rewards(graph: KitchenGraph, horizon: int, discount: float = 1.0) -> Tensor:
    """What the best pair earns in `horizon` steps from each state, `[S]` float32."""
    values = torch.zeros(graph.num_states, device=graph.device)
    earned = _earned(graph)
    for _ in range(horizon):
        parts = [joint_action_values(graph, values, rows, earned, discount).amax(1) for rows in _rows(graph)]
        values = torch.cat(parts)
    return values


def joint_action_values(
    graph: KitchenGraph, following: Tensor, rows: slice, earned: Tensor, discount: float = 1.0
) -> Tensor:
    """Q of each joint action `[R, 36]` in some states, when those after them are worth `following [S]`."""
    after = following[graph.next_state[rows].long()]  # [R, 36, C]
    if graph.chance is not None:
        after = after * graph.chance[rows, None]
    return earned[rows] + discount * after.sum(2)


def best_own_values(graph: KitchenGraph, values: Tensor, seat: int, discount: float) -> Tensor:
    """What each own action is worth if the partner does the best thing beside it, `[S, 6]`."""
    earned = _earned(graph)
    parts = [joint_action_values(graph, values, rows, earned, discount) for rows in _rows(graph)]
    joint = torch.cat(parts).view(-1, NUM_ACTIONS, NUM_ACTIONS)
    return joint.amax(2 - seat)


def _earned(graph: KitchenGraph) -> Tensor:
    """`[S, 36]`."""
    numbers = torch.arange(graph.num_states, device=graph.device)
    return torch.cat([graph.outcomes(part)[0] for part in torch.split(numbers, _ROWS_AT_ONCE)])


def _rows(graph: KitchenGraph) -> list[slice]:
    return [slice(first, first + _ROWS_AT_ONCE) for first in range(0, graph.num_states, _ROWS_AT_ONCE)]
