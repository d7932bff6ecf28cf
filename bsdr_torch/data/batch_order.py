"""The order in which batches are visited: by seed and epoch, shared out over processes, resumed where it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from bsdr_torch.errors import InputError


class Share(NamedTuple):
    """What one process takes of a batch: items of one kitchen, `[N]`."""

    layout: str
    items: Tensor


class BatchOrder(DistributedSampler[Share]):
    """Batches of items of one kitchen each; every process gets its share of every batch.

    Each item is visited once an epoch (unless weighted), by one process, and all processes see equally many batches,
    none of them empty. The order depends on the seed and the epoch alone.
    A DistributedSampler, because that tells Lightning to leave the sharing to it and to announce each epoch.

    Args:
        items: by kitchen, `[M]`, on any device.
        batch_size: how many items a process gets at a time.
        shuffle: else the order is that of the items.
        seed: of the order.
        weights: by kitchen, `[M]`: draw M items with replacement, with chances in proportion to these.
        groups: by kitchen, `[M]`: shuffle groups, by number, instead of items; those of a group follow one another.
        processes: how many share each batch.
        rank: which of them this is.

    Attributes:
        skip: how many batches the next epoch leaves out, because they were visited before a run stopped.
    """

    def __init__(
        self,
        items: Mapping[str, Tensor],
        batch_size: int,
        shuffle: bool,
        seed: int = 0,
        weights: Mapping[str, Tensor] | None = None,
        groups: Mapping[str, Tensor] | None = None,
        processes: int = 1,
        rank: int = 0,
    ) -> None:
        super().__init__(_Nothing(), num_replicas=processes, rank=rank, shuffle=shuffle, seed=seed)
        self._items = {name: chosen for name, chosen in items.items() if len(chosen)}
        self._weights, self._groups, self._batch_size, self.skip = weights, groups, batch_size, 0
        for name, chosen in self._items.items():
            if len(chosen) < processes:
                raise InputError(f"{name}: {len(chosen)} to share over {processes} processes: use fewer processes")

    def __iter__(self) -> Iterator[Share]:
        """This process's share of each batch of the epoch."""
        # A generator, which begins when the first batch is asked for: a Trainer that resumes makes the iterator before
        # it announces the epoch.
        # Mixed, so that the second epoch of one seed is not the first of the next.
        mixed = np.random.SeedSequence([self.seed, self.epoch]).generate_state(1)
        generator = torch.Generator().manual_seed(int(mixed[0]))
        shares = []
        for name, items in self._items.items():
            if self.shuffle and self._weights is not None:
                order = torch.multinomial(self._weights[name], len(items), replacement=True, generator=generator)
                items = items[order.to(items.device)]
            elif self.shuffle and self._groups is not None:
                group = self._groups[name]
                place = torch.randperm(int(group.max()) + 1, generator=generator).to(items.device)
                items = items[place[group].argsort(stable=True)]
            elif self.shuffle:
                items = items[torch.randperm(len(items), generator=generator).to(items.device)]
            # Every k-th of the items, so that shares differ by one at most.
            shares += [
                Share(name, part[self.rank :: self.num_replicas]) for part in items.tensor_split(self._cuts(items))
            ]
        order = torch.randperm(len(shares), generator=generator) if self.shuffle else torch.arange(len(shares))
        first, self.skip = self.skip, 0
        yield from (shares[number] for number in order.tolist()[first:])

    def __len__(self) -> int:
        """How many batches an epoch has."""
        return sum(len(self._cuts(items)) + 1 for items in self._items.values())

    def _cuts(self, items: Tensor) -> list[int]:
        """Where one batch ends and the next begins; a rest too small for every process joins the batch before."""
        size = self._batch_size * self.num_replicas
        return [end for end in range(size, len(items), size) if len(items) - end >= self.num_replicas]


class ResumableLoader(DataLoader[Any]):
    """A DataLoader over a `BatchOrder` that knows how far into the epoch it is; checkpoints of Lightning keep that."""

    _given = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # the base class promises its own private iterator
        """The batches of the epoch that are left."""
        assert isinstance(self.sampler, BatchOrder)
        self._given = self.sampler.skip
        for batch in super().__iter__():
            self._given += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Where in the epoch it is; at the end of one, that is the beginning of the next."""
        return {"given": self._given % max(len(self), 1)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Makes the next epoch begin there."""
        assert isinstance(self.sampler, BatchOrder)
        self.sampler.skip = state["given"]


class _Nothing(torch.utils.data.Dataset[Share]):
    """The base class wants a data set, for its length alone, which `BatchOrder` does not use."""

    def __len__(self) -> int:
        return 0
