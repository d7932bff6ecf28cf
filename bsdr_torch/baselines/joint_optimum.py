"""The best that two people can do in an enumerated kitchen: exact value iteration over joint actions.

    V_0 = 0        Q_{n+1}(s, a0, a1) = r(s, a0, a1) + discount * E V_n(s')        V_n(s) = max over a0, a1 of Q_n

It is what self-play should learn, and the measure of how well it did. `BestPair` predicts people by it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from bsdr_torch.baselines.self_play import best_temperature
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, KitchenGraph

_ROWS_AT_ONCE = 2**16
_SOLVED = 0.01  # of a point; a soup is worth 20


class BestPair:
    """People as a pair who would do best, and err: P(a|s) ~ exp( max_b Q(s, a, b) / T ), b by the partner.

    In states that a graph does not have it knows nothing, and all actions are alike.

    Args:
        graphs: of kitchens, by name.
        discount: of what is earned later.

    Attributes:
        temperature: T.
    """

    def __init__(self, graphs: Mapping[str, KitchenGraph], discount: float) -> None:
        self.graphs, self.temperature = dict(graphs), torch.ones(())
        self._worth: dict[str, Tensor] = {}  # of each own action, by seat, [2, S, 6]
        for name, graph in graphs.items():
            values = best_values(graph, discount)
            self._worth[name] = torch.stack([best_own_values(graph, values, seat, discount) for seat in (0, 1)])

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        return (self.worth(batch) / self.temperature).log_softmax(1)

    def worth(self, batch: Decisions) -> Tensor:
        """max_b Q(s, a, b) of each own action, `[N, 6]`."""
        number = self.graphs[batch.layout].index(batch.states)
        found = self._worth[batch.layout][batch.seats, number.clamp(min=0)]
        return torch.where((number >= 0)[:, None], found, 0.0)

    def fit_temperature(self, data: KitchenPeople) -> None:
        """The T that predicts the training part best."""
        training = [steps for layout, steps in data.steps("train").items() if layout in self.graphs]
        self.temperature = best_temperature(self.worth, training)


def best_values(graph: KitchenGraph, discount: float) -> Tensor:
    """What the best pair earns from each state on, `[S]`, if they play for ever and later earnings count less."""
    values, earned = torch.zeros(graph.num_states, device=graph.device), _earned(graph)
    while True:
        parts = [joint_action_values(graph, values, rows, earned, discount).amax(1) for rows in _rows(graph)]
        before, values = values, torch.cat(parts)
        if float((values - before).abs().max()) <= _SOLVED * (1 - discount):
            return values


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
