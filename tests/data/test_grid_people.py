from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bsdr_torch.data.grid_people import RecordedPeople, RolloutData, SimulatedPeople, Truth, simulate
from bsdr_torch.data.rollouts import write_rollouts
from bsdr_torch.errors import InputError
from bsdr_torch.worlds.gridworld import GridWorld


def all_chunks(data: RolloutData) -> list:
    return list(data.train_dataloader())


def test_chunks_hold_every_training_rollout_once() -> None:
    data = SimulatedPeople(["meadow"], humans=7, rollouts=3, held_out=1, humans_per_chunk=2)
    chunks = all_chunks(data)
    assert [len(chunk.humans) for chunk in sorted(chunks, key=lambda c: int(c.humans[0]))] == [2, 2, 2, 1]
    assert sorted(torch.cat([chunk.humans for chunk in chunks]).tolist()) == list(range(7))
    rows = torch.cat([torch.cat([c.humans[c.rollouts.human][:, None], c.rollouts.states], 1) for c in chunks])
    train = data.parts["meadow"].train
    expected = torch.cat([train.human[:, None], train.states], 1)
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, expected.tolist()))
    assert {chunk.num_chunks for chunk in chunks} == {4}
    assert {chunk.total_actions for chunk in chunks} == {len(train.steps().state)}


def test_the_order_of_chunks_depends_on_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        loader = SimulatedPeople(["two_rooms"], humans=16, humans_per_chunk=1, seed=seed).train_dataloader()
        loader.sampler.set_epoch(epoch)
        return [int(chunk.humans[0]) for chunk in loader]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)


def test_simulated_people_are_the_same_for_the_same_seed() -> None:
    one, again, other = (SimulatedPeople(["two_rooms"], seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.parts["two_rooms"].test.states, again.parts["two_rooms"].test.states)
    assert not torch.equal(one.parts["two_rooms"].train.states, other.parts["two_rooms"].train.states)


def test_careful_people_take_the_cheap_way() -> None:
    world = GridWorld.load("two_terrains")
    truth = Truth(torch.tensor([0.0, 1.0]), torch.tensor([[1.0, 100.0], [1.0, 0.01]]))
    rollouts = simulate(world, truth, 200, torch.Generator().manual_seed(0))
    mud = world.reward_features[rollouts.states[:, 5:20], 1].mean(1)
    assert float(mud[rollouts.human == 0].mean()) < 0.05
    assert float(mud[rollouts.human == 1].mean()) > 0.4


def test_recorded_people_are_split_by_rollout_of_each_human(tmp_path: Path) -> None:
    world = GridWorld.load("two_rooms")
    truth = Truth(torch.ones(2), torch.ones(3, world.rationality_features.shape[1]))
    rollouts = simulate(world, truth, 10, torch.Generator().manual_seed(0))
    write_rollouts(tmp_path / "r.parquet", {"two_rooms": rollouts}, ["a", "b", "c"])
    data = RecordedPeople(str(tmp_path / "r.parquet"), ["two_rooms"], validation=0.2, test=0.3)
    parts = data.parts["two_rooms"]
    assert [torch.bincount(part.human).tolist() for part in parts] == [[5] * 3, [2] * 3, [3] * 3]
    whole = torch.cat([part.states for part in parts])
    assert sorted(map(tuple, whole.tolist())) == sorted(map(tuple, rollouts.states[:, : whole.shape[1]].tolist()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"worlds": []}, "at least one world"),
        ({"worlds": ["meadow", "maze"]}, "one model needs the same ones"),
        ({"worlds": ["nowhere"]}, "nowhere"),
        ({"humans": 0}, "must be 1 or more"),
        ({"theta_R": [1.0]}, r"theta_R must have shape \(4,\), got \(1,\)"),
        ({"theta_R": [[1.0], [1.0, 2.0]]}, "theta_R must be numbers"),
        ({"theta_beta": [[1.0, 1.0]]}, r"theta_beta must have shape \(20, 2\)"),
        ({"humans_per_chunk": -1}, "humans_per_chunk"),
    ],
)
def test_bad_settings_are_refused_with_a_reason(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        SimulatedPeople(**({"worlds": ["meadow"]} | options))


def test_bad_shares_and_unknown_worlds_are_refused(tmp_path: Path) -> None:
    world = GridWorld.load("two_rooms")
    truth = Truth(torch.ones(2), torch.ones(3, world.rationality_features.shape[1]))
    path = str(tmp_path / "r.parquet")
    write_rollouts(path, {"two_rooms": simulate(world, truth, 2, torch.Generator())}, ["a", "b", "c"])
    with pytest.raises(InputError, match="leave something"):
        RecordedPeople(path, ["two_rooms"], validation=0.5, test=0.5)
    with pytest.raises(InputError, match="'two_rooms' is not among the worlds given: meadow"):
        RecordedPeople(path, ["meadow"])
