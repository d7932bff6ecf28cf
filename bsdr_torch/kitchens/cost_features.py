"""What the cost of people in kitchens may be made of: a ladder of feature sets, chosen by name."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from bsdr_torch.features import Features, MLPFeatures
from bsdr_torch.kitchens.outlook import NUM_FEATURES
from bsdr_torch.worlds.overcooked import FEATURE_GROUPS

RewardKind = Literal["events", "places", "distances", "learned"]

# Each rung has those below it.
_EVENTS = ("hand", "interact", "partner_hand", "partner_interact", "pot", "lying")
_PLACES = (*_EVENTS, "facing", "stance", "partner_looks", "reach", "partner_reach")
_GROUPS: dict[str, tuple[str, ...]] = {"events": _EVENTS, "places": _PLACES, "distances": tuple(FEATURE_GROUPS)}


def cost_features(kind: RewardKind, width: int, hidden: int) -> Features:
    """phi_R, `[N, NUM_FEATURES] -> [N, phi_R.width]`, with a constant one last.

    Args:
        kind: task `events`, also `places` and facing, also `distances`, or `learned` from all of these by a network.
        width: the number of learned features.
        hidden: the width of the hidden layer of the network.
    """
    return MLPFeatures((NUM_FEATURES,), width, hidden) if kind == "learned" else _ChosenFeatures(_GROUPS[kind])


class _ChosenFeatures(Features):
    """Some groups of features as they are, and a constant one last."""

    def __init__(self, groups: tuple[str, ...]) -> None:
        found = [FEATURE_GROUPS[group] for group in groups]
        columns = [column for group in found for column in range(group.start, group.stop)]
        super().__init__(len(columns) + 1)
        self.register_buffer("columns", torch.tensor(columns), persistent=False)
        self.columns: Tensor

    def forward(self, features: Tensor) -> Tensor:
        """`[N, F] -> [N, width]`."""
        return torch.cat([features[:, self.columns], torch.ones_like(features[:, :1])], 1)
