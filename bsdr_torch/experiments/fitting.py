"""A quiet full-batch MAP fit, the inner loop of experiments."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import lightning

from bsdr_torch.data.grid_people import RolloutData
from bsdr_torch.human_model import HumanModel
from bsdr_torch.monitoring import StopAtConvergence
from bsdr_torch.rationality import RationalityKind


def fit(
    data: RolloutData, rationality: RationalityKind, max_epochs: int = 100, **model: Any
) -> tuple[HumanModel, bool]:
    """The MAP model of the training rollouts, by L-BFGS in float64, and whether its gradient vanished."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    stop = StopAtConvergence()
    with warnings.catch_warnings():
        # The experiments fit one human on purpose, and Lightning's advice is for other kinds of training.
        warnings.simplefilter("ignore")
        people = HumanModel(data.specs, data.humans, rationality, optimizer="lbfgs", learning_rate=1.0, **model)
        trainer = lightning.Trainer(
            accelerator="cpu",
            precision="64-true",
            max_epochs=max_epochs,
            callbacks=[stop],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=0,
        )
        trainer.fit(people, data)
    return people.eval(), stop.converged
