from __future__ import annotations

import torch
from torch import Tensor, nn

from bsdr_torch.baselines.ppo import Batch, Fragment, Practice, advantages, clipped_loss, improve, play


class Arms:
    """Two players, each at four machines of which one pays; a game is three steps, and the second begins later."""

    def __init__(self) -> None:
        self.steps = torch.tensor([0, 1])

    def observe(self) -> Tensor:
        return torch.ones(2, 1)

    def clock(self) -> Tensor:
        return self.steps / 3

    def play(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        self.steps = (self.steps + 1) % 3
        return (actions == 2).float(), self.steps == 0


class Learner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(1, 4), nn.Linear(2, 1)

    def logits(self, observations: Tensor, latents: Tensor) -> Tensor:
        found: Tensor = self.actor(observations)
        return found

    def values(self, observations: Tensor, latents: Tensor, clock: Tensor) -> Tensor:
        found: Tensor = self.critic(torch.cat([observations, clock[..., None]], -1))
        return found.squeeze(-1)


def test_advantages_are_discounted_sums_of_surprises_until_the_game_ends() -> None:
    generator = torch.Generator().manual_seed(0)
    T, R, discount, decay = 6, 5, 0.9, 0.7
    values, rewards = (torch.randn(T, R, generator=generator) for _ in range(2))
    ends = torch.rand(T, R, generator=generator) < 0.3
    last = torch.randn(R, generator=generator)
    nothing = torch.zeros(T, R)
    fragment = Fragment(nothing, nothing, nothing, nothing, nothing, rewards, ends, last)
    found = advantages(fragment, values, discount, decay)
    for t in range(T):
        for row in range(R):
            expected, weight = 0.0, 1.0
            for later in range(t, T):
                following = last[row] if later == T - 1 else values[later + 1, row]
                following = 0.0 if ends[later, row] else following
                expected += weight * float(rewards[later, row] + discount * following - values[later, row])
                weight *= discount * decay
                if ends[later, row]:
                    break
            assert abs(float(found[t, row]) - expected) < 1e-5


def test_the_loss_is_flat_where_a_probability_has_moved_far_enough() -> None:
    logits = torch.tensor([[[0.0, 2.0]]], requires_grad=True)
    old = torch.tensor([[[0.0, 0.0]]]).log_softmax(-1)
    for action, advantage, moves in ((1, 1.0, False), (1, -1.0, True), (0, -1.0, False), (0, 1.0, True)):
        gain = torch.tensor([[advantage]])
        batch = Batch(gain, gain, gain, torch.tensor([[action]]), old, gain, gain)
        (slope,) = torch.autograd.grad(clipped_loss(logits.log_softmax(-1), batch, 0.2), logits)
        assert bool(slope.any()) == moves


def test_practice_finds_the_machine_that_pays() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    learner, games = Learner(), Arms()
    practice = Practice(steps=30, batch_size=32, learning_rate=0.1, entropy=0.0)
    optimizer = torch.optim.Adam(learner.parameters(), practice.learning_rate)
    for _ in range(20):
        improve(learner, play(games, learner, practice.steps, generator), optimizer, practice, generator)
    fragment = play(games, learner, 30, generator)
    assert float(fragment.rewards.mean()) > 0.95
    # What is still to be earned is 3, 2, 1, as long as nothing is discounted much.
    first = learner.values(torch.ones(1, 1), torch.ones(1, 0), torch.zeros(1)).detach()
    assert 2.0 < float(first) < 4.0


def test_what_a_player_is_given_changes_when_a_game_is_over_and_not_before() -> None:
    latents = torch.zeros(2, 1)
    generator = torch.Generator().manual_seed(0)
    fragment = play(Arms(), Learner(), 6, generator, latents, lambda over: latents + 1)
    assert fragment.latents[..., 0].tolist() == [[0, 0], [0, 0], [0, 1], [1, 1], [1, 1], [1, 2]]
    assert fragment.ends.nonzero().tolist() == [[1, 1], [2, 0], [4, 1], [5, 0]]
