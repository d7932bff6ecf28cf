from __future__ import annotations

from dataclasses import replace
from itertools import product

import torch

from bsdr_torch.data.splits import PARTS
from bsdr_torch.experiments.kitchen_recovery import HELD_OUT, STEPS, Case, cases, run_case, simulated, watched
from bsdr_torch.experiments.statistics import rank_correlation


def test_rationality_of_people_in_a_kitchen_is_recovered_with_learned_features() -> None:
    (found,) = run_case(Case("state-dependent", "exact", "bsdr", "events", humans=12, games=100, seed=0, fit_steps=100))
    assert found["beta_rank"] > 0.8
    assert found["excess"] < 0.15 * found["unaware"]


def test_nothing_is_found_in_people_who_are_all_alike() -> None:
    (found,) = run_case(Case("alike", "exact", "bsdr", "events", humans=6, games=30, seed=0, fit_steps=40))
    assert found["true_spread"] == 0
    assert found["beta_spread"] < 0.4
    assert found["excess"] < 0.03


def test_plans_of_a_network_are_also_made_anew_from_its_reward() -> None:
    (found,) = run_case(Case("state-dependent", "neural", "bsdr", "learned", humans=2, games=10, seed=0, fit_steps=1))
    assert found["positive_cost"] == 1  # as it starts
    assert found["excess"] > 0
    assert found["replanned_excess"] > 0
    assert found["replanned_excess"] != found["excess"]


def test_parts_are_whole_games_and_people_do_not_depend_on_the_model() -> None:
    people = simulated("state-dependent", 2, 0)
    data = watched(people, 10, torch.Generator().manual_seed(0))
    games = data.kitchens[people.graph.layout.name]
    parts = data.parts[people.graph.layout.name].view(-1, STEPS)
    assert bool((parts == parts[:, :1]).all())
    assert [int((parts[:, 0] == number).sum()) for number in range(len(PARTS))] == [2 * 10, 2 * 1, 2 * HELD_OUT]
    assert len(games) == 2 * STEPS * (HELD_OUT + 11)
    assert simulated("state-dependent", 2, 0) is people


def test_each_seed_has_a_control_with_as_much_data() -> None:
    for quick in (True, False):
        found = cases(quick, 2)
        assert len(set(found)) == len(found)
        for seed in (0, 1):
            games = {case.games for case in found if case.seed == seed and case.people == "alike"}
            assert games == {max(case.games for case in found)}


def test_ranks_that_tie_count_as_their_mean() -> None:
    one, other = torch.tensor([1.0, 1.0, 2.0, 3.0]), torch.tensor([0.0, 0.5, 7.0, 9.0])
    ranks = torch.tensor([[0.5, 0.5, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0]])
    assert abs(rank_correlation(one, other) - float(torch.corrcoef(ranks)[0, 1])) < 1e-6
    assert rank_correlation(one, torch.ones(4)) == 0


def test_a_model_may_expect_a_focus_that_people_do_not_have() -> None:
    case = Case("alike", "neural", "bsdr", "learned", humans=2, games=10, seed=0, fit_steps=1)
    (without,), (focused,) = run_case(case), run_case(replace(case, focus=True))
    assert without["focus_spread"] == 0
    assert focused["focus_spread"] > 0
    everything = cases(quick=False, seeds=2)
    found = [case for case in everything if case.focus]
    assert sorted((case.people, case.seed) for case in found) == list(product(("alike", "state-dependent"), (0, 1)))
    assert set(everything) >= {replace(case, focus=False) for case in found}  # each is paired
