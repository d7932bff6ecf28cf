from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bsdr_torch.contenders import LONG_HISTORY, contenders
from bsdr_torch.data.decisions import Decisions, DecisionTable
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.splits import Part
from bsdr_torch.rationality import POPULATION


@pytest.fixture(scope="module")
def data(prepared_2020: Path) -> KitchenPeople:
    return KitchenPeople(str(prepared_2020), layouts=["cramped_room"])


def two_futures(data: KitchenPeople, step: int) -> Iterator[Decisions]:
    """The decisions up to a step of each game; once as recorded, once with everything from its actions on changed."""
    (games,) = data.kitchens.values()
    place = torch.arange(len(games)) - games.first[games.game]
    states = torch.where((place > step)[:, None], games.states.flip(0), games.states)
    actions = torch.where((place >= step)[:, None], (games.actions + 1) % 6, games.actions)
    assert not torch.equal(states, games.states)
    numbers = {human: number for number, human in enumerate(data.humans)}
    for other in (games, replace(games, states=states, actions=actions)):
        table = DecisionTable.of(other, numbers, history=LONG_HISTORY)
        known = (place <= step).repeat_interleave(2) & (table.humans != POPULATION)
        yield table.gather(known.nonzero()[:, 0])


@pytest.mark.parametrize("name", contenders())
def test_predictions_see_nothing_that_comes_later_and_no_test_data(
    name: str, data: KitchenPeople, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, asked = data.steps, set()

    def overheard(part: Part) -> dict[str, Decisions]:
        asked.add(part)
        return steps(part)

    monkeypatch.setattr(data, "steps", overheard)
    contender = contenders(quick=True)[name]
    models = [contender.fit(data, 0, **contender.settings)]
    if contender.replan:
        models.append(contender.replan(models[0], data, 0))
    assert "test" not in asked
    recorded, changed = two_futures(data, step=50)
    assert not torch.equal(recorded.actions, changed.actions)
    for model in models:
        log_probs = model.action_log_probs(recorded)
        assert torch.equal(log_probs, model.action_log_probs(changed))
        torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(len(log_probs), dtype=log_probs.dtype))


@pytest.mark.parametrize("name", contenders())
def test_contenders_say_truly_what_they_see(name: str, data: KitchenPeople) -> None:
    contender = contenders(quick=True)[name]
    model = contender.fit(data, 0, **contender.settings)
    steps = data.steps("test")["cramped_room"]
    as_seen = model.action_log_probs(steps)
    earlier = steps.history.clone()
    earlier[:, contender.history :] = (earlier[:, contender.history :] + 1) % 6
    assert torch.equal(as_seen, model.action_log_probs(steps._replace(history=earlier)))
    if contender.history:
        turned = steps._replace(history=(steps.history + 1) % 6)
        assert not torch.equal(as_seen, model.action_log_probs(turned))
    stranger = steps._replace(humans=torch.full_like(steps.humans, POPULATION))
    assert torch.equal(as_seen, model.action_log_probs(stranger)) != contender.identity


@pytest.mark.parametrize("fast", [False, True])
def test_networks_are_trained_in_the_numbers_that_the_processor_multiplies(
    fast: bool, data: KitchenPeople, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsdr_torch.contenders.multiplies_in_bfloat16", lambda device: fast)
    seen = []
    monkeypatch.setattr("bsdr_torch.contenders.fit_often", lambda *options: seen.append(options[3]))
    habit = contenders(quick=True)["habit"]
    habit.fit(data, 0, **habit.settings)
    assert seen == ["bf16-mixed" if fast else "32-true"]
