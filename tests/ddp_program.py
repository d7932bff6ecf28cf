"""Run by test_human_model.py in processes of its own: `python -m tests.ddp_program PROCESSES OUT.pt`."""

from __future__ import annotations

import sys

import lightning
import torch

from bsdr_torch.data.grid_people import SimulatedPeople
from bsdr_torch.human_model import HumanModel


def fit(processes: int, out: str | None = None) -> torch.Tensor:
    """The parameters after a few steps that see all people, of whom each process solves its share."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = SimulatedPeople(["two_rooms"], humans=4, rollouts=3, held_out=1, humans_per_chunk=4 // processes)
    model = HumanModel(data.specs, data.humans, features="mlp", hidden=4)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=processes,
        strategy="ddp" if processes > 1 else "auto",
        precision="64-true",
        max_epochs=3,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data)
    assert trainer.world_size == processes
    assert trainer.global_step == 3
    parameters = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    if out is not None and trainer.is_global_zero:
        torch.save(parameters, out)
    return parameters


if __name__ == "__main__":
    fit(int(sys.argv[1]), sys.argv[2])
