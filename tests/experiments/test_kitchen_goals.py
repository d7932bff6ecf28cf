from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from bsdr_torch.experiments import kitchen_goals
from bsdr_torch.experiments.kitchen_goals import Case, kitchens, log_priors, posteriors, run_case, views
from bsdr_torch.experiments.kitchen_stretches import FETCH_ONION, Stretches, Subgoal, outcomes, stretches, subgoals
from bsdr_torch.experiments.subgoal_people import DISCOUNT, Planned, SubgoalPeople, fit_people, ways
from bsdr_torch.experiments.subgoal_plans import SubgoalPlans
from bsdr_torch.soft_bellman import soft_values, uniform_base
from bsdr_torch.worlds.overcooked import INTERACT, STAY, step
from bsdr_torch.worlds.overcooked.paths import FIXED_PLACES, walking_distances
from tests.experiments.played_games import random_games

GAMES = random_games("cramped_room", games=6)
PEOPLE = [person for pair in GAMES.players for person in pair]
SEEN = stretches(GAMES, (GAMES.time >= 200).to(torch.int8), PEOPLE)
WANTED = subgoals(GAMES.layout, SEEN, 10)
PLANS = SubgoalPlans(GAMES.layout, WANTED, SEEN)


def test_plans_know_where_steps_lead() -> None:
    layout, generator = GAMES.layout, torch.Generator().manual_seed(0)
    rows = torch.randint(len(GAMES), (500,), generator=generator)
    states = GAMES.states[rows]
    actions = torch.stack(
        [torch.randint(6, (500,), generator=generator), torch.randint(STAY + 1, (500,), generator=generator)], 1
    )
    after, _, events = step(layout, states, actions)
    outcome = (actions[:, 1] + 1) % (STAY + 1)  # STAY comes first
    for number in range(len(WANTED)):
        here, there = PLANS.number(number, states), PLANS.number(number, after)
        planned = PLANS.mdp.next_state[here, actions[:, 0]].gather(1, outcome[:, None]).squeeze(1)
        same = (events[:, 0] == 0) & (here // PLANS.situations == there // PLANS.situations)
        done = planned == PLANS.mdp.num_states - 1
        assert bool((planned == there)[same & ~done].all())
        assert bool(done.any()) == bool((done & (actions[:, 0] == INTERACT)).any())
    chance = PLANS.mdp.probability
    assert chance is not None
    assert torch.allclose(chance.sum(2), torch.ones(1, dtype=torch.float64))


def test_people_who_hardly_err_walk_the_shortest_way() -> None:
    alone = SubgoalPlans(
        GAMES.layout, [Subgoal(FETCH_ONION, 0, (0, 1))], SEEN._replace(actions=SEEN.actions * 0 + STAY)
    )
    reward = -20 * alone.phi_R
    values = soft_values(alone.mdp, reward, discount=DISCOUNT, log_base=uniform_base(alone.mdp, torch.float64))[0]
    floor = len(GAMES.layout.floor)
    onions = walking_distances(GAMES.layout)[:floor, :, FIXED_PLACES.index("O"), 0].T.long()  # to the nearest of two
    steps = 20 * (1 - DISCOUNT ** (onions + 1)) / (1 - DISCOUNT)
    cells = torch.arange(4 * floor) // 4
    other = (cells[:, None] != torch.arange(floor)) & (onions < 100)
    found = values[:-1].view(4 * floor, floor)
    assert bool((found[other] <= -steps[other] + 1e-6).all())  # the other place of onions may be nearer
    assert float((found[other] + steps[other]).abs().min()) < 2.0  # beside the price of errors


def test_posteriors_are_those_of_all_sequences_of_thoughts() -> None:
    generator = torch.Generator().manual_seed(0)
    prior = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    evidence = torch.rand(1, 4, 3, generator=generator, dtype=torch.float64)
    doubt = 0.2
    found = posteriors(prior.log()[None], evidence.log(), doubt)[0].exp()
    assert torch.allclose(found[0], prior)
    for seen in (1, 2, 3):
        total = torch.zeros(3, dtype=torch.float64)
        for thoughts in itertools.product(range(3), repeat=seen + 1):
            chance = float(prior[thoughts[0]])
            for t, (before, after) in enumerate(itertools.pairwise(thoughts)):
                chance *= (1 - doubt) * (before == after) + doubt * float(prior[after])
                chance *= float(evidence[0, t, after])
            total[thoughts[-1]] += chance
        assert torch.allclose(found[seen], total / total.sum())
    plain = posteriors(prior.log()[None], evidence.log(), 0.0)[0, 3].exp()
    product = prior * evidence[0, :3].prod(0)
    assert torch.allclose(plain, product / product.sum())


def walks(model: SubgoalPeople, goals: Tensor, humans: Tensor, seed: int) -> Stretches:
    """Stretches of people who walk as the model has it, the partner and the kitchen as they are at the start."""
    generator = torch.Generator().manual_seed(seed)
    planned = Planned(PLANS, torch.unique(humans), model)
    start = SEEN.states[torch.randint(len(SEEN.length), goals.shape, generator=generator), 0]
    start[:, 1] = 0  # with empty hands
    state, last = start, torch.full_like(goals, STAY)
    states, actions, before = [], [], []
    for _ in range(SEEN.actions.shape[1]):
        number = torch.stack([PLANS.number(goal, state) for goal in range(len(WANTED))], 1)
        number = number.gather(1, goals[:, None]).squeeze(1)
        chances = model.log_probs(planned(number, planned.column(humans)), humans, last).exp()
        action = torch.multinomial(chances, 1, generator=generator).squeeze(1)
        for column, value in ((states, state), (actions, action), (before, last)):
            column.append(value)
        moves = torch.where(action == INTERACT, STAY, action)
        state = step(GAMES.layout, state, torch.stack([moves, torch.full_like(moves, STAY)], 1))[0]
        last = action
    nothing = torch.zeros_like(goals)
    return Stretches(
        torch.stack(states, 1), torch.stack(actions, 1), torch.stack(before, 1), nothing + 9, nothing, nothing, humans,
        nothing, nothing, nothing,
    )  # fmt: skip


def test_goals_of_simulated_walks_are_found_and_their_posteriors_are_calibrated() -> None:
    model = SubgoalPeople("br_per_human", 2)
    with torch.no_grad():
        model.rationality.raw_theta_beta.copy_(torch.tensor([[0.5], [-0.5]]))
        model.pause.fill_(-1.0)
    generator = torch.Generator().manual_seed(1)
    empty = torch.tensor([number for number, goal in enumerate(WANTED) if goal.hands == 0])
    goals = empty[torch.randint(len(empty), (600,), generator=generator)]
    seen = walks(model, goals, torch.randint(2, (600,), generator=generator), 2)
    prior = torch.full((600, len(WANTED) + 2), -torch.inf, dtype=torch.float64)
    prior[:, empty] = -math.log(len(empty))
    told = kitchen_goals.log_likelihoods(PLANS, seen, model)
    after = posteriors(prior, told, 0.0).exp()
    of_truth = after[torch.arange(600), :, goals].mean(0)
    assert float(of_truth[8]) > float(of_truth[0]) + 0.15
    likely = after[:, 8][:, empty]
    hit = goals[:, None] == empty
    for low in (0.0, 0.25, 0.5, 0.75):
        here = (likely > low) & (likely <= low + 0.25)
        error = float(likely[here].mean() - hit[here].double().mean())
        assert abs(error) < 4 * 0.5 / math.sqrt(int(here.sum()))


def test_fits_find_who_is_more_rational() -> None:
    truth = SubgoalPeople("br_per_human", 4)
    log_beta = torch.tensor([0.8, 0.3, -0.3, -0.8])
    with torch.no_grad():
        truth.rationality.raw_theta_beta[:, 0] = log_beta
    generator = torch.Generator().manual_seed(3)
    empty = [number for number, goal in enumerate(WANTED) if goal.hands == 0]
    goals = torch.tensor(empty)[torch.randint(len(empty), (400,), generator=generator)]
    seen = walks(truth, goals, torch.arange(4).repeat(100), 4)
    steps = ways(PLANS, seen, goals)
    found, converged = fit_people("br_per_human", {"cramped_room": (PLANS, steps)}, 4)
    assert converged
    theta = found.rationality.theta_beta[:, 0].float()
    assert bool((theta.diff() < 0).all())
    assert torch.allclose(theta, log_beta, atol=0.35)  # the prior draws people together


def test_priors_sum_to_one_and_know_the_hands() -> None:
    layout = GAMES.layout
    prior = log_priors(layout, WANTED, SEEN.select(SEEN.part == 0), SEEN.select(SEEN.part == 1)).exp()
    assert torch.allclose(prior.sum(1), torch.ones(1, dtype=torch.float64))
    hands = SEEN.select(SEEN.part == 1).hands
    for number, goal in enumerate(WANTED):
        assert bool((prior[hands != goal.hands, number] == 0).all())
        assert bool((prior[hands == goal.hands, number] > 0).all())
    truth = outcomes(layout, WANTED, SEEN.select(SEEN.part == 1))
    assert bool((prior.gather(1, truth[:, None]) > 0).all())


def test_parts_of_a_way_are_at_least_a_step_and_never_the_last_one() -> None:
    for view in views(SEEN):
        assert bool((view.steps >= 1).all())
        assert bool((view.steps <= SEEN.length[view.rows] - 1).all())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The experiment on games that nobody recorded."""

    class Data:
        kitchens = {"cramped_room": GAMES}  # noqa: RUF012  (never changed)
        parts = {"cramped_room": torch.bucketize(GAMES.time, torch.tensor([160, 200]), right=True).to(torch.int8)}  # noqa: RUF012
        humans = PEOPLE

    monkeypatch.setattr(kitchen_goals, "KitchenPeople", lambda *args, **options: Data())
    kitchens.cache_clear()
    yield
    kitchens.cache_clear()


def test_each_model_is_scored_on_the_same_moments_of_every_game(small: None) -> None:
    records = [record for model in ("prior", "br") for record in run_case(Case(model, True))]
    moments = {}
    for record in records:
        key = (record["pair"], record["seen_as"], record["seen"])
        if record["seen_as"] != "known end":
            assert record["likelihood"] <= 1
            assert moments.setdefault(key, record["moments"]) == record["moments"]
    assert {pair for pair, _, _ in moments} == {" and ".join(pair) for pair in GAMES.players}
    control = [record for record in records if record["evidence"] == "another walk"]
    assert control
    assert all(record["converged"] for record in records)
