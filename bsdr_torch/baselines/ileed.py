"""ILEED: people who share a policy, and each follow it more expertly in some states than in others.

Our own version of Beliaev et al., "Imitation Learning by Estimating Expertise of Demonstrators" (2022):

    rho_i(s)  = sigmoid( omega_i . f(s) )                                       expertise
    P_i(a|s)  = rho_i(s) pi(a|s) + (1 - rho_i(s)) (1 - pi(a|s)) / (|A| - 1)

At rho = 1 a person follows the policy pi, at rho = 1/|A| they act at random, and at rho = 0 they avoid what it prefers.
The same in other words: with probability |A| (1 - rho) / (|A| - 1) they lapse, and take any action.
pi and f are networks. docs/models.md says how training differs from the original, and what was tuned.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, nll_loss

from bsdr_torch.baselines.cloning import Inputs, mean_of_turned, turn_inputs, turned
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.kitchens.habit import history_width
from bsdr_torch.kitchens.networks import multilayer_perceptron
from bsdr_torch.kitchens.newcomers import Memory
from bsdr_torch.kitchens.outlook import NUM_FEATURES
from bsdr_torch.kitchens.predicting import KitchenPredictor
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, NUM_SYMMETRIES, encode_features

# Of the prior of somebody new: 1 takes the spread of people in training at its word.
STRENGTH = 1.0
STRETCH = 10  # steps of a game that are predicted with the same omega
_SPREAD = 0.1  # of omega before training
_ITERATIONS = 120  # of a fit of omega, which then moves hardly any more


def mixture_log_probs(log_policy: Tensor, skill: Tensor) -> Tensor:
    """log P_i(a|s) `[N, A]` from log pi(a|s) `[N, A]` and omega_i . f(s) `[N]`; finite however extreme they are."""
    follows = logsigmoid(skill)[:, None] + log_policy
    return torch.logaddexp(follows, logsigmoid(-skill)[:, None] + _log_avoids(log_policy))


class ILEED(KitchenPredictor):
    """ILEED of people in kitchens.

    Args:
        worlds: the kitchens as plain data (`KitchenPeople.specs`); the checkpoint carries them.
        humans: the ids of all people.
        named: the kitchens that it tells from one another by name; none if the model is for new kitchens.
        hidden: the widths of the hidden layers of the policy.
        embedding_hidden: those of the state embedding f.
        embedding: the number of features that f makes of a state.
        history: how many of the person's own last actions the policy and f see.
        symmetric: train on turned and mirrored kitchens too, and predict with the means of pi and f over all 8 of them.
        learning_rate: of the networks, at the start; it falls to nothing along a cosine, like that of omega.
        omega_rate: the learning rate of omega.
        weight_decay: of the networks, by AdamW.
        dropout: the share of each hidden layer that is left out in training.
        expertise: rho of everybody everywhere, about, before training. From 1/2, where the original starts, all ends in
            a policy that is sure of one action wherever people are not, from which there is no way back.
    """

    def __init__(
        self,
        worlds: list[dict[str, Any]],
        humans: list[str],
        named: list[str],
        hidden: list[int] = [256, 256],  # noqa: B006  (never changed; Lightning reads the default)
        embedding_hidden: list[int] = [64, 64],  # noqa: B006
        embedding: int = 8,
        history: int = 0,
        symmetric: bool = False,
        learning_rate: float = 3e-3,
        omega_rate: float = 1e-2,
        weight_decay: float = 1e-2,
        dropout: float = 0.3,
        expertise: float = 0.95,
    ) -> None:
        super().__init__(worlds, humans, named)
        self.save_hyperparameters()
        self.history, self.symmetric = history, symmetric
        self.learning_rate, self.omega_rate, self.weight_decay = learning_rate, omega_rate, weight_decay
        inputs = NUM_FEATURES + history_width(history) + len(self.named)
        self.policy = multilayer_perceptron(inputs, hidden, NUM_ACTIONS, dropout)
        self.embed = multilayer_perceptron(inputs, embedding_hidden, embedding, dropout)
        constant = self.embed[-1].bias
        assert isinstance(constant, nn.Parameter)
        nn.init.ones_(constant)
        skill = math.log(expertise / (1 - expertise))
        self.omega = nn.Parameter(skill / embedding + _SPREAD * torch.randn(len(self.humans), embedding))

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`; for somebody never seen, with the mean omega of those who were."""
        return self._with_omega(self.shared(batch), batch.humans)

    def expertise(self, batch: Decisions) -> Tensor:
        """rho_i(s) at each decision, `[N]`."""
        return (self.shared(batch).embedding * self._omega_of(batch.humans)).sum(1).sigmoid()

    def shared(self, batch: Decisions) -> Shared:
        """What does not depend on who decides."""
        found = [self._forward(there) for there in turned(self._encode(batch), self.symmetric)]
        log_policy = mean_of_turned([each.log_policy for each in found])
        return Shared(log_policy, torch.stack([each.embedding for each in found]).mean(0))

    @property
    def mean_omega(self) -> Tensor:
        """`[E]`, over those whom it was trained on."""
        return self._trained_omega().mean(0)

    def training_step(self, batch: Decisions) -> Tensor:
        """Cross-entropy of a batch, in nats per step."""
        inputs = self._encode(batch)
        if self.symmetric:
            inputs = turn_inputs(inputs, torch.randint(NUM_SYMMETRIES, inputs.humans.shape, device=self.device))
        loss = nll_loss(self._with_omega(self._forward(inputs), inputs.humans), inputs.actions)
        self.log("train/cross_entropy", loss.detach(), on_step=False, on_epoch=True, batch_size=len(inputs.actions))
        return loss

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW, faster and without decay for omega, with a cosine schedule over the epochs of the trainer."""
        networks = [*self.policy.parameters(), *self.embed.parameters()]
        optimizer = torch.optim.AdamW(
            [
                {"params": networks, "lr": self.learning_rate, "weight_decay": self.weight_decay},
                {"params": [self.omega], "lr": self.omega_rate, "weight_decay": 0.0},
            ]
        )
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    @torch.no_grad()
    def omega_as_seen(self, evidence: Evidence, stretch: int = STRETCH, strength: float = STRENGTH) -> Tensor:
        """Omega of somebody new as their game goes on, `[L // stretch + 1, E]`: row k is fitted to k stretches.

        It is the maximum a posteriori, with a normal prior that has the mean and the spread of the people in training.
        The log-likelihood has a curvature of at most 1/4 in omega . f(s), so that a step of Newton's method with that
        curvature never overshoots; each row starts from the mean, so that what comes later has no part in it.
        """
        mean, directions = self.mean_omega, self._how_people_differ()
        along = evidence.embedding @ directions.T  # [L, D]
        start = evidence.embedding @ mean
        rows, place = (torch.arange(n, device=mean.device) for n in (len(start) // stretch + 1, len(start)))
        seen = (place < stretch * rows[:, None]).to(along.dtype)  # [K, L]
        curvature = torch.einsum("kl,ld,le->kde", seen, along, along) / 4
        curvature = torch.linalg.cholesky(curvature + strength * torch.eye(len(directions), device=mean.device))
        z = along.new_zeros(len(rows), len(directions))
        for _ in range(_ITERATIONS):
            skill = start + z @ along.T
            uphill = (seen * ((skill + evidence.log_odds).sigmoid() - skill.sigmoid())) @ along - strength * z
            z = z + torch.cholesky_solve(uphill[..., None], curvature).squeeze(-1)
        return mean + z @ directions

    def _how_people_differ(self) -> Tensor:
        """Directions `[D, E]` whose squares sum to the covariance of omega over the people in training."""
        omega = self._trained_omega()
        _, size, direction = torch.linalg.svd((omega - omega.mean(0)) / math.sqrt(len(omega)), full_matrices=False)
        directions: Tensor = size[:, None] * direction
        return directions

    def _trained_omega(self) -> Tensor:
        return self.omega[[self.humans.index(human) for human in self.trained_on]]

    def _omega_of(self, humans: Tensor) -> Tensor:
        return torch.where((humans == POPULATION)[:, None], self.mean_omega, self.omega[humans.clamp(min=0)])

    def _with_omega(self, shared: Shared, humans: Tensor) -> Tensor:
        return mixture_log_probs(shared.log_policy, (shared.embedding * self._omega_of(humans)).sum(1))

    def _encode(self, batch: Decisions) -> Inputs:
        features = encode_features(self.layout(batch.layout), batch.states, batch.seats)
        known = torch.full_like(batch.humans, self.number(batch.layout))
        return Inputs(features, self.past(batch, self.history), batch.humans, known, batch.actions)

    def _forward(self, inputs: Inputs) -> Shared:
        seen = inputs.flat(len(self.named))
        return Shared(self.policy(seen).log_softmax(1), self.embed(seen))


class OnlineILEED:
    """ILEED that gets to know people it never saw while they play; of those in training it knows omega already.

    It remembers the decisions that it was asked about (see `Memory`), and predicts each with an omega that is fitted to
    those of the same person in the same game before it.
    """

    def __init__(self, model: ILEED, stretch: int = STRETCH, strength: float = STRENGTH) -> None:
        self.model, self.stretch, self.strength = model.eval(), stretch, strength
        self._memory = Memory()

    @torch.no_grad()
    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        shared = self.model.shared(batch)
        omega = self.model._omega_of(batch.humans)
        for rows, parts in self._memory.games(
            batch, batch.humans == POPULATION, *gather_evidence(shared, batch.actions)
        ):
            seen = Evidence(*parts)
            place = torch.arange(len(seen.log_odds), device=rows.device)[-len(rows) :]
            omega[rows] = self.model.omega_as_seen(seen, self.stretch, self.strength)[place // self.stretch]
        return mixture_log_probs(shared.log_policy, (shared.embedding * omega).sum(1))


class Shared(NamedTuple):
    """What ILEED says of N decisions, whoever makes them: log pi(a|s) `[N, 6]` and f(s) `[N, E]`."""

    log_policy: Tensor
    embedding: Tensor


class Evidence(NamedTuple):
    """What L decisions of one person in one game, in order, say of their omega.

    Attributes:
        log_odds: `[L]`, of the action taken, if one follows the policy against if one avoids it.
        embedding: `[L, E]`, f(s).
    """

    log_odds: Tensor
    embedding: Tensor


def gather_evidence(shared: Shared, actions: Tensor) -> Evidence:
    """What decisions say of the person who made them, from what ILEED says of them and the actions `[L]` taken."""
    log_odds = shared.log_policy - _log_avoids(shared.log_policy)
    return Evidence(log_odds.gather(1, actions[:, None]).squeeze(1), shared.embedding)


def _log_avoids(log_policy: Tensor) -> Tensor:
    """log (1 - pi(a|s)) / (A - 1), `[N, A]`, from the probabilities of all other actions, which loses no digits."""
    A = log_policy.shape[1]
    itself = torch.eye(A, dtype=torch.bool, device=log_policy.device)
    return log_policy[:, None, :].masked_fill(itself, -torch.inf).logsumexp(2) - math.log(A - 1)
