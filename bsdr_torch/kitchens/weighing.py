"""Models in kitchens that they may be wrong about: how much they count beside habit is found while people play.

What was learned in some kitchens may hold in another or not, for one person more than for the next, and in some states
more than in others. With

    P_w(a) ~ habit(a)^(1 - w) model(a)^w

the weight w is 0 where nothing but habit holds, 1 where the model is right, and more where people are surer of it than
elsewhere. For a planner it is a rationality that depends on the person and the state, and is inferred: there is one
for each thing that somebody may hold. Whether one acts at all and which action it is have weights of their own. Each
step is predicted by the exact posterior over the weights, from the steps of the same person in the same game before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.kitchens.newcomers import Memory
from bsdr_torch.kitchens.predicting import Predicts
from bsdr_torch.worlds.overcooked import STAY
from bsdr_torch.worlds.overcooked.state import HELD, SOUP

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""All weights that there are, as likely as one another before anything was seen."""

HANDS = SOUP + 1
"""How many kinds of things one may hold; a soup is a soup, whatever is in it."""

Model = TypeVar("Model", bound=Predicts)


class Weighed(Generic[Model]):
    """A model whose weights beside habit are inferred; see the module.

    It remembers the decisions that it was asked about, see `Memory`.

    Args:
        model: as it was trained.
        habit: log P(action) at decisions, `[N, 6]`, by what does not depend on the kitchen.
        by_hand: whether weights depend on what one holds; else a person has the same ones in all states.
    """

    def __init__(self, model: Model, habit: Callable[[Decisions], Tensor], by_hand: bool = True) -> None:
        self.model, self.habit, self.by_hand = model, habit, by_hand
        self._memory = Memory()

    @torch.no_grad()
    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        habit, model = self.habit(batch), self.model.action_log_probs(batch)
        hands = hands_of(batch) if self.by_hand else torch.zeros_like(batch.actions)
        everybody = torch.ones_like(batch.actions, dtype=torch.bool)
        found = torch.empty_like(habit)
        for rows, (seen, hand) in self._memory.games(batch, everybody, evidence(habit, model, batch.actions), hands):
            found[rows] = weighed_log_probs(habit[rows], model[rows], _before(seen.double(), hand)[-len(rows) :])
        return found


def evidence(habit: Tensor, model: Tensor, actions: Tensor) -> Tensor:
    """What N actions say of the weights: log P_w of acting or not, and of which action, `[N, weights, 2]`.

    Args:
        habit: log P(action) without the kitchen, `[N, 6]`.
        model: the same of the model.
        actions: `[N]`, taken.
    """
    acts, moves = (_by_weight(*parts) for parts in zip(_parts(habit), _parts(model), strict=True))
    acted = (actions != STAY).long()
    return torch.stack([_chosen(acts, acted), _chosen(moves, _among_moves(actions)) * acted], 2).transpose(0, 1)


def weighed_log_probs(habit: Tensor, model: Tensor, seen: Tensor) -> Tensor:
    """log P(action), `[N, 6]`, by the posterior after the sum of all evidence `seen [N, weights, 2]`."""
    posterior = seen.log_softmax(1).to(habit.dtype)
    by_weight = (_by_weight(*parts) for parts in zip(_parts(habit), _parts(model), strict=True))
    return _joined(*((posterior[..., part].T[..., None] + each).logsumexp(0) for part, each in enumerate(by_weight)))


def hands_of(batch: Decisions) -> Tensor:
    """`[N]`: the kind of thing that each person holds, of `HANDS`."""
    held = torch.stack([batch.states[:, column] for column in HELD], 1).long()
    return held.gather(1, batch.seats[:, None]).squeeze(1).clamp(max=HANDS - 1)


def _parts(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """log P of staying and of acting, `[N, 2]`, and of each of the other actions if one acts, `[N, 5]`."""
    others = torch.cat([log_probs[:, :STAY], log_probs[:, STAY + 1 :]], 1)
    acts = others.logsumexp(1, keepdim=True)
    return torch.cat([log_probs[:, STAY, None], acts], 1), others - acts


def _joined(acts: Tensor, moves: Tensor) -> Tensor:
    """What `_parts` takes apart."""
    others = moves + acts[:, 1:]
    return torch.cat([others[:, :STAY], acts[:, :1], others[:, STAY:]], 1)


def _by_weight(habit: Tensor, model: Tensor) -> Tensor:
    """`[N, A]` each -> log P_w, `[weights, N, A]`."""
    weights = torch.tensor(WEIGHTS, dtype=habit.dtype, device=habit.device)
    return (habit + weights[:, None, None] * (model - habit)).log_softmax(2)


def _chosen(by_weight: Tensor, choices: Tensor) -> Tensor:
    """log P_w of what was chosen, `[weights, N]`."""
    return by_weight.gather(2, choices.expand(len(by_weight), -1)[..., None]).squeeze(2)


def _among_moves(actions: Tensor) -> Tensor:
    """The number of each action among those other than STAY; any number for STAY itself."""
    return torch.where(actions > STAY, actions - 1, actions).clamp(max=STAY)


def _before(seen: Tensor, hand: Tensor) -> Tensor:
    """`[L, ...]` -> the sums over all steps before each, with the same thing in hand."""
    by_hand = one_hot(hand).to(seen.dtype).view(len(hand), -1, *[1] * (seen.ndim - 1)) * seen[:, None]
    return (by_hand.cumsum(0) - by_hand)[torch.arange(len(hand), device=hand.device), hand]
