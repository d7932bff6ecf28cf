from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from hypothesis import settings

from bsdr_torch.data.prepare import prepare
from tests.data.simulated_games import awkward_rows, write_csv

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("without_clock", deadline=None)
settings.load_profile("without_clock")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="the long versions: the 2020 rules against overcooked-ai on 215,000 joint steps, every graph counted",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes by far the longest comes first: else one process waits for the other at the end."""
    items.sort(key=lambda item: item.name != "test_all_experiments_write_their_reports")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Small problems on two cores shared by two test processes: more threads only get in each other's way."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def prepared_2019(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the prepared 2019 set, made once for all processes of a test run."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with FileLock(shared / "mturk_2019.lock"):
        prepare("mturk_2019", shared / "mturk_2019")
    return shared / "mturk_2019"


@pytest.fixture(scope="session")
def awkward_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(awkward_rows(), tmp_path_factory.mktemp("awkward") / "games.csv")


@pytest.fixture(scope="session")
def prepared_2020(awkward_csv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "mturk_2020"
    prepare(awkward_csv, folder)
    return folder
