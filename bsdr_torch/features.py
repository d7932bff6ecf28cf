"""The feature maps phi: from what a world shows of each state to the features of cost and of rationality."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

FeatureKind = Literal["fixed", "mlp", "cnn"]


class Features(nn.Module):
    """A feature map with `width` features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width


class FixedFeatures(Features):
    """phi is given with the world, `[S, F] -> [S, F]`."""

    def forward(self, observation: Tensor) -> Tensor:
        """The features as they are, checked for their width."""
        if observation.ndim != 2 or observation.shape[1] != self.width:
            raise ValueError(
                f"expected features of width {self.width}, got a tensor of shape {tuple(observation.shape)}: "
                "all worlds of one model must have the same features, in the same order"
            )
        return observation


class MLPFeatures(Features):
    """phi learned by a multilayer perceptron on the flattened observation, `[S, ...] -> [S, width]`."""

    def __init__(self, shape: tuple[int, ...], width: int, hidden: int) -> None:
        super().__init__(width)
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(shape), hidden),
            nn.SiLU(),
            nn.Linear(hidden, width - 1),
            nn.Tanh(),
        )

    def forward(self, observation: Tensor) -> Tensor:
        """The learned features, and a constant one last."""
        return _with_constant(self.layers(observation))


class CNNFeatures(Features):
    """phi learned by a small convolutional network on a window around the person, `[S, C, H, W] -> [S, width]`."""

    def __init__(self, shape: tuple[int, ...], width: int, hidden: int) -> None:
        super().__init__(width)
        if len(shape) != 3:
            raise ValueError(f"a CNN needs observations [C, H, W], got shape {shape}: use features=mlp")
        self.layers = nn.Sequential(
            nn.Conv2d(shape[0], hidden, kernel_size=3, padding=1),
            nn.SiLU(),
            nn.Conv2d(hidden, hidden, kernel_size=3, padding=1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(hidden * shape[1] * shape[2], width - 1),
            nn.Tanh(),
        )

    def forward(self, observation: Tensor) -> Tensor:
        """The learned features, and a constant one last."""
        return _with_constant(self.layers(observation))


def make_features(kind: FeatureKind, shape: tuple[int, ...], width: int, hidden: int) -> Features:
    """The featurizer called `kind` for observations of `shape`; `width` and `hidden` are those of learned ones."""
    if kind == "fixed":
        return FixedFeatures(shape[0])
    if width < 2 or hidden < 1:
        raise ValueError(f"learned features need width >= 2 and hidden >= 1, got {width} and {hidden}")
    if kind == "mlp":
        return MLPFeatures(shape, width, hidden)
    if kind == "cnn":
        return CNNFeatures(shape, width, hidden)
    raise ValueError(f"unknown features {kind!r}: choose fixed, mlp or cnn")


def _with_constant(features: Tensor) -> Tensor:
    """Adds the feature 1, so that a cost or rationality that is the same everywhere can be expressed."""
    return torch.cat([features, torch.ones_like(features[:, :1])], dim=1)
