"""What all learned models of people in kitchens have in common: kitchens, people, scores, and a quiet way to train."""

from __future__ import annotations

import logging
import tempfile
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import Tensor
from torch.nn.functional import nll_loss

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.prepared import layout_from_json
from bsdr_torch.errors import InputError
from bsdr_torch.metrics import KitchenScores
from bsdr_torch.rationality import POPULATION
from bsdr_torch.saved_models import SavedModel
from bsdr_torch.worlds.overcooked import Layout

_LOGGED = {"ce": "cross_entropy", "ce_stay": "stay_or_not", "ce_moves": "which_move", "accuracy": "accuracy"}


class Prediction(NamedTuple):
    """What a model says of N decisions; what it has no idea of is None.

    Attributes:
        probabilities: `[N, 6]`, of each action.
        beta: `[N]`, how rational the person is in this state, 1 in the mean over people.
        values: `[N]`, what the planner expects from this state on, V_i(s).
        action_values: `[N, 6]`, what it expects after each action, Q_i(s, a).
        focus: `[N]`, lambda(s), how much plans count in this state beside habit: small where people are unreliable.
    """

    probabilities: Tensor
    beta: Tensor | None = None
    values: Tensor | None = None
    action_values: Tensor | None = None
    focus: Tensor | None = None


class Predicts(Protocol):
    """Anything that predicts what people do in kitchens."""

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""


class KitchenPredictor(SavedModel):
    """A model that predicts decisions in kitchens; batches are `Decisions` in one kitchen each.

    Args:
        worlds: the kitchens as plain data (`KitchenPeople.specs`); the checkpoint carries them.
        humans: the ids of all people.
        named: the kitchens that it tells from one another by name; none if the model is for new kitchens.

    Attributes:
        trained_on: the ids of those people whom it was trained on; of others it knows nothing but the id.
    """

    def __init__(self, worlds: list[dict[str, Any]], humans: list[str], named: list[str]) -> None:
        super().__init__()
        self.layouts: dict[str, Layout] = {spec["name"]: layout_from_json(spec) for spec in worlds}
        self.humans, self.named = list(humans), list(named)
        self.trained_on = list(humans)
        self._scores: dict[str, KitchenScores] = {}

    @abstractmethod
    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""

    def predict_step(self, batch: Decisions, batch_idx: int = 0) -> Prediction:
        """All that the model says of the decisions."""
        return Prediction(self.action_log_probs(batch).exp())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds whom it was trained on."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["trained_on"] = self.trained_on

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Reads whom it was trained on."""
        self.trained_on = list(checkpoint.get("trained_on", self.humans))

    def layout(self, name: str) -> Layout:
        """A kitchen by name."""
        if name not in self.layouts:
            raise InputError(f"{name}: not a kitchen of this model, which has {', '.join(self.layouts)}")
        return self.layouts[name]

    def number(self, layout: str) -> int:
        """The number of a kitchen that is known by name, -1 for others."""
        return self.named.index(layout) if layout in self.named else -1

    def past(self, batch: Decisions, history: int) -> Tensor:
        """The last actions `[N, history]` of those who decide."""
        if batch.history.shape[1] < history:
            raise InputError(
                f"the model sees {history} past actions, the data has {batch.history.shape[1]}: "
                f"give KitchenPeople history={history}"
            )
        return batch.history[:, :history]

    def forgetful(self, batch: Decisions, share: float) -> Decisions:
        """The decisions, some of them without who made them, so that a model also learns of somebody never seen."""
        forgotten = torch.rand(batch.humans.shape, device=batch.humans.device) < share
        return batch._replace(humans=torch.where(forgotten, POPULATION, batch.humans))

    def finish(self) -> None:
        """Does what the last epoch of a training ends with, where the weights of an earlier one are kept."""

    def setup(self, stage: str) -> None:
        """Scores are by rollout, which the data numbers."""
        data = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, KitchenPeople):
            raise InputError(f"data: {type(self).__name__} learns from KitchenPeople, got {type(data).__name__}")
        if stage == "fit":
            self.trained_on = data.trained_on
        layouts = [rollout.layout for rollout in data.rollouts]
        self._scores = {part: KitchenScores(layouts) for part in ("validation", "test")}

    def validation_step(self, batch: Decisions, batch_idx: int) -> None:
        """Adds to the scores of the validation part."""
        self._score(batch, "validation")

    def test_step(self, batch: Decisions, batch_idx: int) -> None:
        """Adds to the scores of the test part."""
        self._score(batch, "test")

    def on_validation_epoch_end(self) -> None:
        """Logs the scores of the validation part."""
        self._log_scores("validation")

    def on_test_epoch_end(self) -> None:
        """Logs the scores of the test part."""
        self._log_scores("test")

    def _score(self, batch: Decisions, part: str) -> None:
        scores = self._scores[part].to(self.device)
        scores.update(self.action_log_probs(batch), batch.actions, batch.rollouts)

    def _log_scores(self, part: str) -> None:
        found = self._scores[part].compute()
        for measure, name in _LOGGED.items():
            self.log(f"{part}/{name}", found[measure].float(), prog_bar=measure == "ce")
        self._scores[part].reset()


Trained = TypeVar("Trained", bound=KitchenPredictor)


Precision = Literal["32-true", "bf16-mixed"]


def fit(
    model: Trained, data: KitchenPeople, max_epochs: int, precision: Precision = "32-true", patience: int = 5
) -> Trained:
    """Trains in silence, and keeps the weights of the epoch that predicts the validation part best.

    Args:
        model: a new one; its schedule runs over `max_epochs`.
        data: people in kitchens, split by a protocol.
        max_epochs: it stops earlier when the validation part gets worse.
        precision: of training.
        patience: for how many epochs that may go on.
    """
    if not data.steps("validation"):
        raise InputError("training stops early, on a validation part, and the data has none: give validation > 0")
    with tempfile.TemporaryDirectory() as folder, _quiet_lightning():
        best = ModelCheckpoint(folder, monitor="validation/cross_entropy", save_weights_only=True)
        trainer = lightning.Trainer(
            max_epochs=max_epochs,
            precision=precision,
            devices=1,  # a table is made of many short trainings, which a second device would not speed up
            callbacks=[best, EarlyStopping("validation/cross_entropy", patience=patience)],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(model, datamodule=data)
        if trainer.interrupted:  # Lightning may swallow Ctrl-C; half a training is not a result
            raise KeyboardInterrupt
        kept = torch.load(best.best_model_path, weights_only=True)
        model.load_state_dict(kept["state_dict"])
        if kept["epoch"] + 1 < max_epochs:
            model.finish()
    return model.eval()


def fit_often(
    make: Callable[[], Trained],
    data: KitchenPeople,
    max_epochs: int,
    precision: Precision = "32-true",
    restarts: int = 1,
) -> Trained:
    """The best of several trainings by the likelihood of the training part, for models that are stuck from some starts.

    Args:
        make: a new model, different each time.
        data: see `fit`, as are the others.
        restarts: the number of trainings.
    """
    fits = [fit(make(), data, max_epochs, precision) for _ in range(restarts)]
    return fits[0] if restarts == 1 else min(fits, key=lambda model: _training_loss(model, data))


@torch.no_grad()
def _training_loss(model: KitchenPredictor, data: KitchenPeople) -> float:
    """In nats per decision."""
    parts = list(data.steps("train").values())
    lost = sum(float(nll_loss(model.action_log_probs(part), part.actions, reduction="sum")) for part in parts)
    return lost / sum(len(part.actions) for part in parts)


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Without Lightning's notes on hardware and workers: a table is made of many short trainings."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
