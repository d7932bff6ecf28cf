from __future__ import annotations

from typing import Any

import pytest
import torch

from bsdr_torch.mdp import TabularMDP


def fields(**changes: Any) -> dict[str, Any]:
    """A valid two-state world with one field changed."""
    return {
        "next_state": torch.tensor([[[0, 1], [1, 1]], [[0, 1], [1, 0]]]),
        "start": torch.tensor([0.5, 0.5]),
        "probability": torch.full((2, 2, 2), 0.5),
    } | changes


def test_a_valid_world_is_taken_as_it_is() -> None:
    mdp = TabularMDP(**fields())
    assert (mdp.num_states, mdp.num_actions, mdp.num_outcomes) == (2, 2, 2)
    assert mdp.next_state.dtype == torch.int32
    assert mdp.to("cpu") is mdp


def test_to_moves_every_tensor() -> None:
    mdp = TabularMDP(**fields(terminal=torch.tensor([False, True]), allowed=torch.ones(2, 2, dtype=torch.bool)))
    moved = mdp.to("meta")
    for name in ("next_state", "start", "probability", "terminal", "allowed"):
        assert getattr(moved, name).device.type == "meta"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"next_state": torch.zeros(2, 2)}, "integer tensor"),
        ({"next_state": torch.zeros(0, 2, 1, dtype=torch.int64)}, "at least one state"),
        ({"next_state": torch.full((2, 2, 2), 2)}, r"next_state\[0, 0, 0\] is 2, but states end at 1"),
        ({"next_state": torch.full((2, 2, 2), -1)}, "is -1"),
        ({"start": torch.tensor([0.5, 0.6])}, "start must be non-negative and sum to 1, got sum 1.1"),
        ({"start": torch.tensor([1.5, -0.5])}, "smallest entry -0.5"),
        ({"start": torch.tensor([torch.nan, 0.5])}, "start"),
        ({"start": torch.ones(3) / 3}, r"start .* shape \(2,\)"),
        ({"probability": torch.full((2, 2, 2), 0.4)}, r"probability\[0, 0\] must be non-negative and sum to 1"),
        ({"probability": None}, "probability is needed"),
        ({"terminal": torch.zeros(3, dtype=torch.bool)}, "terminal must be a bool"),
        ({"allowed": torch.ones(2, 2)}, "allowed must be a bool"),
        ({"allowed": torch.tensor([[True, True], [False, False]])}, "state 1 allows no action"),
    ],
)
def test_a_bad_world_is_refused_with_a_reason(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TabularMDP(**fields(**changes))


def test_a_terminal_state_needs_no_allowed_action() -> None:
    TabularMDP(**fields(allowed=torch.tensor([[True, True], [False, False]]), terminal=torch.tensor([False, True])))
