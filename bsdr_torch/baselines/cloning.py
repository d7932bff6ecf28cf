"""Cloning: networks that predict a person's next action in a kitchen, without any idea of what the person wants.

The same network without the kitchen is *habit alone*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.kitchens.habit import encode_history, history_width, turn_history
from bsdr_torch.kitchens.networks import multilayer_perceptron, one_hot_if_known
from bsdr_torch.kitchens.outlook import NUM_FEATURES
from bsdr_torch.kitchens.predicting import KitchenPredictor
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, NUM_SYMMETRIES, encode_features, permute_features, turn_actions


class Cloning(KitchenPredictor):
    """A network from what is known before a step to the action taken in it.

    Args:
        worlds: the kitchens as plain data (`KitchenPeople.specs`); the checkpoint carries them.
        humans: the ids of all people.
        named: the kitchens that it tells from one another by name; none if the model is for new kitchens.
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
        worlds: list[dict[str, Any]],
        humans: list[str],
        named: list[str],
        hidden: list[int] = [64, 64],  # noqa: B006  (never changed; Lightning reads the default)
        kitchen: bool = True,
        history: int = 0,
        identity: bool = False,
        symmetric: bool = False,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        dropout: float = 0.1,
        forget: float = 0.1,
    ) -> None:
        super().__init__(worlds, humans, named)
        self.save_hyperparameters()
        self.kitchen, self.history, self.identity, self.symmetric = kitchen, history, identity, symmetric
        self.learning_rate, self.weight_decay, self.forget = learning_rate, weight_decay, forget
        inputs = NUM_FEATURES * kitchen + history_width(history) + len(self.named) + len(self.humans) * identity
        self.network = multilayer_perceptron(inputs, hidden, NUM_ACTIONS, dropout)

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        return self.log_probs(self.encode(batch))

    def encode(self, batch: Decisions) -> Inputs:
        """What the network sees of decisions in one kitchen."""
        features = batch.states.new_empty((len(batch.states), 0), dtype=torch.float32)
        if self.kitchen:
            features = encode_features(self.layout(batch.layout), batch.states, batch.seats)
        known = torch.full_like(batch.humans, self.number(batch.layout))
        return Inputs(features, self.past(batch, self.history), batch.humans, known, batch.actions)

    def log_probs(self, inputs: Inputs) -> Tensor:
        """log P(action), `[N, 6]`; if symmetric, the mean of the probabilities in all turned kitchens."""
        return mean_of_turned([self._forward(there) for there in turned(inputs, self.symmetric)])

    def training_step(self, batch: Decisions) -> Tensor:
        """Cross-entropy of a batch, in nats per step."""
        inputs = self.encode(self.forgetful(batch, self.forget))
        if self.symmetric:
            inputs = turn_inputs(inputs, torch.randint(NUM_SYMMETRIES, inputs.humans.shape, device=self.device))
        loss = nll_loss(self._forward(inputs), inputs.actions)
        self.log("train/cross_entropy", loss.detach(), on_step=False, on_epoch=True, batch_size=len(inputs.actions))
        return loss

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW with a cosine schedule over the epochs of the trainer."""
        optimizer = torch.optim.AdamW(self.parameters(), self.learning_rate, weight_decay=self.weight_decay)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def flat(self, inputs: Inputs) -> Tensor:
        """The input of the network, `[N, ..]`; who acts comes last."""
        seen = [inputs.flat(len(self.named))]
        if self.identity:
            seen += [one_hot_if_known(inputs.humans, len(self.humans))]
        return torch.cat(seen, 1)

    def _forward(self, inputs: Inputs) -> Tensor:
        logits: Tensor = self.network(self.flat(inputs))
        return logits.log_softmax(1)


class AdaptableCloning:
    """Cloning of known people, in the form that `newcomers` asks for: a person is what they add to the first layer."""

    def __init__(self, model: Cloning) -> None:
        self.model = model.eval()
        first = model.network[0]
        assert isinstance(first, nn.Linear)
        self._first, self._rest = first, model.network[1:]

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        return self.model.action_log_probs(batch)

    @torch.no_grad()
    def how_people_differ(self) -> Tensor:
        """D `[people trained on, hidden[0]]`; the population is where nothing is added."""
        people = self._first.weight.T[-len(self.model.humans) :]
        rows = [self.model.humans.index(human) for human in self.model.trained_on]
        return people[rows] / math.sqrt(len(rows))

    @torch.no_grad()
    def evidence(self, batch: Decisions) -> tuple[Tensor]:
        """The first layer before anybody adds to it, in all turned kitchens, `[N, symmetries, hidden[0]]`."""
        anybody = batch._replace(humans=torch.full_like(batch.humans, POPULATION))
        inputs = self.model.encode(anybody)
        return (
            torch.stack([self._first(self.model.flat(there)) for there in turned(inputs, self.model.symmetric)], 1),
        )

    def log_probs_of(self, evidence: Sequence[Tensor], shift: Tensor, fitting: bool = False) -> Tensor:
        """log P(action) `[N, 6]` if `shift` is added to the first layer; for a fit, in the kitchen as it is."""
        (first,) = evidence
        views = first[:, :1] if fitting else first
        return mean_of_turned(list(self._rest(views + shift).log_softmax(-1).unbind(1)))


def turned(inputs: Inputs, symmetric: bool) -> Iterator[Inputs]:
    """The same decisions in all turned kitchens, or as they are if turned kitchens are not to count."""
    for symmetry in range(NUM_SYMMETRIES if symmetric else 1):
        yield turn_inputs(inputs, torch.full_like(inputs.humans, symmetry))


def mean_of_turned(log_probs: Sequence[Tensor]) -> Tensor:
    """The mean of the probabilities in some turned kitchens, by the actions here, `[N, 6]`."""
    here = []
    for symmetry, there in enumerate(log_probs):
        # What the action here is called there: the value at each action is that at its image.
        images = turn_actions(torch.arange(NUM_ACTIONS, device=there.device), symmetry)
        here.append(there[:, images])
    return torch.stack(here).logsumexp(0) - math.log(len(here))


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

    def flat(self, num_layouts: int) -> Tensor:
        """State, past and the name of the kitchen, as the input of a network, `[N, ..]`."""
        layouts = one_hot_if_known(self.layouts, num_layouts)
        return torch.cat([self.features, encode_history(self.history), layouts], 1)


def turn_inputs(inputs: Inputs, symmetry: Tensor) -> Inputs:
    """The same decisions in turned kitchens, by a symmetry for each `[N]`."""
    features = inputs.features
    return inputs._replace(
        features=permute_features(features, symmetry) if features.shape[1] else features,
        history=turn_history(inputs.history, symmetry),
        actions=turn_actions(inputs.actions, symmetry),
    )
