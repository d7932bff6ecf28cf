from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.prepared import write_prepared
from bsdr_torch.data.splits import TEST, TRAIN, VALIDATION
from bsdr_torch.experiments import kitchen_rewards, kitchen_rewards_report
from bsdr_torch.experiments.kitchen_rewards import Case, Wishes, fit_wishes, halves, policies, said_returns, soups
from bsdr_torch.experiments.reporting import HalvesDifference
from bsdr_torch.experiments.running import Run
from bsdr_torch.experiments.statistics import estimate, half_sample_estimate, half_sample_p
from bsdr_torch.experiments.task_kitchens import EVENTS, PLACES
from bsdr_torch.kitchens.simulated_people import as_prepared
from bsdr_torch.solver import Solver
from bsdr_torch.worlds.overcooked import INTERACT, STAY
from bsdr_torch.worlds.overcooked.state import HELD, POSE, SOUP
from tests.experiments.played_games import random_games

CASE = Case("cramped_room", seed=0, pairs=2, gradient=2e-2, epochs=1, games=4)
SERVING = EVENTS.index("soup served")


@pytest.fixture(autouse=True)
def _games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Games that nobody recorded, as if somebody had."""
    write_prepared(tmp_path / "games", as_prepared(random_games("cramped_room", games=6, steps=400)))
    monkeypatch.setattr(kitchen_rewards, "FOLDER", tmp_path / "games")
    monkeypatch.setattr(kitchen_rewards, "STEPS", 100)
    halves.cache_clear()


class Wanderer:
    """A partner who walks about and uses nothing."""

    history = 3

    def action_log_probs(self, batch: Decisions) -> Tensor:
        assert batch.history.shape == (len(batch.states), 3)
        return torch.tensor([0.2] * INTERACT + [0.0]).log().expand(len(batch.states), -1)


def test_nobody_teaches_and_is_cloned() -> None:
    found = [halves(Case("cramped_room", seed, 2, 1e-2, 1, 4)) for seed in range(4)]
    of_games = []
    for half in found:
        games, part = half.data.kitchens["cramped_room"], half.data.parts["cramped_room"]
        by_game = [set(part[games.game == game].tolist()) for game in range(len(games.games))]
        assert all(len(parts) == 1 for parts in by_game)
        assert sum(parts == {TEST} for parts in by_game) == 2
        assert sum(parts <= {TRAIN, VALIDATION} for parts in by_game) == 3
        assert torch.equal(half.others, (part == TRAIN) | (part == VALIDATION))
        assert half.people == 4
        of_games.append(by_game)
    assert any(other != of_games[0] for other in of_games)


@pytest.mark.parametrize("kind", ["br", "irleed", "bsdr"])
def test_likelihoods_are_finite_and_rationality_is_one_in_the_mean(kind: str) -> None:
    half = halves(CASE)
    model = Wishes(kind, half.people)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    by_plan = model.plans(half.kitchen, half.steps, Solver(tolerance=1e-6))
    assert torch.allclose(by_plan.exp().sum(1), torch.ones(1, dtype=torch.float64))
    assert bool(half.steps.log_likelihood(by_plan, model.habits, model.pauses).isfinite().all())
    beta = model.rationality.beta(kitchen_rewards.beta_features(half.kitchen), torch.arange(half.people))
    assert torch.allclose(beta.mean(1), torch.ones(1, dtype=torch.float64))


def test_a_richer_model_fits_no_worse_than_the_one_it_starts_from() -> None:
    half = halves(CASE)
    simple, _ = fit_wishes("br", half, gradient=5e-3)
    found, _ = fit_wishes("br_per_human", half, simple, gradient=5e-3)
    posterior = []
    for model in (simple, found):
        by_plan = model.plans(half.kitchen, half.steps, Solver(tolerance=1e-6))
        posterior.append(float(half.steps.log_likelihood(by_plan, model.habits, model.pauses).sum()))
    assert posterior[1] > posterior[0] - 5.0  # priors aside
    assert found.rationality.theta_beta.shape == (half.people, 1)


def test_whoever_wants_soups_serves_them_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kitchen_rewards, "STEPS", 400)
    half = halves(CASE)
    weights = torch.zeros(len(EVENTS) + len(PLACES), 2, dtype=torch.float64)
    weights[:SERVING, 0] = 0.4
    weights[SERVING, 0] = 0.8
    weights[EVENTS.index("put down"), 0] = -1.0
    weights[EVENTS.index("put down"), 1] = 1.0
    acting = policies(half.kitchen, weights)
    assert torch.allclose(acting.sum(1), torch.ones(1, dtype=torch.float64))
    served = soups(half.kitchen, acting, Wanderer(), 8, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    assert float(served[0]) > 1
    assert float(served[1]) == 0
    assert float(served[2]) == 0  # two who walk about


def test_counting_soups_ranks_games_by_soups() -> None:
    half = halves(CASE)
    games = half.data.kitchens["cramped_room"]
    rows = half.others.nonzero()[::97, 0]
    served = torch.arange(len(rows)) % 3 > 0
    # Somebody with a soup before the serving place, who serves it or not.
    pose = next(pose for pose, cell in enumerate(games.layout.faced) if games.layout.terrain(cell) == "S")
    games.states[rows, POSE[0]], games.states[rows, HELD[0]] = pose, SOUP + 3
    games.actions[rows, 0] = torch.where(served, INTERACT, STAY).to(torch.uint8)
    games.soups[rows] = served.to(torch.uint8)
    weights = torch.zeros(len(EVENTS) + len(PLACES), 2, dtype=torch.float64)
    weights[SERVING] = torch.tensor([1.0, -1.0])
    assert said_returns(half, weights) == pytest.approx([1.0, -1.0])


def test_halves_of_a_sample_vary_as_much_as_the_mean_of_all_of_it() -> None:
    generator = torch.Generator().manual_seed(0)
    errors, spreads = [], []
    for _ in range(300):
        people = torch.randn(16, generator=generator, dtype=torch.float64)
        means = [float(people[torch.randperm(16, generator=generator)[:8]].mean()) for _ in range(10)]
        errors.append(float(people.mean()))
        low, high = half_sample_estimate(means)[1:3]
        spreads.append((high - low) / 2 / 2.262)
    spread = torch.tensor(spreads).square().mean().sqrt()
    assert abs(float(spread / torch.tensor(errors).std()) - 1) < 0.12
    assert half_sample_p([1.0, 1.1, 0.9]) < 0.01 < 0.5 < half_sample_p([1.0, -1.0, 0.2])
    records = [
        {"seed": seed, "model": model, "x": seed * gain} for seed in range(4) for model, gain in (("a", 2), ("b", 1))
    ]
    some, others = ([r for r in records if r["model"] == model] for model in "ab")
    wide = HalvesDifference(some, others, "x").estimate
    assert wide.high - wide.low > 1.9 * (estimate([0.0, 1.0, 2.0, 3.0]).high - estimate([0.0, 1.0, 2.0, 3.0]).low)


def test_the_report_says_what_was_served(tmp_path: Path) -> None:
    cases = [Case("cramped_room", seed, 2, 2e-2, 1, 2) for seed in (0, 1)]
    fits = [vars(case) | record for case in cases for record in kitchen_rewards.fit_case(case)]
    elsewhere = [fit | {"kitchen": "another"} for fit in fits]
    records = [vars(case) | record for case in cases for record in kitchen_rewards.play_case([*fits, *elsewhere], case)]
    assert {record["model"] for record in records} >= {"br", "irleed", "bsdr", "random", "clone", "people"}
    assert {record["people"] for record in records if record["taught_by"] == "few"} == {2}
    assert all(record["taught_by"] == "all" for record in records if record["source"] == "another")
    found = kitchen_rewards_report.write(Run(tmp_path, True, 2, 1), records)
    assert any("random reward" in finding.words for finding in found)
    assert "nan" not in (tmp_path / "report.md").read_text()
