from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from bsdr_torch.data.arrow_files import read_columns, write_table
from bsdr_torch.data.grid_people import Truth, simulate
from bsdr_torch.data.rollouts import Rollouts, check_rollouts, read_rollouts, write_rollouts
from bsdr_torch.errors import InputError
from bsdr_torch.worlds.gridworld import GridWorld

HEADER = "world,human,rollout,step,state,action\n"


def people_in(world: str) -> Rollouts:
    grid = GridWorld.load(world)
    widths = grid.reward_features.shape[1], grid.rationality_features.shape[1]
    truth = Truth(torch.rand(widths[0]), torch.rand(2, widths[1]) + 1)
    return simulate(grid, truth, 3, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_files_hold_what_was_written(tmp_path: Path, suffix: str) -> None:
    written = {world: people_in(world) for world in ("meadow", "two_rooms")}
    path = tmp_path / f"rollouts{suffix}"
    write_rollouts(path, written, ["ann", "bob"])
    found, humans = read_rollouts(path)
    assert humans == ["ann", "bob"]
    assert sorted(found) == sorted(written)
    for world, rollouts in written.items():
        length = int((rollouts.states >= 0).sum(1).max())
        assert torch.equal(found[world].human, rollouts.human)
        assert torch.equal(found[world].states, rollouts.states[:, :length])
        assert torch.equal(found[world].actions, rollouts.actions[:, : length - 1])
        assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_steps_are_the_actions_taken() -> None:
    rollouts = Rollouts(torch.tensor([1, 0]), torch.tensor([[3, 4, -1], [5, 6, 7]]), torch.tensor([[2, -1], [0, 1]]))
    steps = rollouts.steps()
    assert steps.state.tolist() == [3, 5, 6]
    assert steps.action.tolist() == [2, 0, 1]
    assert steps.human.tolist() == [1, 0, 0]
    assert steps.step.tolist() == [0, 0, 1]
    assert steps.rollout.tolist() == [0, 1, 1]


@pytest.mark.parametrize("world", ["meadow", "frozen_lake"])
def test_simulated_rollouts_are_possible(world: str) -> None:
    grid = GridWorld.load(world)
    check_rollouts(people_in(world), grid.mdp, grid.horizon, "here")


@pytest.mark.parametrize(
    ("states", "actions", "message"),
    [
        ([0, 99, -1], [0, -1], "rollout 0, step 1: state is 99, but states run from 0 to 12"),
        ([0, 0, -1], [7, -1], "step 0: action is 7"),
        ([0, 12, -1], [4, -1], "action 4 in state 0 cannot lead to state 12"),
        ([0, -1, -1], [4, -1], "an action without a state around it"),
    ],
)
def test_impossible_rollouts_are_refused_with_their_place(states: list, actions: list, message: str) -> None:
    grid = GridWorld.load("two_rooms")
    rollouts = Rollouts(torch.tensor([0]), torch.tensor([states]), torch.tensor([actions]))
    with pytest.raises(InputError, match=f"file: rollout 0.*|{message}") as caught:
        check_rollouts(rollouts, grid.mdp, grid.horizon, "file")
    assert message in str(caught.value)


def test_acting_after_the_end_or_beyond_the_horizon_is_refused() -> None:
    grid = GridWorld.load("two_rooms")
    assert grid.mdp.terminal is not None
    goal = int(grid.mdp.terminal.nonzero()[0])
    after = Rollouts(torch.tensor([0]), torch.tensor([[goal, goal]]), torch.tensor([[4]]))
    with pytest.raises(InputError, match="an action after the world ended"):
        check_rollouts(after, grid.mdp, grid.horizon, "file")
    T = grid.horizon + 1
    long = Rollouts(torch.tensor([0]), torch.zeros(1, T + 1, dtype=torch.int64), torch.full((1, T), 4))
    with pytest.raises(InputError, match="more than 10 actions"):
        check_rollouts(long, grid.mdp, grid.horizon, "file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read as csv"),
        (HEADER, "no rows"),
        ("world,human,rollout,step,state\na,b,0,0,0\n", "column 'action' is missing"),
        (HEADER + "a,b,0,0,zero,1\n", "field state"),
        (HEADER + "a,b,0,0,1,1\na,b,0,1,,1\n", "row 2, field state: the value is missing"),
        (HEADER + "a,b,0,0,1,1\na,b,0,2,1,-1\n", "row 2, field step: expected step 1 of rollout 0, got 2"),
        (HEADER + "a,b,0,0,1,1\na,b,0,0,1,-1\n", "row 2, field step"),
        (HEADER + "a,b,0,0,1,1\n", "row 1, field action: 1 on the last row of a rollout"),
        (HEADER + "a,b,0,0,1,-1\na,b,0,1,1,-1\n", "row 1, field action: -1 on an inner row"),
    ],
)
def test_bad_files_are_refused_with_row_and_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rollouts.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_rollouts(path)
    assert str(path) in str(caught.value)


def test_missing_and_foreign_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_rollouts(tmp_path / "nothing.csv")
    foreign = tmp_path / "rollouts.parquet"
    foreign.write_bytes(b"not a parquet file")
    with pytest.raises(InputError, match="cannot be read as parquet"):
        read_rollouts(foreign)
    with pytest.raises(InputError, match=r"\.parquet or \.csv"):
        write_table(pa.table({"a": [1]}), tmp_path / "table.xlsx")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.csv"
    write_table(pa.table({"a": [1]}), path)

    def full_disk(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("pyarrow.csv.write_csv", full_disk)
    with pytest.raises(InputError, match="No space left"):
        write_table(pa.table({"a": [2]}), path)
    assert read_columns(path, {"a": pa.int64()})["a"].to_pylist() == [1]
    assert [p.name for p in tmp_path.iterdir()] == ["table.csv"]
