from __future__ import annotations

import pytest
import torch

from bsdr_torch.data.rollouts import Rollouts
from bsdr_torch.objective import Evidence
from bsdr_torch.posterior import grid_posterior
from bsdr_torch.soft_bellman import sample
from tests.oracle import BruteForce, random_mdp

F64 = torch.float64


def small_problem() -> tuple:
    generator = torch.Generator().manual_seed(3)
    mdp = random_mdp("deterministic", generator)
    phi_R, phi_beta = (torch.rand(4, 2, generator=generator, dtype=F64) for _ in range(2))
    theta_R, theta_beta = (torch.rand(n, 2, generator=generator, dtype=F64) for n in (3, 4))
    humans = torch.tensor([0, 0, 1])
    reward = -(phi_beta @ theta_beta[:2].T) * (phi_R @ theta_R[0])[:, None]
    rollouts = Rollouts(humans, *sample(mdp, reward, humans, generator, horizon=3))
    return mdp, rollouts, phi_R, phi_beta, theta_R, theta_beta


@pytest.mark.parametrize("chunk", [1, 5, 512])
def test_posterior_is_bayes_rule_written_out(chunk: int) -> None:
    mdp, rollouts, phi_R, phi_beta, theta_R, theta_beta = small_problem()
    prior_R, prior_beta = torch.tensor([0.2, 0.5, 0.3], dtype=F64), torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=F64)
    posterior = grid_posterior(
        mdp,
        Evidence.of(rollouts, mdp, 2, horizon=3),
        2,
        phi_R,
        phi_beta,
        theta_R,
        theta_beta,
        log_prior_R=prior_R.log(),
        log_prior_beta=prior_beta.log(),
        chunk=chunk,
        horizon=3,
    )

    def of_human(i: int, g: int, h: int) -> float:
        oracle = BruteForce(mdp, -(phi_beta @ theta_beta[h]) * (phi_R @ theta_R[g]), 3)
        probability = 1.0
        for row in range(3):
            if int(rollouts.human[row]) == i:
                for t in range(3):
                    probability *= oracle.policy(t, int(rollouts.states[row, t]))[int(rollouts.actions[row, t])]
        return probability

    joint = torch.zeros(3, 4, 4, dtype=F64)  # theta_R, theta_beta of human 0, of human 1
    for g in range(3):
        one, two = (torch.tensor([of_human(i, g, h) for h in range(4)], dtype=F64) for i in range(2))
        joint[g] = prior_R[g] * (prior_beta * one)[:, None] * (prior_beta * two)[None]
    joint /= joint.sum()
    torch.testing.assert_close(posterior.theta_R.exp(), joint.sum((1, 2)))
    torch.testing.assert_close(posterior.theta_beta.exp(), torch.stack([joint.sum((0, 2)), joint.sum((0, 1))]))
    torch.testing.assert_close(posterior.joint.exp(), torch.stack([joint.sum(2), joint.sum(1)]))


def test_wrong_shapes_are_refused_with_a_reason() -> None:
    mdp, rollouts, phi_R, phi_beta, theta_R, theta_beta = small_problem()
    evidence = Evidence.of(rollouts, mdp, 2, horizon=3)
    with pytest.raises(ValueError, match="one column per feature"):
        grid_posterior(mdp, evidence, 2, phi_R, phi_beta, theta_R[:, :1], theta_beta, horizon=3)
    with pytest.raises(ValueError, match="a prior over 3 values"):
        grid_posterior(mdp, evidence, 2, phi_R, phi_beta, theta_R, theta_beta, log_prior_R=torch.zeros(2), horizon=3)
