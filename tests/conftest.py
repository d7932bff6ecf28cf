from __future__ import annotations

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="the long versions: the 2020 rules against overcooked-ai on 215,000 joint steps, every graph counted",
    )


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Small problems on two cores shared by two test processes: more threads only get in each other's way."""
    torch.set_num_threads(1)
