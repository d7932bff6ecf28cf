from __future__ import annotations

import copy

import pytest
import torch

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.kitchens.engines import Enumerated, Exact, Lookahead, Neural
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.outlook import Outlook, outlook
from bsdr_torch.kitchens.planning import action_values, backup
from bsdr_torch.kitchens.replanning import Situations, imagine, replan
from bsdr_torch.rationality import POPULATION, RationalityKind
from bsdr_torch.worlds.overcooked import STAY, KitchenGraph, Layout
from tests.kitchens.conftest import untrained

EVERYBODY = torch.tensor([0, 1, 2, POPULATION])


def somewhere(layout: Layout, graph: KitchenGraph, many: int = 200, seat: int = 0) -> Outlook:
    rows = torch.randperm(graph.num_states, generator=torch.Generator().manual_seed(0))[:many]
    return outlook(layout, graph.states[rows], torch.full((many,), seat))


def nobody_asks(layout: Layout, states: torch.Tensor, features: torch.Tensor, people: torch.Tensor) -> torch.Tensor:
    raise AssertionError(f"{len(states)} states of {layout.name} are not in the table")


def policy(model: KitchenModel, ahead: Outlook, values: torch.Tensor) -> torch.Tensor:
    """log P(a|s) of those who plan with everybody's mean habit, `[N, 6, B]`."""
    habit = model.planned_habit
    future = action_values(values, ahead, model.partner_probabilities(ahead.partner), model.discount, None)
    base = torch.where(ahead.no_op, habit.log_base[1], habit.log_base[0])
    return (base[..., None] + future).log_softmax(1)


@torch.no_grad()
@pytest.mark.parametrize("seat", [0, 1])
def test_exact_values_satisfy_the_bellman_equation(closet: Layout, closet_graph: KitchenGraph, seat: int) -> None:
    # Nobody can pass the other one here, so that player 1 is never where player 0 is.
    model = untrained(closet)
    exact = Exact(model, {"closet": closet_graph}, nobody_asks, tolerance=1e-5)
    ahead = somewhere(closet, closet_graph, seat=seat)
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


@torch.no_grad()
def test_what_a_network_that_changes_no_more_says_of_a_state_is_kept_for_when_it_comes_again(
    closet: Layout, closet_graph: KitchenGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = untrained(closet).eval()
    parts, asked = model.values.parts, []

    def overheard(features: torch.Tensor) -> torch.Tensor:
        asked.append(len(features))
        return parts(features)

    monkeypatch.setattr(model.values, "parts", overheard)
    settled = Lookahead(model, 2, Neural(model), settled=True)
    for many in (20, 40, 40):
        ahead = somewhere(closet, closet_graph, many)
        seen = closet, ahead.states, ahead.features, EVERYBODY
        before = len(asked)
        found = settled(*seen)
        new = sum(asked[before:])
        torch.testing.assert_close(found, Lookahead(model, 2, Neural(model))(*seen), rtol=0, atol=1e-5)
        if many == 20:
            assert new == asked[-1]
    assert new == 0


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
    model = untrained(closet, hesitation=False, focus=False, arbitration=False)
    with torch.no_grad():
        model.rationality.raw_theta_R *= 4
    states, S = closet_graph.states, closet_graph.num_states
    everywhere = Situations(states.repeat(2, 1), torch.arange(2).repeat_interleave(S))
    planned = replan(model, {"closet": everywhere}, steps=400, batch_size=256, most=2 * S, beyond=1)
    visited = imagine(planned, "closet", games=8, steps=60)
    ahead = outlook(closet, visited.states, visited.seats)
    seen = closet, ahead.states, ahead.features, EVERYBODY
    with torch.no_grad():
        engines = [Exact(model, {"closet": closet_graph}, nobody_asks), Neural(planned)]
        engines.append(Lookahead(planned, 1, Neural(planned)))
        exact, neural, further = (policy(model, ahead, engine(*seen)) for engine in engines)
        thoughtless = policy(model, ahead, torch.zeros(len(ahead.states), len(EVERYBODY)))
    kl = [float((exact.exp() * (exact - other)).sum(1).mean()) for other in (thoughtless, neural, further)]
    assert kl[0] > 0.04  # there is something to plan for
    assert 0 < kl[2] < kl[1] < 0.01


def test_plans_that_are_made_with_coarse_numbers_are_nearly_the_same(
    closet: Layout, closet_graph: KitchenGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = untrained(closet)
    everywhere = Situations(closet_graph.states, torch.zeros(closet_graph.num_states, dtype=torch.int64))
    ahead = somewhere(closet, closet_graph, 50)
    values = []
    for coarse in (False, True):
        monkeypatch.setattr("bsdr_torch.kitchens.replanning.multiplies_in_bfloat16", lambda device, c=coarse: c)
        planned = replan(model, {"closet": everywhere}, steps=100, batch_size=64, beyond=1)
        with torch.no_grad():
            values.append(planned.values(ahead.features, EVERYBODY))
    assert not torch.equal(*values)
    torch.testing.assert_close(*values, rtol=0, atol=0.05)


@torch.no_grad()
def test_a_copy_of_a_settled_model_may_be_changed(closet: Layout, closet_graph: KitchenGraph) -> None:
    model = untrained(closet)
    model.engine = Lookahead(model, 1, Neural(model), settled=True)
    ahead = somewhere(closet, closet_graph, 20)
    seen = closet, ahead.states, ahead.features, EVERYBODY
    before = model.engine(*seen)
    changed = copy.deepcopy(model)
    changed.values.network[-1].bias += 1.0  # type: ignore[operator]  # a tensor
    assert changed.engine.model is changed  # type: ignore[attr-defined]  # a Lookahead
    assert not torch.allclose(changed.engine(*seen), before, atol=0.1)
    assert torch.equal(model.engine(*seen), before)


@pytest.mark.parametrize("rationality", ["br", "bsdr"])
def test_the_reward_learns_through_exact_values(
    closet: Layout, closet_graph: KitchenGraph, rationality: RationalityKind
) -> None:
    teacher = untrained(closet, rationality=rationality, reward="events")
    teacher.engine = Exact(teacher, {"closet": closet_graph}, Neural(teacher))
    student = untrained(closet, seed=1, rationality=rationality, reward="events")
    student.load_state_dict(teacher.state_dict())
    student.engine = Exact(student, {"closet": closet_graph}, Neural(student))
    torch.nn.init.zeros_(student.rationality.raw_theta_R)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(closet_graph.num_states, (400,), generator=generator)
    nothing = torch.zeros(400, dtype=torch.int64)
    humans = torch.randint(3, (400,), generator=generator)
    batch = Decisions("closet", closet_graph.states[rows], humans, nothing, torch.full((400, 4), STAY), *[nothing] * 4)
    with torch.no_grad():
        wanted = teacher.action_log_probs(batch).exp()

    def cross_entropy() -> torch.Tensor:
        return -(wanted * student.action_log_probs(batch)).sum(1).mean()

    entropy = float(-torch.special.xlogy(wanted, wanted).sum(1).mean())
    optimizer = torch.optim.Adam([student.rationality.raw_theta_R], 0.3)
    excess = []
    for _ in range(20):
        loss = cross_entropy()
        excess.append(float(loss.detach()) - entropy)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert excess[0] > 0.01
    assert excess[-1] < 0.25 * excess[0]


def test_people_who_do_not_differ_are_planned_for_once(closet: Layout, closet_graph: KitchenGraph) -> None:
    model = untrained(closet, rationality="br")
    exact = Exact(model, {"closet": closet_graph}, Neural(model), tolerance=1e-6)
    values = exact.table("closet", EVERYBODY)
    assert values.shape == (closet_graph.num_states, len(EVERYBODY))
    assert values.stride(1) == 0
    torch.testing.assert_close(values[:, :1], exact.table("closet", EVERYBODY[:1]), rtol=0, atol=1e-3)


@torch.no_grad()
def test_a_table_is_made_again_once_the_model_has_changed(closet: Layout, closet_graph: KitchenGraph) -> None:
    model = untrained(closet)
    exact = Exact(model, {"closet": closet_graph}, Neural(model))
    before = exact.table("closet", EVERYBODY)
    assert exact.table("closet", EVERYBODY) is before
    assert exact.table("closet", EVERYBODY[:2]).shape[1] == 2
    model.rationality.raw_theta_R *= 2
    assert not torch.allclose(exact.table("closet", EVERYBODY), before, atol=1e-2)


def test_the_edges_that_are_kept_are_those_of_the_world(closet_graph: KitchenGraph) -> None:
    partner = torch.rand(closet_graph.num_states, 6, generator=torch.Generator().manual_seed(0)).softmax(1)
    for seat in (0, 1):
        wanted, found = closet_graph.mdp(seat, partner).incoming, Enumerated(closet_graph, seat).mdp(partner).incoming
        for one, other in zip(wanted, found, strict=True):
            assert one is not None
            assert other is not None
            assert torch.equal(one, other)


def test_a_reward_with_exact_values_is_not_drawn_to_what_the_network_says(
    closet: Layout, closet_graph: KitchenGraph
) -> None:
    model = untrained(closet)
    ahead = somewhere(closet, closet_graph, 20)
    theta = model.rationality.raw_theta_R
    missed = model.residual(ahead, EVERYBODY, None).square().mean()
    (drawn,) = torch.autograd.grad(missed, theta)
    assert float(drawn.abs().sum()) > 0
    model.engine = Exact(model, {"closet": closet_graph}, Neural(model))
    missed = model.residual(ahead, EVERYBODY, None).square().mean()
    assert torch.autograd.grad(missed, theta, allow_unused=True) == (None,)
    missed.backward()
    assert any(parameter.grad is not None for parameter in model.values.parameters())


def test_a_batch_outside_of_the_table_teaches_the_reward_nothing(closet: Layout, closet_graph: KitchenGraph) -> None:
    model = untrained(closet)
    exact = Exact(model, {"closet": closet_graph}, Neural(model))
    (exact.table("closet", EVERYBODY) * 0).sum().backward()
    grad = model.rationality.raw_theta_R.grad
    assert grad is not None
    assert not bool(grad.any())
