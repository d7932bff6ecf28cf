from __future__ import annotations

import math

import torch

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.kitchens.outlook import outlook
from bsdr_torch.kitchens.planning import PlannedHabit, action_values, backup
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, STAY


def test_action_values_are_expectations_over_the_partner(people_2020: KitchenPeople, steps: Decisions) -> None:
    ahead = outlook(people_2020.kitchens[steps.layout].layout, steps.states, steps.seats)
    N = len(steps.seats)
    values = torch.randn(len(ahead.states), 3, dtype=torch.float64)
    partner = torch.rand(N, NUM_ACTIONS, dtype=torch.float64)
    partner /= partner.sum(1, keepdim=True)
    column = torch.arange(N) % 3
    found = action_values(values, ahead, partner, 0.9, column)
    for n in range(0, N, 17):
        for a in range(NUM_ACTIONS):
            expected = sum(float(partner[n, b] * values[ahead.following[n, a, b], column[n]]) for b in range(6))
            assert math.isclose(float(found[n, a]), 0.9 * expected, rel_tol=1e-9, abs_tol=1e-12)
    of_all = action_values(values, ahead, partner, 0.9, None)
    torch.testing.assert_close(of_all[torch.arange(N), :, column], found)


def test_backup_is_the_soft_maximum_of_those_who_do_not_pause() -> None:
    future = torch.randn(4, NUM_ACTIONS, dtype=torch.float64)
    no_op = torch.zeros(4, NUM_ACTIONS, dtype=torch.bool)
    no_op[:, STAY] = True
    log_base = torch.randn(2, NUM_ACTIONS, dtype=torch.float64)
    for pause in (0.0, 0.3, 1.0):
        habit = PlannedHabit(log_base, torch.tensor(pause, dtype=torch.float64))
        found = backup(future, no_op, habit)
        for n in range(4):
            total = sum(math.exp(log_base[int(no_op[n, a]), a] + future[n, a]) for a in range(NUM_ACTIONS))
            expected = pause * float(future[n, STAY]) + (1 - pause) * math.log(total)
            assert math.isclose(float(found[n]), expected, rel_tol=1e-9)
        torch.testing.assert_close(backup(future[..., None], no_op, habit).squeeze(1), found)
