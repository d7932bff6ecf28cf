"""Proximal policy optimisation (Schulman et al. 2017) of games that run by the thousand as tensors.

Its two formulas, the advantages and the clipped loss, are ten lines here. TorchRL has them too, but asks for TensorDict
modules around the networks and brings five packages along.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

LARGEST_GRADIENT = 0.5  # its norm, beyond which it is cut


class Games(Protocol):
    """Games that go on for ever: one that is over starts again. R rows decide at a time, one for each player."""

    def observe(self) -> Tensor:
        """What each player sees, `[R, F]`."""

    def clock(self) -> Tensor:
        """The share of the game that is over, `[R]`: known to the critic only."""

    def play(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """One step by `actions [R]`: what each earned, `[R]`, and whether that was their last step, `[R]` bool."""


class Player(Protocol):
    """Somebody who learns to play. What they are given beside what they see, `[R, D]`, stays the same for a game."""

    def logits(self, observations: Tensor, latents: Tensor) -> Tensor:
        """Of each action, `[..., A]`."""

    def values(self, observations: Tensor, latents: Tensor, clock: Tensor) -> Tensor:
        """What is still to be earned, `[...]`."""


@dataclass(frozen=True)
class Practice:
    """How to learn.

    Attributes:
        steps: that are played between two improvements.
        epochs: how often each of them is learned from.
        batch_size: decisions per gradient step.
        window: decisions of one player that stay together in a batch.
        learning_rate: of Adam, at the start; it falls to nothing in a straight line, as `entropy` does.
        discount: of what is earned a step later.
        decay: lambda of the generalised advantages.
        clip: how far the probability of an action may move, as a share, before the loss is flat.
        entropy: what a nat of entropy of the action is worth, in standard deviations of the advantage.
    """

    steps: int = 40
    epochs: int = 2
    batch_size: int = 4096
    window: int = 1
    learning_rate: float = 1e-3
    discount: float = 0.99
    decay: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01

    def at(self, done: float) -> Practice:
        """How to learn when a share of the practice is done."""
        left = max(1 - done, 0.01)
        return replace(self, learning_rate=self.learning_rate * left, entropy=self.entropy * left)


class Fragment(NamedTuple):
    """T steps of R players, `[T, R]`.

    Attributes:
        observations: `[T, R, F]`.
        latents: `[T, R, D]`.
        clock: the share of the game that is over.
        actions: int64.
        log_probs: `[T, R, A]`, of all actions when they were taken.
        rewards: what each action earned.
        ends: bool, whether it was the last of its game.
        next_values: `[R]`, what is still to be earned after the last step.
    """

    observations: Tensor
    latents: Tensor
    clock: Tensor
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor
    ends: Tensor
    next_values: Tensor


class Batch(NamedTuple):
    """Windows of a fragment to learn from, `[L, M]`; see `Fragment`."""

    observations: Tensor
    latents: Tensor
    clock: Tensor
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    returns: Tensor


# What is added to the loss of a batch, given the log-probabilities `[L, M, A]` that are learned and by what the
# advantages were divided.
Penalty = Callable[[Batch, Tensor, float], Tensor]


@torch.no_grad()
def play(
    games: Games,
    player: Player,
    steps: int,
    generator: torch.Generator,
    latents: Tensor | None = None,
    redraw: Callable[[Tensor], Tensor] | None = None,
) -> Fragment:
    """Goes on with the games for some steps.

    Args:
        games: are changed.
        player: decides in all rows.
        steps: T.
        generator: of the actions.
        latents: `[R, D]`, what each player is given; changed as games end. None for nothing.
        redraw: makes others for those whose games are over, from `[R]` bool to `[R, D]`.
    """
    seen = games.observe()
    given = seen.new_zeros((len(seen), 0)) if latents is None else latents
    rows: list[tuple[Tensor, ...]] = []
    for _ in range(steps):
        log_probs = player.logits(seen, given).log_softmax(-1)
        actions = torch.multinomial(log_probs.exp(), 1, generator=generator).squeeze(1)
        clock = games.clock()
        rewards, ends = games.play(actions)
        rows.append((seen, given.clone(), clock, actions, log_probs, rewards, ends))
        if redraw is not None and bool(ends.any()):
            given.copy_(torch.where(ends[:, None], redraw(ends), given))
        seen = games.observe()
    columns = [torch.stack(column) for column in zip(*rows, strict=True)]
    return Fragment._make([*columns, player.values(seen, given, games.clock())])


def improve(
    player: Player,
    fragment: Fragment,
    optimizer: torch.optim.Optimizer,
    practice: Practice,
    generator: torch.Generator,
    penalty: Penalty | None = None,
) -> dict[str, float]:
    """Learns from a fragment; returns what happened, by name."""
    with torch.no_grad():
        values = player.values(fragment.observations, fragment.latents, fragment.clock)
    gains = advantages(fragment, values, practice.discount, practice.decay)
    scale = float(gains.std()) + 1e-6
    returns = gains + values
    columns = [fragment.observations, fragment.latents, fragment.clock, fragment.actions, fragment.log_probs]
    whole = Batch(
        *(_windows(column, practice.window) for column in (*columns, (gains - gains.mean()) / scale, returns))
    )
    count, some = whole.actions.shape[1], max(1, practice.batch_size // practice.window)
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    sums = {"policy_loss": 0.0, "value_loss": 0.0, "entropy": 0.0}
    batches = 0
    for _ in range(practice.epochs):
        order = torch.randperm(count, generator=generator, device=generator.device)
        for chosen in torch.split(order, some):
            batch = Batch(*(column[:, chosen] for column in whole))
            log_probs = player.logits(batch.observations, batch.latents).log_softmax(-1)
            entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
            policy_loss = clipped_loss(log_probs, batch, practice.clip)
            found = player.values(batch.observations, batch.latents, batch.clock)
            value_loss = nn.functional.mse_loss(found / scale, batch.returns / scale)
            loss = policy_loss - practice.entropy * entropy + 0.5 * value_loss
            if penalty is not None:
                loss = loss + penalty(batch, log_probs, scale)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
            nn.utils.clip_grad_norm_(parameters, LARGEST_GRADIENT)
            optimizer.step()
            batches += 1
            for name, value in (("policy_loss", policy_loss), ("value_loss", value_loss), ("entropy", entropy)):
                sums[name] += float(value.detach())
    return {name: total / batches for name, total in sums.items()}


def advantages(fragment: Fragment, values: Tensor, discount: float, decay: float) -> Tensor:
    """Generalised advantages `[T, R]`: how much better things went than `values [T, R]` said."""
    found, gain, following = torch.empty_like(values), torch.zeros_like(values[0]), fragment.next_values
    for t in range(len(values) - 1, -1, -1):
        goes_on = (~fragment.ends[t]).to(values.dtype)
        surprise = fragment.rewards[t] + discount * goes_on * following - values[t]
        gain = found[t] = surprise + discount * decay * goes_on * gain
        following = values[t]
    return found


def clipped_loss(log_probs: Tensor, batch: Batch, clip: float) -> Tensor:
    """-E min(ratio A, clip(ratio) A), with ratio = pi(a|s) / pi_old(a|s) and advantages A."""
    taken = batch.actions[..., None]
    ratio = (log_probs.gather(-1, taken) - batch.log_probs.gather(-1, taken)).squeeze(-1).exp()
    return -torch.minimum(ratio * batch.advantages, ratio.clamp(1 - clip, 1 + clip) * batch.advantages).mean()


def _windows(column: Tensor, length: int) -> Tensor:
    """`[T, R, ...]` -> `[L, T / L * R, ...]`."""
    T, R, *rest = column.shape
    return column.view(T // length, length, R, *rest).transpose(0, 1).reshape(length, T // length * R, *rest)
