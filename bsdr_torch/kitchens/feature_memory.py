"""Features of states that come again and again, kept instead of made anew.

In training every decision comes once an epoch, with all its successors, and to encode those takes as long as the
networks do. What was encoded once is found again by the hash of its state.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bsdr_torch.worlds.overcooked import hash_states

MOST_BYTES = 2**29
"""What is kept of a kitchen; the five of 2019 with everything that people did there take 1.2 GB together."""

_LEAST_ROWS = 1024


class FeatureMemory:
    """Rows of numbers by state: what a function of states says, and what it said before.

    Args:
        of: the function, `[N, W] -> [N, F]` float32; each row must depend on its own state alone.
        most_bytes: what the memory may take.

    Example:
        >>> memory = FeatureMemory(lambda states: states.float() ** 2, most_bytes=1000)
        >>> memory(torch.tensor([[1, 2], [3, 4], [1, 2]], dtype=torch.uint8))[2]
        tensor([1., 4.])
        >>> memory.size
        2
    """

    def __init__(self, of: Callable[[Tensor], Tensor], most_bytes: int = MOST_BYTES) -> None:
        self.of, self.most_bytes = of, most_bytes
        self.size = 0
        self._keys: Tensor | None = None  # [size], hashes in order
        self._rows: Tensor
        self._states: Tensor  # [capacity, W]
        self._features: Tensor  # [capacity, F]

    def __call__(self, states: Tensor) -> Tensor:
        """The features `[N, F]` of `states [N, W]`."""
        hashes = hash_states(states)
        if self._keys is None:
            found = self.of(states)
            self._keep(hashes, states, found)
            return found
        place = torch.searchsorted(self._keys, hashes).clamp_(max=self.size - 1)
        rows = self._rows[place]
        known = (self._keys[place] == hashes) & (self._states[rows] == states).all(1)
        features = self._features.index_select(0, rows)
        if not bool(known.all()):
            new = (~known).nonzero()[:, 0]
            made = self.of(states[new])
            features[new] = made
            self._keep(hashes[new], states[new], made)
        return features

    @property
    def num_bytes(self) -> int:
        """What the memory takes."""
        if self._keys is None:
            return 0
        return sum(t.numel() * t.element_size() for t in (self._keys, self._rows, self._states, self._features))

    def _keep(self, hashes: Tensor, states: Tensor, features: Tensor) -> None:
        keys, index = torch.unique(hashes, return_inverse=True)
        first = torch.full_like(keys, len(hashes))
        first.scatter_reduce_(0, index, torch.arange(len(hashes), device=keys.device), "amin")
        if self._keys is None:
            self._keys, self._rows = keys[:0], first[:0]
            self._states, self._features = states[:0], features[:0]
        else:  # a state whose hash is another's is not kept
            place = torch.searchsorted(self._keys, keys).clamp_(max=self.size - 1)
            first = first[self._keys[place] != keys]
            keys = hashes[first]
        end = self.size + len(keys)
        if not self._make_room(end):
            if not self.size:
                self._keys = None
            return
        self._states[self.size : end], self._features[self.size : end] = states[first], features[first]
        rows = torch.cat([self._rows, torch.arange(self.size, end, device=keys.device)])
        self._keys, order = torch.cat([self._keys, keys]).sort()
        self._rows, self.size = rows[order], end

    def _make_room(self, end: int) -> bool:
        """Whether there is room for so many states, with half as many more if that fits, too."""
        if end <= len(self._features):
            return True
        width = self._states.shape[1] * self._states.element_size() + 4 * self._features.shape[1] + 16
        most = self.most_bytes // width
        if end > most:
            return False
        capacity = min(most, max(end * 3 // 2, _LEAST_ROWS))
        self._states, self._features = (
            torch.cat([kept[: self.size], kept.new_empty((capacity - self.size, kept.shape[1]))])
            for kept in (self._states, self._features)
        )
        return True
