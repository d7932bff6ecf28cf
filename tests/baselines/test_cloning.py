from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import nll_loss

from bsdr_torch.baselines.cloning import Cloning, turn_inputs
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.errors import InputError
from bsdr_torch.kitchens.predicting import fit
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import NUM_SYMMETRIES, turn_action_values


@pytest.fixture(scope="module")
def data(prepared_2020: Path) -> KitchenPeople:
    return KitchenPeople(str(prepared_2020), layouts=["cramped_room", "counter_circuit"])


def network(data: KitchenPeople, **settings: object) -> Cloning:
    """An untrained one."""
    torch.manual_seed(0)
    return Cloning(data.specs, data.humans, data.named, **settings).eval()  # type: ignore[arg-type]


def trained(data: KitchenPeople, seed: int, max_epochs: int, **settings: object) -> Cloning:
    torch.manual_seed(seed)
    return fit(Cloning(data.specs, data.humans, data.named, **settings), data, max_epochs)  # type: ignore[arg-type]


def test_a_network_learns_what_follows_what(prepared_2020: Path) -> None:
    data = KitchenPeople(str(prepared_2020), layouts=["cramped_room", "counter_circuit"], batch_size=32)
    for table in data._tables.values():
        table.actions.copy_((table.history[:, 0] + 1) % 6)
    model = trained(data, 0, max_epochs=15, kitchen=False, history=2)
    steps = data.steps("test")["cramped_room"]
    assert nll_loss(model.action_log_probs(steps), steps.actions) < 0.3


def test_the_same_seed_gives_the_same_network(data: KitchenPeople) -> None:
    steps = data.steps("test")["cramped_room"]
    first, again, other = (
        trained(data, seed, max_epochs=1, history=2, symmetric=True).action_log_probs(steps) for seed in (0, 0, 1)
    )
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert not torch.allclose(first, other)


def test_a_symmetric_network_predicts_turned_actions_in_turned_kitchens(data: KitchenPeople) -> None:
    model = network(data, history=4, symmetric=True)
    inputs = model.encode(data.steps("test")["counter_circuit"])
    here = model.log_probs(inputs)
    torch.testing.assert_close(here.exp().sum(1), torch.ones(len(here)))
    for symmetry in range(NUM_SYMMETRIES):
        there = model.log_probs(turn_inputs(inputs, torch.full_like(inputs.humans, symmetry)))
        torch.testing.assert_close(there, turn_action_values(here, symmetry))
    plain = network(data, history=4)
    turned = plain.log_probs(turn_inputs(inputs, torch.full_like(inputs.humans, 1)))
    assert not torch.allclose(turned, turn_action_values(plain.log_probs(inputs), 1), atol=1e-3)


def test_habit_sees_own_actions_but_not_the_kitchen(data: KitchenPeople) -> None:
    steps = data.steps("test")["cramped_room"]
    elsewhere = steps._replace(states=steps.states.flip(0), seats=1 - steps.seats)
    otherwise = steps._replace(history=(steps.history + 1) % 6)
    habit, cloning = network(data, kitchen=False, history=8), network(data)
    assert torch.equal(habit.action_log_probs(steps), habit.action_log_probs(elsewhere))
    assert not torch.allclose(habit.action_log_probs(steps), habit.action_log_probs(otherwise))
    assert not torch.allclose(cloning.action_log_probs(steps), cloning.action_log_probs(elsewhere))
    assert torch.equal(cloning.action_log_probs(steps), cloning.action_log_probs(otherwise))


def test_only_a_network_with_identity_tells_people_apart(data: KitchenPeople) -> None:
    steps = data.steps("test")["cramped_room"]
    stranger = steps._replace(humans=torch.full_like(steps.humans, POPULATION))
    assert torch.equal(*(network(data).action_log_probs(batch) for batch in (steps, stranger)))
    assert not torch.allclose(*(network(data, identity=True).action_log_probs(batch) for batch in (steps, stranger)))


def test_a_kitchen_that_tests_only_is_not_told_by_name(prepared_2020: Path) -> None:
    new = KitchenPeople(str(prepared_2020), protocol="layout", held_out="cramped_room")
    assert new.named == []


def test_other_kitchens_and_short_histories_are_refused(data: KitchenPeople) -> None:
    steps = data.steps("test")["cramped_room"]
    with pytest.raises(InputError, match=r"forced: not a kitchen of this model, which has cramped_room"):
        network(data).action_log_probs(steps._replace(layout="forced"))
    with pytest.raises(InputError, match="sees 33 past actions, the data has 32: give KitchenPeople history=33"):
        network(data, history=33).action_log_probs(steps)


def test_training_without_a_validation_part_is_refused(prepared_2020: Path) -> None:
    with pytest.raises(InputError, match="give validation > 0"):
        trained(KitchenPeople(str(prepared_2020), validation=0.0), 0, max_epochs=1)


def test_an_interrupted_training_is_not_a_result(data: KitchenPeople, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Cloning, "validation_step", interrupt)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        trained(data, 0, max_epochs=1)
