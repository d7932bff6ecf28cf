"""Cloning: networks that predict a person's next action in a kitchen, without any idea of what the person wants.

The same network without the kitchen is *habit alone*.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.nn.functional import nll_loss, one_hot
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

from bsdr_torch.data.decisions import UNRECORDED, Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.errors import InputError
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import (
    FEATURE_NAMES,
    NUM_ACTIONS,
    NUM_SYMMETRIES,
    Layout,
    encode_features,
    permute_features,
    turn_actions,
)

PATIENCE = 5  # epochs without a better validation part


def fit_cloning(
    data: KitchenPeople, seed: int, max_epochs: int = 20, batch_size: int = 1024, **settings: Any
) -> Cloning:
    """A network trained on the training part, with the weights of the epoch that predicts the validation part best.

    Args:
        data: people in kitchens, split by a protocol.
        seed: of weights, order and turns.
        max_epochs: it stops earlier when the validation part gets worse.
        batch_size: how many decisions, of all kitchens, make a step.
        settings: of `Cloning`.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        train, validation = data.steps("train"), data.steps("validation")
        if not validation:
            raise InputError("cloning stops early, on a validation part, and the data has none: give validation > 0")
        # A network that relies on names is lost in a kitchen that is new to it.
        known = list(train) if set(train) == set(data.kitchens) else []
        layouts = {name: games.layout for name, games in data.kitchens.items()}
        model = Cloning(layouts, known, len(data.humans), **settings)
        with tempfile.TemporaryDirectory() as folder, _quiet_lightning():
            best = ModelCheckpoint(folder, monitor="validation/cross_entropy", save_weights_only=True)
            trainer = lightning.Trainer(
                max_epochs=max_epochs,
                callbacks=[best, EarlyStopping("validation/cross_entropy", patience=PATIENCE)],
                logger=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
            )
            device = trainer.strategy.root_device
            trainer.fit(
                model,
                _loader([model.encode(steps) for steps in train.values()], device, batch_size, shuffle=True),
                _loader([model.encode(steps) for steps in validation.values()], device, batch_size, shuffle=False),
            )
            if trainer.interrupted:  # Lightning may swallow Ctrl-C; half a training is not a result
                raise KeyboardInterrupt
            model.load_state_dict(torch.load(best.best_model_path, weights_only=True)["state_dict"])
    return model.eval()


class Cloning(lightning.LightningModule):
    """A network from what is known before a step to the action taken in it.

    Args:
        kitchens: all kitchens it may be asked about, by name.
        known_layouts: those that it tells from one another by name; none when it is to predict in a new one.
        num_humans: how many people there are.
        hidden: the widths of the hidden layers.
        kitchen: whether it sees the state.
        history: how many of the person's own last actions it sees.
        identity: whether it sees who acts.
        symmetric: train on turned and mirrored kitchens too, and predict with the mean over all 8 of them.
        learning_rate: of AdamW, at the start; it falls to nothing along a cosine.
        weight_decay: of AdamW.
        dropout: the share of each hidden layer that is left out in training.
        forget: how often training hides who acts, so that there is a prediction for somebody never seen.
    """

    def __init__(
        self,
        kitchens: Mapping[str, Layout],
        known_layouts: Sequence[str],
        num_humans: int,
        hidden: Sequence[int] = (64, 64),
        kitchen: bool = True,
        history: int = 0,
        identity: bool = False,
        symmetric: bool = False,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        dropout: float = 0.1,
        forget: float = 0.1,
    ) -> None:
        super().__init__()
        self.kitchens, self.known_layouts, self.num_humans = dict(kitchens), list(known_layouts), num_humans
        self.kitchen, self.history, self.identity, self.symmetric = kitchen, history, identity, symmetric
        self.learning_rate, self.weight_decay, self.forget = learning_rate, weight_decay, forget
        inputs = len(FEATURE_NAMES) * kitchen + (UNRECORDED + 1) * history + len(known_layouts) + num_humans * identity
        layers: list[nn.Module] = []
        for before, after in pairwise((inputs, *hidden)):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
        self.network = nn.Sequential(*layers, nn.Linear(hidden[-1], NUM_ACTIONS))

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        return self.log_probs(self.encode(batch))

    def encode(self, batch: Decisions) -> Inputs:
        """What the network sees of decisions in one kitchen; it is made once, before training."""
        if batch.layout not in self.kitchens:
            raise InputError(f"{batch.layout}: not a kitchen of this model, which has {', '.join(self.kitchens)}")
        if batch.history.shape[1] < self.history:
            raise InputError(f"the model sees {self.history} past actions, the data has {batch.history.shape[1]}")
        known = self.known_layouts.index(batch.layout) if batch.layout in self.known_layouts else -1
        features = batch.states.new_empty((len(batch.states), 0), dtype=torch.float32)
        if self.kitchen:
            features = encode_features(self.kitchens[batch.layout], batch.states, batch.seats)
        history = batch.history[:, : self.history]
        return Inputs(features, history, batch.humans, torch.full_like(batch.humans, known), batch.actions)

    def log_probs(self, inputs: Inputs) -> Tensor:
        """log P(action), `[N, 6]`; if symmetric, the mean of the probabilities in all turned kitchens."""
        if not self.symmetric:
            return self._forward(inputs)
        turned = []
        for symmetry in range(NUM_SYMMETRIES):
            there = self._forward(turn_inputs(inputs, torch.full_like(inputs.humans, symmetry)))
            # What the action here is called there: the value at each action is that at its image.
            images = turn_actions(torch.arange(NUM_ACTIONS, device=there.device), symmetry)
            turned.append(there[:, images])
        return torch.stack(turned).logsumexp(0) - torch.tensor(NUM_SYMMETRIES).log()

    def training_step(self, inputs: Inputs) -> Tensor:
        """Cross-entropy of a batch, in nats per step."""
        forgotten = torch.rand(inputs.humans.shape, device=inputs.humans.device) < self.forget
        inputs = inputs._replace(humans=torch.where(forgotten, POPULATION, inputs.humans))
        if self.symmetric:
            inputs = turn_inputs(inputs, torch.randint(NUM_SYMMETRIES, inputs.humans.shape, device=self.device))
        return nll_loss(self._forward(inputs), inputs.actions)

    def validation_step(self, inputs: Inputs) -> None:
        """Logs the cross-entropy of the validation part, in nats per step."""
        loss = nll_loss(self.log_probs(inputs), inputs.actions)
        self.log("validation/cross_entropy", loss, batch_size=len(inputs.actions))

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW with a cosine schedule over the epochs of the trainer."""
        optimizer = torch.optim.AdamW(self.parameters(), self.learning_rate, weight_decay=self.weight_decay)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _forward(self, inputs: Inputs) -> Tensor:
        seen = [inputs.features, one_hot(inputs.history, UNRECORDED + 1).flatten(1)]
        seen += [_one_hot_if_known(inputs.layouts, len(self.known_layouts))]
        if self.identity:
            seen += [_one_hot_if_known(inputs.humans, self.num_humans)]
        logits: Tensor = self.network(torch.cat(seen, 1))
        return logits.log_softmax(1)


class Inputs(NamedTuple):
    """What a network sees of N decisions, and what it is to predict.

    Attributes:
        features: `[N, F]` of the state, F = 0 if it is not seen.
        history: `[N, H]` own last actions.
        humans: `[N]`, `POPULATION` for somebody never seen.
        layouts: `[N]`, -1 for a kitchen that is not known by name.
        actions: `[N]`, taken.
    """

    features: Tensor
    history: Tensor
    humans: Tensor
    layouts: Tensor
    actions: Tensor


def turn_inputs(inputs: Inputs, symmetry: Tensor) -> Inputs:
    """The same decisions in turned kitchens, by a symmetry for each `[N]`."""
    turned = turn_actions(inputs.history.clamp(max=NUM_ACTIONS - 1), symmetry[:, None].expand_as(inputs.history))
    features = inputs.features
    return inputs._replace(
        features=permute_features(features, symmetry) if features.shape[1] else features,
        history=torch.where(inputs.history == UNRECORDED, UNRECORDED, turned),
        actions=turn_actions(inputs.actions, symmetry),
    )


class _Rows(Dataset[Inputs]):
    """Gathers a batch at a time from tensors that sit on the device."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.inputs.actions)

    def __getitem__(self, rows: list[int]) -> Inputs:
        index = torch.tensor(rows, device=self.inputs.actions.device)
        return Inputs(*(column.index_select(0, index) for column in self.inputs))


def _loader(kitchens: list[Inputs], device: torch.device, batch_size: int, shuffle: bool) -> DataLoader[Inputs]:
    """Batches over all kitchens."""
    rows = _Rows(Inputs(*(torch.cat(columns).to(device) for columns in zip(*kitchens, strict=True))))
    order = RandomSampler(rows) if shuffle else SequentialSampler(rows)
    return DataLoader(rows, batch_size=None, sampler=BatchSampler(order, batch_size, drop_last=False))


def _one_hot_if_known(index: Tensor, size: int) -> Tensor:
    """`[N, size]`: all zero where the index is negative."""
    return one_hot(index + 1, size + 1)[:, 1:]


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
