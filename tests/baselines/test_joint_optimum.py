from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bsdr_torch.baselines.joint_optimum import BestPair, best_own_values, best_rewards, best_values
from bsdr_torch.baselines.self_play import best_temperature
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.worlds.overcooked import (
    JOINT_ACTIONS,
    KitchenGraph,
    Layout,
    Limits,
    enumerate_kitchen,
    start_states,
    step,
    unique_states,
)

HORIZON = 30


@pytest.fixture(scope="module")
def graph(tiny_kitchen: Layout) -> KitchenGraph:
    return enumerate_kitchen(tiny_kitchen)


def everything_tried(kitchen: Layout, start: Tensor, horizon: int) -> float:
    """The most that any sequence of joint actions earns: all of them are played, states that two reach are one."""
    joint = torch.tensor(JOINT_ACTIONS)
    layers, edges, state = [], [], start
    for _ in range(horizon):
        following, rewards, _ = step(kitchen, state.repeat_interleave(36, 0), joint.repeat(len(state), 1))
        state, number = unique_states(following)
        layers.append(rewards.view(-1, 36))
        edges.append(number.view(-1, 36))
    values = torch.zeros(len(state))
    for rewards, number in zip(reversed(layers), reversed(edges), strict=True):
        values = (rewards + values[number]).amax(1)
    return float(values)


@pytest.mark.parametrize("horizon", [12, HORIZON])
def test_the_joint_optimum_is_what_trying_everything_finds(
    tiny_kitchen: Layout, graph: KitchenGraph, horizon: int
) -> None:
    best = best_rewards(graph, horizon) @ graph.start
    assert float(best) == everything_tried(tiny_kitchen, start_states(tiny_kitchen), horizon)


def test_somebody_who_does_what_is_worth_most_earns_the_optimum(tiny_kitchen: Layout, graph: KitchenGraph) -> None:
    state, earned = start_states(tiny_kitchen), 0.0
    for left in range(HORIZON, 0, -1):
        # A tie is broken by player 0, and player 1 does what is best beside that.
        following = best_rewards(graph, left - 1)
        number = graph.index(state)
        own = best_own_values(graph, following, 0, 1.0)[number].argmax(1)
        options = torch.tensor([(int(own), action) for action in range(6)])
        after, rewards, _ = step(tiny_kitchen, state.repeat(6, 1), options)
        choice = (rewards + following[graph.index(after)]).argmax()
        state, earned = after[choice : choice + 1], earned + float(rewards[choice])
    assert earned == float(best_rewards(graph, HORIZON) @ graph.start) > 0


def test_both_seats_are_worth_the_same_at_their_best(graph: KitchenGraph) -> None:
    values = best_rewards(graph, 12, discount=0.5)
    for seat in (0, 1):
        torch.testing.assert_close(best_own_values(graph, values, seat, 0.5).amax(1), values, atol=0.02, rtol=0)


def test_chance_is_averaged_over(tiny_kitchen: Layout, graph: KitchenGraph) -> None:
    # A pot that cooks for two steps is ready after one more for certain, so that chance makes no difference.
    chancy = enumerate_kitchen(tiny_kitchen, Limits(0, "cooking"))
    assert chancy.next_state.shape[2] == 2
    torch.testing.assert_close(best_rewards(chancy, HORIZON) @ chancy.start, best_rewards(graph, HORIZON) @ graph.start)


def test_the_best_pair_for_ever_earns_what_the_best_in_a_long_game_do(graph: KitchenGraph) -> None:
    endless, long = best_values(graph, 0.9), best_rewards(graph, 200, discount=0.9)
    torch.testing.assert_close(endless, long, rtol=0, atol=0.02)


def test_people_who_err_by_a_known_temperature_are_predicted_by_it(graph: KitchenGraph) -> None:
    pair = BestPair({"tiny": graph}, 0.9)
    generator = torch.Generator().manual_seed(0)
    number = torch.randint(graph.num_states, (4000,), generator=generator)
    seats = torch.randint(2, (4000,), generator=generator)
    zero = torch.zeros_like(seats)
    steps = Decisions("tiny", graph.states[number], zero, seats, zero[:, None], zero, zero, zero, zero)
    values = best_values(graph, 0.9)
    worth = torch.stack([best_own_values(graph, values, seat, 0.9) for seat in (0, 1)])[seats, number]
    actions = torch.multinomial((worth / 0.8).softmax(1), 1, generator=generator).squeeze(1)
    assert float(best_temperature(pair.worth, [steps._replace(actions=actions)])) == pytest.approx(0.8, rel=0.15)
    pair.temperature = torch.tensor(0.8)
    torch.testing.assert_close(pair.action_log_probs(steps).exp(), (worth / 0.8).softmax(1))
    elsewhere = steps.states.clone()
    elsewhere[:, 0] = elsewhere[:, 2]  # both on one cell
    log_probs = pair.action_log_probs(steps._replace(states=elsewhere))
    torch.testing.assert_close(log_probs.exp(), torch.full_like(log_probs, 1 / 6))
