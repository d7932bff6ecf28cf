from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bsdr_torch.baselines.bpd import Reminded
from bsdr_torch.contenders import contenders
from bsdr_torch.data.decisions import Decisions, RolloutKey
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.experiments import online_adaptation
from bsdr_torch.experiments.online_adaptation import ANOTHER, MODELS, OWN, adapted, comparisons, findings
from bsdr_torch.kitchens.predicting import Predicts
from bsdr_torch.rationality import POPULATION

HISTORY = 8


@pytest.fixture(autouse=True)
def _short_games(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SEEN": (0, 5, 20), "LONGEST": 20, "_STRETCH": 5, "LONG_HISTORY": HISTORY}.items():
        monkeypatch.setattr(online_adaptation, name, value)


@pytest.fixture(scope="module")
def data(prepared_2020: Path) -> KitchenPeople:
    return KitchenPeople(str(prepared_2020), ["cramped_room"])


@pytest.fixture(scope="module")
def game(data: KitchenPeople) -> Decisions:
    steps = data.steps("train")["cramped_room"]
    found = steps.some(steps.rollouts == steps.rollouts[0])
    assert len(found.actions) > 40
    return found._replace(humans=torch.full_like(found.humans, POPULATION))


def _adapted(model: Predicts, game: Decisions) -> dict[int, torch.Tensor]:
    return {seen: own for seen, (own,) in adapted(model, game, [game]).items()}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_seen_of_a_person_matters_and_nothing_else_of_them(
    name: str, data: KitchenPeople, game: Decisions
) -> None:
    contender = contenders(quick=True)[MODELS[name][0]]
    model = contender.fit(data, 0, **contender.settings)
    found = _adapted(model, game)
    assert list(found) == [0, 5, 20]
    for log_probs in found.values():
        torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(len(game.actions) - 20))
    if name in ("bsdr", "ileed"):  # of somebody of whom nothing was seen they say what they always say
        shared = model if name == "bsdr" else model.model
        with torch.no_grad():
            torch.testing.assert_close(found[0], shared.action_log_probs(game)[20:], atol=1e-5, rtol=1e-5)

    def change(first: int, last: int) -> dict[int, torch.Tensor]:
        actions = game.actions.clone()
        actions[first:last] = (actions[first:last] + 1) % 6
        return _adapted(model, game._replace(actions=actions))

    early, middle, final = change(0, 5), change(5, 12), change(len(game.actions) - 1, len(game.actions))
    for seen, log_probs in found.items():
        assert torch.equal(log_probs, early[seen]) == (seen == 0)
        assert torch.equal(log_probs, middle[seen]) == (seen < 20)
        assert torch.equal(log_probs, final[seen])
    # Of somebody else, what is known of this person says something else, and nothing while nothing is known.
    somebody_else = game._replace(actions=game.actions.flip(0))
    for seen, (others,) in adapted(model, somebody_else, [game]).items():
        assert torch.equal(others, found[seen]) == (seen == 0)


def test_the_network_that_watched_goes_on_from_what_it_remembers(data: KitchenPeople, game: Decisions) -> None:
    contender = contenders(quick=True)["bpd-sequence"]
    model = contender.fit(data, 0, **contender.settings)
    assert isinstance(model, Reminded)
    found, bpd = _adapted(model, game), model.model
    with torch.no_grad():
        for at in (20, 30):
            alone = bpd.action_log_probs(game.some(slice(at - HISTORY, at + 1)))
            torch.testing.assert_close(found[0][at - 20], alone[-1])
        gap = torch.cat([torch.arange(5), torch.arange(30 - HISTORY, 31)])
        torch.testing.assert_close(found[5][10], bpd.action_log_probs(game.some(gap))[-1])


def test_models_are_compared_on_the_same_people(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = [
        RolloutKey(kitchen, f"{kitchen}/{pair}", f"{pair}/{seat}", seat)
        for kitchen in ("one", "two")
        for pair in range(3)
        for seat in (0, 1)
    ]
    monkeypatch.setattr(online_adaptation, "_data", lambda quick, seed: SimpleNamespace(rollouts=rollouts))
    levels = {"bsdr": 0.8, "ileed": 0.9, "bpd-inference": 1.5}
    records = [
        {"model": model, "seed": seed, "quick": True, "rollout": number, "whose": whose, "seen": seen}
        | {"cross_entropy": level + 0.2 * (key.layout == "two") + 0.01 * number + gain * seen + 0.1 * seed}
        for model, level in levels.items()
        for seed in ((0, 1) if model == "bsdr" else (0,))
        for number, key in enumerate(rollouts)
        for seen in online_adaptation.SEEN
        for whose, gain in ((OWN, -0.001), (ANOTHER, 0.002))
        if model != "bpd-inference" or key.layout == "two"
    ]
    every, some = comparisons(records)
    assert (every.kitchens, every.models) == (["one", "two"], ["bsdr", "ileed"])
    assert (some.kitchens, some.models) == (["two"], list(levels))
    assert every.level("ileed", 0).mean == pytest.approx(0.9 + 0.1 + 0.055)
    assert some.level("ileed", 0).mean == pytest.approx(0.9 + 0.2 + 0.085)
    assert every.change("bsdr", 20).estimate[:3] == pytest.approx((-0.02,) * 3)
    assert every.change("bsdr", 20, ANOTHER).estimate[:3] == pytest.approx((0.04,) * 3)
    assert some.difference("bsdr", "bpd-inference", 5).estimate[:3] == pytest.approx((0.85 - 1.5,) * 3)
    words = [finding.words for finding in findings(records)]
    assert "with 20 steps seen, the cross-entropy in two of BSDR is lower than that of BPD" in words[-1]
    assert sum("no advantage, as it should be, but a cost" in sentence for sentence in words) == 2  # not BPD
    assert len(words) == 4 * 3 - 1 + 2
