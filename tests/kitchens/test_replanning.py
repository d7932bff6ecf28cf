from __future__ import annotations

import math
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

from bsdr_torch.kitchens import replanning
from bsdr_torch.kitchens.engines import Exact, Lookahead, Neural
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.outlook import outlook
from bsdr_torch.kitchens.replanning import Situations, plan_in, residual
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import KitchenGraph, Layout
from tests.kitchens.conftest import untrained

EVERYBODY = torch.tensor([0, 1, 2, POPULATION])


@pytest.fixture(autouse=True)
def kept_here(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp()))


def everywhere(graph: KitchenGraph) -> Situations:
    return Situations(graph.states, torch.zeros(graph.num_states, dtype=torch.int64))


def elsewhere(layout: Layout) -> KitchenModel:
    """A model that never heard of the closet."""
    return untrained(replace(layout, name="another", grid=("XPOX", "O  X", "XDSX")))


def test_an_exact_plan_in_a_new_kitchen_is_the_solution_of_its_bellman_equation(
    closet: Layout, closet_graph: KitchenGraph
) -> None:
    model = elsewhere(closet)
    planned = plan_in(model, closet, max_objects=0, steps=2, wanted=math.inf, imagined=5)
    reference = elsewhere(closet)
    reference.layouts = {"closet": closet}
    ahead = outlook(closet, closet_graph.states[:50], torch.zeros(50, dtype=torch.int64))
    seen = closet, ahead.states, ahead.features, EVERYBODY
    with torch.no_grad():
        expected = Exact(reference, {"closet": closet_graph}, Neural(reference))(*seen)
        torch.testing.assert_close(planned.engine(*seen), expected, rtol=0, atol=1e-3)
        assert not torch.allclose(planned.values(ahead.features, EVERYBODY), expected, atol=0.05)
    assert list(planned.layouts) == ["closet"]
    assert list(model.layouts) == ["another"]


def test_the_residual_of_constant_values_is_what_the_equation_says(closet: Layout, closet_graph: KitchenGraph) -> None:
    model = untrained(closet, rationality="br", discount=0.8)
    with torch.no_grad():
        for parameter in [*model.values.parameters(), *model.phi_R.parameters()]:
            parameter.zero_()
        last = model.values.network[-1]
        assert isinstance(last, nn.Linear)
        last.bias[:1] = -3.0
        model.planned_log_base.zero_()
        model.planned_pause.fill_(0.25)
        features = closet_graph.states[:1]
        ahead = outlook(closet, features, torch.zeros(1, dtype=torch.int64))
        reward = float(model.reward(ahead.features[ahead.own], EVERYBODY)[0, 0])
    expected = abs(-3.0 - reward - 0.8 * -3.0 - 0.75 * math.log(6))
    assert residual(model, "closet", everywhere(closet_graph)) == pytest.approx(expected, rel=1e-4)


def test_steps_ahead_are_put_on_top_of_the_network(closet: Layout, closet_graph: KitchenGraph) -> None:
    planned = plan_in(elsewhere(closet), closet, lookahead=2, steps=2, wanted=math.inf, imagined=5)
    ahead = outlook(closet, closet_graph.states[:20], torch.zeros(20, dtype=torch.int64))
    seen = closet, ahead.states, ahead.features, EVERYBODY
    with torch.no_grad():
        torch.testing.assert_close(planned.engine(*seen), Lookahead(planned, 2, Neural(planned))(*seen))


def test_planning_goes_on_until_the_equation_holds_as_well_as_was_wanted(
    closet: Layout, closet_graph: KitchenGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    plan = replanning.replan

    def watched(model: KitchenModel, situations: dict[str, Situations], steps: int, seed: int) -> KitchenModel:
        tried.append(steps)
        return plan(model, situations, steps, batch_size=128, seed=seed)

    monkeypatch.setattr(replanning, "replan", watched)
    model = elsewhere(closet)
    hasty = plan_in(model, closet, steps=40, wanted=math.inf, imagined=20)
    missed = residual(hasty, "closet", everywhere(closet_graph))
    assert tried == [40]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        better = plan_in(model, closet, steps=40, wanted=0.8 * missed, imagined=20)
    assert tried[1:3] == [40, 80]
    assert residual(better, "closet", everywhere(closet_graph)) < 0.85 * missed
    with pytest.warns(
        UserWarning, match=r"closet: plans miss the Bellman equation by .* after 4 steps: give more steps"
    ):
        plan_in(model, closet, steps=1, wanted=0.0, imagined=5)
    assert tried[-3:] == [1, 2, 4]
