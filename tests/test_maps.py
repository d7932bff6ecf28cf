from __future__ import annotations

import torch
from matplotlib.colors import LogNorm

from bsdr_torch.maps import map_figure
from bsdr_torch.worlds.gridworld import GridWorld

WORLD = GridWorld.load("two_rooms")


def test_a_panel_for_the_world_the_cost_and_each_person_on_one_scale() -> None:
    states = torch.arange(13.0)
    figure = map_figure(WORLD, states, {"ann": states + 1, "bob": states * 10 + 1}, "people")
    panels = [axis for axis in figure.axes if axis.get_title()]
    assert [axis.get_title() for axis in panels] == ["two_rooms", "cost c(s)", "β(s), ann", "β(s), bob"]
    images = [axis.images[0] for axis in panels[1:]]
    assert images[1].get_clim() == images[2].get_clim() == (1.0, 121.0)
    assert isinstance(images[1].norm, LogNorm)
    assert float(images[0].get_array().max()) == 12.0


def test_beta_that_is_not_positive_is_shown_on_a_plain_scale() -> None:
    figure = map_figure(WORLD, torch.ones(13), {"ann": torch.arange(13.0) - 3})
    image = next(axis for axis in figure.axes if axis.get_title() == "β(s), ann").images[0]
    assert not isinstance(image.norm, LogNorm)
    assert image.get_clim() == (-3.0, 9.0)
