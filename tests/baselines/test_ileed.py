from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import nll_loss

from bsdr_torch.baselines.cloning import turn_inputs
from bsdr_torch.baselines.ileed import ILEED, OnlineILEED, gather_evidence, mixture_log_probs
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.prepare import prepare
from bsdr_torch.kitchens.predicting import fit_often
from bsdr_torch.kitchens.predictor_in_kitchens import PredictorInKitchens
from bsdr_torch.predictor import Predictor
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import (
    FEATURE_GROUPS,
    NUM_ACTIONS,
    NUM_SYMMETRIES,
    encode_features,
    held_objects,
    turn_action_values,
)
from tests.data.simulated_games import play, rows_of, write_csv
from tests.kitchens.conftest import train
from tests.test_kitchen_training import train as train_by_script
from tests.test_scripts import ROOT

KITCHEN = "cramped_room"


class Demonstrators(NamedTuple):
    """People who act by ILEED's rule in a kitchen.

    What the policy does depends on what one faces, and how expert somebody is on who they are and whether they hold
    something.
    """

    data: KitchenPeople
    policy: Tensor
    omega: Tensor

    def expertise(self, steps: Decisions) -> Tensor:
        empty = held_objects(steps.states).gather(1, steps.seats[:, None]).squeeze(1) == 0
        omega = self.omega[steps.rollouts]  # everybody plays one game
        return (omega[:, 0] + torch.where(empty, omega[:, 1], -omega[:, 1])).sigmoid()

    def probs(self, steps: Decisions) -> Tensor:
        features = encode_features(self.data.kitchens[KITCHEN].layout, steps.states, steps.seats)
        policy = (features[:, FEATURE_GROUPS["facing"]] @ self.policy).softmax(1)
        rho = self.expertise(steps)[:, None]
        return rho * policy + (1 - rho) * (1 - policy) / (NUM_ACTIONS - 1)

    @property
    def everything(self) -> Decisions:
        """All that they did, as if by people never seen."""
        (table,) = self.data._tables.values()
        steps = table.gather(torch.arange(len(table.actions)))
        return steps._replace(humans=torch.full_like(steps.humans, POPULATION))


def draw_demonstrators(folder: Path, games: int, seed: int) -> Demonstrators:
    played = play(KITCHEN, games, steps=600, seed=seed)
    rows = [row for n, game in enumerate(played) for row in rows_of(game, n, (f"left {n}", f"right {n}"))]
    prepare(write_csv(rows, folder / "games.csv"), folder / "prepared")
    data = KitchenPeople(str(folder / "prepared"), batch_size=1024)
    facing = FEATURE_GROUPS["facing"]
    shared = torch.Generator().manual_seed(0)
    policy = 4 * torch.randn(facing.stop - facing.start, NUM_ACTIONS, generator=shared)
    own = torch.Generator().manual_seed(seed)
    omega = torch.stack([torch.linspace(-1.5, 2.5, 2 * games), torch.randn(2 * games, generator=own)], 1)
    people = Demonstrators(data, policy, omega)
    (table,) = data._tables.values()
    table.actions.copy_(torch.multinomial(people.probs(people.everything), 1, generator=own).squeeze(1))
    return people


@pytest.fixture(scope="module")
def demonstrators(tmp_path_factory: pytest.TempPathFactory) -> Demonstrators:
    return draw_demonstrators(tmp_path_factory.mktemp("demonstrators"), games=16, seed=0)


@pytest.fixture(scope="module")
def newcomers(tmp_path_factory: pytest.TempPathFactory) -> Demonstrators:
    return draw_demonstrators(tmp_path_factory.mktemp("newcomers"), games=3, seed=1)


@pytest.fixture(scope="module")
def model(demonstrators: Demonstrators) -> ILEED:
    torch.manual_seed(0)
    data, settings = demonstrators.data, {"hidden": [32], "embedding_hidden": [16], "embedding": 4, "dropout": 0.0}

    def make() -> ILEED:
        return ILEED(data.specs, data.humans, data.named, learning_rate=2e-2, omega_rate=6e-2, **settings)  # type: ignore[arg-type]

    return fit_often(make, data, max_epochs=30, restarts=3).requires_grad_(False)


@pytest.fixture(scope="module")
def data(prepared_2020: Path) -> KitchenPeople:
    return KitchenPeople(str(prepared_2020), layouts=["cramped_room", "counter_circuit"])


def untrained(data: KitchenPeople, **settings: object) -> ILEED:
    torch.manual_seed(0)
    model = ILEED(data.specs, data.humans, data.named, **settings).eval()  # type: ignore[arg-type]
    torch.nn.init.normal_(model.omega)
    return model


def test_it_recovers_how_expert_people_are_where(demonstrators: Demonstrators, model: ILEED) -> None:
    steps = demonstrators.data.steps("train")[KITCHEN]
    # Everybody is as expert in all states in which their hands are empty, and in all others.
    truth, cases = torch.unique(demonstrators.expertise(steps), return_inverse=True)
    assert len(truth) == 2 * len(demonstrators.data.humans)
    found = torch.zeros(len(truth)).index_add(0, cases, model.expertise(steps)) / torch.bincount(cases)
    ranks = [values.argsort().argsort().double() for values in (truth, found)]
    # 0.97 here, and 0.95 to 0.97 with three other groups of people.
    assert torch.corrcoef(torch.stack(ranks))[0, 1] > 0.9


def test_somebody_new_is_predicted_better_as_their_game_goes_on(newcomers: Demonstrators, model: ILEED) -> None:
    steps = newcomers.everything
    truth = newcomers.probs(steps).log()
    late = steps.times >= 100
    gap = {
        name: float(nll_loss(log_probs[late], steps.actions[late]) - nll_loss(truth[late], steps.actions[late]))
        for name, log_probs in {
            "mean": model.action_log_probs(steps),
            "online": OnlineILEED(model).action_log_probs(steps),
        }.items()
    }
    assert gap["online"] < 0.3 * gap["mean"]


def test_omega_of_somebody_new_is_the_maximum_of_the_posterior(newcomers: Demonstrators, model: ILEED) -> None:
    steps = newcomers.everything
    rows = (steps.rollouts == 0).nonzero()[:, 0]
    shared = model.shared(Decisions(KITCHEN, *(column[rows] for column in steps[1:])))
    omega = model.omega_as_seen(gather_evidence(shared, steps.actions[rows]), stretch=100)
    assert torch.equal(omega[0], model.mean_omega)
    people = model.omega.double()
    prior = torch.distributions.MultivariateNormal(people.mean(0), people.T.cov(correction=0))
    for stretches in (1, 2, 6):
        seen = 100 * stretches
        best = omega[stretches].double().requires_grad_()
        log_probs = mixture_log_probs(shared.log_policy[:seen].double(), shared.embedding[:seen].double() @ best)
        posterior = prior.log_prob(best) - nll_loss(log_probs, steps.actions[rows][:seen], reduction="sum")
        (slope,) = torch.autograd.grad(posterior, best)
        # As far as a step against the prior alone would go, in standard deviations.
        assert (people.T.cov(correction=0) @ slope / people.std(0)).abs().max() < 0.05


def test_predictions_online_see_nothing_that_comes_later(newcomers: Demonstrators, model: ILEED) -> None:
    steps, time = newcomers.everything, 117
    later = steps.times > time
    changed = steps._replace(
        states=torch.where(later[:, None], steps.states.flip(0), steps.states),
        actions=torch.where(steps.times >= time, (steps.actions + 1) % NUM_ACTIONS, steps.actions),
    )
    before, after = (OnlineILEED(model).action_log_probs(batch) for batch in (steps, changed))
    torch.testing.assert_close(before[~later], after[~later], rtol=0, atol=1e-6)
    assert not torch.allclose(before[later], after[later])


def test_games_may_be_asked_about_in_parts_and_again(newcomers: Demonstrators, model: ILEED) -> None:
    steps, online = newcomers.everything, OnlineILEED(model)
    whole = OnlineILEED(model).action_log_probs(steps)
    for _ in range(2):
        parts = [
            online.action_log_probs(Decisions(KITCHEN, *(column[first : first + 333] for column in steps[1:])))
            for first in range(0, len(steps.actions), 333)
        ]
        torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-4)


def test_people_who_trained_keep_their_omega_online(demonstrators: Demonstrators, model: ILEED) -> None:
    steps = demonstrators.data.steps("test")[KITCHEN]
    torch.testing.assert_close(OnlineILEED(model).action_log_probs(steps), model.action_log_probs(steps))


def test_the_mixture_is_the_formula_of_the_paper() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, skill = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((50, 6), (50,)))
    policy, rho = logits.softmax(1), skill.sigmoid()[:, None]
    expected = rho * policy + (1 - rho) * (1 - policy) / 5
    torch.testing.assert_close(mixture_log_probs(logits.log_softmax(1), skill).exp(), expected)


@pytest.mark.parametrize("sure", [0.0, 30.0, 1e3, 1e6])
@pytest.mark.parametrize("skill", [0.0, 50.0, -50.0, 1e4, -1e4])
def test_the_mixture_is_finite_and_normalised_at_extremes(sure: float, skill: float) -> None:
    logits = torch.tensor([[sure, 0.0, -sure, 0.0, 0.0, 0.0]], requires_grad=True)
    skills = torch.tensor([skill], requires_grad=True)
    log_probs = mixture_log_probs(logits.log_softmax(1), skills)
    torch.testing.assert_close(log_probs.exp().sum(), torch.tensor(1.0))
    for gradient in torch.autograd.grad(log_probs.sum(), [logits, skills]):
        assert bool(gradient.isfinite().all())
    assert bool(log_probs.isfinite().all())


def test_expertise_is_between_following_and_avoiding_the_policy() -> None:
    log_policy = torch.tensor([[0.5, 0.3, 0.1, 0.05, 0.03, 0.02]]).log()
    at_random = torch.tensor([1 / 6]).logit()
    torch.testing.assert_close(mixture_log_probs(log_policy, torch.tensor([40.0])), log_policy)
    torch.testing.assert_close(mixture_log_probs(log_policy, at_random).exp(), torch.full((1, 6), 1 / 6))
    assert mixture_log_probs(log_policy, torch.tensor([-40.0])).argmin() == 0


def test_somebody_never_seen_has_the_mean_omega_of_those_who_trained(data: KitchenPeople) -> None:
    model, steps = untrained(data, history=4), data.steps("test")["counter_circuit"]
    strangers = steps._replace(humans=torch.full_like(steps.humans, POPULATION))
    model.trained_on = model.humans[:2]
    everybody = torch.stack([model.omega[0], model.omega[1]]).mean(0)
    shared = model.shared(steps)
    expected = mixture_log_probs(shared.log_policy, shared.embedding @ everybody)
    torch.testing.assert_close(model.action_log_probs(strangers), expected)
    assert not torch.allclose(model.action_log_probs(steps), expected)


def test_a_symmetric_one_predicts_turned_actions_in_turned_kitchens(data: KitchenPeople) -> None:
    model = untrained(data, history=4, symmetric=True)
    steps = data.steps("test")["counter_circuit"]
    encode = model._encode
    here = model.action_log_probs(steps)
    torch.testing.assert_close(here.exp().sum(1), torch.ones(len(here)))
    for symmetry in range(NUM_SYMMETRIES):
        model._encode = lambda batch, by=symmetry: turn_inputs(encode(batch), torch.full_like(batch.humans, by))  # type: ignore[method-assign,misc]
        torch.testing.assert_close(model.action_log_probs(steps), turn_action_values(here, symmetry))


def test_a_checkpoint_holds_all_of_it(prepared_2020: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = KitchenPeople(str(prepared_2020), batch_size=128, history=4)
    model = ILEED(data.specs, data.humans, data.named, hidden=[8], embedding_hidden=[8], history=4)
    checkpoint = train(model, data, tmp_path_factory).checkpoint
    steps = data.steps("test")["counter_circuit"]
    predictor = Predictor.from_checkpoint(checkpoint)
    assert isinstance(predictor, PredictorInKitchens)
    found = predictor.predict_decisions(steps).probabilities
    torch.testing.assert_close(found, model.action_log_probs(steps).exp())
    torch.testing.assert_close(found.sum(1), torch.ones(len(found)))


def test_the_script_trains_it_and_says_how_good_it_is(prepared_2020: Path, tmp_path: Path) -> None:
    options = ("--data.folder", prepared_2020, "--data.layouts", "[cramped_room]", "--data.batch_size", 64)
    config = ROOT / "scripts/configs/ileed.yaml"
    done = train_by_script("--config", config, "--trainer.max_epochs", 1, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = done.stdout[done.stdout.index("Test cross-entropy") :].splitlines()
    assert [line.split()[0] for line in table[1:5]] == ["uniform", "frequencies", "cloning-64", "ILEED"]
    checkpoint = tmp_path / done.stdout.split("Checkpoint:")[1].split()[0]
    assert Predictor.from_checkpoint(checkpoint).humans == ["anna", "bert"]
