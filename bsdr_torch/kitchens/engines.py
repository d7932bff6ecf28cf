"""Three ways to the planner's values, behind one call: a network, the exact table of a kitchen, and looking ahead."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bsdr_torch.kitchens.feature_memory import FeatureMemory
from bsdr_torch.kitchens.outlook import places, view
from bsdr_torch.kitchens.planning import action_values, backup
from bsdr_torch.mdp import Incoming, TabularMDP
from bsdr_torch.rationality import POPULATION
from bsdr_torch.soft_bellman import Problem, initial_values
from bsdr_torch.solver import Solver, WarmStart
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, STAY, KitchenGraph, Layout, ego_first

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

    It is differentiable in the reward, by the implicit gradient, and starts from the solution before. Where the two
    players cannot change places, as behind a wall, each has a solution of their own.

    Args:
        model: whose reward, habit and partner make the problem.
        graphs: the states of kitchens, by name.
        otherwise: for other kitchens, and for states that a graph does not have.
        tolerance: how far the Bellman equation may be missed, and what share of the gradient may.
    """

    def __init__(
        self, model: KitchenModel, graphs: Mapping[str, KitchenGraph], otherwise: Engine, tolerance: float = 1e-4
    ) -> None:
        self.model, self.otherwise, self.tolerance = model, otherwise, tolerance
        self._seats = {name: _seats(graph) for name, graph in graphs.items()}
        self._solvers: dict[tuple[str, int], Solver] = {}
        self._known: dict[tuple[str, int], _Known] = {}

    def table(self, name: str, people: Tensor, seat: int = 0) -> Tensor:
        """V of all states of a graph, whose player in `seat` plans, `[S, B]`."""
        if not self.model.rationality.varies.by_human:  # one plan is everybody's
            return self._table(name, seat, people.new_full((1,), POPULATION)).expand(-1, len(people))
        return self._table(name, seat, people)

    def __call__(self, layout: Layout, states: Tensor, features: Tensor, people: Tensor) -> Tensor:
        """From the tables, where they have the state."""
        known = torch.zeros(len(states), dtype=torch.bool, device=states.device)
        values = torch.zeros((len(states), len(people)), device=states.device)
        for seat, kitchen in enumerate(self._there(layout.name, states.device)):
            number = kitchen.graph.index(ego_first(states, seat))
            here = (number >= 0) & ~known
            if bool(here.any()):
                found = self.table(layout.name, people, seat)[number.clamp(min=0)]
                values, known = torch.where(here[:, None], found, values), known | here
        if bool(known.all()):
            return values
        return torch.where(known[:, None], values, self.otherwise(layout, states, features, people))

    def _there(self, name: str, device: torch.device) -> tuple[Enumerated, ...]:
        """What is enumerated of a kitchen, by the seat of who plans, where the model is."""
        seats = self._seats.get(name, ())
        if seats and seats[0].graph.device != device:
            seats = self._seats[name] = _seats(seats[0].graph.to(device))
        return seats

    def _table(self, name: str, seat: int, people: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return self._solved(name, seat, people)
        # Evaluation asks for the same table batch after batch.
        model = self.model
        state = [*model.parameters(), *model.buffers()]
        stamp = [model.training, *people.tolist(), *((each.data_ptr(), each._version) for each in state)]
        known = self._known.get((name, seat))
        if known is None or known.stamp != stamp:
            known = self._known[name, seat] = _Known(stamp, self._solved(name, seat, people))
        return known.table

    def _solved(self, name: str, seat: int, people: Tensor) -> Tensor:
        model, kitchen = self.model, self._there(name, people.device)[seat]
        graph, habit = kitchen.graph, model.planned_habit
        with torch.no_grad():
            chunks = torch.split(graph.states, _ROWS_AT_ONCE)
            partner = torch.cat([model.partner_probabilities(view(graph.layout, rows, 1 - seat)) for rows in chunks])
        problem: Problem = {
            "discount": model.discount,
            "log_base": torch.where(kitchen.no_op, habit.log_base[1], habit.log_base[0])[..., None],
            "pause": habit.pause.expand(len(people)),
            "stay": STAY,
            "solver": self._solvers.setdefault((name, seat), Solver(tolerance=self.tolerance, warm_start=WarmStart())),
        }

        def reward(rows: Tensor) -> Tensor:
            return model.symmetric_reward(view(graph.layout, rows, seat).features, people)

        of = [*model.phi_R.parameters(), *model.phi_beta.parameters(), *model.rationality.parameters()]
        found = _Everywhere.apply(reward, graph.states, self.tolerance, *of)  # type: ignore[no-untyped-call]  # torch's
        return initial_values(kitchen.mdp(partner / partner.sum(1, keepdim=True)), found, **problem)


def _seats(graph: KitchenGraph) -> tuple[Enumerated, ...]:
    """The kitchen as player 0 plans in it, and if they never come to stand where the other one starts, as player 1."""
    starts = graph.states[graph.start > 0]
    exchanged = bool((graph.index(ego_first(starts, 1)) >= 0).all())
    return (Enumerated(graph, 0),) if exchanged else (Enumerated(graph, 0), Enumerated(graph, 1))


class _Known(NamedTuple):
    """A table, and what it depends on."""

    stamp: list[Any]
    table: Tensor


class Enumerated:
    """What of the planner's problem stays the same while a model learns."""

    def __init__(self, graph: KitchenGraph, seat: int = 0) -> None:
        self.graph, self.seat = graph, seat

    @cached_property
    def no_op(self) -> Tensor:
        """`[S, 6]` bool: the action does what STAY would do, if the partner stays."""
        if_partner_stays = self._next_state[:, :, STAY, 0]
        return if_partner_stays == if_partner_stays[:, STAY, None]

    def mdp(self, partner: Tensor) -> TabularMDP:
        """The world of the player in the seat, whose partner acts by `partner [S, 6]`."""
        mdp = self.graph.mdp(self.seat, partner)
        assert mdp.probability is not None
        offset, source, outcome = self._edges
        chance = mdp.probability.reshape(-1)[outcome]
        # Where the property keeps it: sorting the edges again would take longer than planning.
        mdp.__dict__["incoming"] = Incoming(offset, source, chance)
        return mdp

    @property
    def _next_state(self) -> Tensor:
        """`[S, 6, 6, C]`, by the action of who plans, that of the partner, and the outcome of chance."""
        leads = self.graph.next_state.view(self.graph.num_states, NUM_ACTIONS, NUM_ACTIONS, -1)
        return leads.transpose(1, 2) if self.seat else leads

    @cached_property
    def _edges(self) -> tuple[Tensor, Tensor, Tensor]:
        """All edges by the state they lead to: `offset`, `source`, and which of the `[S, 1, K]` chances is theirs."""
        next_state = self._next_state
        S, A = self.graph.num_states, NUM_ACTIONS
        target, edges = next_state.reshape(-1).sort(stable=True)
        offset = torch.searchsorted(target, torch.arange(S + 1, dtype=target.dtype, device=target.device))
        K = next_state.numel() // (S * A)
        source = (edges // K).to(torch.int32)
        return offset, source, ((edges // (A * K)) * K + edges % K).to(torch.int32)


class _Everywhere(torch.autograd.Function):
    """A function of states for all of them, which keeps nothing: what it makes on the way is too much.

    The backward pass goes through the function again, for the states that have all of the gradient but a small share:
    few, as people visit few.
    """

    @staticmethod
    def forward(ctx: Any, of: Callable[[Tensor], Tensor], states: Tensor, share: float, *parameters: Tensor) -> Tensor:
        ctx.of, ctx.states, ctx.share, ctx.parameters = of, states, share, parameters
        return torch.cat([of(rows) for rows in torch.split(states, _ROWS_AT_ONCE)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        size, row = grad.abs().sum(1).double().sort()
        row = row[size.cumsum(0) > ctx.share * size.sum()]
        total = [torch.zeros_like(parameter) for parameter in ctx.parameters]
        for rows in torch.split(row, _ROWS_AT_ONCE) if len(row) else ():  # nobody may have been in the table's states
            with torch.enable_grad():
                found = ctx.of(ctx.states[rows])
            for sum_, part in zip(
                total, torch.autograd.grad(found, ctx.parameters, grad[rows], allow_unused=True), strict=True
            ):
                if part is not None:
                    sum_ += part
        return None, None, None, *total


class Lookahead:
    """`depth` exact steps of the Bellman equation, with the values of another engine at the end.

    Args:
        model: whose reward, habit and partner make the problem.
        depth: the number of steps.
        leaves: the values at the end.
        settled: the model's network changes no more: what it says of a state is kept for when the state comes again,
            where the leaves are `Neural`.
    """

    def __init__(self, model: KitchenModel, depth: int, leaves: Engine, settled: bool = False) -> None:
        if depth < 1:
            raise ValueError(f"looking ahead needs at least one step, got {depth}")
        self.model, self.depth, self.leaves = model, depth, leaves
        self._kept: dict[Layout, FeatureMemory] | None = {} if settled and isinstance(leaves, Neural) else None

    def __deepcopy__(self, memo: dict[int, Any]) -> Lookahead:
        """A copy has kept nothing: what its network says may be changed before it settles again."""
        model, leaves = copy.deepcopy(self.model, memo), copy.deepcopy(self.leaves, memo)
        return Lookahead(model, self.depth, leaves, settled=self._kept is not None)

    def __call__(self, layout: Layout, states: Tensor, features: Tensor, people: Tensor) -> Tensor:
        """After `depth` steps."""
        return self._values(layout, states, features, people, self.depth)

    def _values(self, layout: Layout, states: Tensor, features: Tensor, people: Tensor, depth: int) -> Tensor:
        at = places(layout, states, torch.zeros(len(states), dtype=torch.int64, device=states.device))
        if depth == 1:
            then = self._leaves(layout, at.states, people)
        else:
            then = self._values(layout, at.states, view(layout, at.states, 0).features, people, depth - 1)
        partner = self.model.partner_probabilities(view(layout, states, 1))
        future = action_values(then, at, partner, self.model.discount, None)
        return self.model.reward(features, people) + backup(future, at.no_op, self.model.planned_habit)

    def _leaves(self, layout: Layout, states: Tensor, people: Tensor) -> Tensor:
        if self._kept is None:
            return self.leaves(layout, states, view(layout, states, 0).features, people)

        def parts(states: Tensor) -> Tensor:
            pieces = torch.split(states, _ROWS_AT_ONCE)
            return torch.cat([self.model.values.parts(view(layout, rows, 0).features) for rows in pieces])

        # What is kept is the values before they are anybody's.
        return self.model.values.of_people(self._kept.setdefault(layout, FeatureMemory(parts))(states), people)
