from __future__ import annotations

import pytest
import torch

from bsdr_torch.data.decisions import UNRECORDED
from bsdr_torch.kitchens.habit import HabitNetwork, encode_history, history_width, turn_history
from bsdr_torch.worlds.overcooked import INTERACT, NUM_SYMMETRIES, STAY, turn_action_values


@pytest.fixture
def history() -> torch.Tensor:
    past = torch.randint(7, (500, 12), generator=torch.Generator().manual_seed(0))
    past[:100] = STAY  # nobody moved: there is no direction to go by
    past[100:200, :11] = INTERACT
    return past


def test_habit_turns_with_the_person(history: torch.Tensor) -> None:
    torch.manual_seed(0)
    habit = HabitNetwork(12, num_humans=2, num_layouts=1, hidden=[16], dropout=0.0)
    who, where = torch.arange(len(history)) % 2, torch.zeros(len(history), dtype=torch.int64)
    here = habit(history, who, where)
    # Somebody who went in one direction only cannot tell a mirrored past from their own.
    moved = history < STAY
    both_ways = (moved & (history < 2)).any(1) & (moved & (history >= 2)).any(1)
    assert 200 < int(both_ways.sum()) < 500
    for symmetry in range(NUM_SYMMETRIES):
        turned = turn_history(history, torch.full((len(history),), symmetry))
        there = habit(turned, who, where)
        torch.testing.assert_close(there.pause, here.pause)
        torch.testing.assert_close(there.log_attention, here.log_attention)
        expected = turn_action_values(here.log_base, symmetry)
        torch.testing.assert_close(there.log_base[both_ways], expected[both_ways])


def test_habit_knows_people_and_kitchens_only_if_told(history: torch.Tensor) -> None:
    torch.manual_seed(0)
    habit = HabitNetwork(12, num_humans=2, num_layouts=2, hidden=[16], dropout=0.0)
    people, kitchens = torch.zeros(len(history), dtype=torch.int64), torch.zeros(len(history), dtype=torch.int64)
    here = habit(history, people, kitchens).pause
    assert not torch.allclose(here, habit(history, people + 1, kitchens).pause)
    assert not torch.allclose(here, habit(history, people, kitchens + 1).pause)
    stranger = HabitNetwork(12, num_humans=0, num_layouts=0, hidden=[16], dropout=0.0)
    assert torch.equal(stranger(history, people, kitchens).pause, stranger(history, people + 1, kitchens + 1).pause)


def test_a_long_history_is_summed_up() -> None:
    past = torch.full((2, 20), STAY)
    past[1] = UNRECORDED
    past[0, 10] = INTERACT
    features = encode_history(past)
    assert features.shape == (2, history_width(20))
    shares, since_action, since_interact, changes = features[:, 56:].split([6, 21, 21, 1], 1)
    torch.testing.assert_close(shares[0], torch.tensor([0, 0, 0, 0, 19 / 20, 1 / 20]))
    assert since_action.argmax(1).tolist() == [10, 20]
    assert since_interact.argmax(1).tolist() == [10, 20]
    torch.testing.assert_close(changes[:, 0], torch.tensor([2 / 19, 0.0]))
    assert encode_history(past[:, :4]).shape == (2, history_width(4)) == (2, 28)


def test_attention_depends_on_the_past_and_without_one_it_is_full(history: torch.Tensor) -> None:
    who, where = torch.zeros(len(history), dtype=torch.int64), torch.zeros(len(history), dtype=torch.int64)
    seeing = HabitNetwork(12, num_humans=2, num_layouts=1, hidden=[16], dropout=0.0)
    here = seeing(history, who, where).log_attention
    assert float(here.detach().std()) > 0
    assert torch.equal(here, seeing(history, who + 1, where - 1).log_attention)  # it is everybody's, everywhere
    blind = HabitNetwork(0, num_humans=2, num_layouts=1, hidden=[16], dropout=0.0)
    assert not bool(blind(history[:, :0], who, where).log_attention.any())
