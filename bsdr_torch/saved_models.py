"""Trained models in files: a checkpoint says which class wrote it, and is read without running code from it."""

from __future__ import annotations

import importlib
import pickle
import zipfile
from pathlib import Path
from typing import Any, Self

import lightning
import torch

from bsdr_torch.errors import InputError

CHECKPOINT_FORMAT = 4
# The classes that a checkpoint may name, and where they are.
_CLASSES = {
    "HumanModel": "bsdr_torch.human_model",
    "KitchenModel": "bsdr_torch.kitchens.kitchen_model",
    "Cloning": "bsdr_torch.baselines.cloning",
    "ILEED": "bsdr_torch.baselines.ileed",
    "SelfPlay": "bsdr_torch.baselines.self_play",
    "BPD": "bsdr_torch.baselines.bpd",
}


class SavedModel(lightning.LightningModule):
    """A model whose checkpoints say what they are and hold all that is needed to make it again."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Marks the checkpoint as ours."""
        checkpoint["bsdr_torch_format"] = CHECKPOINT_FORMAT
        checkpoint["bsdr_torch_model"] = type(self).__name__

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The model in a checkpoint, on the CPU and in evaluation mode; runs no code from the file."""
        model = read_model(path)
        if not isinstance(model, cls):
            raise InputError(f"{path}: a checkpoint of {type(model).__name__}, not of {cls.__name__}")
        return model


def read_model(path: str | Path) -> SavedModel:
    """The model in a checkpoint, whichever it is, on the CPU and in evaluation mode; runs no code from the file."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such checkpoint")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{path}: not a checkpoint that can be read, it may be cut short: {reason}") from None
    marks = checkpoint if isinstance(checkpoint, dict) else {}
    found, name = marks.get("bsdr_torch_format"), marks.get("bsdr_torch_model")
    if found != CHECKPOINT_FORMAT:
        raise InputError(
            f"{path}: not a checkpoint of this version of bsdr_torch (format {found}, expected "
            f"{CHECKPOINT_FORMAT}): train again, or install the version that wrote it"
        )
    if name not in _CLASSES:
        raise InputError(f"{path}: a checkpoint of {name!r}, expected one of {', '.join(_CLASSES)}")
    kind = getattr(importlib.import_module(_CLASSES[name]), name)
    try:
        model: SavedModel = kind.load_from_checkpoint(path, map_location="cpu", weights_only=True)
    except (KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: the checkpoint does not fit its own settings: {reason:.300}") from None
    return model.eval()
