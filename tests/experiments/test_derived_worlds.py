from __future__ import annotations

import pytest
import torch

from bsdr_torch.experiments.derived_worlds import redrawn, spread_cells, with_goal, with_landmarks
from bsdr_torch.experiments.simulated import WORLDS
from bsdr_torch.worlds.gridworld import GridWorld


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> GridWorld:
    return GridWorld.load(request.param)


def test_another_goal_changes_where_walks_end_and_nothing_else(world: GridWorld) -> None:
    cells = spread_cells(world, 6, torch.Generator().manual_seed(0))
    assert len(set(cells)) == 6
    moved = [with_goal(world, cell, cells) for cell in cells]
    for new, cell in zip(moved, cells, strict=True):
        assert new.mdp.terminal is not None
        assert new.mdp.terminal.nonzero().flatten().tolist() == [new.state_at(*cell)]
        assert torch.equal(new.cells, world.cells)
        assert torch.equal(new.reward_features, moved[0].reward_features)
        assert (new.reward_features.sum(1) == 1).all()  # no cell is free of cost, where people could wait for ever
        assert not any(new.mdp.start[new.state_at(*other)] for other in cells)


def test_landmarks_have_features_of_their_own(world: GridWorld) -> None:
    cells = spread_cells(world, 4, torch.Generator().manual_seed(1))
    marked = with_landmarks(world, cells)
    assert marked.mdp.terminal is None
    for number, cell in enumerate(cells):
        column = marked.reward_features[:, marked.reward_feature_names.index(f"landmark {number}")]
        assert column.nonzero().flatten().tolist() == [marked.state_at(*cell)]


def test_redrawn_worlds_share_features_and_not_the_map(world: GridWorld) -> None:
    generator = torch.Generator().manual_seed(2)
    first, second = (redrawn(world, name, generator) for name in ("a", "b"))
    assert first.reward_feature_names == world.reward_feature_names
    assert first.rationality_feature_names == world.rationality_feature_names
    assert first.rows != second.rows
