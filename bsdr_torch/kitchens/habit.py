"""What people do out of habit: networks that see who acts, their own recent actions, and which kitchen it is by name.

Of what is in the kitchen they see nothing; by its name, which new kitchens have not, people may be busier in one.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from bsdr_torch.data.decisions import UNRECORDED
from bsdr_torch.kitchens.networks import multilayer_perceptron, one_hot_if_known
from bsdr_torch.kitchens.outlook import turned_back
from bsdr_torch.worlds.overcooked import INTERACT, NUM_ACTIONS, NUM_SYMMETRIES, STAY, turn_actions

MOST_LOG_ATTENTION = 3.0
RECENT = 8  # actions that are seen one by one; of older ones, only what they amount to


class Habit(NamedTuple):
    """Habit at N decisions.

    Attributes:
        log_base: `[N, 6]` log b(a|h) up to a constant, for actions that do something.
        log_base_no_op: `[N, 6]`, for actions that change nothing.
        pause: `[N]`, the logit of the probability of a pause.
        log_attention: `[N]`, the logarithm of how much plans count now beside habit.
    """

    log_base: Tensor
    log_base_no_op: Tensor
    pause: Tensor
    log_attention: Tensor


class Begun(NamedTuple):
    """Habit at N decisions, as far as it is the same for everybody but for a vector that each adds to `first`.

    Attributes:
        first: `[N, hidden[0]]`, the first layer.
        log_attention: `[N]`, which is everybody's.
        symmetry: `[N]`, how the history was turned.
    """

    first: Tensor
    log_attention: Tensor
    symmetry: Tensor


class HabitNetwork(nn.Module):
    """Habit and pauses from one's own actions.

    The history is turned so that the last move went north, and mirrored so that the last move across it went east: what
    is learned holds in all directions alike.

    Args:
        history: how many of the person's last actions there are.
        num_humans: how many people it tells from one another, 0 if none.
        num_layouts: how many kitchens it tells from one another by name.
        hidden: the widths of the hidden layers.
        dropout: the share of each hidden layer that is left out in training.
    """

    def __init__(self, history: int, num_humans: int, num_layouts: int, hidden: list[int], dropout: float) -> None:
        super().__init__()
        self.history, self.num_humans, self.num_layouts = history, num_humans, num_layouts
        inputs = history_width(history) + num_humans + num_layouts
        self.network = multilayer_perceptron(inputs, hidden, 2 * NUM_ACTIONS + 1, dropout)
        # Attention sees the past alone: if it saw who acts, it would be their rationality by another name.
        # Without a past to depend on, it would be a second name for the scale of the reward.
        self.attention = multilayer_perceptron(history_width(history), hidden[:1], 1, dropout) if history else None

    def forward(self, history: Tensor, humans: Tensor, layouts: Tensor) -> Habit:
        """Habit of `humans [N]` after `history [N, H]` in the kitchens numbered `layouts [N]`; -1 is unknown."""
        return self.finish(self.begin(history, humans, layouts))

    def begin(self, history: Tensor, humans: Tensor, layouts: Tensor) -> Begun:
        """As far as the first layer, to which each person adds a vector of their own."""
        symmetry = _own_frame(history)
        past = encode_history(turn_history(history, symmetry))
        seen = [past, one_hot_if_known(humans, self.num_humans), one_hot_if_known(layouts, self.num_layouts)]
        first = self.network[0](torch.cat(seen, 1))
        log_attention = first.new_zeros(len(first)) if self.attention is None else self.attention(past).squeeze(1)
        return Begun(first, log_attention.clamp(-MOST_LOG_ATTENTION, MOST_LOG_ATTENTION), symmetry)

    def finish(self, begun: Begun) -> Habit:
        """Habit, from what `begin` gives."""
        out = self.network[1:](begun.first)
        log_base = turned_back(out[:, :NUM_ACTIONS], begun.symmetry)
        change = turned_back(out[:, NUM_ACTIONS:-1], begun.symmetry)
        return Habit(log_base, log_base + change, out[:, -1] - 1, begun.log_attention)


def turn_history(history: Tensor, symmetry: Tensor) -> Tensor:
    """Past actions `[N, H]` in turned kitchens, by a symmetry for each `[N]`."""
    turned = turn_actions(history.clamp(max=NUM_ACTIONS - 1), symmetry[:, None].expand_as(history))
    return torch.where(history == UNRECORDED, UNRECORDED, turned)


def history_width(history: int) -> int:
    """The number of features that `encode_history` makes of so many actions."""
    recent = min(history, RECENT)
    return (UNRECORDED + 1) * recent + (NUM_ACTIONS + 2 * (history + 1) + 1 if history > RECENT else 0)


def encode_history(history: Tensor) -> Tensor:
    """Past actions `[N, H]`, the latest first, as features `[N, history_width(H)]`.

    The last `RECENT` one by one; if there are more, also the share of each action, how long ago the last action other
    than STAY and the last INTERACT were, and how often the action changed.
    """
    seen = [one_hot(history[:, :RECENT], UNRECORDED + 1).flatten(1).float()]
    H = history.shape[1]
    if H > RECENT:
        seen.append((history[..., None] == torch.arange(NUM_ACTIONS, device=history.device)).float().mean(1))
        for happened in ((history != STAY) & (history != UNRECORDED), history == INTERACT):
            since = torch.where(happened.any(1), happened.int().argmax(1), H)
            seen.append(one_hot(since, H + 1).float())
        seen.append((history[:, 1:] != history[:, :-1]).float().mean(1, keepdim=True))
    return torch.cat(seen, 1)


def _own_frame(history: Tensor) -> Tensor:
    """`[N]`: the symmetry that takes the last move to the north, and the last move across it to the east."""
    moves = history < STAY
    if history.shape[1] == 0:
        return torch.zeros(len(history), dtype=torch.int64, device=history.device)
    last = history.gather(1, moves.int().argmax(1, keepdim=True))
    across = moves & (history // 2 != last // 2)  # north and south are 0 and 1, east and west 2 and 3
    other = history.gather(1, across.int().argmax(1, keepdim=True))
    last, other = last.squeeze(1), other.squeeze(1)
    # Without a move across, the frame is a turn without a mirror.
    other = torch.where(across.any(1), other, 4)
    return torch.where(moves.any(1), _frames(history.device)[last.clamp(max=3), other], 0)


@cache
def _frames(device: torch.device) -> Tensor:
    """`[4, 5]`: the symmetry by the last move and the last move across it, 4 for none."""
    images = torch.stack([turn_actions(torch.arange(4), symmetry) for symmetry in range(NUM_SYMMETRIES)])
    frames = torch.zeros(4, 5, dtype=torch.int64)
    north, east = 0, 2
    for last in range(4):
        for symmetry in reversed(range(NUM_SYMMETRIES)):  # turns without a mirror come last, and stay
            if images[symmetry, last] == north:
                frames[last, 4] = symmetry
                frames[last, :4] = torch.where(images[symmetry] == east, symmetry, frames[last, :4])
    return frames.to(device)
