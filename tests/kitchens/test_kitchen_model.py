from __future__ import annotations

from pathlib import Path

import lightning
import pytest
import torch

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.errors import InputError
from bsdr_torch.kitchens.choosing import choice_log_probs
from bsdr_torch.kitchens.engines import Lookahead
from bsdr_torch.kitchens.habit import turn_history
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.outlook import places
from bsdr_torch.kitchens.predicting import fit
from bsdr_torch.kitchens.replanning import Situations, imagine, plan_anew, replan
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import FEATURE_GROUPS, check_states, turn_action_values, turn_layout, turn_states
from tests.kitchens.conftest import SMALL, untrained


def made(data: KitchenPeople, **settings: object) -> KitchenModel:
    torch.manual_seed(0)
    return KitchenModel(data.specs, data.humans, data.named, **{**SMALL, **settings})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trained(people_2020: KitchenPeople) -> KitchenModel:
    return fit(made(people_2020), people_2020, max_epochs=5)


def test_training_learns(people_2020: KitchenPeople, trained: KitchenModel) -> None:
    before = made(people_2020).eval()
    with torch.no_grad():
        for steps in people_2020.steps("train").values():
            rows = torch.arange(len(steps.actions))
            old, new = (model.action_log_probs(steps)[rows, steps.actions].mean() for model in (before, trained))
            assert new > old + 0.1


def test_training_in_mixed_precision_learns_about_the_same(people_2020: KitchenPeople, steps: Decisions) -> None:
    exact, coarse = (
        fit(made(people_2020), people_2020, max_epochs=2, precision=precision)
        for precision in ("32-true", "bf16-mixed")
    )
    assert all(parameter.dtype == torch.float32 for parameter in coarse.parameters())
    with torch.no_grad():
        found, wanted = coarse.action_log_probs(steps), exact.action_log_probs(steps)
    assert not torch.equal(found, wanted)
    assert float((wanted.exp() * (wanted - found)).sum(1).mean()) < 0.01


@torch.no_grad()
def test_predictions_turn_with_the_kitchen(people_2020: KitchenPeople, steps: Decisions) -> None:
    layout = people_2020.kitchens[steps.layout].layout
    model = untrained(layout, humans=len(people_2020.humans))
    here = model.action_log_probs(steps)
    moved = steps.history[:, :4] < 4
    both_ways = (moved & (steps.history[:, :4] < 2)).any(1) & (moved & (steps.history[:, :4] >= 2)).any(1)
    assert int(both_ways.sum()) > 20
    for symmetry in range(8):
        model.layouts[layout.name] = turn_layout(layout, symmetry)
        there = model.action_log_probs(
            steps._replace(
                states=turn_states(layout, steps.states, symmetry),
                history=turn_history(steps.history, torch.full((len(steps.actions),), symmetry)),
            )
        )
        expected = turn_action_values(here, symmetry)
        torch.testing.assert_close(there[both_ways], expected[both_ways], rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(("rationality", "differ"), [("br", False), ("br_per_human", True), ("bsdr", True)])
def test_people_differ_only_where_the_model_lets_them(
    steps: Decisions, people_2020: KitchenPeople, rationality: str, differ: bool
) -> None:
    layout = people_2020.kitchens[steps.layout].layout
    model = untrained(layout, humans=3, rationality=rationality, identity=False)
    one, other = (model.action_log_probs(steps._replace(humans=torch.full_like(steps.humans, who))) for who in (0, 1))
    assert torch.allclose(one, other) != differ


@torch.no_grad()
def test_the_mean_of_beta_over_people_is_one_in_every_state(people_2020: KitchenPeople, steps: Decisions) -> None:
    layout = people_2020.kitchens[steps.layout].layout
    model = untrained(layout)
    features = torch.rand(50, 332)
    beta = model.rationality.beta(model.phi_beta(features), torch.arange(3))
    torch.testing.assert_close(beta.mean(1), torch.ones(50))
    assert float(beta.std(1).mean()) > 0.05


@torch.no_grad()
@pytest.mark.parametrize("rationality", ["br", "br_per_human", "irleed", "bsdr"])
def test_plans_count_as_much_everywhere_unless_rationality_depends_on_the_state(
    people_2020: KitchenPeople, steps: Decisions, rationality: str
) -> None:
    layout = people_2020.kitchens[steps.layout].layout
    model = untrained(layout, humans=len(people_2020.humans), rationality=rationality)
    found = model.predict_step(steps)
    assert found.focus is not None
    assert (float(found.focus.std()) > 0.01) == (rationality == "bsdr")
    if rationality == "bsdr":
        assert untrained(layout, focus=False).rule.phi_focus is None
        # With plans that count e times as much everywhere, people choose as if all that is to be gained were more.
        model.rule.theta_focus.zero_()
        model.rule.theta_focus[-1] = 1.0
        assert found.action_values is not None
        no_op = places(layout, steps.states, steps.seats).no_op
        habit = model.rule(model._habit(steps), torch.tensor(1.0), no_op, found.action_values)
        expected = choice_log_probs(habit, no_op, found.action_values)
        torch.testing.assert_close(model.action_log_probs(steps), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_without_plans_the_kitchen_is_seen_by_which_actions_change_nothing_alone(
    people_2020: KitchenPeople, steps: Decisions
) -> None:
    layout = people_2020.kitchens[steps.layout].layout
    model = untrained(layout, humans=len(people_2020.humans))
    for parameter in model.values.parameters():
        parameter.zero_()  # all plans are as good
    found = model.action_log_probs(steps)
    torch.testing.assert_close(found, model.habit_log_probs(steps))
    # With the same past, other states differ by the habit of actions that change nothing, which habit may see.
    alike = steps._replace(history=steps.history[:1].expand_as(steps.history), humans=torch.zeros_like(steps.humans))
    no_op = places(layout, steps.states, steps.seats).no_op
    kinds, kind = torch.unique(no_op, dim=0, return_inverse=True)
    assert 1 < len(kinds) < len(steps.actions)
    by_kind = model.action_log_probs(alike)
    for number in range(len(kinds)):
        torch.testing.assert_close(
            by_kind[kind == number], by_kind[kind == number][:1].expand(int((kind == number).sum()), -1)
        )


def test_planning_anew_uses_nothing_of_the_old_values(people_2020: KitchenPeople, trained: KitchenModel) -> None:
    steps = people_2020.steps("train")["cramped_room"]
    where = {"cramped_room": Situations(steps.states, steps.seats)}
    first = replan(trained, where, steps=3, batch_size=32)
    before = {name: value.clone() for name, value in trained.values.state_dict().items()}
    with torch.no_grad():
        for parameter in trained.values.parameters():
            parameter.normal_()
    second = replan(trained, where, steps=3, batch_size=32)
    assert torch.equal(first.action_log_probs(steps), second.action_log_probs(steps))
    trained.values.load_state_dict(before)
    assert not torch.allclose(first.action_log_probs(steps), trained.action_log_probs(steps))


def test_a_kitchen_nobody_was_seen_in_is_planned_in_from_imagination(
    prepared_2020: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = KitchenPeople(
        str(prepared_2020), ["cramped_room", "counter_circuit"], protocol="layout", held_out="counter_circuit"
    )
    model = fit(made(data), data, max_epochs=1)
    imagined = imagine(model, "counter_circuit", games=4, steps=30)
    check_states(model.layouts["counter_circuit"], imagined.states)
    assert len(imagined.states) > 50
    asked = set()
    steps = data.steps
    monkeypatch.setattr(data, "steps", lambda part: (asked.add(part), steps(part))[1])
    planned = plan_anew(model, data, steps=4, imagined=10)
    assert asked == {"train"}
    held_out = steps("test")["counter_circuit"]
    log_probs = planned.action_log_probs(held_out)
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(len(log_probs)))
    not_ahead = plan_anew(model, data, steps=4, imagined=10, lookahead=0)
    assert not torch.allclose(log_probs, not_ahead.action_log_probs(held_out))
    not_ahead.engine = Lookahead(not_ahead, 1, not_ahead.engine)
    assert torch.equal(log_probs, not_ahead.action_log_probs(held_out))


def test_strangers_get_the_population_s_prediction(people_2020: KitchenPeople, trained: KitchenModel) -> None:
    steps = people_2020.steps("train")["cramped_room"]
    stranger = trained.action_log_probs(steps._replace(humans=torch.full_like(steps.humans, POPULATION)))
    assert not torch.allclose(stranger, trained.action_log_probs(steps))


def test_checkpoints_bring_the_model_back(people_2020: KitchenPeople, trained: KitchenModel, tmp_path: Path) -> None:
    trainer = lightning.Trainer(max_epochs=1, logger=False, enable_progress_bar=False, default_root_dir=tmp_path)
    model = made(people_2020)
    trainer.fit(model, datamodule=people_2020)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    steps = people_2020.steps("test")["cramped_room"]
    loaded = KitchenModel.read(tmp_path / "model.ckpt")
    assert torch.equal(loaded.action_log_probs(steps), model.eval().action_log_probs(steps))


def test_other_kitchens_and_other_data_are_refused(trained: KitchenModel, steps: Decisions) -> None:
    with pytest.raises(InputError, match="forced: not a kitchen of this model"):
        trained.action_log_probs(steps._replace(layout="forced"))
    with pytest.raises(InputError, match="sees 32 past actions, the data has 5"):
        trained.action_log_probs(steps._replace(history=steps.history[:, :5]))


@pytest.mark.parametrize("reward", ["events", "places", "distances", "learned"])
def test_rewards_see_what_their_rung_of_the_ladder_allows(people_2020: KitchenPeople, reward: str) -> None:
    model = untrained(next(iter(people_2020.kitchens.values())).layout, reward=reward, rationality="br")
    features = torch.rand(4, 332, requires_grad=True)
    (seen,) = torch.autograd.grad(model.reward(features, torch.tensor([POPULATION])).sum(), features)
    by_group = {name: bool(seen[:, place].abs().sum() > 0) for name, place in FEATURE_GROUPS.items()}
    assert by_group["hand"]
    assert by_group["pot"]
    assert by_group["facing"] == (reward != "events")
    assert by_group["near"] == (reward in ("distances", "learned"))
