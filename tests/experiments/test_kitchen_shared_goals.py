from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch

from bsdr_torch.experiments import kitchen_shared_goals, kitchen_shared_goals_report
from bsdr_torch.experiments.habitual_steps import NUM_HABITS, CountedSteps, act
from bsdr_torch.experiments.kitchen_shared_goals import (
    DISCOUNT,
    Case,
    People,
    exchanged_losses,
    fit_each_alone,
    plan,
)
from bsdr_torch.experiments.running import Run
from bsdr_torch.experiments.task_kitchens import EVENTS, PLACES, TaskKitchen
from bsdr_torch.reward_distance import reward_distances
from bsdr_torch.solver import Solver
from bsdr_torch.worlds.overcooked import INTERACT, STAY, happened, step
from tests.experiments.played_games import random_games

GAMES = random_games("cramped_room", games=8)
KITCHEN = TaskKitchen(GAMES, torch.ones(len(GAMES), dtype=torch.bool))
COOKS, TIDIERS = range(4), range(4, 8)


@pytest.mark.parametrize("name", ["cramped_room", "forced_coordination"])
def test_the_small_kitchen_does_what_the_kitchen_does(name: str) -> None:
    games = random_games(name, games=8, seed=2)
    kitchen = TaskKitchen(games, torch.ones(len(games), dtype=torch.bool))
    actions = torch.stack([games.actions[:, 0].long(), torch.full((len(games),), STAY)], 1)
    after, _, events = step(games.layout, games.states, actions)
    here, there = kitchen.number(games.states), kitchen.number(after)
    chance = kitchen.mdp.probability
    assert chance is not None
    found = (kitchen.mdp.next_state[here, actions[:, 0]] == there[:, None]) & (chance[here, actions[:, 0]] > 0)
    using = games.actions[:, 0] == INTERACT
    taken_counter = using & (events[:, 0] == 0) & (kitchen.events[here, EVENTS.index("put down")] > 0)
    ticks = kitchen.number(step(games.layout, games.states, torch.full_like(actions, STAY))[0]) != here
    certain = (games.actions[:, 0] == STAY) | (using & ~taken_counter & ~ticks)
    assert bool(found.any(1)[certain].all())
    assert float(found.any(1).double().mean()) > 0.9  # a partner may stand in the way
    expected = kitchen.events[here] * (actions[:, :1] == INTERACT)
    for number, event in enumerate(("onion_pickup", "dish_pickup", "onion_potted", "soup_pickup", "soup_served")):
        did = happened(events, event)[:, 0]
        assert bool((expected[did, number] > 0).all())
        assert not bool(did[expected[:, number] == 0].any())


@cache
def simulated() -> People:
    """Four people who want soups and four who want to put onions down, each step by step by their own plan."""
    weights = torch.zeros(len(EVENTS) + len(PLACES), 8, dtype=torch.float64)
    weights[EVENTS.index("soup served"), list(COOKS)] = 12.0
    weights[EVENTS.index("onion potted"), list(COOKS)] = 6.0
    weights[EVENTS.index("put down"), list(TIDIERS)] = 5.0
    generator = torch.Generator().manual_seed(0)
    who, steps = torch.arange(8).repeat(3), 300
    state, last = torch.full_like(who, 0), torch.full_like(who, STAY)
    habits, pauses = torch.zeros(1, NUM_HABITS, dtype=torch.float64), torch.full((8, 3), -1.0, dtype=torch.float64)
    chance, next_state = KITCHEN.mdp.probability, KITCHEN.mdp.next_state
    assert chance is not None
    everywhere = torch.arange(KITCHEN.mdp.num_states)
    solver = Solver(tolerance=1e-6)
    by_plan = torch.stack(
        [plan(KITCHEN, weights, everywhere, torch.full_like(everywhere, person), solver) for person in range(8)]
    )
    seen = []
    for _ in range(steps):
        action = act(by_plan[who, state], habits, pauses, who, last).exp()
        action = torch.multinomial(action, 1, generator=generator).squeeze(1)
        seen.append((state, who, last, action))
        outcome = torch.multinomial(chance[state, action], 1, generator=generator)
        state, last = next_state[state, action].gather(1, outcome).squeeze(1).long(), action
    columns = [torch.stack(column) for column in zip(*seen, strict=True)]
    parts = [CountedSteps.of(*(c[rows].flatten() for c in columns)) for rows in (slice(0, 200), slice(200, 300))]
    return People(KITCHEN, [str(n) for n in range(8)], [str(n // 2) for n in range(8)], [0, 1] * 4, *parts)


def test_people_who_want_the_same_are_found_to_want_the_same() -> None:
    people = simulated()
    found = fit_each_alone(people)
    assert found.converged
    states, actions = KITCHEN.rewards(found.weights)
    distances = reward_distances(KITCHEN.mdp, states[:, None] + actions, DISCOUNT)
    together = torch.cat([distances[:4, :4].flatten(), distances[4:, 4:].flatten()])
    assert float(distances[:4, 4:].min()) > float(together.max())
    losses = exchanged_losses(people, found.weights, found.habits, found.pauses)
    assert losses.shape == (8, 9)
    apart = torch.cat([losses[:4, 4:8].flatten(), losses[4:, :4].flatten()])
    alike = torch.cat([losses[:4, :4].flatten(), losses[4:, 4:8].flatten()])
    assert float(alike.mean()) < float(apart.mean()) - 0.1
    assert bool((losses.diagonal() < losses[:, -1]).all())


def test_losses_are_those_of_one_person_with_one_reward() -> None:
    people = simulated()
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(len(EVENTS) + len(PLACES), 18, generator=generator, dtype=torch.float64)
    habits = torch.randn(8, NUM_HABITS, generator=generator, dtype=torch.float64)
    pauses = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    found = exchanged_losses(people, weights, habits, pauses)
    for person, column in ((3, 0), (6, 17)):
        by_scale = []
        for scale in kitchen_shared_goals.SCALES:
            losses = []
            for part in (people.train, people.test):
                by_plan = plan(
                    KITCHEN,
                    scale * weights[:, [column]],
                    part.state,
                    torch.zeros_like(part.who),
                    Solver(tolerance=1e-6),
                )
                own = part.who[part.place] == person
                log_likelihood = part.log_likelihood(by_plan, habits, pauses)
                losses.append(float(-log_likelihood[own].sum() / part.times[own].sum()))
            by_scale.append(losses)
        assert float(found[person, column]) == pytest.approx(min(by_scale)[1], abs=1e-5)


def test_random_actions_keep_how_often_people_stay_and_use_things() -> None:
    generator = torch.Generator().manual_seed(0)
    actions, who = torch.randint(6, (500,), generator=generator), torch.randint(3, (500,), generator=generator)
    shuffled = kitchen_shared_goals._at_random(actions, who, seed=0)
    assert not torch.equal(shuffled, actions)
    for person in range(3):
        for action in (STAY, INTERACT):
            own = who == person
            assert int((shuffled[own] == action).sum()) == int((actions[own] == action).sum())


def test_the_report_is_written_from_fits_and_comparisons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kitchen_shared_goals, "people_of", lambda name, actions: simulated())
    monkeypatch.setattr(kitchen_shared_goals_report, "PERMUTATIONS", 19)
    cases = [Case(name, actions) for name in ("here", "there") for actions in kitchen_shared_goals.ACTIONS]
    one = kitchen_shared_goals.fit_case(cases[0])
    fits = [vars(case) | record for case in cases for record in one]
    compared = kitchen_shared_goals.compare_case(fits, cases[0])
    records = [vars(case) | record for case in cases for record in compared]
    found = kitchen_shared_goals_report.write(Run(tmp_path, True, 2, 1), fits, json.loads(json.dumps(records)))
    assert any("similarity" in finding.words for finding in found)
    assert "## Permutation tests" in (tmp_path / "report.md").read_text()
    own = [record["similarities"][number] for number, record in enumerate(compared)]
    assert all(abs(value - 1) < 1e-9 for value in own)


def _compared(losses: torch.Tensor, pairs: list[int]) -> kitchen_shared_goals_report.Comparisons:
    """People of one kitchen in two seats: the loss of each with the reward of each, random 1.5 and nothing 2."""
    people = [{"human": n, "pair": pair, "seat": n % 2, "kitchen": "one"} for n, pair in enumerate(pairs)]
    nobody = {"similarity_to_random": 0.0, "loss_of_random": 1.5, "loss_of_nothing": 2.0}
    rows = [row.tolist() for row in losses]
    records = [person | nobody | {"similarities": row, "losses": row} for person, row in zip(people, rows, strict=True)]
    return kitchen_shared_goals_report.Comparisons.of(people, records)


def test_people_are_compared_with_others_but_not_with_whom_they_played() -> None:
    pairs = [n // 2 for n in range(6)]
    losses = torch.rand(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    compared = _compared(losses, pairs)
    same_seat = [losses[n, [m for m in range(n % 2, 6, 2) if m != n]].mean() for n in range(6)]
    other_seat = [losses[n, [m for m in range(1 - n % 2, 6, 2) if m // 2 != n // 2]].mean() for n in range(6)]
    assert compared.level("same seat", "loss").mean == pytest.approx(float(torch.stack(same_seat).mean()))
    assert compared.level("other seat", "loss").mean == pytest.approx(float(torch.stack(other_seat).mean()))
    assert compared.level("own", "loss").mean == pytest.approx(float(losses.diagonal().mean()))
    gap = compared.gap("same seat", "random", "loss").estimate.mean
    assert gap == pytest.approx(compared.level("same seat", "loss").mean - 1.5)


def test_intervals_hold_where_everybody_is_compared_with_the_same_people() -> None:
    # Nobody's reward depends on the seat, but some rewards are better than others for everybody.
    generator = torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(200):
        of_rewards = torch.randn(24, generator=generator, dtype=torch.float64)
        compared = _compared(of_rewards.expand(24, 24), [n // 2 for n in range(24)])
        estimate = compared.gap("same seat", "other seat", "loss").estimate
        covered += not (estimate.above_zero or estimate.below_zero)
    assert covered >= 0.92 * 200
