"""Every state of a kitchen that can be reached, numbered, with where each joint action leads.

Limits keep it finite and small, and none of them looks at recorded games:

- At most `max_objects` things lie on counters when a step is over. An INTERACT that would leave one more has no
  effect, and if one of the two players has to give way, it is player 1. All other steps are those of the game; one
  person may even lay a thing down and the other take it in one step, with `max_objects=0`.
- `timers="exact"` keeps every step of cooking. `timers="cooking"` keeps one state of a pot that cooks, and it is
  ready after each step with the probability that makes the expected time right; such a graph leaves
  C = 2^pots outcomes to chance.
- More than `max_states` states are an error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal

import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.mdp import TabularMDP
from bsdr_torch.worlds.overcooked.dynamics import JOINT_ACTIONS, step, successors
from bsdr_torch.worlds.overcooked.key_index import KeyIndex
from bsdr_torch.worlds.overcooked.layouts import Layout
from bsdr_torch.worlds.overcooked.records import start_states
from bsdr_torch.worlds.overcooked.rules import INTERACT, NUM_ACTIONS, STAY
from bsdr_torch.worlds.overcooked.state import (
    FIRST_POT,
    IDLE,
    POSE,
    PotCode,
    check_shape,
    check_states,
    hash_states,
    pot_codes,
    state_dtype,
    width,
)

# Who INTERACTs: nobody, player 0, player 1, both. All else that a joint action can do is to move.
_WHO = ((STAY, STAY), (INTERACT, STAY), (STAY, INTERACT), (INTERACT, INTERACT))
_ROWS = 2**14  # states expanded at once: their successors fit the cache


@dataclass(frozen=True)
class Limits:
    """What keeps a graph finite and small; see the top of this file.

    Attributes:
        max_objects: How many things may lie on counters at a time.
        timers: "exact", or "cooking" for one state of a pot that cooks.
        max_states: How many states are too many.
    """

    max_objects: int = 0
    timers: Literal["exact", "cooking"] = "exact"
    max_states: int = 10_000_000

    def __post_init__(self) -> None:
        if isinstance(self.max_objects, bool) or not isinstance(self.max_objects, int) or self.max_objects < 0:
            raise InputError(f"max_objects must be a whole number, at least 0, got {self.max_objects!r}")
        if self.timers not in ("exact", "cooking"):
            raise InputError(f'timers must be "exact" or "cooking", got {self.timers!r}')
        if not 1 <= self.max_states < 2**31:
            raise InputError(f"max_states must be from 1 to 2^31 - 1, got {self.max_states!r}")


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
        check_shape(self.layout, states)
        wanted = _seen_by(self.layout, self.limits, states.to(self.device))
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
        _, rewards, events = _interactions(self.layout, self.limits, self.states.index_select(0, number))
        who = _who_interacts(self.device)
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
        for rows in self.states.split(2**20):
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
    return KitchenGraph(layout, limits, states, search.next_state(), _chances(layout, limits, states), start)


def checked_starts(layout: Layout, limits: Limits, starts: Tensor | None) -> Tensor:
    """The starts of an enumeration as the graph sees them: different ones, in the order given."""
    if starts is None:
        starts = start_states(layout)
    check_states(layout, starts)
    if starts.ndim != 2 or not len(starts):
        raise InputError(f"starts must be at least one packed state [N, W], got shape {tuple(starts.shape)}")
    laid = _objects_laid(layout, starts)
    if int(laid.max()) > limits.max_objects:
        row = int((laid > limits.max_objects).nonzero()[0])
        raise InputError(
            f"{layout.name}: start {row} has {int(laid[row])} objects on counters, and max_objects is "
            f"{limits.max_objects}: raise it, or leave this start out"
        )
    starts = _seen_by(layout, limits, starts)
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
        kitchens, _, _ = _interactions(self.layout, self.limits, states)
        kitchens = _with_chance(self.layout, self.limits, states, kitchens)
        who, moves = _who_interacts(states.device), _moves(self.layout, states.device)
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


def _interactions(layout: Layout, limits: Limits, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What follows when nobody moves, by `_WHO`: states `[N, 4, W]`, rewards `[N, 4]` and events `[N, 4, 2]`."""
    N, W = states.shape
    actions = torch.tensor(_WHO, device=states.device).repeat(N, 1)
    following, rewards, events = step(layout, states.repeat_interleave(len(_WHO), dim=0), actions)
    too_many = _objects_laid(layout, following).view(N, len(_WHO)) > limits.max_objects
    nobody, only0, only1, both = torch.arange(len(_WHO), device=states.device)
    after0 = torch.where(too_many[:, 1], nobody, only0)
    after1 = torch.where(too_many[:, 2], nobody, only1)
    after_both = torch.where(too_many[:, 3], torch.where(too_many[:, 1], after1, only0), both)
    taken = torch.stack([nobody.expand(N), after0, after1, after_both], dim=1)
    taken = (taken + torch.arange(0, len(_WHO) * N, len(_WHO), device=states.device).unsqueeze(1)).view(-1)
    following = _seen_by(layout, limits, following.index_select(0, taken))
    return (
        following.view(N, len(_WHO), W),
        rewards.index_select(0, taken).view(N, len(_WHO)),
        events.index_select(0, taken).view(N, len(_WHO), 2),
    )


def _objects_laid(layout: Layout, states: Tensor) -> Tensor:
    """`[N, W]` -> `[N]`: how many things lie on counters."""
    return (states[:, FIRST_POT + len(layout.pots) :] != 0).sum(dim=1)


def _seen_by(layout: Layout, limits: Limits, states: Tensor) -> Tensor:
    """`[N, W]` -> `[N, W]`: the states of the graph that stand for these."""
    if limits.timers == "exact":
        return states
    pots = slice(FIRST_POT, FIRST_POT + len(layout.pots))
    states = states.clone()
    states[:, pots] = _cooking(layout, states.device).code[states[:, pots].long()].to(states.dtype)
    return states


def _with_chance(layout: Layout, limits: Limits, states: Tensor, following: Tensor) -> Tensor:
    """`[N, 4, W]` that follow `states` -> `[N, 4, C, W]`: in outcome c, the pots in the bits of c are ready."""
    if limits.timers == "exact":
        return following.unsqueeze(2)
    cooking = _cooking(layout, states.device)
    outcomes = following.unsqueeze(2).repeat(1, 1, 2 ** len(layout.pots), 1)
    for pot, column in enumerate(range(FIRST_POT, FIRST_POT + len(layout.pots))):
        before = states[:, column].long()
        cooks, ready = cooking.probability[before] > 0, cooking.ready[before].to(states.dtype)
        for outcome in range(outcomes.shape[2]):
            if outcome >> pot & 1:
                after = outcomes[:, :, outcome, column]
                outcomes[:, :, outcome, column] = torch.where(cooks.unsqueeze(1), ready.unsqueeze(1), after)
    return outcomes


def _chances(layout: Layout, limits: Limits, states: Tensor) -> Tensor | None:
    """`[S, C]`: the probabilities of the outcomes of `_with_chance`."""
    if limits.timers == "exact":
        return None
    pots = states[:, FIRST_POT : FIRST_POT + len(layout.pots)].long()
    ready = _cooking(layout, states.device).probability[pots]
    chances = torch.ones((len(states), 1), device=states.device)
    for pot in ready.unbind(dim=1):
        chances = torch.cat([chances * (1 - pot).unsqueeze(1), chances * pot.unsqueeze(1)], dim=1)
    return chances


@dataclass(frozen=True)
class _Cooking:
    """For each pot code: the code that stands for it, the code when it is ready, the probability that it is next."""

    code: Tensor
    ready: Tensor
    probability: Tensor


@cache
def _cooking(layout: Layout, device: torch.device) -> _Cooking:
    codes = pot_codes(layout)
    code, ready, probability = [], [], []
    for number, (contents, tick) in enumerate(codes):
        time = layout.cook_times[contents]
        cooks = tick != IDLE and tick < time and time > 1
        code.append(codes.index(PotCode(contents, 1)) if cooks else number)
        ready.append(codes.index(PotCode(contents, time)) if cooks else number)
        # A pot enters with tick 1, so that it is ready after another `time - 1` steps, here on average.
        probability.append(1 / (time - 1) if cooks else 0.0)
    return _Cooking(
        torch.tensor(code, device=device), torch.tensor(ready, device=device), torch.tensor(probability, device=device)
    )


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
    for some in states.split(_ROWS):
        following = successors(layout, some)
        pose0.append(following[..., POSE[0]])
        pose1.append(following[..., POSE[1]])
        key.append(_keys_of_poses(following))
    return _Moves(poses, (torch.cat(pose0), torch.cat(pose1)), torch.cat(key))


@cache
def _who_interacts(device: torch.device) -> Tensor:
    """`[36]`: which of `_WHO` INTERACT in each joint action."""
    return torch.tensor([int(a0 == INTERACT) + 2 * int(a1 == INTERACT) for a0, a1 in JOINT_ACTIONS], device=device)


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
