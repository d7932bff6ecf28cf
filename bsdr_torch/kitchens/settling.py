"""Settling the reward of a model on its values: what people must want, for the values to be those of a plan.

The Bellman residual is the only loss that the reward has, and a step for each step of the values leaves it far from its
minimum. With the values as they are, the residual is a regression on the reward that they imply, which is cheap, as
nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.kitchens.outlook import Outlook, outlook
from bsdr_torch.kitchens.planning import action_values, backup
from bsdr_torch.rationality import POPULATION

if TYPE_CHECKING:
    from bsdr_torch.kitchens.kitchen_model import KitchenModel

_ROWS = 1024


class ImpliedReward(NamedTuple):
    """The reward with which the values of a network would satisfy the Bellman equation.

    Attributes:
        features: `[N, F]`, of N states.
        people: `[B]`, whose reward it is.
        reward: `[N, B]`.
    """

    features: Tensor
    people: Tensor
    reward: Tensor


@torch.no_grad()
def implied_reward(model: KitchenModel, ahead: Outlook, people: Tensor) -> ImpliedReward:
    """That of `people [B]` at the decisions of an outlook."""
    learning = model.values.training
    model.values.eval()  # as they predict: the mean over mirrored kitchens, with nothing left out
    values = model.values(ahead.features, people)
    model.values.train(learning)
    future = action_values(values, ahead, model.partner_probabilities(ahead.partner), model.discount, None)
    implied = values[ahead.own] - backup(future, ahead.no_op, model.planned_habit)
    return ImpliedReward(ahead.features[ahead.own], people, implied)


def implied_rewards(
    model: KitchenModel, decisions: Mapping[str, Decisions], draws: int, beyond: float
) -> list[ImpliedReward]:
    """What the values imply where people decided, and beyond; of whoever decided, and of somebody never seen.

    Args:
        model: whose values they are.
        decisions: by kitchen.
        draws: how many times to draw some of the decisions of one kitchen.
        beyond: how many situations that nobody was in to take besides, as a share of the decisions.
    """
    kitchens = list(decisions)
    sizes = torch.tensor([float(len(decisions[name].actions)) for name in kitchens])
    found = []
    for draw in torch.multinomial(sizes, draws, replacement=True).tolist():
        there = decisions[kitchens[draw]]
        some = there.some(torch.randint(len(there.actions), (min(_ROWS, len(there.actions)),)))
        states, seats = some.states.to(model.device), some.seats.to(model.device)
        people = torch.unique(torch.cat([some.humans, torch.tensor([POPULATION])])).to(model.device)
        ahead = outlook(model.layout(there.layout), states, seats, remember=True)
        for each in (ahead, model.beyond(round(beyond * len(seats)))):
            found.append(implied_reward(model, each, people))
    return found


def settle(
    model: KitchenModel, implied: Sequence[ImpliedReward], steps: int, learning_rate: float, prior_weight: float
) -> None:
    """Fits the reward of a model, and nothing else of it, to what its values imply.

    Args:
        model: in training mode; under ddp each process settles on its own data, and all take the mean.
        implied: of some batches, in any kitchens.
        steps: of Adam, each on one of the batches.
        learning_rate: at the start; it falls to nothing along a cosine.
        prior_weight: of -log P(theta), beside the mean of squares that are missed.
    """
    reward = [*model.phi_R.parameters(), *model.phi_beta.parameters(), *model.rationality.parameters()]
    optimizer = torch.optim.Adam(reward, learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    with torch.enable_grad():
        for _ in range(steps):
            features, people, wanted = implied[int(torch.randint(len(implied), ()))]
            missed = (model.reward(features, people) - wanted).square().mean()
            optimizer.zero_grad()
            loss = missed - prior_weight * model.log_prior()
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
            optimizer.step()
            schedule.step()
        optimizer.zero_grad()
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        for parameter in reward:
            torch.distributed.all_reduce(parameter.data, torch.distributed.ReduceOp.SUM)
            parameter.data /= torch.distributed.get_world_size()
