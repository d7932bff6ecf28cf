"""Claims about the Gymnasium environment of GridWorld and its pictures."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from bsdr_torch.errors import InputError
from bsdr_torch.worlds import GridWorld, GridWorldEnv, world_names
from bsdr_torch.worlds.gridworld_env import draw

N, S, E, W, STAY = range(5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["two_rooms", "frozen_lake"])
@pytest.mark.parametrize("render_mode", ["ansi", "rgb_array"])
def test_gymnasium_finds_nothing_to_complain_about(name, render_mode):
    env = gymnasium.make("bsdr_torch/GridWorld-v0", world=name, render_mode=render_mode)
    check_env(env.unwrapped)
    env.close()


def ice_world():
    """One start in the middle of ice on which half of the moves slip."""
    return GridWorld.from_spec(
        {
            "name": "rink",
            "map": "iii\niii\niii\n",
            "terrain": {"i": {"name": "ice", "slip": 0.5, "reward_features": {"ice": 2}}},
            "reward_features": ["ice"],
            "rationality_features": ["any"],
            "start": [[1, 1]],
            "horizon": 3,
        }
    )


@pytest.mark.parametrize(
    ("action", "ahead", "sides"),
    [
        (N, (0, 1), [(1, 0), (1, 2)]),
        (S, (2, 1), [(1, 0), (1, 2)]),
        (E, (1, 2), [(0, 1), (2, 1)]),
        (W, (1, 0), [(0, 1), (2, 1)]),
        (STAY, (1, 1), [(1, 1), (1, 1)]),
    ],
)
def test_outcomes_are_as_frequent_as_the_table_and_the_compass_say(action, ahead, sides):
    world = ice_world()
    expected = np.zeros(world.mdp.num_states)
    expected[world.state_at(*ahead)] += 0.5
    for side in sides:
        expected[world.state_at(*side)] += 0.25
    centre = world.state_at(1, 1)
    table = np.zeros(world.mdp.num_states)
    np.add.at(table, world.mdp.next_state[centre, action].numpy(), world.mdp.probability[centre, action].numpy())
    assert np.allclose(table, expected)

    env = GridWorldEnv(world)
    env.reset(seed=action)
    tries = 4000
    counts = np.zeros(world.mdp.num_states)
    for _ in range(tries):
        env.reset()
        counts[env.step(action)[0]] += 1
    spread = np.sqrt(expected * (1 - expected) / tries)
    assert (np.abs(counts / tries - expected) <= 5 * spread).all()


def test_starts_are_as_frequent_as_the_distribution_says():
    env = GridWorldEnv("two_rooms")
    env.reset(seed=0)
    starts = [int(env.reset()[0]) for _ in range(1000)]
    first, second = (env.world.mdp.start > 0).nonzero().flatten().tolist()
    assert set(starts) == {first, second}
    assert starts.count(first) == pytest.approx(500, abs=80)


def test_an_episode_ends_at_the_goal_and_a_step_earns_minus_one_until_then():
    env = GridWorldEnv("two_rooms")
    _, info = env.reset(seed=0)
    to_door = S if info["cell"] == (0, 0) else N
    results = [env.step(action) for action in (to_door, E, E, E, E, S)]
    assert [reward for _, reward, _, _, _ in results] == [-1] * 6
    assert [terminated for _, _, terminated, _, _ in results] == [False] * 5 + [True]
    assert not any(truncated for _, _, _, truncated, _ in results)
    assert results[-1][4] == {"cell": (2, 4)}


def test_an_episode_is_truncated_at_the_horizon():
    env = GridWorldEnv(ice_world())
    env.reset(seed=0)
    assert [env.step(STAY)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


def test_an_episode_earns_minus_the_cost_of_the_states_it_visits():
    world = GridWorld.load("two_rooms")
    cost = np.arange(1.0, world.mdp.num_states + 1)
    env = GridWorldEnv(world, cost=cost)
    state, info = env.reset(seed=0)
    visited, total = [int(state)], 0.0
    for action in (S if info["cell"] == (0, 0) else N, E, E, E, E, S):
        state, reward, *_ = env.step(action)
        visited.append(int(state))
        total += reward
    assert total == -cost[visited].sum()


def test_cost_by_feature_name_is_theta_R_times_phi_R():
    env = GridWorldEnv(ice_world(), cost={"ice": 1.5})
    env.reset(seed=0)
    assert env.step(STAY)[1] == -3.0


def test_the_same_seed_gives_the_same_episode():
    def episode(seed):
        env = GridWorldEnv("frozen_lake")
        states = [int(env.reset(seed=seed)[0])]
        return states + [int(env.step(action)[0]) for action in (S, E, S, E, N, W, S, S, E)]

    assert episode(3) == episode(3)
    assert len({tuple(episode(seed)) for seed in range(5)}) > 1


def test_text_shows_the_map_the_agent_and_the_last_action():
    env = GridWorldEnv("two_rooms", render_mode="ansi")
    _, info = env.reset(seed=0)
    assert env.render().startswith("two_rooms, start\n")
    env.step(S if info["cell"] == (0, 0) else N)
    head, *rows, legend = env.render().splitlines()
    assert head.startswith("two_rooms, step 1 of 10: ")
    assert rows == ["..#..", "@,,,.", "..#.G"]
    assert legend == "@ agent  # wall  . floor  , rug  G exit"


def test_the_picture_follows_the_agent_and_leaves_the_rest_alone():
    world = GridWorld.load("two_rooms")
    before, after = draw(world, state=1, cell_pixels=20), draw(world, state=2, cell_pixels=20)
    assert before.shape == (60, 100, 3)
    changed_cells = (before != after).any(axis=2).reshape(3, 20, 5, 20).any(axis=(1, 3))
    assert np.argwhere(changed_cells).tolist() == world.cells[1:3].tolist()


@pytest.mark.parametrize("name", world_names("gridworld"))
def test_every_shipped_world_can_be_drawn_and_its_terrains_look_different(name):
    world = GridWorld.load(name)
    picture = draw(world, cell_pixels=9)
    assert picture.shape == (9 * world.shape[0], 9 * world.shape[1], 3)
    corners = picture[1::9, 1::9].astype(int)
    names = ["wall", *(kind["name"] for kind in world.spec["terrain"].values())]
    places = [world.layers[name].numpy() for name in names]
    mean_colors = [corners[here].mean(axis=0) for here in places if here.any()]
    distances = [np.abs(a - b).max() for i, a in enumerate(mean_colors) for b in mean_colors[:i]]
    assert min(distances) > 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"world": "atlantis"}, "no gridworld is called 'atlantis'"),
        ({"render_mode": "human"}, "render_mode must be one of .* got 'human'"),
        ({"cost": [1.0, 2.0]}, r"two_rooms: cost must be a finite number for each of 13 states.* got shape \[2\]"),
        ({"cost": [np.nan] * 13}, "two_rooms: cost must be a finite number"),
        ({"cost": {"lava": 1}}, "two_rooms: cost has no feature 'lava'; the reward features are floor, rug"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        GridWorldEnv(**arguments)


def test_steps_out_of_order_or_range_are_refused():
    env = GridWorldEnv("two_rooms")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(N)
    env.reset(seed=0)
    with pytest.raises(InputError, match=r"from 0 to 4 \(N, S, E, W, STAY\), got 5"):
        env.step(5)


def test_rewards_of_tensors_are_accepted():
    env = GridWorldEnv(ice_world(), cost=torch.full((9,), 4.0))
    env.reset(seed=0)
    assert env.step(STAY)[1] == -4.0
