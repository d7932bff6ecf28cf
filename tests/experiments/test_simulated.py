from __future__ import annotations

import torch

from bsdr_torch.experiments.action_prediction import fitted_lapses, optimal_probability, with_lapses
from bsdr_torch.experiments.fitting import fit, fit_each_alone
from bsdr_torch.experiments.simulated import cross_entropy, draw_people, taken_log_probs, watch
from bsdr_torch.worlds.gridworld import GridWorld

MEADOW = GridWorld.load("meadow")


def people(dependence: float, humans: int = 200, **how: bool | float) -> torch.Tensor:
    return draw_people(MEADOW, humans, dependence, torch.Generator().manual_seed(0), **how).theta_beta.log()


def test_state_dependence_is_the_spread_of_log_beta_within_a_person() -> None:
    assert torch.allclose(people(0.0)[:, 0], people(0.0)[:, 1])
    tilt = people(1.5) - people(0.0)  # the same people but for the state-dependence
    assert abs(float(tilt.square().mean().sqrt()) - 1.5) < 0.1
    common = people(1.5, common=True, level_spread=0.0)
    assert torch.allclose(common, common[:1].expand_as(common))


def test_weights_of_people_fitted_together_are_those_of_each_alone() -> None:
    data = watch([MEADOW], draw_people(MEADOW, 3, 1.0, torch.Generator().manual_seed(0)), 4, 0, torch.Generator())
    rollouts = data.parts["meadow"].train
    together, converged = fit_each_alone(MEADOW, rollouts, 3)
    assert converged
    for human in range(3):
        own = rollouts.select(rollouts.human == human)
        own.human = torch.zeros_like(own.human)
        alone, _ = fit_each_alone(MEADOW, own, 1)
        torch.testing.assert_close(together[:, human], alone[:, 0], atol=5e-3, rtol=5e-3)


def test_a_fit_over_two_worlds_uses_both() -> None:
    worlds = [MEADOW, GridWorld.from_spec({**MEADOW.spec, "name": "meadow again"})]
    truth = draw_people(MEADOW, 5, 0.5, torch.Generator().manual_seed(0))
    data = watch(worlds, truth, 4, 0, torch.Generator().manual_seed(1))
    model, converged = fit(data, "br_per_human")
    assert converged
    gradient = torch.autograd.grad(
        sum(model.loss(chunk).total for chunk in data.chunks("train").chunks), list(model.rationality.parameters())
    )
    assert all(float(g.norm()) < 1e-4 for g in gradient)


def test_optimal_with_lapses_is_between_optimal_and_random() -> None:
    truth = draw_people(MEADOW, 5, 0.0, torch.Generator().manual_seed(0))
    rollouts = watch([MEADOW], truth, 4, 0, torch.Generator().manual_seed(1)).parts["meadow"].train
    optimal = optimal_probability(MEADOW, truth, rollouts)
    scores = {share: cross_entropy(with_lapses(optimal, share, 0.2, rollouts), rollouts) for share in (0.0, 1.0)}
    assert scores[0.0] == float("inf")
    assert abs(scores[1.0] - torch.tensor(5.0).log()) < 1e-6
    best = fitted_lapses(optimal, 0.2, rollouts)
    assert cross_entropy(with_lapses(optimal, best, 0.2, rollouts), rollouts) < scores[1.0]
    truthful = cross_entropy(taken_log_probs(MEADOW, truth.reward(MEADOW), rollouts), rollouts)
    assert truthful < cross_entropy(with_lapses(optimal, best, 0.2, rollouts), rollouts)
