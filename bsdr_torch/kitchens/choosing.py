"""How people choose, given their habit and their plans.

    P_i(a|s, h) = rho 1[a = STAY] + (1 - rho) softmax_a( log b_i(a|h) + kappa(h) lambda(s) Q_i(s, a) )

What a person does next depends on their habit b and on how much plans count: kappa after the actions just taken, and
the focus lambda in this state, if rationality depends on the state; both are everybody's, and 1 where plans are made.
The pause rho_i(h, Q) is a habit that plans may move, see `Hesitation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from bsdr_torch.features import MLPFeatures
from bsdr_torch.kitchens.habit import MOST_LOG_ATTENTION, Habit
from bsdr_torch.kitchens.networks import multilayer_perceptron
from bsdr_torch.kitchens.outlook import NUM_FEATURES, mirrored
from bsdr_torch.worlds.overcooked import INTERACT, NUM_ACTIONS, STAY

_MOST_SEEN = 6.0  # of anything that hesitation sees: beyond, a difference makes none


class ChoiceRule(nn.Module):
    """All that people choose by, beside their habit and their plans.

    Args:
        hesitation: whether plans move the pause.
        focus_width: the number of learned features of the focus; 0 if plans count as much in all states.
    """

    def __init__(self, hesitation: bool, focus_width: int) -> None:
        super().__init__()
        self.hesitation = Hesitation() if hesitation else None
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
        """Habit as plans `[N, 6]` move its pause, and where they count by `log_focus [N]` beside it."""
        if self.hesitation is not None:
            habit = habit._replace(pause=habit.pause + self.hesitation(habit, no_op, action_values))
        return habit._replace(log_attention=habit.log_attention + log_focus)


class Hesitation(nn.Module):
    """How plans move the pause: one may act sooner where much is to be gained, and later where one is undecided.

    It sees habit, which knows what would change nothing, and of the kitchen nothing but plans, by what they are
    like: not which way they lead.
    """

    def __init__(self, hidden: Sequence[int] = (32, 32)) -> None:
        super().__init__()
        self.network = multilayer_perceptron(9, hidden, 1, 0.0)
        last = cast(nn.Linear, self.network[-1])
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, habit: Habit, no_op: Tensor, action_values: Tensor) -> Tensor:
        """What plans `[N, 6]` add to the logit of the pause, `[N]`."""
        gains = action_values - action_values[:, STAY, None]
        base = torch.where(no_op, habit.log_base_no_op, habit.log_base)
        logits = base + habit.log_attention.exp()[:, None] * gains
        choice, plan, by_habit = (_moves(of).log_softmax(1) for of in (logits, gains, base))
        seen = [
            habit.pause,
            _moves(logits).logsumexp(1) - logits[:, STAY],
            *(-(which.exp() * which).sum(1) for which in (choice, plan)),
            *(which[:, -1] for which in (choice, plan)),  # INTERACT
            (plan.exp() * by_habit).sum(1),
            gains.amax(1),
            gains[:, INTERACT],
        ]
        added: Tensor = self.network(torch.stack([each.clamp(-_MOST_SEEN, _MOST_SEEN) for each in seen], 1))
        return added.squeeze(1)


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
