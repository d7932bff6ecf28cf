"""The command line that trains: LightningCLI over `HumanModel` and a DataModule, with a summary at the end."""

from __future__ import annotations

import warnings
from typing import Protocol

import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from torch import Tensor

from bsdr_torch.baselines.frequencies import ActionFrequencies, uniform
from bsdr_torch.data.people import RolloutData, StepBatch
from bsdr_torch.human_model import HumanModel
from bsdr_torch.metrics import RolloutCrossEntropy
from bsdr_torch.recovery import TrueModel


class TrainingCLI(LightningCLI):
    """`fit`, `validate` and `test` of a `HumanModel`; the model learns of worlds and people from the data."""

    def __init__(self) -> None:
        # A full-batch step has nothing for worker processes to do, and one chunk is the whole epoch.
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        warnings.filterwarnings("ignore", ".*number of training batches.*")
        super().__init__(
            HumanModel,
            RolloutData,
            subclass_mode_data=True,
            seed_everything_default=0,
            parser_kwargs={"description": "Train a model of people on rollouts."},
            save_config_kwargs={"overwrite": True},
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Worlds and people come with the data."""
        parser.link_arguments("data.specs", "model.worlds", apply_on="instantiate")
        parser.link_arguments("data.humans", "model.humans", apply_on="instantiate")

    def after_fit(self) -> None:
        """Scores the best checkpoint on the test rollouts and says where everything is."""
        trainer = self.trainer
        callback = trainer.checkpoint_callback
        if not isinstance(callback, ModelCheckpoint) or not callback.best_model_path or not trainer.is_global_zero:
            return
        best = HumanModel.read(callback.best_model_path)
        print(f"\nTest cross-entropy, nats per step\n{summary(self.datamodule, best)}")
        print(f"\nCheckpoint:   {callback.best_model_path}")
        if trainer.logger is not None:
            print(f"TensorBoard:  tensorboard --logdir {trainer.logger.save_dir}")


@torch.no_grad()
def summary(data: RolloutData, model: HumanModel) -> str:
    """A table of test cross-entropies: the model beside what knows nothing and, where it is known, the truth."""
    num_actions = next(iter(data.worlds.values())).mdp.num_actions
    rows: dict[str, Predicts] = {
        "acting at random": uniform(num_actions),
        "action frequencies": ActionFrequencies(num_actions, [parts.train.steps() for parts in data.parts.values()]),
        f"{model.hparams['rationality']}, fitted": model,
    }
    if data.truth is not None:
        rows["the people themselves"] = TrueModel(data.worlds, data.truth)
    lines = [f"  {name:<24}{cross_entropy(predictor, data, 'test'):.4f}" for name, predictor in rows.items()]
    if data.truth is not None and model.hparams["features"] == "fixed":
        cosine = torch.cosine_similarity(model.rationality.theta_R.double(), data.truth.theta_R.double(), dim=0)
        lines.append(f"\nCosine of learned and true theta_R: {float(cosine):.4f}")
    return "\n".join(lines)


class Predicts(Protocol):
    """Anything that predicts actions."""

    def action_log_probs(self, batch: StepBatch) -> Tensor:
        """log P(action) at each decision, `[N, A]`."""


@torch.no_grad()
def cross_entropy(predictor: Predicts, data: RolloutData, part: str) -> float:
    """Natural-log cross-entropy per step of one of the parts of the data, averaged per rollout, then over those."""
    metric = RolloutCrossEntropy()
    for chunk in data.chunks(part).chunks:
        batch, actions, rollout = chunk.decisions()
        metric.update(predictor.action_log_probs(batch), actions, rollout)
    return float(metric.compute())
