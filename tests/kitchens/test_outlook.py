from __future__ import annotations

import torch

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.kitchens.outlook import mirrored, outlook, turned_actions, turned_back, view
from bsdr_torch.worlds.overcooked import FEATURE_NAMES, NUM_ACTIONS, STAY, ego_first, step, turn_layout, turn_states


def test_actions_lead_where_the_rules_say(people_2020: KitchenPeople, steps: Decisions) -> None:
    layout = people_2020.kitchens[steps.layout].layout
    ahead = outlook(layout, steps.states, steps.seats)
    assert torch.equal(ahead.states[ahead.own], ego_first(steps.states, steps.seats))
    for own in range(NUM_ACTIONS):
        for partner in range(NUM_ACTIONS):
            pair = torch.tensor([own, partner]).expand(len(steps.seats), 2)
            joint = torch.where(steps.seats[:, None] == 1, pair.flip(1), pair)
            there = ego_first(step(layout, steps.states, joint)[0], steps.seats)
            assert torch.equal(ahead.states[ahead.following[:, own, partner]], there)
    assert bool(ahead.no_op[:, STAY].all())
    same = ahead.following[:, :, STAY] == ahead.following[:, STAY, STAY, None]
    assert torch.equal(ahead.no_op, same)
    assert 0 < float(ahead.no_op.float().mean()) < 1


def test_each_state_is_there_once(people_2020: KitchenPeople, steps: Decisions) -> None:
    ahead = outlook(people_2020.kitchens[steps.layout].layout, steps.states, steps.seats)
    assert len(torch.unique(ahead.states, dim=0)) == len(ahead.states) < 37 * len(steps.seats)


def test_everybody_looks_north_and_turned_kitchens_look_alike(people_2020: KitchenPeople, steps: Decisions) -> None:
    layout = people_2020.kitchens[steps.layout].layout
    here = view(layout, steps.states, steps.seats)
    assert bool((here.features[:, FEATURE_NAMES.index("stance_looks_north")] == 1).all())
    for symmetry in range(8):
        turned = turn_states(layout, steps.states, symmetry)
        there = view(turn_layout(layout, symmetry), turned, steps.seats).features
        torch.testing.assert_close(there, mirrored(here.features) if symmetry >= 4 else here.features)


def test_turning_back_undoes_turning(steps: Decisions) -> None:
    symmetry = torch.arange(len(steps.actions)) % 8
    marks = torch.nn.functional.one_hot(turned_actions(steps.actions, symmetry), NUM_ACTIONS).float()
    assert torch.equal(turned_back(marks, symmetry).argmax(1), steps.actions)
