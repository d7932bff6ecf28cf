from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="compare the 2020 rules with overcooked-ai on 5,000 joint steps of every layout, not on 300",
    )
