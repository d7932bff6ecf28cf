from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Small problems on two cores shared by two test processes: more threads only get in each other's way."""
    torch.set_num_threads(1)
