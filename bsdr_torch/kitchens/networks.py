"""Pieces of networks that the models of people in kitchens share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot


class SharedDropout(nn.Module):
    """Dropout with one mask for a whole batch: values that are compared with one another lose the same."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, rows: Tensor) -> Tensor:
        """Rows `[N, F]`, in training without some of the columns."""
        if not self.training or not self.share:
            return rows
        kept = torch.rand(rows.shape[1], device=rows.device) >= self.share
        return rows * (kept.to(rows.dtype) / (1 - self.share))


def multilayer_perceptron(
    inputs: int, hidden: Sequence[int], outputs: int, dropout: float, shared: bool = False
) -> nn.Sequential:
    """Linear layers with ReLU and dropout between them, which may be `shared` by a batch."""
    layers: list[nn.Module] = []
    for before, after in pairwise((inputs, *hidden)):
        layers += [nn.Linear(before, after), nn.ReLU(), (SharedDropout if shared else nn.Dropout)(dropout)]
    return nn.Sequential(*layers, nn.Linear(hidden[-1] if hidden else inputs, outputs))


def multiplies_in_bfloat16(device: torch.device) -> bool:
    """Whether numbers of 16 bits are the faster ones there: a processor that has to widen them is ten times slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # in torch
        return False
    if not hasattr(torch.cpu, "get_capabilities"):  # of older versions of torch
        return False
    has = torch.cpu.get_capabilities()  # that oneDNN supports them says less: it widens them where it must
    return any(has.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def one_hot_if_known(index: Tensor, size: int) -> Tensor:
    """`[N] -> [N, size]` float: all zero where the index is negative, or where there is nothing to tell apart."""
    if size == 0:
        return index.new_zeros((len(index), 0)).float()
    return one_hot(index + 1, size + 1)[:, 1:].float()
