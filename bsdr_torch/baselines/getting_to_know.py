"""Who plays? Two ways to predict somebody drawn from a policy distribution from what they did so far.

`infer` asks which z they have: a Gaussian for each person, moved as their steps come in so that the evidence lower
bound rises. `Forecaster` is a recurrent network that has watched many people of the distribution play; it knows nothing
of z.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from bsdr_torch.baselines.policy_distribution import PolicyDistribution
from bsdr_torch.kitchens.networks import multilayer_perceptron

_REMEMBERED = 128  # earlier steps that a gradient step looks at, drawn at random
_WIDE, _NARROW = 1.0, 0.05  # the standard deviation of z, at first and at least


def infer(
    distribution: PolicyDistribution,
    observations: Tensor,
    actions: Tensor,
    real: Tensor,
    generator: torch.Generator,
    every: int = 10,
    gradient_steps: int = 10,
    samples: int = 32,
    learning_rate: float = 0.05,
) -> Tensor:
    """log P(action) at each step, given the steps before it, `[T, R, A]`.

    The probabilities are means over z, not over logits.

    Args:
        distribution: what people are drawn from.
        observations: `[T, R, F]`, what R people saw.
        actions: `[T, R]`, what they did.
        real: `[T, R]` bool, which steps there are.
        generator: of z.
        every: after how many steps the Gaussians are moved.
        gradient_steps: how often they are moved then.
        samples: how many z the prediction is a mean over.
        learning_rate: of Adam.
    """
    T, R, _ = observations.shape
    D, device = distribution.boltzmann.latent_size, observations.device
    mean = torch.zeros((R, D), device=device, requires_grad=True)
    log_scale = torch.zeros((R, D), device=device, requires_grad=True)
    optimizer = torch.optim.Adam([mean, log_scale], learning_rate)
    found = []

    def drawn(count: int) -> Tensor:
        noise = torch.randn((count, R, D), generator=generator, device=device)
        return mean + noise * log_scale.exp().clamp(_NARROW, _WIDE)

    for first in range(0, T, every):
        seen = observations[first : first + every]
        with torch.no_grad():
            z = drawn(samples)
            each = [distribution.logits(seen, one.expand(len(seen), -1, -1)).log_softmax(-1) for one in z]
            found.append(torch.stack(each).logsumexp(0) - torch.tensor(float(samples)).log())
        known = min(first + every, T)
        counts = real[:known].sum(0).clamp(min=1)  # [R]
        for _ in range(gradient_steps if known < T else 0):
            place = torch.randint(known, (min(known, _REMEMBERED), R), generator=generator, device=device)
            who = torch.arange(R, device=device).expand_as(place)
            there = real[place, who]
            logits = distribution.logits(observations[place, who], drawn(1).expand(len(place), -1, -1))
            taken = logits.log_softmax(-1).gather(-1, actions[place, who][..., None]).squeeze(-1)
            likelihood = (taken * there).sum(0) / there.sum(0).clamp(min=1) * counts
            divergence = 0.5 * (mean.square() + (2 * log_scale).exp() - 1 - 2 * log_scale).sum(1)
            optimizer.zero_grad()
            # Per step seen, so that the learning rate means the same early and late.
            ((divergence - likelihood) / counts).sum().backward()  # type: ignore[no-untyped-call]  # torch's
            optimizer.step()
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
