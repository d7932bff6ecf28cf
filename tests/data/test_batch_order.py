from __future__ import annotations

from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bsdr_torch.data.batch_order import BatchOrder, Share
from bsdr_torch.errors import InputError


def visited(shares: list[Share]) -> list[tuple[str, int]]:
    return sorted((share.layout, item) for share in shares for item in share.items.tolist())


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=4),
    st.integers(1, 20),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 3),
)
@settings(deadline=None)
def test_processes_share_every_item_once_in_equally_many_batches(
    sizes: list[int], batch_size: int, processes: int, shuffle: bool, epoch: int
) -> None:
    sizes = [0 if size < processes else size for size in sizes]
    items = {f"kitchen {k}": torch.arange(size) for k, size in enumerate(sizes)}
    orders = [
        BatchOrder(items, batch_size, shuffle, seed=3, processes=processes, rank=rank) for rank in range(processes)
    ]
    for order in orders:
        order.set_epoch(epoch)
    shares = [list(order) for order in orders]
    assert visited(list(chain(*shares))) == sorted((name, item) for name, i in items.items() for item in i.tolist())
    assert {len(share) for share in shares} == {len(orders[0])}
    for together in zip(*shares, strict=True):
        assert len({share.layout for share in together}) == 1
        assert all(0 < len(share.items) <= batch_size + 1 for share in together)


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    items = {"a": torch.arange(50), "b": torch.arange(30)}

    def order(seed: int, epoch: int) -> list[tuple[str, list[int]]]:
        sampler = BatchOrder(items, 8, shuffle=True, seed=seed)
        list(sampler)  # an epoch gone by leaves no trace
        sampler.set_epoch(epoch)
        return [(share.layout, share.items.tolist()) for share in sampler]

    orders = {(seed, epoch): order(seed, epoch) for seed in (0, 1) for epoch in (0, 1)}
    assert all(order(*key) == found for key, found in orders.items())
    assert len({str(found) for found in orders.values()}) == 4


def test_without_shuffling_the_order_is_that_of_the_items() -> None:
    shares = list(BatchOrder({"a": torch.arange(10), "b": torch.arange(3)}, 4, shuffle=False))
    assert [(share.layout, share.items.tolist()) for share in shares] == [
        ("a", [0, 1, 2, 3]),
        ("a", [4, 5, 6, 7]),
        ("a", [8, 9]),
        ("b", [0, 1, 2]),
    ]


def test_weights_are_the_chances_of_being_drawn() -> None:
    weights = torch.tensor([1.0, 0.0, 3.0])
    order = BatchOrder({"a": torch.arange(3).repeat(4000)}, 100, shuffle=True, weights={"a": weights.repeat(4000)})
    drawn = torch.cat([share.items for share in order])
    assert len(drawn) == 12_000
    counts = torch.bincount(drawn, minlength=3) / 12_000
    assert counts.tolist() == pytest.approx([0.25, 0.0, 0.75], abs=0.02)


def test_fewer_items_than_processes_are_refused() -> None:
    with pytest.raises(InputError, match="a: 2 to share over 3 processes: use fewer processes"):
        BatchOrder({"a": torch.arange(2)}, 1, shuffle=True, processes=3)
