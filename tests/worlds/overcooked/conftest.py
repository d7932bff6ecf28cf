from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Were the long versions asked for?"""
    return bool(request.config.getoption("--full"))
