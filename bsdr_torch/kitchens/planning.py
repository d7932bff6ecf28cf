"""The soft-Bellman equation of people who pause, on states given by their successors.

    Q_i(s, a) = gamma E_b V_i(s'(a, b))                                        b: the partner's action
    V_i(s)    = r_i(s) + rho Q_i(s, STAY) + (1 - rho) log sum_a b(a) exp Q_i(s, a)

Plans are made with the habit of everybody's mean, `PlannedHabit`. What a person then does is in `choosing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from bsdr_torch.kitchens.networks import multilayer_perceptron
from bsdr_torch.kitchens.outlook import NUM_FEATURES, Outlook, Places, mirrored, mirrored_pairs
from bsdr_torch.worlds.overcooked import STAY


class PlannedHabit(NamedTuple):
    """The habit that people expect of their future selves.

    Attributes:
        log_base: `[2, 6]` log b(a), for actions that do something and for those that change nothing.
        pause: the probability of a pause, a scalar.
    """

    log_base: Tensor
    pause: Tensor


class ValueNetwork(nn.Module):
    """V_i(s) = v(s) + e_i . w(s), with v and w from one network and e_i a vector for each person.

    Args:
        hidden: the widths of the hidden layers.
        num_humans: how many people there are.
        rank: the length of e_i; 0 if all people are alike. Somebody never seen has e = 0.
        dropout: the share of each hidden layer that is left out in training, in all states of a batch alike.
        start: about what V is before it learns.
    """

    def __init__(
        self, hidden: Sequence[int], num_humans: int, rank: int, dropout: float = 0.0, start: float = 0.0
    ) -> None:
        super().__init__()
        self.network = multilayer_perceptron(NUM_FEATURES, hidden, 1 + rank, dropout, shared=True)
        self.people = nn.Parameter(torch.zeros(num_humans, rank))
        nn.init.constant_(cast(nn.Linear, self.network[-1]).bias[:1].detach(), start)

    def forward(self, features: Tensor, people: Tensor) -> Tensor:
        """V of `people [B]` in states with `features [U, F]`, `[U, B]`; in training mode of the states or their mirror.

        Otherwise it is the mean of both, so that nothing changes when a kitchen is mirrored.
        """
        return self.of_people(self.parts(features), people)

    def of_people(self, parts: Tensor, people: Tensor) -> Tensor:
        """V of `people [B]`, `[U, B]`, from `parts [U, 1 + rank]`."""
        nobody = self.people.new_zeros((1, self.people.shape[1]))
        weights = torch.cat([self.people, nobody])[people]
        values: Tensor = parts[:, :1] + parts[:, 1:] @ weights.T
        return values

    def parts(self, features: Tensor) -> Tensor:
        """v(s) and w(s), `[U, 1 + rank]`."""
        first = cast(nn.Linear, self.network[0])
        if self.training:
            # There are fewer weights to exchange than features.
            weight = first.weight if torch.rand(()) < 0.5 else mirrored(first.weight)
            return self._rest(linear(features, weight, first.bias))
        # The mirror exchanges some features and leaves most as they are: little of the first layer is to be done again.
        east, west = mirrored_pairs(features.device)
        here = first(features)
        more_west = features.index_select(1, west) - features.index_select(1, east)
        exchanged = more_west @ (first.weight[:, east] - first.weight[:, west]).T
        return (self._rest(here) + self._rest(here + exchanged)) / 2

    def _rest(self, hidden: Tensor) -> Tensor:
        """All layers but the first."""
        hidden, last = self.network[1:-1](hidden), cast(nn.Linear, self.network[-1])
        # Values of -10 that differ by a hundredth are the same in bfloat16, and people choose between them.
        with torch.autocast(hidden.device.type, enabled=False):
            found: Tensor = last(hidden.to(last.weight.dtype))
        return found


def action_values(
    values: Tensor, ahead: Outlook | Places, partner: Tensor, discount: float, column: Tensor | None
) -> Tensor:
    """Q, the discounted expectation of `values [U, B]` over what the partner may do, `partner [N, 6]`.

    Args:
        values: V at the states of the outlook, for B people.
        ahead: the decisions and their successors.
        partner: the probability of each action of the partner.
        discount: gamma.
        column: `[N]`, which of the people decides: the result is `[N, 6]`; None for all of them: `[N, 6, B]`.
    """
    if column is None:
        return discount * expected_values(values, ahead.following, partner)
    there = values.reshape(-1)[ahead.following * values.shape[1] + column.view(-1, 1, 1)]
    return discount * (there * partner[:, None, :]).sum(2)


def expected_values(values: Tensor, following: Tensor, partner: Tensor) -> Tensor:
    """The expectation of `values [U, B]` over what the partner does, after each action: `[N, 6, B]`."""
    return torch.einsum("nabi,nb->nai", values[following], partner)


def backup(action_values: Tensor, no_op: Tensor, habit: PlannedHabit) -> Tensor:
    """What is to be expected after a decision: `[N, 6] -> [N]`, or `[N, 6, B] -> [N, B]`."""
    base = torch.where(no_op, habit.log_base[1], habit.log_base[0])
    if action_values.ndim == 3:
        base = base[..., None]
    planned = (base + action_values).logsumexp(1)
    return habit.pause * action_values[:, STAY] + (1 - habit.pause) * planned
