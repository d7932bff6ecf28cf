"""How people choose, given their habit and their plans.

    P_i(a|s, h) = rho 1[a = STAY] + (1 - rho) softmax_a( log b_i(a|h) + kappa(h) lambda(s) Q_i(s, a) + g_a(b_i, Q_i) )

What a person does next depends on their habit b and on how much plans count: kappa after the actions just taken, and
the focus lambda in this state, if rationality depends on the state; both are everybody's, and 1 where plans are made.
The pause rho_i(h, Q) is a habit that plans may move, see `Hesitation`; g, if there is one, decides where habit and
plans disagree, see `Arbitration`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from bsdr_torch.features import MLPFeatures
from bsdr_torch.kitchens.habit import MOST_LOG_ATTENTION, Habit
from bsdr_torch.kitchens.networks import multilayer_perceptron
from bsdr_torch.kitchens.outlook import NUM_FEATURES, mirrored
from bsdr_torch.worlds.overcooked import INTERACT, NUM_ACTIONS, STAY

_MOST_SEEN = 6.0  # of anything that hesitation and arbitration see: beyond, a difference makes none
_NUM_LIKENESSES = 9


class ChoiceRule(nn.Module):
    """All that people choose by, beside their habit and their plans.

    Args:
        hesitation: whether plans move the pause.
        focus_width: the number of learned features of the focus; 0 if plans count as much in all states.
        arbitration: whether more than the sum of habit and plans decides between actions.
    """

    def __init__(self, hesitation: bool, focus_width: int, arbitration: bool = False) -> None:
        super().__init__()
        self.hesitation = Hesitation() if hesitation else None
        self.arbitration = Arbitration() if arbitration else None
        self.phi_focus: MLPFeatures | None = None
        if focus_width:
            self.phi_focus = MLPFeatures((NUM_FEATURES,), focus_width, 64)
            self.theta_focus = nn.Parameter(torch.zeros(focus_width))

    def log_focus(self, features: Tensor) -> Tensor:
        """log lambda(s), how much plans count in states with `features [N, F]`, `[N]`: of everybody alike."""
        if self.phi_focus is None:
            return features.new_zeros(len(features))
        if self.training:
            phi = self.phi_focus(mirrored(features) if torch.rand(()) < 0.5 else features)
        else:
            phi = (self.phi_focus(features) + self.phi_focus(mirrored(features))) / 2
        log_focus: Tensor = phi @ self.theta_focus
        return log_focus.clamp(-MOST_LOG_ATTENTION, MOST_LOG_ATTENTION)

    def forward(self, habit: Habit, log_focus: Tensor, no_op: Tensor, action_values: Tensor) -> Habit:
        """Habit as plans `[N, 6]` move it and its pause, and where they count by `log_focus [N]` beside it."""
        moved = habit._replace(log_attention=habit.log_attention + log_focus)
        if self.hesitation is not None:
            moved = moved._replace(pause=habit.pause + self.hesitation(habit, no_op, action_values))
        if self.arbitration is not None:
            added = self.arbitration(habit, no_op, action_values)
            moved = moved._replace(log_base=habit.log_base + added, log_base_no_op=habit.log_base_no_op + added)
        return moved


class Hesitation(nn.Module):
    """How plans move the pause: one may act sooner where much is to be gained, and later where one is undecided.

    It sees habit, which knows what would change nothing, and of the kitchen nothing but plans, by what they are
    like: not which way they lead.
    """

    def __init__(self, hidden: Sequence[int] = (32, 32)) -> None:
        super().__init__()
        self.network = _adds_nothing_yet(_NUM_LIKENESSES, hidden)

    def forward(self, habit: Habit, no_op: Tensor, action_values: Tensor) -> Tensor:
        """What plans `[N, 6]` add to the logit of the pause, `[N]`."""
        added: Tensor = self.network(_likeness(_compare(habit, no_op, action_values), habit.pause))
        return added.squeeze(1)


class Arbitration(nn.Module):
    """What people do where habit and plans say different things, beyond the sum of the two.

    It sees what both say of an action, whether it is STAY or INTERACT, and what habit and plans are like as a whole;
    not which way a move leads, nor the focus.
    """

    def __init__(self, hidden: Sequence[int] = (32, 32)) -> None:
        super().__init__()
        self.network = _adds_nothing_yet(7 + _NUM_LIKENESSES, hidden)

    def forward(self, habit: Habit, no_op: Tensor, action_values: Tensor) -> Tensor:
        """What is added to the logit of each action, `[N, 6]`."""
        compared = _compare(habit, no_op, action_values)
        action = torch.arange(NUM_ACTIONS, device=no_op.device).expand_as(no_op)
        of_action = [
            compared.base.log_softmax(1),
            compared.logits - compared.base,
            compared.logits.log_softmax(1),
            compared.gains.log_softmax(1),
            *(each.to(compared.base.dtype) for each in (action == INTERACT, action == STAY, no_op)),
        ]
        own = torch.stack(of_action, 2).clamp(-_MOST_SEEN, _MOST_SEEN)
        whole = _likeness(compared, habit.pause)[:, None].expand(-1, NUM_ACTIONS, -1)
        added: Tensor = self.network(torch.cat([own, whole], 2))
        return added.squeeze(2)


class _Compared(NamedTuple):
    """Habit and plans of N decisions, by action, `[N, 6]` each.

    Attributes:
        base: log b(a|h) up to a constant.
        gains: what an action is worth beside STAY.
        logits: the sum of the two, with plans as much as attention gives them.
    """

    base: Tensor
    gains: Tensor
    logits: Tensor


def _compare(habit: Habit, no_op: Tensor, action_values: Tensor) -> _Compared:
    gains = action_values - action_values[:, STAY, None]
    base = torch.where(no_op, habit.log_base_no_op, habit.log_base)
    return _Compared(base, gains, base + habit.log_attention.exp()[:, None] * gains)


def _likeness(compared: _Compared, pause: Tensor) -> Tensor:
    """What habit and plans are like, `[N, _NUM_LIKENESSES]`: how decided, how much in favour of acting, of INTERACT."""
    base, gains, logits = compared
    choice, plan, by_habit = (_moves(of).log_softmax(1) for of in (logits, gains, base))
    seen = [
        pause,
        _moves(logits).logsumexp(1) - logits[:, STAY],
        *(-(which.exp() * which).sum(1) for which in (choice, plan)),
        *(which[:, -1] for which in (choice, plan)),  # INTERACT
        (plan.exp() * by_habit).sum(1),
        gains.amax(1),
        gains[:, INTERACT],
    ]
    return torch.stack([each.clamp(-_MOST_SEEN, _MOST_SEEN) for each in seen], 1)


def _adds_nothing_yet(inputs: int, hidden: Sequence[int]) -> nn.Sequential:
    """A network with one output, which is 0 before it learns."""
    network = multilayer_perceptron(inputs, hidden, 1, 0.0)
    last = cast(nn.Linear, network[-1])
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return network


def choice_log_probs(habit: Habit, no_op: Tensor, action_values: Tensor) -> Tensor:
    """log P(a|s, h), `[N, 6]`, of habit and plans."""
    # Under mixed precision too, probabilities are to sum to 1.
    dtype = torch.promote_types(action_values.dtype, torch.float32)
    planned = habit.log_attention.exp()[:, None] * action_values
    logits = (torch.where(no_op, habit.log_base_no_op, habit.log_base) + planned).to(dtype)
    pause = habit.pause.to(dtype)
    deliberate = logits.log_softmax(1) + logsigmoid(-pause)[:, None]
    stays = torch.logaddexp(deliberate[:, STAY], logsigmoid(pause))
    is_stay = torch.arange(NUM_ACTIONS, device=logits.device) == STAY
    return torch.where(is_stay, stays[:, None], deliberate)


def _moves(of_actions: Tensor) -> Tensor:
    """`[N, 6] -> [N, 5]`, without STAY."""
    return torch.cat([of_actions[:, :STAY], of_actions[:, STAY + 1 :]], 1)
