from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.pictures import (
    beta_figure,
    hands,
    liveliest_stretch,
    most_different,
    replay_picture,
    reward_figure,
    scenes,
)
from bsdr_torch.worlds.overcooked import STAY, Layout, check_states, load_layout, start_states, step
from bsdr_torch.worlds.overcooked.state import OBJECT_NAMES


@pytest.fixture(scope="module")
def data(prepared_2020: Path) -> KitchenPeople:
    return KitchenPeople(str(prepared_2020))


@pytest.fixture(scope="module")
def model(data: KitchenPeople) -> KitchenModel:
    torch.manual_seed(0)
    model = KitchenModel(
        data.specs, data.humans, data.named, hidden=[16], habit_hidden=[16], partner_hidden=[16], settling=40
    )
    with torch.no_grad():
        for theta in (model.rationality.raw_theta_beta, model.rationality.raw_theta_R, model.rule.theta_focus):
            theta.normal_()
    return model.eval()


def situations(layout: Layout, many: int = 6) -> Tensor:
    states = start_states(layout, many)
    for _ in range(10):
        states = step(layout, states, torch.randint(6, (many, 2), generator=torch.Generator().manual_seed(1)))[0]
    return states


def test_scenes_are_possible_states_on_every_cell_in_reach() -> None:
    layout = load_layout("forced_coordination")
    found = scenes(layout, situations(layout), held=1)
    check_states(layout, found.states)
    reached = found.mean(torch.ones(len(found.states)))
    own_side = [x < 2 for x, _ in layout.floor]
    if not own_side[layout.floor.index(layout.starts[0])]:
        own_side = [not own for own in own_side]
    assert reached.isfinite().all(1).tolist() == own_side
    assert (found.states[:, 1] == 1).all()


def test_the_mean_is_over_situations_alone() -> None:
    layout = load_layout("cramped_room")
    found = scenes(layout, situations(layout))
    pose = found.states[:, 0].float()
    assert torch.equal(found.mean(pose).flatten(), torch.arange(4.0 * len(layout.floor)))


def test_the_soup_in_hand_is_the_best_of_the_kitchen() -> None:
    assert [OBJECT_NAMES[thing] for thing in hands(load_layout("cramped_room")).values()] == [
        "nothing",
        "onion",
        "dish",
        "soup",
    ]


def test_the_most_different_people_are_found() -> None:
    maps = torch.ones(5, 4, 3)
    maps[2, 1, 0], maps[2, 1, 2] = 2.0, 0.5
    maps[4] = torch.nan
    assert most_different(maps) == (0, 2)


def test_figures_have_a_panel_for_each_thing_and_person(model: KitchenModel) -> None:
    layout = model.layouts["cramped_room"]
    states = situations(layout)
    titles = [axis.get_title() for axis in reward_figure(model, layout, states).axes if axis.get_title()]
    assert len(titles) == 12
    assert titles[1].startswith("reward r, holding an onion")
    assert titles[7].startswith("value V, holding a soup")
    assert titles[8].startswith("focus log λ, holding nothing")
    people = torch.arange(len(model.humans))
    figure = beta_figure(model, layout, states, people)
    panels = [axis for axis in figure.axes if axis.get_title()]
    assert panels[0].get_title().removeprefix("β(s) of ") in model.humans
    shown = panels[0].collections[0].get_array()
    assert shown.shape == (4 * len(layout.floor),)
    assert panels[0].collections[0].get_clim() == panels[1].collections[0].get_clim()


def test_a_stretch_is_of_one_person_without_gaps_and_has_what_the_partner_did(data: KitchenPeople) -> None:
    for name, steps in data.steps("train").items():
        stretch = liveliest_stretch(steps, length=6)
        assert stretch is not None
        chosen = stretch.decisions
        assert len(chosen.rollouts.unique()) == 1
        assert torch.equal(chosen.times.diff(), torch.ones(5, dtype=torch.int64))
        assert (chosen.actions != STAY).sum() >= 4
        joint = torch.stack([chosen.actions, stretch.partner], 1)
        joint = torch.where(chosen.seats[:, None] == 0, joint, joint.flip(1))
        following = step(data.kitchens[name].layout, chosen.states, joint)[0]
        assert torch.equal(following[:-1], chosen.states[1:])
    assert liveliest_stretch(steps, length=10_000) is None


def test_the_replay_is_a_strip_of_frames_of_one_size(data: KitchenPeople, model: KitchenModel) -> None:
    stretch = liveliest_stretch(data.steps("train")["cramped_room"], length=6)
    assert stretch is not None
    picture = replay_picture(model, stretch, columns=4)
    one = replay_picture(model, liveliest_stretch(data.steps("train")["cramped_room"], length=1), columns=1)  # type: ignore[arg-type]  # there is one
    assert picture.shape == (2 * one.shape[0], 4 * one.shape[1], 3)
    assert (picture[one.shape[0] :, 2 * one.shape[1] :] == 255).all()
