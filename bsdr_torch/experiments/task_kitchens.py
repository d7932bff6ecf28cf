"""A kitchen as a small world that can be planned in exactly: where one stands and looks, the hands, and the pots.

The partner is not there in person. What the partner does to pots happens by chance, as often as people did it; so does
cooking; and what lies on counters lies there as often as it did. What is left has hundreds or thousands of states
instead of millions, so that a reward can be fitted to each person alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bsdr_torch.data.packed_games import PackedGames
from bsdr_torch.experiments.kitchen_stretches import HANDS, hands
from bsdr_torch.mdp import TabularMDP
from bsdr_torch.worlds.overcooked import (
    INTERACT,
    NUM_ACTIONS,
    Layout,
    counter_objects,
    pot_contents,
    pot_ticks,
    pots_ready,
)
from bsdr_torch.worlds.overcooked.layouts import COUNTER, DISHES, ONIONS, POT, SERVING
from bsdr_torch.worlds.overcooked.paths import floor_neighbours
from bsdr_torch.worlds.overcooked.state import DISH, IDLE, ONION, POSE

EVENTS = ("onion fetched", "dish fetched", "onion potted", "soup plated", "soup served", "put down")
PLACES = ("facing onions", "facing dishes", "facing a pot", "facing the serving place")
STAGES = ("empty", "one onion", "two onions", "cooking", "ready")
_COOKING, _READY = 3, 4
_EMPTY, _ONION, _DISH, _SOUP = range(len(HANDS))
_LYING = (_ONION, _DISH, _SOUP)


class TaskKitchen:
    """The world of somebody in a kitchen of onion soups by the rules of 2019.

    Args:
        games: the kitchen, and games in it.
        rows: `[J]` bool, the joint steps from which it is learned how often things happen by chance.

    Attributes:
        mdp: states are `(pose * 4 + hands) * 5^pots + stages of the pots`, the first pot's in the lowest place.
        events: `[S, len(EVENTS)]`, what an INTERACT is expected to do.
        places: `[S, len(PLACES)]`, what is faced.
        hands: `[S]`, an index into `HANDS`.
        ready: `[S]` bool, whether there is a soup in a pot.
    """

    def __init__(self, games: PackedGames, rows: Tensor) -> None:
        self.layout = games.layout
        P, pots = 4 * len(self.layout.floor), len(self.layout.pots)
        self._orders = len(STAGES) ** torch.arange(pots)
        many = len(STAGES) ** pots
        pose = torch.arange(P).repeat_interleave(len(HANDS) * many)
        held = torch.arange(len(HANDS)).repeat_interleave(many).repeat(P)
        stages = torch.arange(many).repeat(P * len(HANDS))[:, None] // self._orders % len(STAGES)  # [S, pots]
        terrain = [self.layout.terrain(cell) for cell in self.layout.faced]
        faced = {kind: torch.tensor([t == kind for t in terrain])[pose] for kind in (ONIONS, DISHES, POT, SERVING)}
        faced[COUNTER] = torch.tensor([cell in self.layout.counters for cell in self.layout.faced])[pose]
        which = torch.tensor([self.layout.pots.index(c) if c in self.layout.pots else 0 for c in self.layout.faced])
        stage = stages.gather(1, which[pose][:, None]).squeeze(1)

        empty = held == _EMPTY
        happens = {
            "onion fetched": faced[ONIONS] & empty,
            "dish fetched": faced[DISHES] & empty,
            "onion potted": faced[POT] & (held == _ONION) & (stage < _COOKING),
            "soup plated": faced[POT] & (held == _DISH) & (stage == _READY),
            "soup served": faced[SERVING] & (held == _SOUP),
            "put down": faced[COUNTER] & ~empty,
        }
        after = {"onion fetched": _ONION, "dish fetched": _DISH, "soup plated": _SOUP}
        hands_after = held.clone()
        for event, here in happens.items():
            hands_after = torch.where(here, after.get(event, _EMPTY), hands_after)
        changed = (happens["onion potted"] | happens["soup plated"])[:, None] & (
            torch.arange(pots) == which[pose][:, None]
        )
        stages_after = torch.where(changed, (stages + 1) % len(STAGES), stages)

        neighbours = torch.tensor(floor_neighbours(self.layout))[pose // 4]  # [S, 4]
        moved = torch.where(neighbours >= 0, neighbours, (pose // 4)[:, None]) * 4 + torch.arange(4)
        stays = torch.stack([pose, pose], 1)
        poses = torch.cat([moved, stays], 1)  # [S, 6]
        hands_of = held[:, None].repeat(1, NUM_ACTIONS)
        hands_of[:, INTERACT] = hands_after
        pots_of = stages[:, None].repeat(1, NUM_ACTIONS, 1)
        pots_of[:, INTERACT] = stages_after

        self._advance = _advances(games, rows)
        lying = _lying(games, rows)[pose] * (faced[COUNTER] & empty)[:, None]  # [S, 3]
        finds = torch.zeros(len(pose), NUM_ACTIONS, len(_LYING), dtype=torch.float64)
        finds[:, INTERACT] = lying
        chance = self._advance[stages][:, None].expand(-1, NUM_ACTIONS, -1) * (1 - finds.sum(2, keepdim=True))
        nothing = 1 - chance.sum(2, keepdim=True) - finds.sum(2, keepdim=True)
        outcomes = [self._number(poses, hands_of, pots_of)]
        for pot in range(pots):
            later = pots_of.clone()
            later[..., pot] = (later[..., pot] + 1) % len(STAGES)
            outcomes.append(self._number(poses, hands_of, later))
        outcomes += [self._number(poses, torch.full_like(hands_of, thing), pots_of) for thing in _LYING]
        S = len(pose)
        self.mdp = TabularMDP(
            next_state=torch.stack(outcomes, 2),
            start=torch.full((S,), 1 / S, dtype=torch.float64),
            probability=torch.cat([nothing, chance, finds], 2),
        )
        self.events = torch.stack([happens[event] for event in EVENTS], 1).double()
        self.events[:, :2] += lying[:, :2]
        self.hands, self.ready = held, (stages == _READY).any(1)
        self.places = torch.stack([faced[kind] for kind in (ONIONS, DISHES, POT, SERVING)], 1).double()

    def number(self, states: Tensor) -> Tensor:
        """`[N, W]` -> `[N]`: the number of packed states, whose player 0 acts."""
        return self._number(states[:, POSE[0]].long(), hands(states), pot_stages(self.layout, states))

    def rewards(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Of weights `[E + P, B]`: the rewards of states `[S, B]` and of actions `[S, 6, B]`."""
        of_events = (self.events @ weights[: len(EVENTS)])[:, None]
        before = of_events.new_zeros(len(of_events), INTERACT, weights.shape[1])
        return self.places @ weights[len(EVENTS) :], torch.cat([before, of_events], 1)

    def _number(self, pose: Tensor, held: Tensor, stages: Tensor) -> Tensor:
        many = len(STAGES) ** len(self.layout.pots)
        number: Tensor = (pose * len(HANDS) + held) * many + (stages * self._orders).sum(-1)
        return number


def pot_stages(layout: Layout, states: Tensor) -> Tensor:
    """`[N, W]` -> `[N, pots]`: indices into `STAGES`."""
    idle = pot_ticks(layout, states) == IDLE
    cooking = torch.where(pots_ready(layout, states), _READY, _COOKING)
    return torch.where(idle, pot_contents(layout, states), cooking)


def _advances(games: PackedGames, rows: Tensor) -> Tensor:
    """`[5]`: how likely a pot comes to the next stage in a step, without the ego: cooking, or by the partner's hand."""
    stages = pot_stages(games.layout, games.states)
    there = rows[:-1] & rows[1:] & (games.game[1:] == games.game[:-1])
    before, after = stages[:-1][there], stages[1:][there]
    count, came = (torch.zeros(len(STAGES), dtype=torch.float64) for _ in range(2))
    count.index_add_(0, before.flatten(), torch.ones(before.numel(), dtype=torch.float64))
    came.index_add_(0, before.flatten(), (before != after).flatten().double())
    by_partner = torch.tensor([0.5 if stage != "cooking" else 1.0 for stage in STAGES], dtype=torch.float64)
    return by_partner * came / count.clamp(min=1)


def _lying(games: PackedGames, rows: Tensor) -> Tensor:
    """`[P, 3]`: how likely an onion, a dish and a soup are to be found on the counter that is faced in each pose."""
    objects = counter_objects(games.layout, games.states[rows])
    shares = torch.stack([(objects == ONION), (objects == DISH), (objects > DISH)], 2).double().mean(0)
    nowhere = torch.zeros_like(shares[:1])
    counters = games.layout.counters
    number = [counters.index(cell) if cell in counters else len(counters) for cell in games.layout.faced]
    return torch.cat([shares, nowhere])[number]
