from __future__ import annotations

from pathlib import Path

import pytest

from bsdr_torch.data.prepare import prepare
from tests.data.simulated_games import awkward_rows, write_csv


@pytest.fixture(scope="session")
def awkward_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(awkward_rows(), tmp_path_factory.mktemp("awkward") / "games.csv")


@pytest.fixture(scope="session")
def prepared_2020(awkward_csv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "mturk_2020"
    prepare(awkward_csv, folder)
    return folder
