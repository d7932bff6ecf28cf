from __future__ import annotations

import torch

from bsdr_torch.kitchens.engines import Exact, Lookahead, Neural
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.outlook import Outlook, outlook
from bsdr_torch.kitchens.planning import action_values, backup
from bsdr_torch.kitchens.replanning import Situations, replan
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import KitchenGraph, Layout
from tests.kitchens.conftest import untrained

EVERYBODY = torch.tensor([0, 1, 2, POPULATION])


def somewhere(layout: Layout, graph: KitchenGraph, many: int = 200) -> Outlook:
    rows = torch.randperm(graph.num_states, generator=torch.Generator().manual_seed(0))[:many]
    return outlook(layout, graph.states[rows], torch.zeros(many, dtype=torch.int64))


def policy(model: KitchenModel, ahead: Outlook, values: torch.Tensor) -> torch.Tensor:
    """log P(a|s) of those who plan with everybody's mean habit, `[N, 6, B]`."""
    habit = model.planned_habit
    future = action_values(values, ahead, model.partner_probabilities(ahead.partner), model.discount, None)
    base = torch.where(ahead.no_op, habit.log_base[1], habit.log_base[0])
    return (base[..., None] + future).log_softmax(1)


@torch.no_grad()
def test_exact_values_satisfy_the_bellman_equation(closet: Layout, closet_graph: KitchenGraph) -> None:
    model = untrained(closet)
    exact = Exact(model, {"closet": closet_graph}, Neural(model), tolerance=1e-5)
    ahead = somewhere(closet, closet_graph)
    values = exact(closet, ahead.states, ahead.features, EVERYBODY)
    future = action_values(values, ahead, model.partner_probabilities(ahead.partner), model.discount, None)
    wanted = model.reward(ahead.features[ahead.own], EVERYBODY) + backup(future, ahead.no_op, model.planned_habit)
    torch.testing.assert_close(values[ahead.own], wanted, rtol=0, atol=1e-3)


@torch.no_grad()
def test_looking_ahead_of_exact_values_changes_nothing(closet: Layout, closet_graph: KitchenGraph) -> None:
    model = untrained(closet)
    exact = Exact(model, {"closet": closet_graph}, Neural(model), tolerance=1e-5)
    ahead = somewhere(closet, closet_graph, 20)
    seen = closet, ahead.states, ahead.features, EVERYBODY
    torch.testing.assert_close(Lookahead(model, 2, exact)(*seen), exact(*seen), rtol=0, atol=1e-3)


def test_the_reward_s_gradient_through_exact_values_is_that_of_finite_differences(
    closet: Layout, closet_graph: KitchenGraph
) -> None:
    model = untrained(closet, reward="events")
    exact = Exact(model, {"closet": closet_graph}, Neural(model), tolerance=1e-6)
    ahead = somewhere(closet, closet_graph, 10)
    weight = torch.randn(len(ahead.states), 2)

    def objective() -> torch.Tensor:
        people = torch.tensor([1, POPULATION])
        return (exact(closet, ahead.states, ahead.features, people) * weight).sum()

    theta = model.rationality.raw_theta_R
    (gradient,) = torch.autograd.grad(objective(), theta)
    with torch.no_grad():
        for place in gradient.abs().topk(3).indices.tolist():
            around = []
            for change in (1e-2, -2e-2):
                theta[place] += change
                around.append(float(objective()))
            theta[place] += 1e-2
            slope = (around[0] - around[1]) / 2e-2
            assert abs(slope - float(gradient[place])) < 0.01 * abs(slope)


def test_a_network_plans_as_the_exact_table_does_and_looking_ahead_comes_closer(
    closet: Layout, closet_graph: KitchenGraph
) -> None:
    model = untrained(closet)
    with torch.no_grad():
        model.rationality.raw_theta_R *= 4
    everywhere = Situations(closet_graph.states, torch.zeros(closet_graph.num_states, dtype=torch.int64))
    planned = replan(model, {"closet": everywhere}, steps=400, batch_size=256, beyond=0.0)
    ahead = somewhere(closet, closet_graph)
    seen = closet, ahead.states, ahead.features, EVERYBODY
    with torch.no_grad():
        engines = [Exact(model, {"closet": closet_graph}, Neural(model)), Neural(planned)]
        engines.append(Lookahead(planned, 1, Neural(planned)))
        exact, neural, further = (policy(model, ahead, engine(*seen)) for engine in engines)
        thoughtless = policy(model, ahead, torch.zeros(len(ahead.states), len(EVERYBODY)))
    kl = [float((exact.exp() * (exact - other)).sum(1).mean()) for other in (thoughtless, neural, further)]
    assert kl[0] > 0.05  # there is something to plan for
    assert 0 < kl[2] < kl[1] < 0.01
