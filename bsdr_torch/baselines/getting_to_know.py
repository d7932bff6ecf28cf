"""Who plays? Two ways to predict somebody drawn from a policy distribution from what they did so far.

`Belief` asks which z they have: a Gaussian for each person, moved as their steps come in so that the evidence lower
bound rises. `Forecaster` is a recurrent network that has watched many people of the distribution play; it knows nothing
of z.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from bsdr_torch.baselines.policy_distribution import PolicyDistribution
from bsdr_torch.kitchens.networks import multilayer_perceptron

_REMEMBERED = 128  # earlier steps that a gradient step looks at, drawn at random
_WIDE, _NARROW = 1.0, 0.05  # the standard deviation of z, at first and at least


class Belief:
    """Which z do R people have? At first, any that the distribution draws.

    Args:
        distribution: what people are drawn from.
        people: R.
        generator: of z.
        samples: how many z a prediction is a mean over.
        learning_rate: of Adam.
    """

    def __init__(
        self,
        distribution: PolicyDistribution,
        people: int,
        generator: torch.Generator,
        samples: int = 32,
        learning_rate: float = 0.05,
    ) -> None:
        self.distribution, self.generator, self.samples = distribution, generator, samples
        shape, device = (people, distribution.boltzmann.latent_size), generator.device
        self.mean = torch.zeros(shape, device=device, requires_grad=True)
        self.log_scale = torch.zeros(shape, device=device, requires_grad=True)
        self._optimizer = torch.optim.Adam([self.mean, self.log_scale], learning_rate)

    @torch.enable_grad()
    def learn(self, observations: Tensor, actions: Tensor, real: Tensor, gradient_steps: int) -> None:
        """Moves the Gaussians, given all that was seen so far.

        Args:
            observations: `[T, R, F]`, what they saw.
            actions: `[T, R]`, what they did.
            real: `[T, R]` bool, which steps there are.
            gradient_steps: how often.
        """
        T, R = actions.shape
        counts = real.sum(0).clamp(min=1)  # [R]
        for _ in range(gradient_steps):
            place = torch.randint(T, (min(T, _REMEMBERED), R), generator=self.generator, device=actions.device)
            who = torch.arange(R, device=actions.device).expand_as(place)
            there = real[place, who]
            z = self._draw().expand(len(place), -1, -1)
            log_probs = self.distribution.logits(observations[place, who], z).log_softmax(-1)
            taken = log_probs.gather(-1, actions[place, who][..., None]).squeeze(-1)
            likelihood = (taken * there).sum(0) / there.sum(0).clamp(min=1) * counts
            variance = (2 * self.log_scale).exp()
            divergence = 0.5 * (self.mean.square() + variance - 1 - 2 * self.log_scale).sum(1)
            # Per step seen, so that the learning rate means the same early and late.
            loss = ((divergence - likelihood) / counts).sum()
            self.mean.grad, self.log_scale.grad = torch.autograd.grad(loss, (self.mean, self.log_scale))
            self._optimizer.step()

    @torch.no_grad()
    def log_probs(self, observations: Tensor) -> Tensor:
        """log P(action) `[T, R, A]` where they see `observations [T, R, F]`; probabilities are averaged, not logits."""
        found = [
            self.distribution.logits(observations, self._draw().expand(len(observations), -1, -1)).log_softmax(-1)
            for _ in range(self.samples)
        ]
        return torch.stack(found).logsumexp(0) - math.log(self.samples)

    def _draw(self) -> Tensor:
        noise = torch.randn(self.mean.shape, generator=self.generator, device=self.mean.device)
        return self.mean + noise * self.log_scale.exp().clamp(_NARROW, _WIDE)


def infer(belief: Belief, observations: Tensor, actions: Tensor, real: Tensor, every: int = 10) -> Tensor:
    """log P(action) at each step of R people, given the steps before it, `[T, R, A]`; see `Belief.learn`.

    The belief is moved after every so many steps, as often as there were steps.
    """
    found = []
    for first in range(0, len(actions), every):
        if first:
            belief.learn(observations[:first], actions[:first], real[:first], every)
        found.append(belief.log_probs(observations[first : first + every]))
    return torch.cat(found)


class Forecaster(nn.Module):
    """log P(a_t | s_t, and all states and actions before): a recurrent network.

    Args:
        features: F.
        actions: A.
        memory: the width of its layers.
    """

    def __init__(self, features: int, actions: int, memory: int) -> None:
        super().__init__()
        self.actions, self.memory = actions, memory
        self.embed = nn.Sequential(nn.Linear(features, memory), nn.ReLU())
        self.remember = nn.GRU(memory + actions, memory)
        self.choose = multilayer_perceptron(2 * memory, [memory], actions, 0.0)

    def forward(self, observations: Tensor, actions: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """log P `[T, R, A]` of what is done in T steps, and what is remembered after them, `[R, M]`.

        `before [R, M]` is what is remembered of the steps before them: nothing, if it is not given.
        """
        seen = self.embed(observations)
        if before is None:
            before = seen.new_zeros(seen.shape[1:])
        done = one_hot(actions, self.actions).to(seen)
        remembered, _ = self.remember(torch.cat([seen, done], -1), before[None].contiguous())
        known = torch.cat([before[None], remembered[:-1]])
        return self.choose(torch.cat([seen, known], -1)).log_softmax(-1), remembered[-1]


def watch(
    forecaster: Forecaster,
    optimizer: torch.optim.Optimizer,
    observations: Tensor,
    actions: Tensor,
    ends: Tensor,
    before: Tensor,
) -> tuple[Tensor, float]:
    """Learns from T steps of R people who play on: what is remembered after them `[R, M]`, and nats per step before.

    A game may end only with the last of the steps, `ends [T, R]`; then everything about the person is forgotten.
    """
    log_probs, after = forecaster(observations, actions, before)
    loss = cross_entropy(log_probs.flatten(0, 1), actions.flatten())
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch's
    nn.utils.clip_grad_norm_(forecaster.parameters(), 1.0)
    optimizer.step()
    return after.detach() * ~ends[-1][:, None], float(loss.detach())
