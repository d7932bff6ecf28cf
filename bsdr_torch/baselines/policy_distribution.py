"""The Boltzmann policy distribution (Laidlaw and Dragan 2022) of games that run by the thousand.

People are policies, drawn once and kept: p(pi) ~ exp(beta J(pi)) relative to pi(.|s) ~ Dirichlet(alpha) in every state.
The distribution is pi_z(a|s) with z ~ N(0, I), a network that reads z by attention, trained by PPO to maximise

    E_z[ J(pi_z) ] - 1/beta KL(q || Dirichlet)

The KL is that of what a window of play reveals of a policy: its action probabilities in the states that come up, each
counted once. A sequence model knows how likely they are under q, given those before them in the window; how likely they
are under the Dirichlet is known. Their ratio is what a discriminator between the two would learn; learning the one part
that is not known, by maximum likelihood, does not fail where the two are easy to tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bsdr_torch.baselines.ppo import Batch, Fragment, Games, Practice, improve, play
from bsdr_torch.kitchens.networks import multilayer_perceptron

_MOST_CERTAIN = 30.0  # probabilities below exp(-30) are told apart by nothing
_LARGEST_EXPONENT = 6.0  # of the concentrations, beside alpha
_LARGEST_GRADIENT = 1.0


@dataclass(frozen=True)
class Boltzmann:
    """Which distribution, and how large its networks are.

    Attributes:
        inverse_beta: 1/beta, in the units of the reward.
        concentration: alpha of the Dirichlet; the smaller, the surer of themselves people are.
        slots: how many parts z has.
        slot_size: the length of each.
        heads: how many mixtures of the slots the network reads in each state.
        hidden: the width of its hidden layers.
        components: Dirichlets in the mixture that models how likely action probabilities are.
        memory: the width of the model of their sequence.
        spread: the scale of the part of the logits that differs between people, at first.
    """

    inverse_beta: float = 0.1
    concentration: float = 0.2
    slots: int = 16
    slot_size: int = 8
    heads: int = 4
    hidden: int = 64
    components: int = 4
    memory: int = 32
    spread: float = 2.0

    @property
    def latent_size(self) -> int:
        """D, the length of z."""
        return self.slots * self.slot_size


class PolicyDistribution(nn.Module):
    """pi_z(a|s) and its critic, which counts in units of so much reward: a `Player` who is given z `[..., D]`."""

    def __init__(self, features: int, actions: int, boltzmann: Boltzmann, unit: float = 1.0) -> None:
        super().__init__()
        b = self.boltzmann = boltzmann
        self.unit = unit
        read = (b.heads + 1) * b.slot_size
        self.embed = nn.Sequential(nn.Linear(features, b.hidden), nn.ReLU())
        self.query = nn.Linear(b.hidden, b.heads * b.slots)
        self.common = multilayer_perceptron(b.hidden, [b.hidden], actions, 0.0)
        self.own = multilayer_perceptron(b.hidden + read, [b.hidden], actions, 0.0)
        self.critic = multilayer_perceptron(features + b.latent_size + 1, [b.hidden, b.hidden], 1, 0.0)
        _scale(self.query, 4 * math.sqrt(b.slots))  # different states read different slots from the start
        _scale(self.own[-1], 4 * b.spread)
        _scale(self.common[-1], 0.01)

    def logits(self, observations: Tensor, latents: Tensor) -> Tensor:
        """Of each action, `[..., A]`."""
        hidden = self.embed(observations)
        found: Tensor = self.common(hidden) + self.own(torch.cat([hidden, self._read(hidden, latents)], -1))
        return found

    def values(self, observations: Tensor, latents: Tensor, clock: Tensor) -> Tensor:
        """What is still to be earned, `[...]`."""
        found: Tensor = self.critic(torch.cat([observations, latents, clock[..., None]], -1))
        return found.squeeze(-1) * self.unit

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """z of so many people, `[count, D]`."""
        return torch.randn((count, self.boltzmann.latent_size), generator=generator, device=generator.device)

    def _read(self, hidden: Tensor, latents: Tensor) -> Tensor:
        """The first slot of z, and mixtures of all scaled to be as large as one, `[..., (1 + heads) * slot_size]`.

        All states see the first, by which what is done in one can agree with what is done in another.
        """
        b = self.boltzmann
        slots = latents.view(*latents.shape[:-1], b.slots, b.slot_size)
        weights: Tensor = self.query(hidden).view(*hidden.shape[:-1], b.heads, b.slots).softmax(-1)
        weights = weights / weights.square().sum(-1, keepdim=True).sqrt()
        return torch.cat([slots[..., 0, :], (weights @ slots).flatten(-2)], -1)


class Revelation(nn.Module):
    """log q - log p of the action probabilities that a window of play reveals, step by step.

    q(pi(.|s_t) | what came before) is a mixture of Dirichlets, of which a recurrent network gives the weights and the
    concentrations. At first they are all those of p, and the ratio is 0.
    """

    def __init__(self, features: int, actions: int, boltzmann: Boltzmann) -> None:
        super().__init__()
        b = self.boltzmann = boltzmann
        self.actions = actions
        self.embed = nn.Sequential(nn.Linear(features, b.memory), nn.ReLU())
        self.remember = nn.GRU(b.memory + actions, b.memory)
        self.mixture = multilayer_perceptron(2 * b.memory, [b.memory], b.components * (actions + 1), 0.0)
        _scale(self.mixture[-1], 0.1)

    def forward(self, observations: Tensor, log_probs: Tensor, fresh: Tensor) -> Tensor:
        """The log ratio `[L, M]` of `log_probs [L, M, A]`, 0 where the state was there before (not `fresh`)."""
        # A state that was there before tells nothing new: only the others, in their order, make the sequence.
        longest = max(1, int(fresh.sum(0).max()))
        order = (~fresh).int().argsort(dim=0, stable=True)[:longest]
        new = [each.gather(0, order[..., None].expand(-1, -1, each.shape[2])) for each in (observations, log_probs)]
        ratio = self._ratio(*new)
        return torch.zeros_like(log_probs[..., 0]).scatter(0, order, ratio * fresh.gather(0, order))

    def _ratio(self, observations: Tensor, log_probs: Tensor) -> Tensor:
        alpha, A = self.boltzmann.concentration, self.actions
        log_probs = log_probs.clamp(min=-_MOST_CERTAIN)
        seen = self.embed(observations)
        remembered, _ = self.remember(torch.cat([seen, log_probs / _MOST_CERTAIN], -1))
        before = torch.cat([torch.zeros_like(remembered[:1]), remembered[:-1]])
        found: Tensor = self.mixture(torch.cat([seen, before], -1))
        found = found.view(*found.shape[:-1], self.boltzmann.components, A + 1)
        exponent = _LARGEST_EXPONENT * torch.tanh(found[..., 1:] / _LARGEST_EXPONENT)
        concentration = alpha * exponent.exp()
        normaliser = concentration.sum(-1).lgamma() - concentration.lgamma().sum(-1)
        normaliser = normaliser - (math.lgamma(A * alpha) - A * math.lgamma(alpha))
        ratio = normaliser + ((concentration - alpha) * log_probs[..., None, :]).sum(-1)
        return (found[..., 0].log_softmax(-1) + ratio).logsumexp(-1)


def iterate(
    distribution: PolicyDistribution,
    revelation: Revelation,
    optimizers: Sequence[torch.optim.Optimizer],
    games: Games,
    latents: Tensor,
    practice: Practice,
    generator: torch.Generator,
    share: float = 1.0,
) -> dict[str, float]:
    """Plays and learns once; returns what happened, by name.

    Args:
        distribution: is trained by the first optimizer.
        revelation: is trained by the second.
        optimizers: two.
        games: go on; they begin at multiples of `practice.window`, so that no window spans two.
        latents: `[R, D]`, who plays; changed as games end.
        practice: how; `window` steps reveal a policy.
        generator: of actions and z.
        share: of the KL that counts. If none does, what a window reveals is neither learned nor returned.
    """
    inverse_beta = share * distribution.boltzmann.inverse_beta

    def draw(count: int) -> Tensor:
        return distribution.draw(count, generator)

    fragment = play(games, distribution, practice.steps, generator, latents, lambda over: draw(len(over)))

    def penalty(batch: Batch, log_probs: Tensor, scale: float) -> Tensor:
        """1/beta KL, whose gradient goes through the probabilities; first the sequence model learns, from other z."""
        fresh = first_visits(batch.observations)
        with torch.no_grad():
            people = draw(batch.actions.shape[1]).expand(len(batch.actions), -1, -1)
            others = distribution.logits(batch.observations, people).log_softmax(-1)
        loss = -revelation(batch.observations, others, fresh).mean()
        optimizers[1].zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(revelation.parameters(), _LARGEST_GRADIENT)
        optimizers[1].step()
        revelation.requires_grad_(False)
        divergence: Tensor = revelation(batch.observations, log_probs, fresh).mean()
        revelation.requires_grad_(True)
        return inverse_beta / scale * divergence

    if not share:
        return improve(distribution, fragment, optimizers[0], practice, generator)
    revealed = revelations(revelation, fragment, practice.window)
    paid = fragment._replace(rewards=fragment.rewards - inverse_beta * revealed)
    found = improve(distribution, paid, optimizers[0], practice, generator, penalty)
    return found | {"divergence": float(revealed.mean()) * practice.window}


@torch.no_grad()
def revelations(revelation: Revelation, fragment: Fragment, window: int) -> Tensor:
    """What each step reveals of the policies that were played, `[T, R]` nats."""
    windows = zip(torch.split(fragment.observations, window), torch.split(fragment.log_probs, window), strict=True)
    return torch.cat([revelation(seen, log_probs, first_visits(seen)) for seen, log_probs in windows])


def first_visits(observations: Tensor) -> Tensor:
    """`[L, M, F]` -> `[L, M]` bool: is it the first time in the window that the player sees this?"""
    L, _, F = observations.shape
    generator = torch.Generator(observations.device).manual_seed(0)
    factors = torch.randint(2**62, (F,), generator=generator, device=observations.device) | 1
    keys = (observations.contiguous().view(torch.int32) * factors).sum(-1)
    earlier = torch.ones(L, L, dtype=torch.bool, device=keys.device).tril(-1)
    return ~((keys[:, None] == keys[None]) & earlier[..., None]).any(1)


def _scale(layer: nn.Module, factor: float) -> None:
    """Makes what a layer gives larger or smaller, at first."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(factor)
