from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import lightning
import pytest
import torch

from bsdr_torch.baselines.cloning import Cloning
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.predicting import KitchenPredictor


class Trained(NamedTuple):
    """A tiny model at the end of its training, and its checkpoint."""

    model: KitchenPredictor
    checkpoint: Path
    data: KitchenPeople


@pytest.fixture(scope="session")
def trained_planner(prepared_2020: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    data = KitchenPeople(str(prepared_2020), batch_size=128, history=12)
    settings = {"hidden": [16], "habit_hidden": [16], "partner_hidden": [8], "width": 8, "rank": 3, "history": 12}
    return _train(KitchenModel(data.specs, data.humans, data.named, **settings), data, tmp_path_factory)


@pytest.fixture(scope="session")
def trained_cloning(prepared_2020: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    data = KitchenPeople(str(prepared_2020), batch_size=128, history=4)
    model = Cloning(data.specs, data.humans, data.named, hidden=[8], history=4, identity=True)
    return _train(model, data, tmp_path_factory)


def _train(model: KitchenPredictor, data: KitchenPeople, folders: pytest.TempPathFactory) -> Trained:
    folder = folders.mktemp("trained")
    torch.manual_seed(0)
    trainer = lightning.Trainer(
        max_epochs=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        accelerator="cpu",
    )
    trainer.fit(model, datamodule=data)
    trainer.save_checkpoint(folder / "last.ckpt")
    return Trained(model.eval(), folder / "last.ckpt", data)
