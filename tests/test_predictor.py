from __future__ import annotations

import pytest
import torch

from bsdr_torch.data.grid_people import SimulatedPeople, StepBatch
from bsdr_torch.errors import InputError
from bsdr_torch.human_model import HumanModel
from bsdr_torch.predictor import PredictorInGridWorlds
from bsdr_torch.rationality import POPULATION


@pytest.fixture
def predictor() -> PredictorInGridWorlds:
    torch.manual_seed(0)
    data = SimulatedPeople(["two_rooms"], humans=3, rollouts=2, held_out=1)
    model = HumanModel(data.specs, data.humans)
    with torch.no_grad():
        model.rationality.raw_theta_beta.add_(torch.randn(3, 2))
    return PredictorInGridWorlds(model)


def test_probabilities_are_those_of_the_model(predictor: PredictorInGridWorlds) -> None:
    found = predictor.action_probabilities("two_rooms", [0, 5, 5], ["human 2", "human 0", None], [0, 3, 3])
    batch = StepBatch("two_rooms", torch.tensor([0, 5, 5]), torch.tensor([2, 0, POPULATION]), torch.tensor([0, 3, 3]))
    torch.testing.assert_close(found, predictor.model.action_log_probs(batch).exp())
    torch.testing.assert_close(found.sum(1), torch.ones(3))
    assert not torch.equal(found[1], found[2])


def test_beta_and_cost_are_looked_up_by_person_and_state(predictor: PredictorInGridWorlds) -> None:
    model = predictor.model
    beta = predictor.beta("two_rooms", [4, 1], ["human 1", None])
    whole = model.beta("two_rooms", torch.tensor([1, POPULATION]))
    torch.testing.assert_close(beta, torch.stack([whole[4, 0], whole[1, 1]]))
    torch.testing.assert_close(predictor.cost("two_rooms", [4, 1]), model.cost("two_rooms")[[4, 1]])


def test_a_table_has_one_row_per_decision(predictor: PredictorInGridWorlds) -> None:
    data = SimulatedPeople(["two_rooms"], humans=3, rollouts=2, held_out=1)
    rollouts = data.parts["two_rooms"].train
    table = predictor.table({"two_rooms": rollouts}, ["human 0", "human 1", "a stranger"])
    steps = rollouts.steps()
    assert table.num_rows == len(steps.state)
    assert table["action"].to_pylist() == steps.action.tolist()
    assert set(
        table.filter(table["human"].to_numpy(zero_copy_only=False) == "a stranger")["known_human"].to_pylist()
    ) == {False}
    row = table.slice(3, 1).to_pylist()[0]
    expected = predictor.action_probabilities("two_rooms", [row["state"]], [row["human"]], [row["step"]])[0]
    assert row["probability"] == pytest.approx(float(expected[row["action"]]))
    assert [row[f"p_{a}"] for a in ("N", "S", "E", "W", "STAY")] == pytest.approx(expected.tolist())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("meadow", [0], ["human 0"], [0]), "does not know the world 'meadow'; it knows two_rooms"),
        (("two_rooms", [99], ["human 0"], [0]), "states of the world two_rooms run from 0 to 12"),
        (("two_rooms", [0], ["nobody"], [0]), "does not know the human 'nobody'; use None"),
        (("two_rooms", [0], ["human 0"], [10]), "steps must be from 0 to 9"),
        (("two_rooms", [0, 1], ["human 0"], [0]), "give one of each a row"),
    ],
)
def test_bad_questions_are_refused_with_a_reason(
    predictor: PredictorInGridWorlds, arguments: tuple, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        predictor.action_probabilities(*arguments)
