"""How somebody would act who is on the way to an INTERACT: exact plans in a kitchen, one for each subgoal.

A subgoal is a small navigation problem: where the person stands and looks, where the partner stands, and whether the
thing can be used yet (a pot may still cook, a counter may be taken). Every step costs beta_i(s) until the INTERACT is
done. The partner walks about at random, as often as people do, and what cannot be used yet comes to be usable at
random, as often as it did in training. All subgoals of a kitchen are blocks of one `TabularMDP`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bsdr_torch.experiments.kitchen_stretches import (
    FETCH_DISH,
    FETCH_ONION,
    HANDS,
    KINDS,
    SERVE,
    Stretches,
    Subgoal,
    is_open,
    outcomes,
)
from bsdr_torch.mdp import TabularMDP
from bsdr_torch.worlds.overcooked import INTERACT, NUM_ACTIONS, STAY, Layout, cells, start_states, successors
from bsdr_torch.worlds.overcooked.layouts import COUNTER
from bsdr_torch.worlds.overcooked.paths import floor_neighbours
from bsdr_torch.worlds.overcooked.state import POSE

FEATURES = ("always", *(f"with {thing}" for thing in HANDS[1:]), "partner near", "narrow")
"""What rationality may depend on: the hands, a partner at most two cells away, a cell with at most two neighbours."""

_NEAR, _NARROW = 2, 2
_PARTNER = (STAY, *range(STAY))  # what a partner may do who never uses anything


class SubgoalPlans:
    """The navigation problems of a kitchen's subgoals.

    Args:
        layout: the kitchen.
        wanted: G subgoals.
        seen: the stretches from which it is learned how often people move and things become usable.

    Attributes:
        mdp: blocks of all poses and partner's cells, one for each subgoal and one more if one may have to wait for it;
            and a last state, in which it is done.
        situations: how many states a block has: `P * F`.
        phi_R: `[S, 1]`: each step costs 1 until it is done.
        phi_beta: `[S, len(FEATURES)]`.
    """

    def __init__(self, layout: Layout, wanted: list[Subgoal], seen: Stretches) -> None:
        self.layout, self.wanted = layout, wanted
        ways = _ways(layout)  # [N, 6, 5]
        G, N = len(wanted), len(ways)
        self.situations = N
        waits = torch.tensor([may_have_to_wait(layout, goal) for goal in wanted])
        # The block of each subgoal while one has to wait for it, after those in which it can be done.
        self._waiting = torch.where(waits, G - 1 + waits.cumsum(0), torch.arange(G))
        goal = torch.cat([torch.arange(G), waits.nonzero()[:, 0]])  # of each block
        done = len(goal) * N
        stays = (torch.arange(len(goal)) * N)[:, None, None, None] + ways  # [blocks, N, 6, 5]
        facing = torch.tensor([[cell == of.cell for cell in layout.faced] for of in wanted])  # [G, P]
        facing = facing.repeat_interleave(N // facing.shape[1], dim=1)
        stays[:G, :, INTERACT] = torch.where(facing[..., None], done, stays[:G, :, INTERACT])
        opening = self._opening(seen)[goal]
        opening[:G] = 0.0
        moving = float((seen.actions[seen.real] < STAY).double().mean())
        partner = torch.tensor([1 - moving, *(moving / 4,) * 4], dtype=torch.float64)
        chance = torch.cat([(1 - opening)[:, None] * partner, opening[:, None] * partner], 1)  # [blocks, 10]
        end = torch.full((1, NUM_ACTIONS, chance.shape[1]), done)
        terminal = torch.arange(done + 1) == done
        self.mdp = TabularMDP(
            next_state=torch.cat([torch.cat([stays, stays[goal]], 3).flatten(0, 1), end]),
            start=torch.full((done + 1,), 1 / (done + 1), dtype=torch.float64),
            probability=torch.cat([chance.repeat_interleave(N, 0), chance[:1]])[:, None],
            terminal=terminal,
        )
        self.phi_R = (~terminal).double()[:, None]
        self.phi_beta = self._features(torch.tensor([of.hands for of in wanted])[goal])

    def number(self, goal: int, states: Tensor) -> Tensor:
        """`[..., W]` -> `[...]`: the number of a state, whose player 0 is on the way to a subgoal."""
        where = states[..., POSE[0]].long() * len(self.layout.floor) + cells(states)[..., 1]
        block = torch.where(is_open(self.layout, self.wanted[goal], states), goal, self._waiting[goal])
        return block * self.situations + where

    def numbers(self, seen: Stretches, ended: Tensor) -> Tensor:
        """`[R, L]`: the numbers of states on the way to what the person did `[R]`; -1 if that is not a subgoal."""
        found = torch.full_like(seen.actions, -1)
        for goal in range(len(self.wanted)):
            rows = (ended == goal).nonzero()[:, 0]
            found[rows] = self.number(goal, seen.states[rows])
        return found

    def _features(self, hands: Tensor) -> Tensor:
        """phi_beta, for the hands in each block."""
        F, floor = len(self.layout.floor), torch.tensor(self.layout.floor)
        cell, partner = torch.arange(F).repeat_interleave(4 * F), torch.arange(F).repeat(4 * F)
        near = (floor[cell] - floor[partner]).abs().sum(1) <= _NEAR
        narrow = (torch.tensor(floor_neighbours(self.layout)) >= 0).sum(1)[cell] <= _NARROW
        place = torch.stack([near, narrow], 1).repeat(len(hands), 1)
        held = (hands[:, None] == torch.arange(1, len(HANDS))).repeat_interleave(self.situations, 0)
        features = torch.cat([torch.ones_like(held[:, :1]), held, place], 1).double()
        return torch.cat([features, torch.zeros_like(features[:1])])

    def _opening(self, seen: Stretches) -> Tensor:
        """`[G]`: how likely what one has to wait for comes in a step, the same for subgoals of a kind."""
        ended = outcomes(self.layout, self.wanted, seen)
        waited, came = torch.zeros(2, len(KINDS), dtype=torch.float64)
        for number, goal in enumerate(self.wanted):
            rows = (ended == number).nonzero()[:, 0]
            can = is_open(self.layout, goal, seen.states[rows])
            waiting = ~can[:, :-1] & seen.real[rows, :-1]
            waited[goal.kind] += waiting.sum()
            came[goal.kind] += (waiting & can[:, 1:]).sum()
        rate: Tensor = (came + 1) / (waited + 10)
        return rate[torch.tensor([goal.kind for goal in self.wanted])]


def may_have_to_wait(layout: Layout, goal: Subgoal) -> bool:
    """Whether a subgoal is not always to be had: places of onions and dishes and where soups are served always are."""
    return layout.terrain(goal.cell) == COUNTER or goal.kind not in (FETCH_ONION, FETCH_DISH, SERVE)


def _ways(layout: Layout) -> Tensor:
    """`[P * F, 6, 5]`: where each action leads from each pose and partner's cell, by what the partner does."""
    F = len(layout.floor)
    states = start_states(layout, 4 * F * F)
    states[:, POSE[0]] = torch.arange(4 * F).repeat_interleave(F).to(states.dtype)
    states[:, POSE[1]] = (4 * torch.arange(F)).repeat(4 * F).to(states.dtype)
    after = successors(layout, states).view(len(states), NUM_ACTIONS, NUM_ACTIONS, -1)[:, :, list(_PARTNER)]
    return after[..., POSE[0]].long() * F + cells(after)[..., 1]
