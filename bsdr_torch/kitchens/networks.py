"""Pieces of networks that the models of people in kitchens share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import one_hot


def multilayer_perceptron(inputs: int, hidden: Sequence[int], outputs: int, dropout: float) -> nn.Sequential:
    """Linear layers with ReLU and dropout between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise((inputs, *hidden)):
        layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(hidden[-1] if hidden else inputs, outputs))


def one_hot_if_known(index: Tensor, size: int) -> Tensor:
    """`[N] -> [N, size]` float: all zero where the index is negative, or where there is nothing to tell apart."""
    if size == 0:
        return index.new_zeros((len(index), 0)).float()
    return one_hot(index + 1, size + 1)[:, 1:].float()
