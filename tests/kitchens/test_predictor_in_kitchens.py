from __future__ import annotations

import json
import math
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
import torch
from torch import Tensor

from bsdr_torch.data.decisions import UNRECORDED, Decisions
from bsdr_torch.data.packed_games import PackedGames
from bsdr_torch.errors import InputError
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.outlook import view
from bsdr_torch.kitchens.predictor_in_kitchens import PredictorInKitchens
from bsdr_torch.kitchens.replanning import plan_in
from bsdr_torch.predictor import Predictor, PredictorInGridWorlds
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import ACTIONS, Layout, start_states, to_overcooked, to_records
from tests.data.simulated_games import play, rows_of, write_csv
from tests.kitchens.conftest import Trained

KITCHEN = "counter_circuit"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def predictor(trained_planner: Trained) -> PredictorInKitchens:
    return PredictorInKitchens.from_checkpoint(trained_planner.checkpoint)


def some_steps(trained: Trained, count: int = 7) -> Decisions:
    """Decisions late enough to have all their history."""
    steps = trained.data.steps("train")[KITCHEN]
    late = (steps.history != UNRECORDED).all(1).nonzero()[:count, 0]
    return Decisions(steps.layout, *(column[late] for column in steps[1:]))


def asked(trained: Trained, steps: Decisions, history: int) -> dict[str, Any]:
    """The same decisions as a user would ask of them."""
    humans = [None if h == POPULATION else trained.data.humans[h] for h in steps.humans.tolist()]
    return {"seats": steps.seats, "humans": humans, "history": steps.history[:, :history].flip(1)}


_FRESH = """
import json, sys, torch
from bsdr_torch.predictor import Predictor
from bsdr_torch.worlds.overcooked import to_overcooked
answers = []
for question in torch.load(sys.argv[1], weights_only=True):
    predictor = Predictor.from_checkpoint(question["checkpoint"])
    layout, packed, about = question["layout"], question["states"], question["about"]
    forms = [packed, json.loads(question["records"]), to_overcooked(predictor.model.layout(layout), packed)]
    answers.append([tuple(predictor.predict(layout, states, **about)) for states in forms])
torch.save(answers, sys.argv[2])
"""


def test_a_fresh_process_predicts_what_the_model_did_at_the_end_of_training(
    trained_planner: Trained, trained_cloning: Trained, tmp_path: Path
) -> None:
    both = trained_planner, trained_cloning
    questions = []
    for trained in both:
        steps = some_steps(trained)
        question = {
            "checkpoint": str(trained.checkpoint),
            "layout": KITCHEN,
            "states": steps.states,
            "records": json.dumps(to_records(trained.model.layout(KITCHEN), steps.states)),
            "about": asked(trained, steps, trained.model.hparams["history"]),
        }
        questions.append(question)
    torch.save(questions, tmp_path / "questions.pt")
    command = [sys.executable, "-c", _FRESH, str(tmp_path / "questions.pt"), str(tmp_path / "answers.pt")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for trained, answers in zip(both, torch.load(tmp_path / "answers.pt", weights_only=True), strict=True):
        expected = trained.model.action_log_probs(some_steps(trained)).exp()
        assert len(answers) == 3
        for probabilities, *plans in answers:
            torch.testing.assert_close(probabilities, expected, rtol=0, atol=1e-6)
            assert all((part is None) == (trained is trained_cloning) for part in plans)


def test_beta_and_values_are_those_of_the_model(predictor: PredictorInKitchens, trained_planner: Trained) -> None:
    model, steps = predictor.model, some_steps(trained_planner)
    assert isinstance(model, KitchenModel)
    found = predictor.predict(KITCHEN, steps.states, **asked(trained_planner, steps, predictor.history))
    features = view(model.layout(KITCHEN), steps.states, steps.seats).features
    everybody = torch.arange(len(model.humans))
    for of, whole in ((found.beta, model.beta(features, everybody)), (found.values, model.values(features, everybody))):
        torch.testing.assert_close(of, whole.gather(1, steps.humans[:, None]).squeeze(1))
    assert found.action_values is not None
    assert found.action_values.shape == (7, 6)
    torch.testing.assert_close(found.focus, model.rule.log_focus(features).exp())


def test_whoever_is_given_once_is_meant_for_all_states(predictor: PredictorInKitchens) -> None:
    states = start_states(predictor.model.layout(KITCHEN), 2)
    once = predictor.predict(KITCHEN, states, seats=1, humans="anna", history=[["stay"], ["stay"]])
    each = predictor.predict(KITCHEN, states, seats=[1, 1], humans=["anna", "anna"], history=[[4], [4]])
    alone = predictor.predict(KITCHEN, states[0], seats=1, humans="anna", history=["stay"])
    torch.testing.assert_close(once, each)
    torch.testing.assert_close(once.probabilities[:1], alone.probabilities)


def test_who_acts_and_what_they_did_matter(predictor: PredictorInKitchens) -> None:
    state = start_states(predictor.model.layout(KITCHEN))
    stranger = predictor.predict(KITCHEN, state, seats=0, history=["north", "north"])
    anna = predictor.predict(KITCHEN, state, seats=0, humans="anna", history=["north", "north"])
    begun = predictor.predict(KITCHEN, state, seats=0, history=[])
    unknown = predictor.predict(KITCHEN, state, seats=0)
    found = [each.probabilities for each in (stranger, anna, begun, unknown)]
    for number, one in enumerate(found):
        torch.testing.assert_close(one.sum(), torch.tensor(1.0))
        assert not any(torch.allclose(one, other) for other in found[:number])


def test_without_history_habit_is_that_of_everybodys_mean(predictor: PredictorInKitchens) -> None:
    model = predictor.model
    assert isinstance(model, KitchenModel)
    state = start_states(model.layout(KITCHEN))
    found = predictor.predict(KITCHEN, state, seats=0).probabilities[0]
    model.planned_pause.fill_(0.999)
    model.rule.hesitation = None  # by which plans move the pause
    assert predictor.predict(KITCHEN, state, seats=0).probabilities[0, 4] >= 0.999 > found[4]


def test_many_states_are_predicted_in_pieces(predictor: PredictorInKitchens, monkeypatch: pytest.MonkeyPatch) -> None:
    states = start_states(predictor.model.layout(KITCHEN), 5)
    whole = predictor.predict(KITCHEN, states, seats=[0, 1, 0, 1, 0], humans="anna")
    monkeypatch.setattr("bsdr_torch.kitchens.predictor_in_kitchens.ROWS_AT_ONCE", 2)
    torch.testing.assert_close(predictor.predict(KITCHEN, states, seats=[0, 1, 0, 1, 0], humans="anna"), whole)


def late_steps_changed(games: PackedGames, time: int) -> PackedGames:
    """The games with everything that was recorded from `time` on changed, but for the states at that time."""
    later = games.time > time
    actions = torch.where((games.time >= time)[:, None], (games.actions + 3) % 6, games.actions)
    states: Tensor = torch.where(later[:, None], games.states.flip(0), games.states)
    return replace(games, actions=actions, states=states)


def test_nothing_recorded_later_changes_a_prediction(predictor: PredictorInKitchens, trained_planner: Trained) -> None:
    games, time = trained_planner.data.kitchens[KITCHEN], 60
    names = [*(f"p_{action}" for action in ACTIONS), "beta", "value"]
    tables = [pa.concat_tables(predictor.tables(each)) for each in (games, late_steps_changed(games, time))]
    before, after = (torch.tensor([table[name].to_pylist() for name in names]) for table in tables)
    times = torch.tensor(tables[0]["time"].to_pylist())
    taken = [torch.tensor([ACTIONS.index(action) for action in table["action"].to_pylist()]) for table in tables]
    assert bool((taken[0] != taken[1])[times == time].all())
    torch.testing.assert_close(before[:, times <= time], after[:, times <= time], rtol=0, atol=1e-6)
    assert not torch.allclose(before[:, times > time], after[:, times > time])


def test_people_who_did_not_train_are_not_known(trained_planner: Trained, tmp_path: Path) -> None:
    checkpoint = torch.load(trained_planner.checkpoint, weights_only=True)
    assert set(checkpoint["trained_on"]) == set(trained_planner.data.humans)
    checkpoint["trained_on"].remove("anna")
    torch.save(checkpoint, tmp_path / "without_anna.ckpt")
    predictor = PredictorInKitchens.from_checkpoint(tmp_path / "without_anna.ckpt")
    state = start_states(predictor.model.layout(KITCHEN))
    with pytest.raises(InputError, match="does not know the human 'anna'; use None"):
        predictor.predict(KITCHEN, state, seats=0, humans="anna")
    table = pa.concat_tables(predictor.tables(trained_planner.data.kitchens[KITCHEN]))
    assert dict(zip(table["human"].to_pylist(), table["known_human"].to_pylist(), strict=True)) == {
        "anna": False,
        "bert": True,
        "7": True,
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layout": "cramped_rooom"}, "cramped_rooom: not a kitchen of this model, which has cramped_room"),
        ({"humans": "nobody"}, "does not know the human 'nobody'; use None for somebody it never saw. It knows 7, 8"),
        ({"states": torch.zeros(1, 3, dtype=torch.uint8)}, "a state of counter_circuit is a row of"),
        ({"states": "both"}, "both players stand at"),
        ({"states": {"players": [], "objects": []}}, "players: a state has two players"),
        ({"states": "not JSON"}, "expected JSON or a Python literal"),
        ({"states": [3, 4]}, "states are packed tensors, records, or OvercookedStates, all of one kind; got int"),
        ({"history": [4] * 13}, r"has 13 actions, and the model sees the last 12: give it history\[-12:\]"),
        ({"history": [[4], [4]]}, "got 1 states and 2 histories"),
        ({"history": ["jump"]}, "'jump' is not an action: choose 0 to 5 or north"),
        ({"history": [9]}, "9 is not an action"),
        ({"seats": 2}, "a seat is 0 or 1, got 2"),
        ({"seats": [0, 1]}, "got 1 states, 2 seats and 1 humans"),
    ],
)
def test_bad_questions_are_refused_with_a_reason(
    predictor: PredictorInKitchens, change: dict[str, Any], message: str
) -> None:
    state = start_states(predictor.model.layout(KITCHEN))
    if change.get("states") == "both":
        state[0, 2] = state[0, 0]
        change = {}
    question = {"layout": KITCHEN, "states": state, "seats": 0} | change
    with pytest.raises(InputError, match=message):
        predictor.predict(**question)


def test_an_overcooked_state_of_another_kitchen_is_refused(predictor: PredictorInKitchens) -> None:
    other = predictor.model.layout(KITCHEN)
    with pytest.raises(InputError, match="Is it a state of another layout"):
        predictor.predict("cramped_room", to_overcooked(other, start_states(other))[0], seats=0)


def test_cloning_with_history_does_not_guess_it(trained_cloning: Trained) -> None:
    predictor = PredictorInKitchens(trained_cloning.model)
    state = start_states(predictor.model.layout(KITCHEN))
    with pytest.raises(InputError, match="Cloning with history cannot do without it: give the last 4 actions"):
        predictor.predict(KITCHEN, state, seats=0)
    assert predictor.predict(KITCHEN, state, seats=0, history=[]).beta is None


def test_a_checkpoint_of_another_version_or_kind_is_refused(trained_planner: Trained, tmp_path: Path) -> None:
    checkpoint = torch.load(trained_planner.checkpoint, weights_only=True)
    checkpoint["bsdr_torch_format"] = 1
    torch.save(checkpoint, tmp_path / "old.ckpt")
    with pytest.raises(InputError, match="not a checkpoint of this version of bsdr_torch"):
        Predictor.from_checkpoint(tmp_path / "old.ckpt")
    with pytest.raises(InputError, match="for PredictorInKitchens, not for PredictorInGridWorlds"):
        PredictorInGridWorlds.from_checkpoint(trained_planner.checkpoint)


def test_the_script_writes_a_row_for_each_decision(
    trained_planner: Trained, prepared_2020: Path, awkward_csv: Path, tmp_path: Path
) -> None:
    script = [sys.executable, ROOT / "scripts/predict.py", trained_planner.checkpoint, awkward_csv]
    done = subprocess.run([*script, "--out", tmp_path / "out.csv"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    predictor = PredictorInKitchens(trained_planner.model)
    found = predictor.predict_file(prepared_2020)
    table, written = pa.concat_tables(found.tables), pa.csv.read_csv(tmp_path / "out.csv")
    assert found.decisions == table.num_rows == written.num_rows
    assert table.column_names == written.column_names
    assert table["p_stay"].to_pylist() == pytest.approx(written["p_stay"].to_pylist(), abs=1e-6)
    rows = {(row["game"], row["time"], row["seat"]): row for row in table.to_pylist()}
    for layout, steps in trained_planner.data.steps("test").items():
        expected = predictor.predict(layout, steps.states, **asked(trained_planner, steps, predictor.history))
        assert expected.beta is not None
        assert expected.focus is not None
        for n, rollout in enumerate(steps.rollouts.tolist()):
            key = trained_planner.data.rollouts[rollout]
            row = rows[key.game, int(steps.times[n]), key.seat]
            assert (row["layout"], row["human"], row["known_human"]) == (layout, key.human, True)
            assert row["action"] == ACTIONS[steps.actions[n]]
            assert row["probability"] == row[f"p_{row['action']}"]
            probabilities = [row[f"p_{action}"] for action in ACTIONS]
            assert probabilities == pytest.approx(expected.probabilities[n].tolist(), abs=1e-6)
            assert row["beta"] == pytest.approx(float(expected.beta[n]), abs=1e-5)
            assert row["focus"] == pytest.approx(float(expected.focus[n]), abs=1e-5)


def test_the_script_refuses_games_in_kitchens_the_model_does_not_know(
    trained_planner: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    games = write_csv(rows_of(play("coordination_ring", 1, steps=20)[0], 1, ("anna", "bert")), tmp_path / "games.csv")
    script = str(ROOT / "scripts/predict.py")
    arguments = [script, str(trained_planner.checkpoint), str(games), "--out", str(tmp_path / "out.csv")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(script, run_name="__main__")
    assert stopped.value.code == 2
    errors = capsys.readouterr().err.splitlines()
    assert [line for line in errors if line.startswith("error: ")] == errors
    assert "coordination_ring: not a kitchen of this model, which has cramped_room, asymm" in errors[0]
    assert not (tmp_path / "out.csv").exists()


def test_no_game_is_cut_in_two(
    predictor: PredictorInKitchens, prepared_2020: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pa.concat_tables(predictor.predict_file(prepared_2020).tables)
    monkeypatch.setattr("bsdr_torch.kitchens.predictor_in_kitchens.ROWS_AT_ONCE", 370)
    parts = list(predictor.predict_file(prepared_2020).tables)
    games = [set(part["game"].to_pylist()) for part in parts]
    assert len(parts) > len(set(whole["layout"].to_pylist()))
    assert sum(map(len, games)) == len(set.union(*games))
    assert max(map(len, games)) > 1
    table = pa.concat_tables(parts)
    assert table.column("time").equals(whole.column("time"))
    assert table["p_stay"].to_pylist() == pytest.approx(whole["p_stay"].to_pylist(), abs=1e-5)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are made in no time, and are not good."""

    def plan(model: KitchenModel, layout: Layout, *exactly: int | None, wanted: float, seed: int) -> KitchenModel:
        return plan_in(model, layout, *exactly, steps=2, imagined=3, wanted=math.inf, seed=seed)

    monkeypatch.setattr("bsdr_torch.kitchens.predictor_in_kitchens.plan_in", plan)


@pytest.mark.usefixtures("hasty")
def test_plans_are_made_in_a_kitchen_that_is_new_to_the_model(
    predictor: PredictorInKitchens, trained_planner: Trained
) -> None:
    there = predictor.plan("coordination_ring")
    states = start_states(there.model.layout("coordination_ring"), 1)
    found = there.predict("coordination_ring", states, seats=0, humans="anna", history=["stay"])
    torch.testing.assert_close(found.probabilities.sum(1), torch.ones(1))
    same = predictor.plan("coordination_ring").predict("coordination_ring", states, 0, "anna", ["stay"])
    torch.testing.assert_close(same, found)
    assert there.adapt("coordination_ring", states, ["east"], seats=0).person is not None
    with pytest.raises(InputError, match="cramped_room: not a kitchen of this model, which has coordination_ring"):
        there.predict("cramped_room", states, seats=0)
    # What the predictor had planned before is as it was.
    steps = some_steps(trained_planner)
    again = predictor.predict(KITCHEN, steps.states, **asked(trained_planner, steps, predictor.history))
    torch.testing.assert_close(again.probabilities, trained_planner.model.action_log_probs(steps).exp())


@pytest.mark.usefixtures("hasty")
def test_what_cannot_be_planned_is_refused(
    predictor: PredictorInKitchens, trained_planner: Trained, trained_cloning: Trained, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="no kitchen is called 'larder'"):
        predictor.plan("larder")
    other = replace(predictor.model.layout(KITCHEN), horizon=7)
    with pytest.raises(InputError, match="counter_circuit is not the kitchen of that name that the model was trained"):
        predictor.plan(other)
    with pytest.raises(InputError, match="Cloning cannot be asked to plan: only KitchenModel can"):
        PredictorInKitchens(trained_cloning.model).plan(KITCHEN)
    steps = some_steps(trained_planner)
    adapted = predictor.adapt(KITCHEN, steps.states, steps.actions, seats=steps.seats)
    weighed = predictor.weigh(KITCHEN, steps.states, steps.actions, seats=steps.seats)
    for knows_somebody in (adapted, weighed):
        with pytest.raises(InputError, match="plan first, then adapt or weigh"):
            knows_somebody.plan(KITCHEN)
    games = write_csv(rows_of(play("coordination_ring", 1, steps=20)[0], 1, ("anna", "bert")), tmp_path / "games.csv")
    with pytest.raises(InputError, match="plan first, then adapt or weigh"):
        adapted.predict_file(games, anew=True)


@pytest.mark.usefixtures("hasty")
def test_games_in_kitchens_that_are_new_to_the_model_are_predicted_by_planning_anew(
    trained_planner: Trained, tmp_path: Path
) -> None:
    predictor = PredictorInKitchens(trained_planner.model)
    games = write_csv(rows_of(play("coordination_ring", 1, steps=20)[0], 1, ("anna", "bert")), tmp_path / "games.csv")
    found = predictor.predict_file(games, anew=True)
    table = pa.concat_tables(found.tables)
    assert found.decisions == table.num_rows == 40
    assert set(table["layout"].to_pylist()) == {"coordination_ring"}
    assert all(0 < p < 1 for p in table["probability"].to_pylist())
