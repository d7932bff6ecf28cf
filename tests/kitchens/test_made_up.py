from __future__ import annotations

import pytest
import torch

from bsdr_torch.kitchens.made_up import made_up_kitchen, made_up_states
from bsdr_torch.worlds.overcooked import (
    Layout,
    cells,
    check_states,
    held_objects,
    load_layout,
    load_package_layout,
    pots_ready,
    step,
)


@pytest.mark.parametrize("like", [load_layout("cramped_room"), load_package_layout("cramped_room")])
def test_made_up_kitchens_can_be_cooked_in(like: Layout) -> None:
    generator = torch.Generator().manual_seed(0)
    grids = set()
    for _ in range(5):
        kitchen = made_up_kitchen(like, generator)  # the constructor checks that the pots can be reached
        assert kitchen.rules == like.rules
        states = made_up_states(kitchen, 300, generator)
        check_states(kitchen, states)
        at = cells(states)
        assert bool((at[:, 0] != at[:, 1]).all())
        assert set(held_objects(states).unique().tolist()) >= {0, 1, 3}
        ready = pots_ready(kitchen, states).float().mean()
        assert 0.05 < float(ready) < 0.5
        step(kitchen, states, torch.randint(6, (300, 2), generator=generator))
        grids.add(kitchen.grid)
    assert len(grids) == 5


def test_some_made_up_kitchens_are_parted_by_a_wall() -> None:
    generator = torch.Generator().manual_seed(0)
    kitchens = [made_up_kitchen(load_layout("cramped_room"), generator) for _ in range(40)]
    walls = [any(all(row[x] != " " for row in kitchen.grid) for x in _inside(kitchen)) for kitchen in kitchens]
    assert 8 <= sum(walls) <= 24


def _inside(kitchen: Layout) -> range:
    """The columns between the first and the last with floor."""
    columns = [x for x, _ in kitchen.floor]
    return range(min(columns), max(columns))
