"""Which steps train a model and which test it: the three protocols of the evaluation contract."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal, get_args

import torch
from torch import Tensor

from bsdr_torch.data.packed_games import PackedGames
from bsdr_torch.errors import InputError

Protocol = Literal["rollout", "human", "layout"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = range(3)

# Of the people, where a data set has no official split.
_TEST_SHARE_OF_PEOPLE = 1 / 3


def split(
    kitchens: Mapping[str, PackedGames], protocol: Protocol, held_out: str | None = None, validation: float = 0.15
) -> dict[str, Tensor]:
    """The part of each joint step, `[J]` int8 indices into `PARTS`, for each kitchen. No chance is involved.

    Args:
        kitchens: all games of a data set.
        protocol: `rollout`: the first two thirds of each game train, the last third tests: the same people.
            `human`: the official split, by pair within a kitchen; without one, a third of the people, who meet nobody
            else, test. `layout`: one kitchen tests, the others train.
        held_out: the kitchen that tests, under `layout`.
        validation: the share of the training part that validates: the end of each game's training steps, or, under
            `human`, whole games.
    """
    if not 0 <= validation < 1:
        raise InputError(f"validation must be a share from 0 to less than 1, got {validation}")
    if (held_out is not None) != (protocol == "layout"):
        raise InputError(
            f"held_out is the kitchen that tests under the protocol layout, got {held_out!r} and {protocol}"
        )
    if protocol == "human":
        return _by_people(kitchens, validation)
    if held_out is not None and held_out not in kitchens:
        raise InputError(f"held_out: no games on {held_out!r}: choose one of {', '.join(kitchens)}")
    parts = {}
    for name, games in kitchens.items():
        if protocol == "rollout":
            parts[name] = _by_time(games, games.lengths * 2 // 3, validation)
        elif name == held_out:
            parts[name] = torch.full((len(games),), TEST, dtype=torch.int8)
        else:
            parts[name] = _by_time(games, games.lengths, validation)
    return parts


def _by_time(games: PackedGames, training: Tensor, validation: float) -> Tensor:
    """The first `training [G]` steps of each game train, but for the last of them, which validate; others test."""
    validating = torch.round(training * validation).long()
    if validation > 0:
        validating = torch.maximum(validating, (training > 1).long())
    position = torch.arange(len(games)) - games.first[games.game]
    ends_training, ends_validation = (training - validating)[games.game], training[games.game]
    return ((position >= ends_training).to(torch.int8) + (position >= ends_validation).to(torch.int8)).to(torch.int8)


def _by_people(kitchens: Mapping[str, PackedGames], validation: float) -> dict[str, Tensor]:
    by_game: dict[tuple[str, str], int] = {}
    if all(official for games in kitchens.values() for official in games.official):
        for name, games in kitchens.items():
            official = dict(zip(games.games, games.official, strict=True))
            by_game |= {(name, game): TEST for game, part in official.items() if part == "test"}
            # Like those that test, the pairs that validate are new to the kitchen.
            training = [game for game, part in official.items() if part == "train"]
            by_game |= {(name, game): VALIDATION for game in _held_out(training, validation)}
    else:
        group_of = _groups(kitchens)
        groups = sorted(set(group_of.values()))
        tested = _held_out(groups, _TEST_SHARE_OF_PEOPLE)
        if not tested:
            raise InputError(
                "the protocol human needs two groups of people who never met, and everybody in this data met "
                "everybody else, directly or not: use the protocol rollout"
            )
        validating = _held_out([group for group in groups if group not in tested], validation)
        by_game = {
            game: TEST if group in tested else VALIDATION if group in validating else TRAIN
            for game, group in group_of.items()
        }
    return {
        name: torch.tensor([by_game.get((name, game), TRAIN) for game in games.games], dtype=torch.int8)[games.game]
        for name, games in kitchens.items()
    }


def _held_out(names: list[str], share: float) -> set[str]:
    """A share of the names, at least one of two or more; always the same ones, however the names are ordered."""
    if share == 0 or len(names) < 2:
        return set()
    shuffled = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    return set(shuffled[: max(1, min(round(share * len(names)), len(names) - 1))])


def _groups(kitchens: Mapping[str, PackedGames]) -> dict[tuple[str, str], str]:
    """For each game the group of its people: two who met, in any kitchen, are in one group."""
    leader: dict[str, str] = {}

    def find(person: str) -> str:
        while leader.setdefault(person, person) != person:
            person = leader[person]
        return person

    people: dict[tuple[str, str], list[str]] = {}
    for name, games in kitchens.items():
        for game, players, is_human in zip(games.games, games.players, games.is_human, strict=True):
            people[name, game] = [player for player, human in zip(players, is_human, strict=True) if human]
            first, last = sorted(find(person) for person in (people[name, game][0], people[name, game][-1]))
            leader[last] = first
    return {game: find(humans[0]) for game, humans in people.items()}
