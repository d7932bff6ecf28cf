from __future__ import annotations

import torch

from bsdr_torch.kitchens.choosing import Arbitration, ChoiceRule, Hesitation, choice_log_probs
from bsdr_torch.kitchens.habit import Habit
from bsdr_torch.worlds.overcooked import INTERACT, NUM_ACTIONS, STAY


def random_habit(n: int, pause: float) -> Habit:
    generator = torch.Generator().manual_seed(1)
    return Habit(
        torch.randn(n, NUM_ACTIONS, generator=generator),
        torch.randn(n, NUM_ACTIONS, generator=generator),
        torch.full((n,), pause),
        torch.randn(n, generator=generator) / 2,
    )


def test_choices_are_the_paper_s_without_pause_and_habit() -> None:
    future = torch.randn(5, NUM_ACTIONS)
    base = torch.zeros(5, NUM_ACTIONS)
    plain = Habit(base, base, pause=torch.full((5,), -torch.inf), log_attention=torch.zeros(5))
    no_op = torch.rand(5, NUM_ACTIONS) < 0.5
    torch.testing.assert_close(choice_log_probs(plain, no_op, future), future.log_softmax(1))


def test_choices_with_pauses_are_a_mixture_and_never_nan() -> None:
    for scale in (1.0, 1e4):
        future = scale * torch.randn(50, NUM_ACTIONS)
        for pause in (-50.0, 0.5, 50.0):
            habit = random_habit(50, pause)
            no_op = torch.rand(50, NUM_ACTIONS) < 0.5
            log_probs = choice_log_probs(habit, no_op, future)
            torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(50))
            attention = habit.log_attention.exp()[:, None]
            logits = torch.where(no_op, habit.log_base_no_op, habit.log_base) + attention * future
            rho = torch.tensor(pause).sigmoid()
            expected = (1 - rho) * logits.softmax(1)
            expected[:, STAY] += rho
            torch.testing.assert_close(log_probs.exp(), expected)


def hesitation() -> Hesitation:
    torch.manual_seed(0)
    made = Hesitation()
    torch.nn.init.normal_(made.network[-1].weight)  # type: ignore[arg-type]  # torch has no type for the last layer
    return made


@torch.no_grad()
def test_plans_do_not_move_the_pause_at_first() -> None:
    habit, future, no_op = random_habit(20, 0.5), torch.randn(20, NUM_ACTIONS), torch.rand(20, NUM_ACTIONS) < 0.3
    assert not bool(Hesitation()(habit, no_op, future).any())
    assert float(hesitation()(habit, no_op, future).abs().min()) > 0


@torch.no_grad()
def test_hesitation_knows_what_plans_are_like_but_not_which_way_they_lead() -> None:
    habit, future, no_op = random_habit(20, 0.5), torch.randn(20, NUM_ACTIONS), torch.rand(20, NUM_ACTIONS) < 0.3
    here = hesitation()(habit, no_op, future)
    turn = [2, 3, 1, 0, STAY, INTERACT]
    turned = habit._replace(log_base=habit.log_base[:, turn], log_base_no_op=habit.log_base_no_op[:, turn])
    torch.testing.assert_close(hesitation()(turned, no_op[:, turn], future[:, turn]), here)
    torch.testing.assert_close(hesitation()(habit, no_op, future + 3), here)
    assert float((hesitation()(habit, no_op, 2 * future) - here).abs().max()) > 0.01


def test_hesitation_of_extreme_plans_is_finite_and_so_is_its_gradient() -> None:
    no_op = torch.zeros(20, NUM_ACTIONS, dtype=torch.bool)
    for scale in (0.0, 1e4, 1e8):
        future = (scale * torch.randn(20, NUM_ACTIONS)).requires_grad_()
        habit = random_habit(20, 50.0)
        habit = habit._replace(pause=habit.pause + hesitation()(habit, no_op, future))
        log_probs = choice_log_probs(habit, no_op, future)
        torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(20))
        (gradient,) = torch.autograd.grad(log_probs[:, STAY].sum(), future)
        assert bool(gradient.isfinite().all())


def arbitration() -> Arbitration:
    torch.manual_seed(0)
    made = Arbitration()
    torch.nn.init.normal_(made.network[-1].weight)  # type: ignore[arg-type]  # torch has no type for the last layer
    return made


@torch.no_grad()
def test_nothing_but_habit_and_plans_decides_at_first() -> None:
    habit, future, no_op = random_habit(20, 0.5), torch.randn(20, NUM_ACTIONS), torch.rand(20, NUM_ACTIONS) < 0.3
    assert not bool(Arbitration()(habit, no_op, future).any())
    rule = ChoiceRule(hesitation=False, focus_width=0, arbitration=True)
    rule.arbitration = arbitration()
    moved = rule(habit, torch.zeros(20), no_op, future)
    for before, after in ((habit.log_base, moved.log_base), (habit.log_base_no_op, moved.log_base_no_op)):
        torch.testing.assert_close(after - before, arbitration()(habit, no_op, future))


@torch.no_grad()
def test_arbitration_knows_what_plans_say_of_an_action_but_not_which_way_it_leads() -> None:
    habit, future, no_op = random_habit(20, 0.5), torch.randn(20, NUM_ACTIONS), torch.rand(20, NUM_ACTIONS) < 0.3
    here = arbitration()(habit, no_op, future)
    turn = [2, 3, 1, 0, STAY, INTERACT]
    turned = habit._replace(log_base=habit.log_base[:, turn], log_base_no_op=habit.log_base_no_op[:, turn])
    torch.testing.assert_close(arbitration()(turned, no_op[:, turn], future[:, turn]), here[:, turn])
    torch.testing.assert_close(arbitration()(habit, no_op, future + 3), here, rtol=1e-4, atol=1e-5)
    assert float((arbitration()(habit, no_op, 2 * future) - here).abs().max()) > 0.01


def test_arbitration_of_extreme_plans_is_finite_and_so_is_its_gradient() -> None:
    no_op = torch.zeros(20, NUM_ACTIONS, dtype=torch.bool)
    for scale in (0.0, 1e4, 1e8):
        future = (scale * torch.randn(20, NUM_ACTIONS)).requires_grad_()
        habit = random_habit(20, 0.5)
        added = arbitration()(habit, no_op, future)
        log_probs = choice_log_probs(habit._replace(log_base=habit.log_base + added), no_op, future)
        torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(20))
        (gradient,) = torch.autograd.grad(log_probs[:, STAY].sum(), future)
        assert bool(gradient.isfinite().all())


def test_probabilities_sum_to_one_in_mixed_precision() -> None:
    habit = Habit(*(part.to(torch.bfloat16) for part in random_habit(50, 0.3)))
    no_op = torch.rand(50, NUM_ACTIONS) < 0.5
    log_probs = choice_log_probs(habit, no_op, torch.randn(50, NUM_ACTIONS).to(torch.bfloat16))
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(50), rtol=0, atol=1e-5)
