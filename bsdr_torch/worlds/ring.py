"""A ring of cells around which things are carried: a world so small that distributions over its policies are known.

Somebody walks a ring, one cell left or right in each step. They pick up at the cell opposite the start, by coming there
with empty hands, and drop at the start, which earns 1. Both ways round are equally good.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bsdr_torch.errors import InputError

NUM_ACTIONS = 2  # left, right


class Ring:
    """A ring; state `2 * cell + loaded`.

    Args:
        cells: how many; pick up at `cells / 2`, drop at 0.
        horizon: steps of a game.

    Attributes:
        next_state: `[S, 2]` int64.
        reward: `[S, 2]`, what the step earns.
    """

    def __init__(self, cells: int = 8, horizon: int = 100) -> None:
        if cells < 2 or cells % 2:
            raise InputError(f"a ring has an even number of cells, at least 2, got {cells}")
        self.cells, self.horizon = cells, horizon
        cell, loaded = torch.arange(cells)[:, None, None], torch.arange(2)[:, None]
        there = (cell + torch.tensor([-1, 1])) % cells  # [cells, 1, 2]
        dropped = (there == 0) & (loaded == 1)
        after = torch.where(there == cells // 2, 1, loaded) * ~dropped
        self.next_state = (2 * there + after).view(2 * cells, NUM_ACTIONS)
        self.reward = dropped.float().view(2 * cells, NUM_ACTIONS)

    @property
    def num_states(self) -> int:
        """S."""
        return 2 * self.cells

    def returns(self, policies: Tensor) -> Tensor:
        """What policies `[P, S, 2]` earn in a game on average, `[P]`."""
        values = policies.new_zeros(policies.shape[:2])
        reward = self.reward.to(policies)
        for _ in range(self.horizon):
            values = (policies * (reward + values[:, self.next_state])).sum(2)
        return values[:, 0]


class RingGames:
    """Games in a ring, all begun at once; see `Games` of `baselines.ppo`."""

    def __init__(self, ring: Ring, count: int) -> None:
        self.ring = ring
        self.states = torch.zeros(count, dtype=torch.int64)
        self.steps = 0

    def observe(self) -> Tensor:
        """The state as a unit vector, `[R, S]`."""
        return torch.nn.functional.one_hot(self.states, self.ring.num_states).float()

    def clock(self) -> Tensor:
        """The share of the game that is over, `[R]`."""
        return torch.full((len(self.states),), self.steps / self.ring.horizon)

    def play(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """One step by `actions [R]`."""
        rewards = self.ring.reward[self.states, actions]
        self.states, self.steps = self.ring.next_state[self.states, actions], self.steps + 1
        over = self.steps == self.ring.horizon
        if over:
            self.states, self.steps = torch.zeros_like(self.states), 0
        return rewards, torch.full_like(self.states, over, dtype=torch.bool)


def boltzmann_policies(
    ring: Ring, inverse_beta: float, concentration: float, count: int, generator: torch.Generator, sweeps: int = 8
) -> Tensor:
    """Policies `[P, S, 2]` from p(pi) ~ Dirichlet(pi) exp(J(pi) / inverse_beta), by annealed sequential Monte Carlo.

    All policies are drawn from the Dirichlet. Then beta rises in steps so small that the weights stay even: the
    policies are drawn anew by weight, and each state of each is offered another row, one from the Dirichlet or one near
    its own, made by multiplying the underlying gamma variables; Metropolis and Hastings decide. Returns are exact.
    """
    S, alpha = ring.num_states, concentration
    gammas = _log_gammas((count, S, NUM_ACTIONS), alpha, generator)
    earned, beta = ring.returns(gammas.softmax(2)), 0.0
    while beta < 1 / inverse_beta:
        beta_then = beta + _increment(earned, 1 / inverse_beta - beta)
        weights = ((beta_then - beta) * (earned - earned.max())).exp()
        chosen = torch.multinomial(weights, count, replacement=True, generator=generator)
        gammas, earned, beta = gammas[chosen], earned[chosen], beta_then
        for _ in range(sweeps):
            for state in range(S):
                local = bool(torch.rand((), generator=generator) < 0.5)
                offered = gammas.clone()
                if local:
                    width = 2.0 * float(torch.rand((), generator=generator))
                    offered[:, state] += width * torch.randn(
                        count, NUM_ACTIONS, generator=generator, dtype=gammas.dtype
                    )
                    # A log-gamma variable g has the density exp(alpha g - e^g).
                    ratio = (alpha * offered - offered.exp() - alpha * gammas + gammas.exp())[:, state].sum(1)
                else:
                    offered[:, state] = _log_gammas((count, NUM_ACTIONS), alpha, generator)
                    ratio = torch.zeros(count, dtype=gammas.dtype)
                would_earn = ring.returns(offered.softmax(2))
                chance = (ratio + beta * (would_earn - earned)).exp()
                taken = torch.rand(count, generator=generator, dtype=gammas.dtype) < chance
                gammas = torch.where(taken[:, None, None], offered, gammas)
                earned = torch.where(taken, would_earn, earned)
    return gammas.softmax(2)


def _log_gammas(shape: tuple[int, ...], alpha: float, generator: torch.Generator) -> Tensor:
    """Logarithms of gamma variables, also where those would be 0: of gamma(1 + alpha) times U^(1 / alpha)."""
    whole = torch._standard_gamma(torch.full(shape, 1 + alpha, dtype=torch.float64), generator=generator).log()
    return whole + torch.rand(shape, generator=generator, dtype=torch.float64).log() / alpha


def _increment(earned: Tensor, most: float) -> float:
    """By how much beta may rise, at most, so that the weights still count for half of the policies."""

    def is_even(rise: float) -> bool:
        weights = (rise * (earned - earned.max())).exp()
        return float(weights.sum() ** 2 / (weights**2).sum()) >= len(earned) / 2

    if is_even(most):
        return most
    low, high = 0.0, most
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if is_even(middle) else (low, middle)
    return high
