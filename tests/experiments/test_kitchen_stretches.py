from __future__ import annotations

import pytest
import torch

from bsdr_torch.experiments.kitchen_stretches import (
    FETCH_DISH,
    FETCH_ONION,
    KINDS,
    LONGEST,
    POT_ONION,
    PUT_DOWN,
    WAIT,
    is_open,
    outcomes,
    stretches,
    subgoals,
)
from bsdr_torch.experiments.subgoal_plans import may_have_to_wait
from bsdr_torch.worlds.overcooked import EVENTS, INTERACT, STAY, ego_first, step
from bsdr_torch.worlds.overcooked.state import HELD, POSE
from tests.experiments.played_games import random_games

GAMES = random_games("cramped_room")
PARTS = (GAMES.time >= 200).to(torch.int8)
PEOPLE = [person for pair in GAMES.players for person in pair]
STRETCHES = stretches(GAMES, PARTS, PEOPLE)


def cut_one_by_one() -> list[tuple[int, int, int, int, int]]:
    """Game, seat, first step, length and kind, found by walking through the games."""
    _, _, events = step(GAMES.layout, GAMES.states, GAMES.actions.long())
    kinds = {"onion_pickup": FETCH_ONION, "dish_pickup": FETCH_DISH, "onion_potted": POT_ONION}
    found = []
    for seat in (0, 1):
        for game in range(len(GAMES.games)):
            first = 0
            for t in range(300):
                bits = int(events[300 * game + t, seat])
                if t in (0, 200):
                    first = t
                if bits or t - first == LONGEST - 1:
                    names = [name for number, name in enumerate(EVENTS) if bits >> number & 1]
                    drops = any(name.endswith("_drop") for name in names)
                    kind = (
                        PUT_DOWN if drops else next((kinds[n] for n in names if n in kinds), WAIT if not bits else -1)
                    )
                    found.append((game, seat, first, t - first + 1, kind))
                    first = t + 1
    return found


def test_stretches_are_those_found_by_walking_through_the_games() -> None:
    expected = cut_one_by_one()
    assert len(expected) == len(STRETCHES.length)
    assert {kind for *_, kind in expected} >= {FETCH_ONION, FETCH_DISH, POT_ONION, PUT_DOWN, WAIT}
    for row, (game, seat, first, length, kind) in enumerate(expected):
        steps = slice(300 * game + first, 300 * game + first + length)
        assert (int(STRETCHES.game[row]), int(STRETCHES.seat[row])) == (game, seat)
        assert PEOPLE[int(STRETCHES.human[row])] == GAMES.players[game][seat]
        assert int(STRETCHES.length[row]) == length
        assert kind in (-1, int(STRETCHES.kind[row]))
        assert torch.equal(STRETCHES.states[row, :length], ego_first(GAMES.states[steps], seat))
        assert torch.equal(STRETCHES.actions[row, :length], GAMES.actions[steps, seat].long())
        before = int(STRETCHES.last[row, 0])
        assert before == (6 if first == 0 else int(GAMES.actions[steps.start - 1, seat]))


DONE = {
    "fetch onion": "onion_pickup",
    "fetch dish": "dish_pickup",
    "pot onion": "onion_potted",
    "plate soup": "soup_pickup",
    "put down": "onion_drop",
}


@pytest.mark.parametrize("name", ["cramped_room", "forced_coordination"])
def test_an_interact_does_what_is_wanted_exactly_where_that_is_open(name: str) -> None:
    games = random_games(name, games=8, seed=1)
    people = [person for pair in games.players for person in pair]
    found = stretches(games, torch.zeros(len(games), dtype=torch.int8), people)
    wanted = [goal for goal in subgoals(games.layout, found, 1) if goal.hands < 2]
    assert {KINDS[goal.kind] for goal in wanted} >= {"fetch onion", "put down"}
    was_open = set()
    for goal in wanted:
        poses = [pose for pose, cell in enumerate(games.layout.faced) if cell == goal.cell]
        states = games.states[games.states[:, POSE[1]] >> 2 != poses[0] >> 2].clone()
        states[:, POSE[0]], states[:, HELD[0]] = poses[0], goal.hands
        joint = torch.tensor([[INTERACT, STAY]]).expand(len(states), -1)
        _, _, events = step(games.layout, states, joint)
        done = (events[:, 0] & (1 << EVENTS.index(DONE[KINDS[goal.kind]]))) != 0
        assert torch.equal(done, is_open(games.layout, goal, states))
        was_open |= {(may_have_to_wait(games.layout, goal), bool(value)) for value in done}
    assert was_open == {(False, True), (True, True), (True, False)}


def test_rare_places_are_no_subgoals() -> None:
    common, every = (subgoals(GAMES.layout, STRETCHES, least) for least in (10, 1))
    assert set(common) < set(every)
    ended = outcomes(GAMES.layout, common, STRETCHES)
    assert bool((torch.bincount(ended, minlength=len(common) + 2)[: len(common)] >= 10).all())
    assert bool(((ended == len(common)) == (STRETCHES.kind == WAIT)).all())
    assert bool((ended == len(common) + 1).any())
