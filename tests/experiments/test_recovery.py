from __future__ import annotations

from typing import Any, cast

import torch

from bsdr_torch.experiments.fitting import fit_networks
from bsdr_torch.experiments.recovery import (
    FeaturesCase,
    features_cases,
    function_errors,
    people,
    run_features_case,
)
from bsdr_torch.human_model import HumanModel


class Known:
    """Functions in the place of a model, with a factor g(s) moved from beta to the cost."""

    def __init__(self, cost: torch.Tensor, beta: torch.Tensor, g: torch.Tensor) -> None:
        self._cost, self._beta = cost * g, beta / g[:, None]

    def cost(self, world: str) -> torch.Tensor:
        return self._cost

    def beta(self, world: str, humans: torch.Tensor) -> torch.Tensor:
        return self._beta[:, humans]


def errors(people_are: str = "state-dependent", wrong: float = 0.0) -> dict[str, Any]:
    """Of the truth in an odd gauge, with log beta of the first person `wrong` in every other state."""
    data = people(FeaturesCase("meadow", people_are, "bsdr", humans=4, rollouts=4, seed=0, features="cell"))
    world, truth = data.worlds["meadow"], data.truth
    assert truth is not None
    states = torch.arange(world.mdp.num_states)
    beta = truth.beta(world)
    beta[::2, 0] *= torch.tensor(wrong, dtype=torch.float64).exp()
    known = Known(truth.cost(world), beta, 1.5 + torch.sin(states.double()))
    return function_errors(data, cast(HumanModel, known))


def test_the_true_functions_have_no_error_whatever_moves_between_cost_and_beta() -> None:
    found = errors()
    for measure in ("cost_correlation", "beta_rank", "beta_rank_of_states"):
        assert abs(found[measure] - 1) < 1e-6, measure
    assert found["beta_relative_error"] < 1e-9
    assert abs(found["regret"]) < 1e-9
    assert abs(found["beta_spread"] - found["true_spread"]) < 1e-5
    assert found["regret_as_is"] > 1e-3


def test_beta_that_varies_where_it_should_not_is_seen() -> None:
    assert errors("constant")["beta_spread"] == errors("constant")["true_spread"] == 0
    assert errors("constant", wrong=1.0)["beta_spread"] > 0.1
    assert errors(wrong=1.0)["beta_rank_of_states"] < errors()["beta_rank_of_states"] - 0.05


def test_networks_find_cost_and_rationality_that_they_were_not_given() -> None:
    (found,) = run_features_case(FeaturesCase("meadow", "state-dependent", "bsdr", 20, 32, seed=100, features="cell"))
    assert found["cost_correlation"] > 0.95
    assert found["beta_rank_of_states"] > 0.7
    assert found["heldout_gap"] < 0.02


def test_networks_are_the_same_for_the_same_seed_and_leave_the_others_randomness_alone() -> None:
    data = people(FeaturesCase("meadow", "constant", "br_per_human", 3, 2, seed=100, features="cell"))
    before = torch.random.get_rng_state()
    one, same, other = (
        fit_networks(data, "br_per_human", seed, weight_scale=1.0, steps=3, view_radius=0).cost("meadow")
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_every_fit_with_learned_features_has_one_with_given_ones_and_a_control() -> None:
    for quick in (True, False):
        found = features_cases(quick, 2)
        assert len(set(found)) == len(found)
        for case in found:
            if case.model == "bsdr":
                assert FeaturesCase(**{**vars(case), "features": "given"}) in found
            else:
                for who in ("state-dependent", "constant"):
                    assert FeaturesCase(**{**vars(case), "people": who, "model": "bsdr"}) in found
