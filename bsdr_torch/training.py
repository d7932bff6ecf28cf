"""The command line that trains: LightningCLI over models and DataModules by name, with a summary at the end."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning import LightningDataModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor

from bsdr_torch.baselines.bpd import BPD, Reminded
from bsdr_torch.baselines.cloning import Cloning
from bsdr_torch.baselines.frequencies import ActionFrequencies, uniform
from bsdr_torch.baselines.ileed import ILEED
from bsdr_torch.baselines.self_play import SelfPlay, SelfTaught
from bsdr_torch.data.arrow_files import write_files
from bsdr_torch.data.grid_people import RolloutData, StepBatch
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.errors import InputError
from bsdr_torch.human_model import HumanModel
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.monitoring import TAGS, Baselines, mean_scores
from bsdr_torch.kitchens.predicting import KitchenPredictor
from bsdr_torch.metrics import RolloutCrossEntropy
from bsdr_torch.recovery import TrueModel
from bsdr_torch.saved_models import SavedModel, read_model

# What can be named on the command line has to be imported.
MODELS: tuple[type[SavedModel], ...] = (HumanModel, KitchenModel, Cloning, ILEED, SelfPlay, BPD)
_DATA = ("SimulatedPeople", "RecordedPeople", "KitchenPeople")
_FROM_DATA = ("worlds", "humans", "named")

_DESCRIPTION = """Train a model of people on rollouts: `fit --config scripts/configs/kitchens.yaml` (recorded people in
Overcooked kitchens) or gridworld.yaml (simulated people). Further words change the job: `--model.rationality br`
(br_per_human, irleed, bsdr), a second `--config` scripts/configs/protocol_human.yaml or protocol_layout.yaml to test on
people or in a kitchen never seen, `--data.layouts [NAME]`, `--ckpt_path last.ckpt` to go on. Other models in kitchens:
ileed.yaml, self_play.yaml and bpd.yaml, which says how much play is how many minutes."""


class ResumableCheckpoint(ModelCheckpoint):
    """Knows, where a run goes on in a folder of its own, what was best before: nothing worse takes its place."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """All that was known, whatever the folder; what lies in another one is not removed."""
        super().load_state_dict(state_dict | {"dirpath": self.dirpath})


class TrainingCLI(LightningCLI):
    """`fit`, `validate` and `test` of a model by name, which learns of worlds and people from the data."""

    def __init__(self) -> None:
        _quieten()
        super().__init__(
            SavedModel,
            LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            seed_everything_default=0,
            parser_kwargs={"description": _DESCRIPTION},
            save_config_kwargs={"overwrite": True},
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Worlds and people come with the data."""
        for name in _FROM_DATA:
            parser.link_arguments(
                "data", f"model.init_args.{name}", compute_fn=partial(_from_data, name=name), apply_on="instantiate"
            )

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Refuses a checkpoint that cannot be read before anything is set up."""
        super().parse_arguments(parser, args)
        path = self.config[self.config.subcommand].get("ckpt_path")
        if path not in (None, "best", "last", "hpc"):
            read_model(path)

    def instantiate_classes(self) -> None:
        """As LightningCLI does, but bad input keeps its own message."""
        # With a checkpoint come its settings, and among them what the data gives, which not every model takes.
        settings = self.config[self.config.subcommand].get("model.dict_kwargs") or {}
        for name in _FROM_DATA:
            settings.pop(name, None)
        try:
            super().instantiate_classes()
        except ValueError as error:
            raise _bad_input_behind(error) or error from None

    def after_fit(self) -> None:
        """Scores the best checkpoint on the test rollouts and says where everything is."""
        trainer = self.trainer
        callbacks = [each for each in trainer.checkpoint_callbacks if isinstance(each, ModelCheckpoint)]
        # After a resume the best checkpoint may lie in the folder of the first run, which may be gone.
        kept = [each.best_model_path for each in callbacks if Path(each.best_model_path).is_file()]
        if not kept:
            return
        folder = callbacks[0].dirpath
        if folder and Path(kept[0]).is_relative_to(folder):  # other runs stay as they are
            finish_kept(trainer, Path(kept[0]))
        if not trainer.is_global_zero:
            return
        model = read_model(kept[0])
        if isinstance(self.datamodule, KitchenPeople):
            assert isinstance(model, KitchenPredictor)
            print(f"\n{self._kitchen_summary(model)}")
        else:
            assert isinstance(model, HumanModel)
            print(f"\nTest cross-entropy, nats per step\n{summary(self.datamodule, model)}")
        print(f"\nCheckpoint:   {kept[0]}")
        if trainer.logger is not None:
            tool = Path(sys.executable).with_name("tensorboard")
            tool = tool.relative_to(Path.cwd()) if tool.is_relative_to(Path.cwd()) else tool
            print(f"TensorBoard:  {tool} --logdir {trainer.logger.save_dir}")

    def _kitchen_summary(self, model: KitchenPredictor) -> str:
        """The table of the model and its baselines; TensorBoard gets the model's scores with its hyper-parameters."""
        scores: dict[str, dict[str, float]] = {}
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]  # the Trainer sets it in a connector
            if isinstance(callback, Baselines):
                scores |= {name: found["test"] for name, found in callback.scores.items()}
        options = {name: value for name, value in model.hparams.items() if name not in _FROM_DATA}
        asked = Reminded(model, self.datamodule) if isinstance(model, BPD) else model  # as the table does
        own = scores[str(options.get("rationality", type(model).__name__))] = mean_scores(
            asked, self.datamodule, "test"
        )
        if isinstance(self.trainer.logger, TensorBoardLogger):
            chosen = self.config[self.config.subcommand]
            options |= {"model": type(model).__name__, "seed": chosen.seed_everything, **chosen.data.init_args}
            metrics = {f"test/{TAGS[measure]}": value for measure, value in own.items()}
            self.trainer.logger.log_hyperparams(options, metrics, self.trainer.global_step)
            self.trainer.logger.save()
        found = kitchen_table(scores)
        return f"{found}\n\n{earnings(model)}" if isinstance(model, SelfTaught) else found


def finish_kept(trainer: Trainer, path: Path) -> None:
    """Does with the weights in a checkpoint what the last epoch ends with, if they are of an earlier one.

    All processes of a training take part, and the first writes the file anew.
    """
    model, kept = read_model(path), torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(model, KitchenPredictor) or kept["epoch"] + 1 == trainer.max_epochs:
        return
    model.trainer = trainer
    model.to(trainer.strategy.root_device).finish()
    if trainer.is_global_zero:
        kept["state_dict"] = model.cpu().state_dict()
        write_files({path: partial(torch.save, kept)})


def _from_data(data: LightningDataModule, name: str) -> list[Any]:
    """What a model has to know of its data: `worlds` as plain data, `humans`, and which kitchens are `named`."""
    if not isinstance(data, RolloutData | KitchenPeople):
        raise InputError(f"data: no model here learns from {type(data).__name__}: choose {', '.join(_DATA)}")
    if name == "named":
        return data.named if isinstance(data, KitchenPeople) else []
    found: list[Any] = data.specs if name == "worlds" else data.humans
    return found


def _quieten() -> None:
    """Leaves out Lightning's notes that are no news to the user: its own deprecations, and advice for other jobs."""
    # A full-batch step has nothing for worker processes to do, and one chunk is the whole epoch.
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*number of training batches.*")
    warnings.filterwarnings("ignore", ".*LeafSpec.*")
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="lightning")
    notes = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    notes.addFilter(lambda record: "Tip:" not in record.getMessage())


def _bad_input_behind(error: BaseException | None) -> InputError | None:
    """The bad input that led to an error, which the parser hides behind its own."""
    while error is not None and not isinstance(error, InputError):
        error = error.__cause__ or error.__context__
    return error


def kitchen_table(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Scores of models in kitchens by name, as text."""
    lines = ["Test cross-entropy, nats per step".ljust(36) + "  STAY or not   which move"]
    for name, found in scores.items():
        lines.append(f"  {name:<24}{found['ce']:>10.4f}{found['ce_stay']:>13.4f}{found['ce_moves']:>13.4f}")
    return "\n".join(lines)


def earnings(model: SelfTaught, games: int = 100) -> str:
    """What pairs who learned by playing earn in a game, by kitchen, as text."""
    lines = [f"Earned by pairs in {model.horizon} steps, {games} games"]
    for layout in model.layouts:
        earned = model.rewards(layout, games, torch.Generator(model.device).manual_seed(0))
        lines.append(f"  {layout:<24}{float(earned.mean()):>10.1f} ± {float(earned.std()) / games**0.5:.1f}")
    return "\n".join(lines)


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
    metric = RolloutCrossEntropy(sync_on_compute=False)  # other processes may have ended
    for chunk in data.chunks(part).chunks:
        batch, actions, rollout = chunk.decisions()
        metric.update(predictor.action_log_probs(batch), actions, rollout)
    return float(metric.compute())
