from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.kitchens import feature_memory
from bsdr_torch.kitchens.feature_memory import FeatureMemory
from bsdr_torch.kitchens.outlook import outlook


def rows(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.uint8)[:, None].expand(-1, 3).contiguous()


class Counted:
    """A function of states that knows how many it was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, states: Tensor) -> Tensor:
        self.asked += len(states)
        return states.float() * 2


def test_what_was_asked_before_is_not_made_again() -> None:
    of = Counted()
    memory = FeatureMemory(of)
    for states in (rows(5, 3, 9), rows(9, 9, 4), rows(4, 5, 3), rows(200)):
        assert torch.equal(memory(states), states.float() * 2)
    assert of.asked == 3 + 1 + 0 + 1
    assert memory.size == 5


def test_a_full_memory_is_still_right_and_grows_no_more() -> None:
    of = Counted()
    memory = FeatureMemory(of, most_bytes=100)
    for states in (rows(1, 2), rows(*range(100)), rows(1, 2, 98, 99)):
        assert torch.equal(memory(states), states.float() * 2)
    assert memory.num_bytes <= 100
    assert memory.size == 2
    assert of.asked == 2 + 98 + 2


def test_states_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_memory, "hash_states", lambda states: states[:, 0].long() // 10)
    memory = FeatureMemory(Counted())
    for states in (rows(5, 3, 19), rows(3, 5, 12), rows(12, 19)):
        assert torch.equal(memory(states), states.float() * 2)


def test_remembered_outlooks_are_the_same(people_2020: KitchenPeople, steps: Decisions) -> None:
    layout = people_2020.kitchens[steps.layout].layout
    plain = outlook(layout, steps.states, steps.seats)
    for _ in range(2):
        again = outlook(layout, steps.states, steps.seats, remember=True)
        assert torch.equal(plain.features, again.features)
        assert torch.equal(plain.partner.features, again.partner.features)
        assert torch.equal(plain.partner.symmetry, again.partner.symmetry)
