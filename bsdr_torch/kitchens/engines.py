"""Three ways to the planner's values, behind one call: a network, the exact table of a kitchen, and looking ahead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bsdr_torch.kitchens.outlook import outlook, view
from bsdr_torch.kitchens.planning import action_values, backup
from bsdr_torch.soft_bellman import Problem, initial_values
from bsdr_torch.solver import Solver, WarmStart
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, STAY, KitchenGraph, Layout

if TYPE_CHECKING:
    from bsdr_torch.kitchens.kitchen_model import KitchenModel

_ROWS_AT_ONCE = 16384


class Engine(Protocol):
    """Anything that knows the planner's values."""

    def __call__(self, layout: Layout, states: Tensor, features: Tensor, people: Tensor) -> Tensor:
        """V_i(s) of `people [B]` in `states [U, W]`, whose player 0 plans and sees `features [U, F]`: `[U, B]`."""


class Neural:
    """The values of the model's network, in any kitchen."""

    def __init__(self, model: KitchenModel) -> None:
        self.model = model

    def __call__(self, layout: Layout, states: Tensor, features: Tensor, people: Tensor) -> Tensor:
        """What the network says."""
        values: Tensor = self.model.values(features, people)
        return values


class Exact:
    """The solution of the Bellman equation in enumerated kitchens; outside of them, what another engine says.

    It is differentiable in the reward, by the implicit gradient, and starts from the solution before.

    Args:
        model: whose reward, habit and partner make the problem.
        graphs: the states of kitchens, by name.
        otherwise: for other kitchens, and for states that a graph does not have.
        tolerance: how far the Bellman equation may be missed.
    """

    def __init__(
        self, model: KitchenModel, graphs: Mapping[str, KitchenGraph], otherwise: Engine, tolerance: float = 1e-4
    ) -> None:
        self.model, self.graphs, self.otherwise = model, dict(graphs), otherwise
        self._solvers = {name: Solver(tolerance=tolerance, warm_start=WarmStart()) for name in graphs}

    def table(self, name: str, people: Tensor) -> Tensor:
        """V of all states of a graph, `[S, B]`."""
        model, graph = self.model, self.graphs[name]
        habit, chunks = model.planned_habit, torch.split(graph.states, _ROWS_AT_ONCE)
        with torch.no_grad():
            partner = torch.cat([model.partner_probabilities(view(graph.layout, rows, 1)) for rows in chunks])
            mdp = graph.mdp(0, partner / partner.sum(1, keepdim=True))
            if_partner_stays = graph.next_state.view(graph.num_states, NUM_ACTIONS, NUM_ACTIONS, -1)[:, :, STAY, 0]
            no_op = if_partner_stays == if_partner_stays[:, STAY, None]
        problem: Problem = {
            "discount": model.discount,
            "log_base": torch.where(no_op, habit.log_base[1], habit.log_base[0])[..., None],
            "pause": habit.pause.expand(len(people)),
            "stay": STAY,
            "solver": self._solvers[name],
        }
        return initial_values(mdp, torch.cat([self._reward(graph, rows, people) for rows in chunks]), **problem)

    def __call__(self, layout: Layout, states: Tensor, features: Tensor, people: Tensor) -> Tensor:
        """From the table, where it has the state."""
        if layout.name not in self.graphs:
            return self.otherwise(layout, states, features, people)
        number = self.graphs[layout.name].index(states)
        values = self.table(layout.name, people)[number.clamp(min=0)]
        if bool((number >= 0).all()):
            return values
        return torch.where((number >= 0)[:, None], values, self.otherwise(layout, states, features, people))

    def _reward(self, graph: KitchenGraph, states: Tensor, people: Tensor) -> Tensor:
        """Of some states; the features are made again for the backward pass, as those of all states are too many."""

        def reward(rows: Tensor) -> Tensor:
            return self.model.reward(view(graph.layout, rows, 0).features, people)

        if not torch.is_grad_enabled():
            return reward(states)
        found: Tensor = checkpoint(reward, states, use_reentrant=False)
        return found


class Lookahead:
    """`depth` exact steps of the Bellman equation, with the values of another engine at the end."""

    def __init__(self, model: KitchenModel, depth: int, leaves: Engine) -> None:
        if depth < 1:
            raise ValueError(f"looking ahead needs at least one step, got {depth}")
        self.model, self.depth, self.leaves = model, depth, leaves

    def __call__(self, layout: Layout, states: Tensor, features: Tensor, people: Tensor) -> Tensor:
        """After `depth` steps."""
        return self._values(layout, states, features, people, self.depth)

    def _values(self, layout: Layout, states: Tensor, features: Tensor, people: Tensor, depth: int) -> Tensor:
        if depth == 0:
            return self.leaves(layout, states, features, people)
        ahead = outlook(layout, states, torch.zeros(len(states), dtype=torch.int64, device=states.device))
        then = self._values(layout, ahead.states, ahead.features, people, depth - 1)
        partner = self.model.partner_probabilities(ahead.partner)
        future = action_values(then, ahead, partner, self.model.discount, None)
        return self.model.reward(features, people) + backup(future, ahead.no_op, self.model.planned_habit)
