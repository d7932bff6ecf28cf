"""Numbers for 64-bit keys in the order of their first appearance: a hash table made of tensors, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

_EMPTY = -(2**63)


class KeyIndex:
    """Keys 0, 1, 2... in the order in which they were added. Keys must be well mixed, as `hash_states` makes them.

    Example:
        >>> index = KeyIndex(torch.device("cpu"))
        >>> index.add(torch.tensor([70, 50, 70]))
        (tensor([0, 1, 0], dtype=torch.int32), tensor([0, 1]))
        >>> index.find(torch.tensor([50, 60]))
        tensor([ 1, -1], dtype=torch.int32)
    """

    def __init__(self, device: torch.device) -> None:
        self._count = 0
        self._allocate(2**10, device)

    def __len__(self) -> int:
        return self._count

    def find(self, keys: Tensor) -> Tensor:
        """`[N]` int64 -> `[N]` int32: their numbers, -1 for those that were never added."""
        return self._find(keys)[0]

    def add(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """`[N]` int64 -> their numbers `[N]` int32, and for each key that is new the row where it first appears."""
        numbers, rows = self._find(keys)
        if not len(rows):
            return numbers, rows
        self._reserve(self._count + len(rows))
        slots = self._claim(keys.index_select(0, rows))
        # Equal keys claimed one slot together: the first row of each gets a number, in the order of rows.
        order = torch.arange(len(rows), dtype=torch.int32, device=rows.device)
        self._numbers.scatter_reduce_(0, slots, order, "amin", include_self=False)
        first = (self._numbers.index_select(0, slots) == order).nonzero().squeeze(1)
        new = torch.arange(self._count, self._count + len(first), dtype=torch.int32, device=rows.device)
        self._numbers[slots.index_select(0, first)] = new
        self._count += len(first)
        numbers[rows] = self._numbers.index_select(0, slots)
        return numbers, rows.index_select(0, first)

    def _find(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers `[N]`, and the rows of those that were never added, in order."""
        here = keys & self._mask
        numbers = self._numbers.index_select(0, here)
        # Most keys are where they are looked for first: only the others are worth the bookkeeping.
        rows = (self._keys.index_select(0, here) != keys).nonzero().squeeze(1)
        numbers[rows] = -1
        here, pending = here.index_select(0, rows), rows
        while len(pending):
            found = self._keys.index_select(0, here)
            same = found == keys.index_select(0, pending)
            numbers[pending[same]] = self._numbers.index_select(0, here[same])
            on = ~same & (found != _EMPTY)
            pending, here = pending[on], (here[on] + 1) & self._mask
        return numbers, rows[numbers.index_select(0, rows) < 0]

    def _claim(self, keys: Tensor) -> Tensor:
        """A slot for each key, equal keys on one."""
        slots = keys & self._mask
        pending = torch.arange(len(keys), device=keys.device)
        here = slots.clone()
        while len(pending):
            wanted = keys.index_select(0, pending)
            free = self._keys.index_select(0, here) == _EMPTY
            self._keys[here[free]] = wanted[free]  # of different keys that write to one slot, one stays
            lost = self._keys.index_select(0, here) != wanted
            slots[pending] = here
            pending, here = pending[lost], (here[lost] + 1) & self._mask
        return slots

    def _reserve(self, count: int) -> None:
        """Grow until `count` keys leave half of the slots free, which keeps searches short."""
        if 2 * count <= len(self._keys):
            return
        used = (self._keys != _EMPTY).nonzero().squeeze(1)
        keys, numbers = self._keys[used], self._numbers[used]
        self._allocate(2 ** (4 * count - 1).bit_length(), keys.device)
        self._numbers[self._claim(keys)] = numbers

    def _allocate(self, slots: int, device: torch.device) -> None:
        self._mask = slots - 1
        self._keys = torch.full((slots,), _EMPTY, dtype=torch.int64, device=device)
        self._numbers = torch.full((slots,), -1, dtype=torch.int32, device=device)
