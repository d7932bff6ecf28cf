"""What the deciding player sees of a kitchen, and everything that may come next.

The features of a state are turned so that the ego looks north. So whatever is learned from them is the same in all four
turns of a kitchen, without any augmentation; only the mirror is left (`mirrored`).
"""

from __future__ import annotations

from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from bsdr_torch.kitchens.feature_memory import FeatureMemory
from bsdr_torch.worlds.overcooked import (
    FEATURE_NAMES,
    NUM_ACTIONS,
    STAY,
    Layout,
    ego_first,
    encode_features,
    feature_sources,
    inverse,
    orientations,
    permute_features,
    successors,
    turn_action_values,
    turn_actions,
    unique_states,
)

NUM_FEATURES = len(FEATURE_NAMES)
_ROWS_AT_ONCE = 4096
_MIRROR = 4  # exchanges east and west, and leaves north where it is


class View(NamedTuple):
    """What somebody sees, turned so that they look north.

    Attributes:
        features: `[N, F]`.
        symmetry: `[N]`, how the kitchen was turned.
    """

    features: Tensor
    symmetry: Tensor


class Places(NamedTuple):
    """N decisions in a kitchen and where they lead, each different state once.

    Attributes:
        states: `[U, W]`, the different states, with the deciding player first.
        own: `[N]`, where each decision is made: an index into the U.
        following: `[N, 6, 6]`, where each own and each action of the partner lead.
        no_op: `[N, 6]` bool: the action does what STAY would do, if the partner stays.
    """

    states: Tensor
    own: Tensor
    following: Tensor
    no_op: Tensor


class Outlook(NamedTuple):
    """N decisions in a kitchen and all their successors, each different state once.

    Attributes:
        states: `[U, W]`, the different states, with the deciding player first.
        features: `[U, F]` of them, seen by the deciding player, who looks north.
        own: `[N]`, where each decision is made: an index into the U.
        following: `[N, 6, 6]`, where each own and each action of the partner lead.
        no_op: `[N, 6]` bool: the action does what STAY would do, if the partner stays.
        partner: what the partner sees in each decision, N rows.
    """

    states: Tensor
    features: Tensor
    own: Tensor
    following: Tensor
    no_op: Tensor
    partner: View


def view(layout: Layout, states: Tensor, seats: int | Tensor, remember: bool = False) -> View:
    """What the players in `seats` see of `states [N, W]`; `remember` it where the same states come again."""
    first = ego_first(states, seats)
    features = _remembered(layout, states.device)(first) if remember else _facing_north(layout, first)
    return View(features, _to_north(first))


def outlook(layout: Layout, states: Tensor, seats: Tensor, remember: bool = False) -> Outlook:
    """What the players in `seats [N]`, who decide in `states [N, W]`, see and can bring about; see `view`."""
    at = places(layout, states, seats)
    features = view(layout, at.states, 0, remember).features
    return Outlook(at.states, features, at.own, at.following, at.no_op, view(layout, states, 1 - seats, remember))


def places(layout: Layout, states: Tensor, seats: Tensor) -> Places:
    """Where the players in `seats [N]`, who decide in `states [N, W]`, are and can get to."""
    N, W = states.shape
    following = successors(layout, states).view(N, NUM_ACTIONS, NUM_ACTIONS, W)
    following = torch.where((seats == 1).view(-1, 1, 1, 1), following.transpose(1, 2), following)
    rows = torch.cat([states, following.reshape(-1, W)])
    actors = torch.cat([seats, seats.repeat_interleave(NUM_ACTIONS**2)])
    unique, index = unique_states(ego_first(rows, actors))
    to = index[N:].view(N, NUM_ACTIONS, NUM_ACTIONS)
    return Places(unique, index[:N], to, no_op=to[:, :, STAY] == to[:, STAY, STAY, None])


def mirrored(features: Tensor) -> Tensor:
    """The features `[..., F]` in the mirrored kitchen, where the ego still looks north."""
    return features.index_select(-1, _mirror_sources(features.device))


@cache
def mirrored_pairs(device: torch.device) -> tuple[Tensor, Tensor]:
    """The places of the features that the mirror exchanges with one another, each pair once."""
    pairs = [(place, source) for place, source in enumerate(feature_sources(_MIRROR)) if place < source]
    one, other = torch.tensor(pairs, device=device).T
    return one, other


def mirrored_actions(values: Tensor) -> Tensor:
    """Numbers by action `[..., 6]` -> the same in the mirrored kitchen."""
    return turn_action_values(values, _MIRROR)


def turned_back(values: Tensor, symmetry: Tensor) -> Tensor:
    """Numbers by action `[N, 6]` in kitchens that were turned by `symmetry [N]` -> the same by compass."""
    return turn_action_values(values, _inverses(values.device)[symmetry])


def turned_actions(actions: Tensor, symmetry: Tensor) -> Tensor:
    """Actions `[N]` by compass -> the same as seen by somebody whose kitchen was turned by `symmetry [N]`."""
    return turn_actions(actions, symmetry)


def _facing_north(layout: Layout, states: Tensor) -> Tensor:
    """Features of states whose player 0 is the ego, turned so that the ego looks north."""
    pieces = torch.split(states, _ROWS_AT_ONCE)  # what is made on the way stays near the processor
    return torch.cat([permute_features(encode_features(layout, rows, 0), _to_north(rows)) for rows in pieces])


def _to_north(states: Tensor) -> Tensor:
    """`[N]`: how kitchens are to be turned, so that player 0 looks north."""
    return _turn_north(states.device)[orientations(states)[:, 0]]


@cache
def _remembered(layout: Layout, device: torch.device) -> FeatureMemory:
    return FeatureMemory(partial(_facing_north, layout))


@cache
def _turn_north(device: torch.device) -> Tensor:
    """`[4]`: the turn that takes each direction to the north."""
    north = 0
    turns = torch.arange(4)
    images = torch.stack([turn_actions(torch.tensor(range(4)), int(turn)) for turn in turns])  # [turn, direction]
    return (images == north).int().argmax(0).to(device)


@cache
def _mirror_sources(device: torch.device) -> Tensor:
    return torch.tensor(feature_sources(_MIRROR), device=device)


@cache
def _inverses(device: torch.device) -> Tensor:
    return torch.tensor([inverse(symmetry) for symmetry in range(8)], device=device)
