"""Kitchen states as a short vector: where everything is, by the ego's own ways through the kitchen.

One width for all kitchens, and nothing that names a cell: a place is known by how many moves away it is, and by which
of the four moves lead there. So what is learned in one kitchen can be used in another. Features whose name ends in a
direction (`_north`, `_south`, `_east`, `_west`) change places when the kitchen is turned, the others stay as they are
(`symmetries.permute_features`).
"""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor

from bsdr_torch.worlds.overcooked.feature_tables import (
    COUNTER_GOALS,
    FACED,
    GOALS,
    HAND_FACTS,
    NEAR,
    POT_FACTS,
    RECIPE_NAMES,
    STANCE,
    FeatureTables,
    feature_tables,
)
from bsdr_torch.worlds.overcooked.layouts import Layout
from bsdr_torch.worlds.overcooked.paths import FAR, FIXED_PLACES
from bsdr_torch.worlds.overcooked.rules import ACTIONS, EVENTS
from bsdr_torch.worlds.overcooked.state import FIRST_POT, HELD, NUM_OBJECTS, POSE, check_kitchen, ego_first

POT_SLOTS = 2  # the pots that are described one by one, the ego's nearest first
LONG_DETOUR = 8  # a detour of so many moves is as good as no way
ROWS_AT_ONCE = 8192  # so that what is made on the way stays near the processor, and small

_OWN_GOALS = (*GOALS, "handover")
_DIRECTIONS = ACTIONS[:4]

# The groups of features, in the order of the vector:
#   near       NEAR / (NEAR + moves until the ego faces the nearest such thing), 0 if there is none in reach.
#              A handover is a free counter, as far away as both players' ways to it are long.
#   reach      1 if there is one in reach
#   detour     extra moves because the partner stands in the way, / LONG_DETOUR; 1 if it is longer or no way is left
#   partner_*  the same of the partner, with the ego in the way
#   toward     by how many moves each move brings the ego nearer, as if the partner were not there
#   around     the same with the partner in the way
#   stance     where the ego looks; which moves run into something, into the partner, or change nothing; how far
#              away the partner is in each direction, n / (NEAR + n); whether the ego faces the partner
#   hand       what the ego holds, and of soups the ingredients and the worth beside that of the best recipe
#   facing     what the ego faces
#   interact   what an INTERACT would do now (`EVENTS`), and whether it would do anything
#   pot        `POT_FACTS` of the POT_SLOTS pots that are nearest to the ego, then to the partner
#   lying      how many lie on counters, n / (2 + n)
#   recipes    what each soup is worth beside the best one, and 1 if one starts to cook by hand (the rules of 2020):
#              the same in all states of a kitchen
_GROUPS: dict[str, tuple[str, ...]] = {
    "near": (*_OWN_GOALS, "partner"),
    "partner_near": GOALS,
    "reach": (*_OWN_GOALS, "partner"),
    "partner_reach": GOALS,
    "detour": _OWN_GOALS,
    "partner_detour": GOALS,
    "toward": tuple(f"{goal}_{direction}" for goal in (*_OWN_GOALS, "partner") for direction in _DIRECTIONS),
    "around": tuple(f"{goal}_{direction}" for goal in _OWN_GOALS for direction in _DIRECTIONS),
    "stance": STANCE,
    "partner_looks": _DIRECTIONS,
    "facing": FACED,
    "hand": HAND_FACTS,
    "interact": (*EVENTS, "anything"),
    "partner_hand": HAND_FACTS,
    "partner_interact": (*EVENTS, "anything"),
    "pot": tuple(f"{slot}_{fact}" for slot in range(POT_SLOTS) for fact in ("near", "partner_near", *POT_FACTS)),
    "lying": COUNTER_GOALS[1:],
    "recipes": (*RECIPE_NAMES, "start_by_hand"),
}
FEATURE_NAMES: tuple[str, ...] = tuple(f"{group}_{name}" for group, names in _GROUPS.items() for name in names)


def _slices() -> dict[str, slice]:
    ends = list(accumulate(map(len, _GROUPS.values())))
    return {group: slice(end - len(_GROUPS[group]), end) for group, end in zip(_GROUPS, ends, strict=True)}


# Where each group is: `features[:, FEATURE_GROUPS["near"]]`.
FEATURE_GROUPS: dict[str, slice] = _slices()

# `[D][4]`: the places of those features that there are four of, to the north, south, east and west. All others are
# invariant: they stay as they are when the kitchen is turned.
DIRECTED_FEATURES: tuple[tuple[int, ...], ...] = tuple(
    tuple(range(place, place + 4)) for place, name in enumerate(FEATURE_NAMES) if name.endswith(f"_{_DIRECTIONS[0]}")
)


def encode_features(layout: Layout, states: Tensor, seat: int | Tensor) -> Tensor:
    """States as planning features, `[N, F]` float32, F = `len(FEATURE_NAMES)`, all of them in [-2, 1].

    Args:
        layout: The kitchen.
        states: `[N, W]`, packed as in `state`.
        seat: Who is the ego: 0 or 1 for all, or `[N]` integers.

    Example:
        >>> from bsdr_torch.worlds.overcooked import load_layout, start_states
        >>> kitchen = load_layout("cramped_room")
        >>> features = encode_features(kitchen, start_states(kitchen), seat=1)
        >>> features[0, FEATURE_NAMES.index("toward_onions_east")]  # one turn, and the onions are in front
        tensor(1.)
    """
    check_kitchen(layout, states)
    tables = feature_tables(layout, states.device)
    states = ego_first(states, seat)
    features = torch.empty((len(states), len(FEATURE_NAMES)), device=states.device)
    for first in range(0, len(states), ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        _write_features(tables, states[rows], features[rows])
    return features


def _write_features(tables: FeatureTables, states: Tensor, features: Tensor) -> None:
    """Write the features `[N, F]` of states `[N, W]` whose player 0 is the ego."""
    (ego, partner), (hand, partner_hand) = ([states[:, column].int() for column in pair] for pair in (POSE, HELD))
    slots = states[:, FIRST_POT:].t().contiguous()
    pots = slots[: tables.num_pots].int()
    pot_goals = tables.pot_goals.index_select(0, pots.flatten()).view(pots.shape)
    counter_goals = slots[tables.num_pots :].clamp(max=len(COUNTER_GOALS) - 1)
    other_goals = [pot_goals != tables.goal_numbers, counter_goals != tables.goal_numbers]
    hidden = [(other.view(torch.int8) * FAR)[:, :, None, None] for other in other_goals]
    own, partners = _distances(tables.paths, ego, partner), _distances(tables.partner_paths, partner, ego)
    own_goals = [*_nearest(own, hidden), _handover(own, partners, hidden), _meeting(own)]
    _write_ways(features, torch.cat(own_goals), torch.cat(_nearest(partners, hidden)))
    counts = len(counter_goals) - other_goals[1][1:].sum(1, dtype=torch.int16).t()
    doing, partner_doing = _doing(tables, states, ego, hand), _doing(tables, states, partner, partner_hand)
    parts = {
        ("stance", "stance"): tables.stances.index_select(0, torch.add(partner >> 2, ego, alpha=tables.num_cells)),
        ("partner_looks", "partner_looks"): tables.looks.index_select(0, partner & 3),
        ("facing", "interact"): tables.doings.index_select(0, doing),
        ("partner_hand", "partner_interact"): tables.partner_doings.index_select(0, partner_doing),
        ("pot", "pot"): _nearest_pots(tables, own, partners, pots),
        ("lying", "lying"): counts / (2 + counts),
        ("recipes", "recipes"): tables.recipes,
    }
    for groups, part in parts.items():
        features[:, _span(*groups)] = part


def _write_ways(features: Tensor, goals: Tensor, partner_goals: Tensor) -> None:
    """Write the groups near to around, from distances `[G, M, 2, N]` of the ego and of the partner."""
    now, partner_now = goals[:, 0], partner_goals[:, 0]
    progress = goals[:, :1] - goals[:, 1:]
    parts = [
        *(now[:, 0], partner_now[:, 0]),
        *(now[:-1, 1] - now[:-1, 0], partner_now[:, 1] - partner_now[:, 0]),
        *(progress[:, :, 0].flatten(0, 1), progress[:-1, :, 1].flatten(0, 1)),
    ]
    rows = torch.cat(parts).t().contiguous()  # turned while they are bytes, which is faster than as floats
    near, detour, hints = _span("near", "partner_near"), _span("detour", "partner_detour"), _span("toward", "around")
    first_extra, first_hint = near.stop, near.stop + detour.stop - detour.start
    in_reach = (rows[:, :first_extra] < FAR).float()
    features[:, near] = in_reach * NEAR / (rows[:, :first_extra] + float(NEAR))
    features[:, _span("reach", "partner_reach")] = in_reach
    features[:, detour] = rows[:, first_extra:first_hint].clamp(max=LONG_DETOUR) / LONG_DETOUR
    features[:, hints] = rows[:, first_hint:]


def _span(first: str, last: str) -> slice:
    """Where the groups from the first to the last are."""
    return slice(FEATURE_GROUPS[first].start, FEATURE_GROUPS[last].stop)


def _distances(paths: Tensor, walker: Tensor, other: Tensor) -> Tensor:
    """`[T, 5 or 1, 2, N]` int8 moves to each target: now and after each move; without and with the other in the way."""
    worlds, poses, targets, moves = paths.shape
    rows = torch.cat([walker + (worlds - 1) * poses, torch.add(walker, other >> 2, alpha=poses)])
    found = paths.view(-1, targets * moves).index_select(0, rows)
    return found.t().contiguous().view(targets, moves, 2, len(walker))


def _nearest(distances: Tensor, hidden: list[Tensor]) -> list[Tensor]:
    """`[T, M, 2, N]` to targets -> `[1, M, 2, N]` each to the nearest that is one of `GOALS` (the first are four)."""
    fixed, pots = len(FIXED_PLACES), hidden[0].shape[1]
    slots = distances[fixed : fixed + pots], distances[fixed + pots : -1]
    return [
        distances[:fixed],
        *(_least(at | others) for at, kinds in zip(slots, hidden, strict=True) for others in kinds),
    ]


def _handover(own: Tensor, partners: Tensor, hidden: list[Tensor]) -> Tensor:
    """`[1, 5, 2, N]`: how long both players' ways to the best free counter are together."""
    counters = slice(len(FIXED_PLACES) + hidden[0].shape[1], -1)
    both = (own[counters].view(torch.uint8) + partners[counters].view(torch.uint8)).clamp_(max=FAR).view(torch.int8)
    return _least(both | hidden[1][COUNTER_GOALS.index("free_counter")])


def _meeting(own: Tensor) -> Tensor:
    """`[1, 5, 2, N]`: how far it is to the partner, who is only there where they are an obstacle."""
    return own[-1:, :, 1:].expand(-1, -1, 2, -1)


def _least(distances: Tensor) -> Tensor:
    """`[slots, M, 2, N]` -> `[1, M, 2, N]`, `FAR` if there are no slots."""
    if not len(distances):
        return distances.new_full((1, *distances.shape[1:]), FAR)
    return distances.amin(0, keepdim=True)


def _doing(tables: FeatureTables, states: Tensor, pose: Tensor, hand: Tensor) -> Tensor:
    """`[N]`: what the player faces and holds, as a row of `tables.doings`."""
    faced = states.gather(1, tables.faced_column.index_select(0, pose).unsqueeze(1)).squeeze(1)
    kind = tables.faced_kind.index_select(0, pose)
    thing = tables.things.view(-1).index_select(0, torch.add(faced, kind, alpha=tables.things.shape[1]))
    return torch.add(hand, thing, alpha=NUM_OBJECTS)


def _nearest_pots(tables: FeatureTables, own: Tensor, partners: Tensor, pots: Tensor) -> Tensor:
    """`[N, POT_SLOTS * 11]`: the pots, ordered by distance.

    The order is by everything that is told of a pot, so that pots which tie are told alike: an order that knows
    the pots' places would change when the kitchen is turned.
    """
    places = slice(len(FIXED_PLACES), len(FIXED_PLACES) + len(pots))
    keys = (own[places, 0, 0].int() << 24) + (partners[places, 0, 0].int() << 16) + pots
    missing = (FAR << 24) + (FAR << 16) + len(tables.pots) - 1
    keys = torch.nn.functional.pad(keys, (0, 0, 0, max(0, POT_SLOTS - len(keys))), value=missing)
    if len(pots) > 1:
        keys = keys.sort(0).values
    keys = keys[:POT_SLOTS].t()
    ways = torch.stack([keys >> 24, (keys >> 16) & 0xFF], dim=2)
    near = (ways < FAR) * NEAR / (NEAR + ways)
    facts = tables.pots.index_select(0, (keys & 0xFFFF).flatten()).view(*keys.shape, len(POT_FACTS))
    return torch.cat([near, facts], dim=2).flatten(1)
