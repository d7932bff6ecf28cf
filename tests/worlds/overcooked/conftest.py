from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="compare the 2020 rules with overcooked-ai on 5,000 joint steps of every layout, not on 300",
    )


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """The tests run in several processes: threads of each would wait for those of the others."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
