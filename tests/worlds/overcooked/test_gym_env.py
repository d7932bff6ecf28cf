from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from torch import Tensor

import bsdr_torch.worlds  # noqa: F401 - registers the environment
from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import INTERACT, STAY, OvercookedEnv, OvercookedVectorEnv, load_layout, start_states

N, S, E, W = range(4)
# Player 0 of cramped_room fills the pot alone while player 1 waits out of the way, then serves.
ONION = [W, INTERACT, E, N, INTERACT]
SERVE = [*ONION * 3, S, W, S, INTERACT, *[STAY] * 20, N, E, N, INTERACT, S, E, S, INTERACT]


def waiting_partner(states: Tensor) -> Tensor:
    return torch.eye(6, device=states.device)[STAY].expand(len(states), 6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("layout", ["cramped_room", "random3", "soup_coordination"])
@pytest.mark.parametrize("render_mode", ["ansi", "rgb_array"])
@pytest.mark.parametrize("seat", [0, 1])
def test_gymnasium_finds_nothing_to_complain_about(layout: str, render_mode: str, seat: int) -> None:
    env = gymnasium.make("bsdr_torch/Overcooked-v0", layout=layout, render_mode=render_mode, seat=seat)
    check_env(env.unwrapped)
    env.close()


def test_serving_earns_the_reward_and_the_way_there_the_shaped_one() -> None:
    env = OvercookedEnv("cramped_room", waiting_partner)
    env.reset(seed=0)
    env.step(N), env.step(E)
    rewards, shaped = [], []
    for action in SERVE:
        _, reward, terminated, truncated, info = env.step(action)
        assert not terminated
        assert not truncated
        rewards.append(reward)
        shaped.append(info["shaped_reward"])
    assert [reward for reward in rewards if reward] == [20.0]
    assert rewards[-1] == 20.0
    assert [reward for reward in shaped if reward] == [3.0, 3.0, 3.0, 3.0, 5.0]


def test_the_same_seed_gives_the_same_game_and_another_another() -> None:
    def play(seed: int) -> list[int]:
        env = OvercookedEnv()
        env.reset(seed=seed)
        return [env.step(STAY)[4]["partner_action"] for _ in range(50)]

    assert play(1) == play(1)
    assert play(1) != play(2)
    env = OvercookedEnv()
    env.reset(seed=1)
    first = [env.step(STAY)[4]["partner_action"] for _ in range(50)]
    env.reset()
    assert [env.step(STAY)[4]["partner_action"] for _ in range(50)] != first, "a new game has new dice"


def test_the_horizon_truncates() -> None:
    env = OvercookedEnv(horizon=3)
    env.reset(seed=0)
    assert [env.step(STAY)[3] for _ in range(3)] == [False, False, True]
    assert OvercookedEnv()._kitchens.horizon == load_layout("cramped_room").horizon


def test_the_ego_sees_itself_first() -> None:
    start = start_states(load_layout("cramped_room"))[0].tolist()
    first, second = OvercookedEnv(seat=0).reset(seed=0)[0], OvercookedEnv(seat=1).reset(seed=0)[0]
    assert first.tolist() == start
    assert second.tolist() == [*start[2:4], *start[:2], *start[4:]]


@pytest.mark.parametrize("seat", [0, 1])
def test_the_action_is_the_ego_s(seat: int) -> None:
    env = OvercookedEnv("cramped_room", waiting_partner, seat=seat)
    before = env.reset(seed=0)[1]["state"]
    after = env.step(W if seat == 1 else E)[4]["state"]
    assert before[2 * seat] != after[2 * seat]
    assert before[2 - 2 * seat] == after[2 - 2 * seat]


def test_observations_may_be_of_any_kind() -> None:
    env = OvercookedEnv(observation=lambda layout, states, seat: states.float().view(-1, 2, 5) / 9 + seat, seat=1)
    assert env.observation_space.shape == (2, 5)
    assert env.observation_space.contains(env.reset(seed=0)[0])
    with pytest.raises(InputError, match=r"an observation must be numbers, got a tensor of torch\.bool"):
        OvercookedEnv(observation=lambda layout, states, seat: states > 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layout": "atlantis"}, "no kitchen is called 'atlantis'"),
        ({"seat": 2}, "seat must be 0 or 1, got 2"),
        ({"horizon": 0}, "horizon must be at least 1 step, got 0"),
        ({"render_mode": "human"}, "render_mode must be one of .* got 'human'"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    for env in (OvercookedEnv, OvercookedVectorEnv):
        with pytest.raises(InputError, match=message):
            env(**arguments)


def test_steps_out_of_order_or_range_are_refused() -> None:
    env, vector = OvercookedEnv(), OvercookedVectorEnv(2)
    for unready, action in ((env, N), (vector, [N, N])):
        with pytest.raises(gymnasium.error.ResetNeeded):
            unready.step(action)
        unready.reset(seed=0)
    with pytest.raises(InputError, match=r"from 0 to 5 \(north, .* interact\), got 6"):
        env.step(6)
    with pytest.raises(InputError, match=r"joint_actions\[1, 0\] is 6"):
        vector.step([0, 6])
    with pytest.raises(InputError, match=r"each of 2 kitchens, got \(3,\)"):
        vector.step([0, 0, 0])
    odd = OvercookedEnv(partner=lambda states: torch.ones(len(states), 5))
    odd.reset(seed=0)
    with pytest.raises(InputError, match=r"6 probabilities for each of 1 states, got shape \(1, 5\)"):
        odd.step(0)


@pytest.mark.filterwarnings("error")
def test_the_vector_env_keeps_gymnasium_s_promises() -> None:
    env = gymnasium.make_vec(
        "bsdr_torch/Overcooked-v0", num_envs=64, vectorization_mode="vector_entry_point", layout="random0", horizon=9
    )
    assert isinstance(env.unwrapped, OvercookedVectorEnv)
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(env)
    observations, info = env.reset(seed=3)
    assert info == {}
    env.action_space.seed(0)
    ends = []
    for _ in range(25):
        assert env.observation_space.contains(observations)
        observations, rewards, terminated, truncated, info = env.step(env.action_space.sample())
        assert rewards.shape == terminated.shape == truncated.shape == (64,)
        assert terminated.dtype == truncated.dtype == np.bool_
        assert not terminated.any()
        ends.append(truncated.all())
        if truncated.any():
            assert (info["episode"]["l"] == 9).all()
    # The step after the last one of a game begins the next.
    assert [step for step, end in enumerate(ends) if end] == [8, 18]
    env.close()


def test_many_kitchens_are_as_many_single_ones() -> None:
    actions = torch.randint(6, (30, 20), generator=torch.Generator().manual_seed(0)).numpy()
    many = OvercookedVectorEnv(20, partner=waiting_partner, seat=1, horizon=100)
    batch = [many.reset(seed=0)[0]]
    rewards, shaped = [], []
    for action in actions:
        observation, reward, _, _, info = many.step(action)
        batch.append(observation)
        rewards.append(reward)
        shaped.append(info["shaped_reward"])
    for row in range(20):
        env = OvercookedEnv(partner=waiting_partner, seat=1, horizon=100)
        assert env.reset(seed=0)[0].tolist() == batch[0][row].tolist()
        for t, action in enumerate(actions[:, row]):
            observation, reward, _, _, info = env.step(action)
            assert observation.tolist() == batch[t + 1][row].tolist()
            assert (reward, info["shaped_reward"]) == (rewards[t][row], shaped[t][row])


def test_vector_games_are_seeded_and_start_again_by_themselves() -> None:
    def play(seed: int) -> list[list[int]]:
        env = OvercookedVectorEnv(8, horizon=4)
        env.reset(seed=seed)
        return [env.step([STAY] * 8)[4]["partner_action"].tolist() for _ in range(12)]

    assert play(5) == play(5)
    assert play(5) != play(6)
    env = OvercookedVectorEnv(8, horizon=4)
    first, _ = env.reset(seed=0)
    for _ in range(4):
        *_, truncated, info = env.step([INTERACT] * 8)
    assert truncated.all()
    assert info["_shaped_reward"].all()
    again, rewards, _, truncated, info = env.step([INTERACT] * 8)
    assert (again == first).all()
    assert not rewards.any()
    assert not truncated.any()
    assert not info["_shaped_reward"].any()


def test_the_step_that_starts_a_game_again_earns_nothing() -> None:
    plan = [N, E, *SERVE]
    for horizon, earned in ((len(plan), 20.0), (len(plan) - 1, 0.0)):
        env = OvercookedVectorEnv(2, partner=waiting_partner, horizon=horizon)
        env.reset(seed=0)
        for action in plan:
            rewards = env.step([action, action])[1]
        assert rewards.tolist() == [earned, earned]


def test_tensors_stay_tensors_on_request() -> None:
    env = OvercookedVectorEnv(16, tensors=True)
    env.reset(seed=0)
    observations, rewards, terminated, truncated, info = env.step(torch.zeros(16, dtype=torch.int64))
    assert all(isinstance(value, Tensor) for value in (observations, rewards, terminated, truncated, *info.values()))


@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
def test_vector_envs_render_each_kitchen(mode: str) -> None:
    env = OvercookedVectorEnv(3, render_mode=mode)
    env.reset(seed=0)
    assert len(env.render()) == 3
    assert OvercookedVectorEnv(3).render() is None
