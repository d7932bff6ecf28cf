from __future__ import annotations

import pytest

from bsdr_torch.worlds.overcooked import Layout, load_layout

TINY = """
rules: 2019
grid: |
  XPOX
  X12X
  X  X
  XDSX
counters: []
cook_time: 2
"""


@pytest.fixture(scope="module")
def tiny_kitchen(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Four cells of floor, and nothing can be laid down, so that all of it can be enumerated."""
    path = tmp_path_factory.mktemp("kitchens") / "tiny.yaml"
    path.write_text(TINY)
    return load_layout(path)
