from __future__ import annotations

import math

import torch

from bsdr_torch.data.grid_people import Truth
from bsdr_torch.experiments.derived_worlds import with_goal
from bsdr_torch.experiments.goal_inference import (
    arrivals,
    goal_log_likelihoods,
    later_walks,
    posterior_scores,
    views,
)
from bsdr_torch.worlds.gridworld import GridWorld
from tests.oracle import BruteForce

GROUND = GridWorld.from_spec(
    {
        "name": "tiny",
        "map": "..,\n,.,\n",
        "terrain": {
            ".": {"name": "floor", "reward_features": {"floor": 1}, "rationality_features": {"calm": 1}},
            ",": {"name": "rug", "reward_features": {"rug": 1}, "rationality_features": {"busy": 1}},
        },
        "reward_features": ["floor", "rug"],
        "rationality_features": ["calm", "busy"],
        "start": "anywhere",
        "horizon": 4,
    }
)
GOALS = [(0, 2), (1, 0), (1, 2)]
WORLDS = [with_goal(GROUND, goal, never_start=GOALS) for goal in GOALS]
UNIFORM = torch.full((6, 5), -math.log(5.0), dtype=torch.float64)
TRUTH = Truth(torch.tensor([0.4, 1.0]), torch.tensor([[3.0, 1.0], [0.5, 2.0]]))


def test_likelihoods_of_goals_are_those_of_walking_every_path() -> None:
    walks, _ = later_walks(WORLDS, TRUTH, 10, torch.Generator().manual_seed(0))
    reward = TRUTH.reward(WORLDS[0])
    found = goal_log_likelihoods(WORLDS, reward, walks)
    ruled_out = 0
    for k, world in enumerate(WORLDS):
        for row in range(len(walks)):
            brute, expected = (
                BruteForce(world.mdp, reward[:, walks.human[row]], world.horizon, action_term=UNIFORM),
                0.0,
            )
            for t, action in enumerate(walks.actions[row].tolist()):
                if action < 0:
                    break
                state = int(walks.states[row, t])
                expected += -math.inf if brute.ended(state) else math.log(brute.policy(t, state)[action])
                ruled_out += expected == -math.inf
                assert math.isclose(float(found[row, t, k]), expected, abs_tol=1e-9)
    assert ruled_out > 0


def test_the_true_parameters_are_calibrated_after_a_number_of_steps() -> None:
    walks, goal = later_walks(WORLDS, TRUTH, 3000, torch.Generator().manual_seed(1))
    log_likelihood = goal_log_likelihoods(WORLDS, TRUTH.reward(WORLDS[0]), walks)
    by_steps = [view for view in views(walks) if view[0] == "steps"]
    assert [view[1] for view in by_steps] == [1, 2]  # nobody walks more than 4 steps
    for _, _, rows, steps in by_steps:
        going_on = log_likelihood[rows, steps - 1].masked_fill(arrivals(WORLDS, walks)[rows, steps - 1], -math.inf)
        posterior = going_on.log_softmax(1)
        for count, probability, hits in posterior_scores(posterior, goal[rows])["calibration"]:
            assert abs(probability - hits) < 4 * math.sqrt(count) * 0.5 + 1e-6


def test_a_part_of_a_walk_is_at_least_one_step_and_at_most_all() -> None:
    walks, _ = later_walks(WORLDS, TRUTH, 10, torch.Generator().manual_seed(0))
    length = (walks.actions >= 0).sum(1)
    parts = {seen: steps for seen_as, seen, _, steps in views(walks) if seen_as == "part"}
    assert (parts[0.25] >= 1).all()
    assert (parts[1.0] == length).all()
