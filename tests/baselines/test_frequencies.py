from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from bsdr_torch.baselines.frequencies import KitchenFrequencies
from bsdr_torch.data.kitchen_people import KitchenPeople


@pytest.mark.parametrize("after_own_last", [False, True])
def test_actions_are_as_likely_as_they_were_frequent(prepared_2020: Path, after_own_last: bool) -> None:
    data = KitchenPeople(str(prepared_2020))
    seen = [data.steps(part)["cramped_room"] for part in ("train", "validation")]
    test = data.steps("test")["cramped_room"]
    counts = Counter(
        (last if after_own_last else None, action)
        for steps in seen
        for last, action in zip(steps.history[:, 0].tolist(), steps.actions.tolist(), strict=True)
    )
    probs = KitchenFrequencies(data, after_own_last).action_log_probs(test).exp()
    assert probs.shape == (len(test.actions), 6)
    for last, row in zip(test.history[:, 0].tolist(), probs.tolist(), strict=True):
        smoothed = [counts[last if after_own_last else None, action] + 1 for action in range(6)]
        assert row == pytest.approx([count / sum(smoothed) for count in smoothed])


def test_a_new_kitchen_has_the_frequencies_of_all_others(prepared_2020: Path) -> None:
    data = KitchenPeople(str(prepared_2020), protocol="layout", held_out="cramped_room")
    actions = [steps.actions for part in ("train", "validation") for steps in data.steps(part).values()]
    counts = torch.bincount(torch.cat(actions), minlength=6) + 1
    (probs,) = KitchenFrequencies(data).action_log_probs(data.steps("test")["cramped_room"]).exp().unique(dim=0)
    torch.testing.assert_close(probs, (counts / counts.sum()).double(), rtol=1e-6, atol=0)
