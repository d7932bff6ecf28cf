from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.prepared import layout_to_json
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.outlook import view
from bsdr_torch.kitchens.simulated_people import PARTNER, SimulatedPeople, as_prepared, draw_people, play
from bsdr_torch.worlds.overcooked import step


@pytest.fixture(scope="module")
def people() -> SimulatedPeople:
    return draw_people(3, 0.5, 0.7, torch.Generator().manual_seed(0))


def test_a_step_always_costs_something_and_beta_is_one_in_the_mean_of_people(people: SimulatedPeople) -> None:
    assert float(people.cost.min()) > 0
    torch.testing.assert_close(people.beta.mean(1), torch.ones(people.graph.num_states, dtype=torch.float64))
    assert float(people.beta.log().std(0).min()) > 0.1  # with the state, for everybody
    alike = draw_people(3, 0.0, 0.0, torch.Generator().manual_seed(0))
    assert torch.equal(alike.beta, torch.ones_like(alike.beta))


def test_games_obey_the_rules_and_depend_on_the_seed_alone(people: SimulatedPeople) -> None:
    games, again = (play(people, 2, 40, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(games.states, again.states)
    following, _, _ = step(games.layout, games.states, games.actions)
    same_game = games.game[1:] == games.game[:-1]
    assert torch.equal(following[:-1][same_game], games.states[1:][same_game])
    assert list(as_prepared(games).humans) == people.names
    assert not torch.equal(games.actions, play(people, 2, 40, torch.Generator().manual_seed(2)).actions)


def test_actions_are_as_frequent_as_the_policies_say(people: SimulatedPeople) -> None:
    games = play(people, 200, 1, torch.Generator().manual_seed(1))
    first = people.policy[people.graph.index(games.states[:1])[0]]  # [6, N]
    for person in range(3):
        own = games.actions[200 * person : 200 * (person + 1)].long()
        for found, wanted in ((own[:, 0], first[:, person]), (own[:, 1], torch.tensor(PARTNER, dtype=torch.float64))):
            share = torch.bincount(found, minlength=6) / 200
            assert float((share - wanted).abs().max()) < 0.12


@torch.no_grad()
def test_people_act_as_exact_plans_with_their_reward_do(
    people: SimulatedPeople, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = people.graph
    model = KitchenModel(
        [layout_to_json(graph.layout)],
        people.names,
        [],
        history=1,
        identity=False,
        partner_hidden=[],
        hesitation=False,
        focus=False,
        planner="exact",
        made_up=1,
    ).eval()
    model.partner[-1].weight.zero_()  # type: ignore[operator, union-attr]
    model.partner[-1].bias.copy_(torch.tensor(PARTNER).log())  # type: ignore[operator, union-attr]
    model.planned_log_base.copy_(torch.tensor(people.log_base))
    model.planned_pause.fill_(people.pause)
    reward = (-people.beta * people.cost[:, None]).float()
    rows = {tuple(row): number for number, row in enumerate(view(graph.layout, graph.states, 0).features.tolist())}
    assert len(rows) == graph.num_states
    monkeypatch.setattr(
        model,
        "symmetric_reward",
        lambda features, who: reward[torch.tensor([rows[tuple(row)] for row in features.tolist()])][:, who],
    )
    number = torch.randint(graph.num_states, (300,), generator=torch.Generator().manual_seed(0))
    humans, nothing = torch.arange(300) % 3, torch.zeros(300, dtype=torch.int64)
    no_history = torch.zeros(300, 0, dtype=torch.int64)  # so that habit is the one that plans are made with
    batch = Decisions(graph.layout.name, graph.states[number], humans, nothing, no_history, *[nothing] * 4)
    found = model.action_log_probs(batch).exp().double()
    torch.testing.assert_close(found, people.policy[number, :, humans], rtol=0, atol=5e-3)
    others = replace(people, cost_scale=2 * people.cost_scale)
    assert not torch.allclose(found, others.policy[number, :, humans], atol=5e-2)
