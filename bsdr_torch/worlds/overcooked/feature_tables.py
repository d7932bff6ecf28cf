"""The planning features that need no search in a state, written out as lookup tables of a kitchen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from bsdr_torch.worlds.overcooked import layouts
from bsdr_torch.worlds.overcooked.dynamics import step
from bsdr_torch.worlds.overcooked.layouts import (
    CONTENTS,
    DIRECTIONS,
    MAX_INGREDIENTS,
    Layout,
    ingredients_of,
    relative_rewards,
)
from bsdr_torch.worlds.overcooked.paths import floor_neighbours, walking_distances
from bsdr_torch.worlds.overcooked.rules import ACTIONS, EVENTS, INTERACT, STAY
from bsdr_torch.worlds.overcooked.state import (
    DISH,
    FIRST_POT,
    HELD,
    IDLE,
    NOTHING,
    NUM_OBJECTS,
    OBJECT_NAMES,
    POSE,
    SOUP,
    PotCode,
    pot_codes,
    state_dtype,
    thing_columns,
    width,
)

NEAR = 8  # the number of moves or steps at which nearness is a half
POT_GOALS = ("empty_pot", "part_pot", "full_pot", "cooking_pot", "ready_pot")
COUNTER_GOALS = (
    "free_counter",
    "counter_onion",
    "counter_tomato",
    "counter_dish",
    "counter_soup",
)  # as objects are numbered
# What one may want to walk to: dispensers, the serving place, pots by what is going on in them (a full pot does not
# cook yet), and counters by what lies on them.
GOALS = ("onions", "tomatoes", "dishes", "serving", *POT_GOALS, *COUNTER_GOALS)
FACED = ("floor", "wall", *GOALS)
_BY_DIRECTION = ("looks", "blocked", "partner_at", "no_op", "partner_away")
STANCE = (*(f"{fact}_{direction}" for fact in _BY_DIRECTION for direction in ACTIONS[:4]), "faces_partner")
HAND_FACTS = (*OBJECT_NAMES[: DISH + 2], "onions_in", "tomatoes_in", "worth")
# Of a pot: whether it exists, does not cook, cooks, is ready; shares of three ingredients; NEAR / (NEAR + steps until
# it is ready), 0 if it does not cook; what the contents are worth as they are, and at best with what can be added.
POT_FACTS = ("exists", "idle", "cooking", "ready", "onions_in", "tomatoes_in", "soon", "worth", "worth_at_best")
RECIPE_NAMES = tuple("_".join(ingredients_of(recipe)) for recipe in range(1, len(CONTENTS)))

# What is faced, as far as it matters to an INTERACT: floor, wall, the four fixed places, a pot that does not cook by
# its contents, a pot that cooks, one that is ready, and a counter by what lies on it.
_FIXED_THINGS, _COOKING, _READY = 6, 10, 11
_FIRST_POT_THING = _FIXED_THINGS
_FIRST_COUNTER_THING = _FIRST_POT_THING + len(CONTENTS) + 2
_NUM_THINGS = _FIRST_COUNTER_THING + len(COUNTER_GOALS)
_POT_KIND, _COUNTER_KIND = _FIXED_THINGS, _FIXED_THINGS + 1


@dataclass(frozen=True)
class FeatureTables:
    """Features of parts of a state; `planning_features` looks them up and joins them.

    P poses, F floor cells, T targets as in `paths`. A pair is `pose * F + the partner's floor cell`.

    Attributes:
        paths: `[F + 1, P, T, 5]` int8, the walking distances.
        partner_paths: `[F + 1, P, T, 1]` int8, those of now alone.
        pot_goals: `[pot codes]` uint8, which of `POT_GOALS` a pot is.
        goal_numbers: `[5, 1, 1]` uint8, 0 to 4: the numbers of `POT_GOALS`, and of `COUNTER_GOALS`.
        stances: `[pairs, 21]`, `STANCE`.
        looks: `[4, 4]`, the orientation.
        pots: `[pot codes + 1, 9]`, `POT_FACTS`; the last row is for a pot that does not exist.
        recipes: `[10]`, what the soups are worth, and whether one starts to cook by hand.
        faced_kind: `[P]` int32, what kind of thing is faced.
        faced_column: `[P]` int64, the column of the state that tells more of it.
        things: `[kinds, values]` int32, what is faced, by its kind and what is in the column.
        doings: `[things * objects, 37]`, by what is faced and held: `FACED`, `HAND_FACTS`, the `EVENTS` of an INTERACT,
            and whether there would be any.
        partner_doings: `[things * objects, 21]`, the same without `FACED`.
        num_pots: How many pots there are.
        num_cells: F.
    """

    paths: Tensor
    partner_paths: Tensor
    pot_goals: Tensor
    goal_numbers: Tensor
    stances: Tensor
    looks: Tensor
    pots: Tensor
    recipes: Tensor
    faced_kind: Tensor
    faced_column: Tensor
    things: Tensor
    doings: Tensor
    partner_doings: Tensor
    num_pots: int
    num_cells: int


@cache
def feature_tables(layout: Layout, device: torch.device) -> FeatureTables:
    """The tables of a kitchen on a device; made once."""
    paths = walking_distances(layout)
    kinds, columns = _faced(layout)
    things = _things(layout)
    worth = relative_rewards(layout)
    doings = _doings(layout, kinds, columns, things)
    return FeatureTables(
        paths=paths.to(device),
        partner_paths=paths[..., :1].contiguous().to(device),
        pot_goals=torch.tensor(
            [_pot_goal(layout, code) for code in pot_codes(layout)], dtype=torch.uint8, device=device
        ),
        goal_numbers=torch.arange(5, dtype=torch.uint8, device=device).view(-1, 1, 1),
        stances=_stances(layout).to(device),
        looks=torch.eye(4, device=device),
        pots=torch.tensor([*(_pot_facts(layout, worth, code) for code in pot_codes(layout)), [0.0] * 9], device=device),
        recipes=torch.tensor([*worth[1:], float(layout.rules == 2020)], device=device),
        faced_kind=torch.tensor(kinds, dtype=torch.int32, device=device),
        faced_column=torch.tensor(columns, device=device),
        things=things.to(device),
        doings=doings.to(device),
        partner_doings=doings[:, len(FACED) :].contiguous().to(device),
        num_pots=len(layout.pots),
        num_cells=len(layout.floor),
    )


def _pot_goal(layout: Layout, code: PotCode) -> int:
    if code.tick != IDLE:
        return POT_GOALS.index("ready_pot" if code.tick == layout.cook_times[code.contents] else "cooking_pot")
    ingredients = sum(CONTENTS[code.contents])
    return POT_GOALS.index("full_pot" if ingredients == MAX_INGREDIENTS else "part_pot" if ingredients else "empty_pot")


def _counter_goal(thing: int) -> int:
    return COUNTER_GOALS.index("free_counter" if thing == NOTHING else f"counter_{OBJECT_NAMES[thing]}")


def _hand_facts(worth: tuple[float, ...], thing: int) -> list[float]:
    contents = max(0, thing - SOUP)
    onions, tomatoes = CONTENTS[contents]
    names = OBJECT_NAMES[: DISH + 2]
    kind = [float(OBJECT_NAMES[thing] == name) for name in names]
    return [*kind, onions / MAX_INGREDIENTS, tomatoes / MAX_INGREDIENTS, worth[contents]]


def _pot_facts(layout: Layout, worth: tuple[float, ...], code: PotCode) -> list[float]:
    contents, tick = code
    onions, tomatoes = CONTENTS[contents]
    left = layout.cook_times[contents] - tick
    return [
        1.0,
        float(tick == IDLE),
        float(tick != IDLE and left > 0),
        float(tick != IDLE and left == 0),
        onions / MAX_INGREDIENTS,
        tomatoes / MAX_INGREDIENTS,
        0.0 if tick == IDLE else NEAR / (NEAR + left),
        worth[contents],
        worth[contents] if tick != IDLE else max(worth[recipe] for recipe in _possible(layout, contents)),
    ]


def _possible(layout: Layout, contents: int) -> list[int]:
    """The recipes that a pot which does not cook may still become, with what the kitchen dispenses."""
    onions, tomatoes = CONTENTS[contents]
    possible = [contents]
    for recipe, (more_onions, more_tomatoes) in enumerate(CONTENTS):
        added = more_onions - onions, more_tomatoes - tomatoes
        supplied = all(
            number == 0 or (number > 0 and layout.cells(place))
            for number, place in zip(added, (layouts.ONIONS, layouts.TOMATOES), strict=True)
        )
        cooks = layout.rules == 2020 or MAX_INGREDIENTS in (more_onions, more_tomatoes)
        if supplied and cooks:
            possible.append(recipe)
    return possible


def _stances(layout: Layout) -> Tensor:
    """`[P * F, 21]`: `STANCE` for each pose and cell of the partner."""
    floor = torch.tensor(layout.floor)
    poses, others = 4 * len(floor), torch.arange(len(floor))
    there = torch.tensor(floor_neighbours(layout)).repeat_interleave(4, 0).unsqueeze(1)
    looks = torch.eye(4).repeat(len(floor), 1).unsqueeze(1).expand(poses, len(floor), 4)
    blocked = (there < 0).float().expand_as(looks)
    partner_at = (there == others.view(1, -1, 1)).float()
    offset = floor.unsqueeze(0) - floor.repeat_interleave(4, 0).unsqueeze(1)
    away = (offset.unsqueeze(2) * torch.tensor(DIRECTIONS)).sum(3).clamp(min=0)
    no_op = looks * (blocked + partner_at)
    faces_partner = (looks * partner_at).sum(2, keepdim=True)
    return torch.cat([looks, blocked, partner_at, no_op, away / (NEAR + away), faces_partner], dim=2).flatten(0, 1)


def _faced(layout: Layout) -> tuple[list[int], list[int]]:
    """The kind of thing that each pose faces, and its column; any column, if it has none of its own."""
    fixed = (layouts.FLOOR, layouts.COUNTER, layouts.ONIONS, layouts.TOMATOES, layouts.DISHES, layouts.SERVING)
    columns = thing_columns(layout)
    kinds = [
        fixed.index(layout.terrain(cell))
        if cell not in columns
        else _POT_KIND
        if cell in layout.pots
        else _COUNTER_KIND
        for cell in layout.faced
    ]
    return kinds, [columns.get(cell, FIRST_POT) for cell in layout.faced]


def _things(layout: Layout) -> Tensor:
    """`[8 kinds, values]` int32: what is faced."""
    codes = pot_codes(layout)
    things = torch.arange(8, dtype=torch.int32).view(-1, 1).repeat(1, max(len(codes), NUM_OBJECTS))
    for value, code in enumerate(codes):
        goal = POT_GOALS[_pot_goal(layout, code)]
        stage = {"cooking_pot": _COOKING, "ready_pot": _READY}.get(goal, code.contents)
        things[_POT_KIND, value] = _FIRST_POT_THING + stage
    for value in range(NUM_OBJECTS):
        things[_COUNTER_KIND, value] = _FIRST_COUNTER_THING + _counter_goal(value)
    return things


def _doings(layout: Layout, kinds: list[int], columns: list[int], things: Tensor) -> Tensor:
    """`[things * objects, 37]`, found by an INTERACT with an example of each thing, holding each object."""
    states = torch.zeros((_NUM_THINGS, NUM_OBJECTS, width(layout)), dtype=state_dtype(layout))
    faced = torch.zeros((_NUM_THINGS, NUM_OBJECTS, len(FACED)))
    for thing in range(_NUM_THINGS):
        kind, value = (int(place) for place in (things == thing).nonzero()[0])
        # What this kitchen does not have, nobody looks up: any pose will do.
        pose = kinds.index(kind) if kind in kinds else 0
        states[thing, :, POSE[0]] = pose
        states[thing, :, POSE[1]] = 4 * int(pose < 4)  # anywhere else
        states[thing, :, HELD[0]] = torch.arange(NUM_OBJECTS).to(states.dtype)
        if kind in (_POT_KIND, _COUNTER_KIND) and kind in kinds:
            states[thing, :, columns[pose]] = value
        faced[thing, :, FACED.index(_thing_name(layout, thing, value))] = 1
    joint_actions = torch.tensor([[INTERACT, STAY]]).repeat(_NUM_THINGS * NUM_OBJECTS, 1)
    _, _, events = step(layout, states.flatten(0, 1), joint_actions)
    done = (events[:, :1] >> torch.arange(len(EVENTS)) & 1).float()
    worth = relative_rewards(layout)
    hands = torch.tensor([_hand_facts(worth, thing) for thing in range(NUM_OBJECTS)]).repeat(_NUM_THINGS, 1)
    return torch.cat([faced.flatten(0, 1), hands, done, done.amax(1, keepdim=True)], dim=1)


def _thing_name(layout: Layout, thing: int, value: int) -> str:
    if thing < _FIXED_THINGS:
        return FACED[thing]
    if thing < _FIRST_COUNTER_THING:
        return POT_GOALS[_pot_goal(layout, pot_codes(layout)[value])]
    return COUNTER_GOALS[thing - _FIRST_COUNTER_THING]
