from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.kitchens.adapting import gather_evidence, how_people_differ, log_probs, person, with_newcomer
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.predictor_in_kitchens import PredictorInKitchens
from bsdr_torch.worlds.overcooked import start_states
from tests.kitchens.conftest import Trained

KITCHEN = "counter_circuit"


@pytest.fixture
def predictor(trained_planner: Trained) -> PredictorInKitchens:
    return PredictorInKitchens.from_checkpoint(trained_planner.checkpoint)


def anna(trained: Trained) -> tuple[Tensor, Tensor]:
    """States and actions of one person in one game."""
    games = trained.data.kitchens[KITCHEN]
    first = games.game == 0
    assert games.players[0][0] == "anna"
    return games.states[first], games.actions[first][:, 0].long()


def log_likelihood(predictor: PredictorInKitchens, states: Tensor, actions: Tensor) -> float:
    past = [actions[max(0, t - predictor.history) : t] for t in range(len(actions))]
    found = predictor.predict(KITCHEN, states, seats=0, history=past).probabilities
    return float(found.gather(1, actions[:, None]).log().sum())


def test_adapting_makes_the_steps_seen_more_likely(predictor: PredictorInKitchens, trained_planner: Trained) -> None:
    states, actions = anna(trained_planner)
    adapted = predictor.adapt(KITCHEN, states, actions, seats=0)
    assert log_likelihood(adapted, states, actions) > log_likelihood(predictor, states, actions) + 0.01
    new, old = adapted.predict(KITCHEN, states, seats=0), predictor.predict(KITCHEN, states, seats=0)
    assert new.beta is not None
    assert old.beta is not None
    assert not torch.allclose(new.beta, old.beta)


def test_everybody_else_is_predicted_as_before_to_the_bit(
    predictor: PredictorInKitchens, trained_planner: Trained
) -> None:
    states, actions = anna(trained_planner)
    before = {name: value.clone() for name, value in predictor.model.state_dict().items()}
    alone = predictor.predict(KITCHEN, states, seats=1, humans="bert")
    stranger = predictor.predict(KITCHEN, states, seats=1)
    adapted = predictor.adapt(KITCHEN, states, actions, seats=0)
    for found, expected in zip(adapted.predict(KITCHEN, states, seats=1, humans="bert"), alone, strict=True):
        assert torch.equal(found, expected)
    for found, expected in zip(predictor.predict(KITCHEN, states, seats=1), stranger, strict=True):
        assert torch.equal(found, expected)
    assert all(torch.equal(value, before[name]) for name, value in predictor.model.state_dict().items())
    assert all(parameter.grad is None for parameter in predictor.model.parameters())
    mixed = adapted.predict(KITCHEN, states[:3], seats=0, humans=["bert", None, "bert"])
    new = adapted.predict(KITCHEN, states[:3], seats=0)
    bert = predictor.predict(KITCHEN, states[:3], seats=0, humans="bert")
    for found, person_, other in zip(mixed, new, bert, strict=True):
        torch.testing.assert_close(found[1], person_[1])
        torch.testing.assert_close(found[[0, 2]], other[[0, 2]])


def test_a_person_who_is_put_in_as_a_newcomer_is_predicted_as_that_person(
    predictor: PredictorInKitchens, trained_planner: Trained
) -> None:
    model, (states, actions) = predictor.model, anna(trained_planner)
    assert isinstance(model, KitchenModel)
    number = model.humans.index("anna")
    newcomer = PredictorInKitchens(with_newcomer(model, person(model, number)))
    history = [["stay", "north"]] * len(states)
    expected = predictor.predict(KITCHEN, states, seats=0, humans="anna", history=history)
    found = newcomer.predict(KITCHEN, states, seats=0, history=history)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    # and what is fitted to is the same prediction.
    steps = predictor._decisions(KITCHEN, states, 0, None, history)._replace(actions=actions)
    evidence = gather_evidence(model, steps)
    direct = log_probs(model, evidence, person(model, number)).exp()
    torch.testing.assert_close(direct, expected.probabilities, rtol=1e-4, atol=1e-5)


def test_adapting_goes_on_as_a_game_does(predictor: PredictorInKitchens, trained_planner: Trained) -> None:
    states, actions = anna(trained_planner)
    whole = predictor.adapt(KITCHEN, states, actions, seats=0)
    past = [actions[max(0, t - predictor.history) : t] for t in range(60, len(actions))]
    first = predictor.adapt(KITCHEN, states[:60], actions[:60], seats=0)
    both = first.adapt(KITCHEN, states[60:], actions[60:], seats=0, history=past)
    assert whole.person is not None
    assert both.person is not None
    torch.testing.assert_close(torch.cat(both.person), torch.cat(whole.person), rtol=1e-3, atol=1e-4)


def test_people_differ_as_those_in_training_do(trained_planner: Trained) -> None:
    model = trained_planner.model
    assert isinstance(model, KitchenModel)
    directions = how_people_differ(model)
    assert directions.shape == (len(model.trained_on), 8 + 3 + 16)
    shifts = torch.stack([torch.cat(person(model, i)) - torch.cat(person(model, None)) for i in range(len(directions))])
    torch.testing.assert_close(directions.T @ directions, shifts.T @ shifts / len(shifts))


def test_what_cannot_be_adapted_to_is_refused(
    predictor: PredictorInKitchens, trained_cloning: Trained, trained_planner: Trained
) -> None:
    state = start_states(predictor.model.layout(KITCHEN), 2)
    with pytest.raises(InputError, match="Cloning cannot be adapted"):
        PredictorInKitchens(trained_cloning.model).adapt(KITCHEN, state, ["stay", "stay"], seats=0)
    with pytest.raises(InputError, match="got 2 states and 1 actions"):
        predictor.adapt(KITCHEN, state, ["stay"], seats=0)
    with pytest.raises(InputError, match="no steps to learn from"):
        predictor.adapt(KITCHEN, state[:0], [], seats=0)
    data = trained_planner.data
    alike = KitchenModel(data.specs, data.humans, data.named, "br", identity=False, hidden=[8], history=0)
    with pytest.raises(InputError, match="nothing to adapt"):
        PredictorInKitchens(alike).adapt(KITCHEN, state, ["stay", "stay"], seats=0)
