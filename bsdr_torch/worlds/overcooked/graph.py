"""Every state of a kitchen that can be reached within limits, numbered, with where each joint action leads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.mdp import TabularMDP
from bsdr_torch.worlds.overcooked.dynamics import JOINT_ACTIONS, successors, who_interacts
from bsdr_torch.worlds.overcooked.key_index import KeyIndex
from bsdr_torch.worlds.overcooked.layouts import Layout
from bsdr_torch.worlds.overcooked.limits import (
    Limits,
    chances,
    interactions,
    objects_laid,
    seen_by,
    with_chance,
)
from bsdr_torch.worlds.overcooked.records import start_states
from bsdr_torch.worlds.overcooked.rules import NUM_ACTIONS
from bsdr_torch.worlds.overcooked.state import (
    POSE,
    check_kitchen,
    check_states,
    hash_states,
    state_dtype,
    width,
)

_ROWS = 2**14  # states expanded at once: their successors fit the cache


@dataclass(frozen=True, eq=False)
class KitchenGraph:
    """The reachable states of a kitchen and where joint actions lead.

    Attributes:
        layout: The kitchen.
        limits: What the enumeration was limited to.
        states: `[S, W]`, packed, in the order of a breadth-first search. A pot that cooks has tick 1 in a graph
            with `timers="cooking"`.
        next_state: `[S, 36, C]` int32, by `JOINT_ACTIONS` and outcome of chance; C = 1 with exact timers.
        chance: `[S, C]` float32, the probability of each outcome, or None where C = 1.
        start: `[S]` float32, the distribution of the first state: uniform over the starts.

    Example:
        >>> from bsdr_torch.worlds.overcooked import enumerate_kitchen, load_layout
        >>> graph = enumerate_kitchen(load_layout("forced_coordination"))
        >>> graph.num_states
        300
        >>> graph.mdp(seat=0, partner_policy=torch.full((300, 6), 1 / 6)).num_outcomes
        6
    """

    layout: Layout
    limits: Limits
    states: Tensor
    next_state: Tensor
    chance: Tensor | None
    start: Tensor

    @property
    def num_states(self) -> int:
        """S."""
        return len(self.states)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.states.device

    def index(self, states: Tensor) -> Tensor:
        """`[N, W]` -> `[N]` int64: the numbers of packed states, -1 for those outside the graph."""
        check_kitchen(self.layout, states)
        wanted = seen_by(self.layout, self.limits, states.to(self.device))
        number = self._key_index.find(_keys(wanted)).long()
        same = (self.states.index_select(0, number.clamp(min=0)) == wanted).all(dim=1)
        return number.masked_fill(~same, -1)

    def share_outside(self, states: Tensor) -> float:
        """What share of packed states `[N, W]` is outside the graph."""
        if not len(states):
            raise InputError("the share of no states is not defined: give at least one")
        return float((self.index(states) < 0).double().mean())

    def outcomes(self, number: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers `[N]` -> what each joint action earns `[N, 36]` and does `[N, 36, 2]` (bits of `EVENTS`) there."""
        _, rewards, events = interactions(self.layout, self.limits, self.states.index_select(0, number))
        who = who_interacts(self.device)
        return rewards.index_select(1, who), events.index_select(1, who)

    def mdp(self, seat: int, partner_policy: Tensor, top_k: int | None = None) -> TabularMDP:
        """The world of the player in `seat` while the partner acts by `partner_policy`.

        Args:
            seat: 0 or 1, which player the ego is.
            partner_policy: `[S, 6]`, the probabilities of the partner's actions.
            top_k: Keep only the partner's `top_k` most likely actions, their probabilities made to sum to 1.

        Returns:
            An MDP of 6 actions and K = 6 C outcomes (`top_k` C if cut). Which outcomes happen does not depend on the
            ego's action, so `probability` is `[S, 1, K]`.
        """
        S = self.num_states
        if seat not in (0, 1):
            raise InputError(f"seat must be 0 or 1, got {seat!r}")
        if tuple(partner_policy.shape) != (S, NUM_ACTIONS):
            raise InputError(
                f"partner_policy must hold {NUM_ACTIONS} probabilities for each of {S} states, got shape "
                f"{tuple(partner_policy.shape)}"
            )
        if top_k is not None and not 1 <= top_k <= NUM_ACTIONS:
            raise InputError(f"top_k must be from 1 to {NUM_ACTIONS}, got {top_k!r}")
        next_state = self.next_state.view(S, NUM_ACTIONS, NUM_ACTIONS, -1)
        if seat == 1:
            next_state = next_state.transpose(1, 2)
        probability = partner_policy.to(self.device)
        if top_k is not None and top_k < NUM_ACTIONS:
            likely = probability.topk(top_k, dim=1)
            probability = likely.values / likely.values.sum(dim=1, keepdim=True)
            chosen = likely.indices.view(S, 1, top_k, 1).expand(-1, NUM_ACTIONS, -1, next_state.shape[3])
            next_state = next_state.gather(2, chosen)
        if self.chance is not None:
            probability = (probability.unsqueeze(2) * self.chance.to(probability.dtype).unsqueeze(1)).flatten(1)
        return TabularMDP(
            next_state=next_state.reshape(S, NUM_ACTIONS, -1),
            start=self.start.to(probability.dtype),
            probability=probability.unsqueeze(1),
        )

    def to(self, device: torch.device | str) -> KitchenGraph:
        """The same graph on another device (itself, if it is there already)."""
        if torch.device(device) == self.device:
            return self
        chance = None if self.chance is None else self.chance.to(device)
        return replace(
            self,
            states=self.states.to(device),
            next_state=self.next_state.to(device),
            chance=chance,
            start=self.start.to(device),
        )

    @cached_property
    def _key_index(self) -> KeyIndex:
        index = KeyIndex(self.device)
        for rows in torch.split(self.states, 2**20):
            index.add(_keys(rows))
        return index


def enumerate_kitchen(
    layout: Layout,
    limits: Limits | None = None,
    starts: Tensor | None = None,
    device: torch.device | str = "cpu",
) -> KitchenGraph:
    """Every state that can be reached from `starts` `[N, W]` (the layout's start if not given) within the limits.

    `load_graph` does the same and remembers the result on disk.
    """
    limits = limits or Limits()
    starts = checked_starts(layout, limits, starts).to(device)
    search = _Search(layout, limits, starts.device)
    search.add(starts)
    number = search.index.find(_keys(starts)).long()
    done, depth = 0, 0
    while done < len(search.index):
        frontier = range(done, len(search.index))
        for first in range(frontier.start, frontier.stop, _ROWS):
            search.expand(first, min(first + _ROWS, frontier.stop), depth)
        done, depth = frontier.stop, depth + 1
    start = torch.zeros(done, device=starts.device)
    start.index_add_(0, number, torch.full((len(number),), 1 / len(number), device=starts.device))
    states = search.states[:done].clone()
    return KitchenGraph(layout, limits, states, search.next_state(), chances(layout, limits, states), start)


def checked_starts(layout: Layout, limits: Limits, starts: Tensor | None) -> Tensor:
    """The starts of an enumeration as the graph sees them: different ones, in the order given."""
    if starts is None:
        starts = start_states(layout)
    check_states(layout, starts)
    if starts.ndim != 2 or not len(starts):
        raise InputError(f"starts must be at least one packed state [N, W], got shape {tuple(starts.shape)}")
    laid = objects_laid(layout, starts)
    if int(laid.max()) > limits.max_objects:
        row = int((laid > limits.max_objects).nonzero()[0])
        raise InputError(
            f"{layout.name}: start {row} has {int(laid[row])} objects on counters, and max_objects is "
            f"{limits.max_objects}: raise it, or leave this start out"
        )
    starts = seen_by(layout, limits, starts)
    _, first = KeyIndex(starts.device).add(_keys(starts))
    return starts[first]


class _Search:
    """A breadth-first search: the states so far, their numbers, and the successors of those expanded."""

    def __init__(self, layout: Layout, limits: Limits, device: torch.device) -> None:
        self.layout, self.limits = layout, limits
        self.index = KeyIndex(device)
        self.states = torch.empty((_ROWS, width(layout)), dtype=state_dtype(layout), device=device)
        self.edges: list[Tensor] = []

    def add(self, rows: Tensor) -> None:
        """Number rows that may be new, by their keys."""
        _, first = self.index.add(_keys(rows))
        self._append(rows[first])

    def expand(self, first: int, last: int, depth: int) -> None:
        """Find and number the successors of states first..last-1, all of them `depth` steps from a start."""
        states = self.states[first:last]
        kitchens, _, _ = interactions(self.layout, self.limits, states)
        kitchens = with_chance(self.layout, self.limits, states, kitchens)
        who, moves = who_interacts(states.device), _moves(self.layout, states.device)
        pair = states[:, POSE[0]].int() * moves.poses + states[:, POSE[1]].int()
        rows = kitchens.index_select(1, who)
        for player in (0, 1):
            rows[..., POSE[player]] = moves.pose[player].index_select(0, pair).unsqueeze(2)
        # A successor's key is the sum of those of its poses and its things, and each of them takes few values.
        keys = _keys_of_things(kitchens).index_select(1, who) + moves.key.index_select(0, pair).unsqueeze(2)
        flat = rows.view(-1, rows.shape[3])
        number, fresh = self.index.add(keys.view(-1))
        self._append(flat.index_select(0, fresh))
        if len(self.index) > self.limits.max_states:
            raise InputError(
                f"{self.layout.name} has more than {self.limits.max_states:,} states within {depth + 1} steps of its "
                f"start, with {self.limits.max_objects} objects on counters and {self.limits.timers} timers: raise "
                'max_states, allow fewer objects, or use timers="cooking"'
            )
        if not torch.equal(self.states.index_select(0, number), flat):
            raise RuntimeError(f"{self.layout.name}: two different states have the same 64-bit key")
        self.edges.append(number.view(rows.shape[:3]))

    def next_state(self) -> Tensor:
        """`[S, 36, C]`: all successors, moved out of the search piece by piece, so that they are never held twice."""
        C = self.edges[0].shape[2]
        joined = self.edges[0].new_empty((len(self.index), len(JOINT_ACTIONS), C))
        last = len(joined)
        while self.edges:
            edges = self.edges.pop()
            joined[last - len(edges) : last] = edges
            last -= len(edges)
        return joined

    def _append(self, rows: Tensor) -> None:
        count = len(self.index)
        if count > len(self.states):
            larger = self.states.new_empty((max(count, 2 * len(self.states)), self.states.shape[1]))
            larger[: count - len(rows)] = self.states[: count - len(rows)]
            self.states = larger
        self.states[count - len(rows) : count] = rows


@dataclass(frozen=True)
class _Moves:
    """For each pair of poses `pose0 * poses + pose1`, after each joint action: both poses and the key of the pair."""

    poses: int
    pose: tuple[Tensor, Tensor]
    key: Tensor


@cache
def _moves(layout: Layout, device: torch.device) -> _Moves:
    poses = 4 * len(layout.floor)
    pair = torch.arange(poses * poses, device=device)
    states = torch.zeros((len(pair), width(layout)), dtype=state_dtype(layout), device=device)
    states[:, POSE[0]] = (pair // poses).to(states.dtype)
    states[:, POSE[1]] = (pair % poses).to(states.dtype)
    pose0, pose1, key = [], [], []
    for some in torch.split(states, _ROWS):
        following = successors(layout, some)
        pose0.append(following[..., POSE[0]])
        pose1.append(following[..., POSE[1]])
        key.append(_keys_of_poses(following))
    return _Moves(poses, (torch.cat(pose0), torch.cat(pose1)), torch.cat(key))


def _keys(states: Tensor) -> Tensor:
    """`[..., W]` -> `[...]` int64: a hash that is a sum of two."""
    return _keys_of_poses(states) + _keys_of_things(states)


def _keys_of_poses(states: Tensor) -> Tensor:
    alone = torch.zeros_like(states)
    for column in POSE:
        alone[..., column] = states[..., column]
    return hash_states(alone)


def _keys_of_things(states: Tensor) -> Tensor:
    alone = states.clone()
    for column in POSE:
        alone[..., column] = 0
    return hash_states(alone)
