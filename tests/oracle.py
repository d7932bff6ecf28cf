"""Independent references: random small worlds, and sums over every action sequence written out in plain Python."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bsdr_torch.mdp import TabularMDP

KINDS = ("deterministic", "stochastic", "shared", "masked", "terminal", "everything")


def random_mdp(kind: str, generator: torch.Generator, S: int = 4, A: int = 3, K: int = 2) -> TabularMDP:
    """A small random world in float64; "shared" has one outcome distribution for all actions of a state."""
    stochastic = kind in ("stochastic", "shared", "everything")
    next_state = torch.randint(S, (S, A, K if stochastic else 1), generator=generator)
    probability = None
    if stochastic:
        raw = torch.rand(S, 1 if kind == "shared" else A, K, generator=generator, dtype=torch.float64) + 0.1
        probability = raw / raw.sum(-1, keepdim=True)
    terminal = allowed = None
    if kind in ("terminal", "everything"):
        terminal = torch.zeros(S, dtype=torch.bool)
        terminal[S - 1] = True
    if kind in ("masked", "everything"):
        allowed = torch.rand(S, A, generator=generator) < 0.6
        allowed[:, 0] = True
    start = torch.rand(S, generator=generator, dtype=torch.float64)
    return TabularMDP(next_state, start / start.sum(), probability, terminal, allowed)


@dataclass
class BruteForce:
    """log Z, policy and visits of one human by expanding the tree of all actions and outcomes.

    Nothing is shared between branches: each of the (A K)^T paths is walked on its own.
    """

    mdp: TabularMDP
    reward: Tensor  # [S]
    horizon: int
    discount: float = 1.0
    action_term: Tensor | None = None  # [S, A]

    def actions(self, s: int) -> list[int]:
        if self.mdp.allowed is None:
            return list(range(self.mdp.num_actions))
        return [a for a in range(self.mdp.num_actions) if self.mdp.allowed[s, a]]

    def outcomes(self, s: int, a: int) -> list[tuple[float, int]]:
        next_states = self.mdp.next_state[s, a].tolist()
        if self.mdp.probability is None:
            return [(1.0, next_states[0])]
        row = self.mdp.probability[s, a if self.mdp.probability.shape[1] > 1 else 0].tolist()
        return list(zip(row, next_states, strict=True))

    def ended(self, s: int) -> bool:
        return self.mdp.terminal is not None and bool(self.mdp.terminal[s])

    def q(self, t: int, s: int, a: int) -> float:
        bonus = 0.0 if self.action_term is None else float(self.action_term[s, a])
        future = sum(p * self.value(t + 1, z) for p, z in self.outcomes(s, a))
        return float(self.reward[s]) + bonus + self.discount * future

    def value(self, t: int, s: int) -> float:
        if t == self.horizon:
            return 0.0
        if self.ended(s):
            return float(self.reward[s])
        return _log_sum_exp([self.q(t, s, a) for a in self.actions(s)])

    def policy(self, t: int, s: int) -> dict[int, float]:
        total = self.value(t, s)
        return {a: math.exp(self.q(t, s, a) - total) for a in self.actions(s)}

    def visits(self) -> list[float]:
        count = [0.0] * self.mdp.num_states
        for s, p in enumerate(self.mdp.start.tolist()):
            self._walk(0, s, p, count)
        return count

    def _walk(self, t: int, s: int, weight: float, count: list[float]) -> None:
        if t == self.horizon:
            return
        count[s] += weight
        if self.ended(s):
            return
        for a, pi in self.policy(t, s).items():
            for p, z in self.outcomes(s, a):
                self._walk(t + 1, z, weight * pi * p * self.discount, count)


def deterministic_log_z(mdp: TabularMDP, reward: Tensor, s0: int, horizon: int) -> float:
    """log of the sum over action sequences of exp(sum of rewards), by writing every sequence out."""
    totals = []
    for sequence in itertools.product(range(mdp.num_actions), repeat=horizon):
        s, total = s0, 0.0
        for a in sequence:
            total += float(reward[s])
            s = int(mdp.next_state[s, a, 0])
        totals.append(total)
    return _log_sum_exp(totals)


def _log_sum_exp(values: list[float]) -> float:
    top = max(values)
    return top + math.log(sum(math.exp(v - top) for v in values))
