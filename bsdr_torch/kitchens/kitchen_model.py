"""The model of people in kitchens: what they want, how rational they are where, their habits and their partner."""

from __future__ import annotations

from typing import Any, Literal

import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from bsdr_torch import priors
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.features import FixedFeatures, MLPFeatures
from bsdr_torch.kitchens.habit import Habit, HabitNetwork
from bsdr_torch.kitchens.networks import multilayer_perceptron
from bsdr_torch.kitchens.outlook import (
    NUM_FEATURES,
    Outlook,
    View,
    mirrored,
    mirrored_actions,
    outlook,
    turned_actions,
    turned_back,
    view,
)
from bsdr_torch.kitchens.planning import PlannedHabit, ValueNetwork, action_values, backup, choice_log_probs
from bsdr_torch.kitchens.predicting import KitchenPredictor
from bsdr_torch.rationality import MODELS, Rationality, RationalityKind
from bsdr_torch.worlds.overcooked import FEATURE_GROUPS, NUM_ACTIONS, STAY, Layout

RewardKind = Literal["events", "places", "distances", "learned"]

# The ladder of reward features: each rung has those below it.
_EVENTS = ("hand", "interact", "partner_hand", "partner_interact", "pot", "lying")
_PLACES = (*_EVENTS, "facing", "stance", "partner_looks", "reach", "partner_reach")
_REWARD_GROUPS: dict[str, tuple[str, ...]] = {
    "events": _EVENTS,
    "places": _PLACES,
    "distances": tuple(FEATURE_GROUPS),
}
_HABIT_MEMORY = 0.98  # of the running mean of habits that plans are made with


class KitchenModel(KitchenPredictor):
    """Boltzmann state-dependent rationality of people in Overcooked kitchens.

    Args:
        worlds: the kitchens as plain data (`KitchenPeople.specs`); the checkpoint carries them.
        humans: the ids of all people.
        named: the kitchens that habits tell from one another by name; none if the model is for new kitchens.
        rationality: br, br_per_human, irleed or bsdr; see `bsdr_torch.rationality`.
        reward: what the cost is made of: task `events`, also `places` and facing, also `distances`, or `learned` from
            all of these by a network.
        history: how many of a person's own last actions habit sees.
        identity: whether habit sees who acts.
        discount: gamma of the planner.
        hidden: the widths of the hidden layers of the planner's values.
        habit_hidden: those of habit.
        partner_hidden: those of the partner.
        width: the number of learned features of cost.
        beta_width: the number of learned features of rationality.
        rank: in how many ways the values of people may differ.
        tie: the weight of the Bellman residual.
        beyond: the share of states not in the data at which the Bellman equation is asked for, too.
        prior_scale: the spread of theta_beta over people that is expected.
        offset_scale: standard deviation of a person's offset of theta_R, for irleed.
        learning_rate: of AdamW, at its height.
        weight_decay: of AdamW.
        dropout: of the values.
        habit_dropout: of habit.
        forget: how often training hides who acts, so that there is a prediction for somebody never seen.
    """

    def __init__(
        self,
        worlds: list[dict[str, Any]],
        humans: list[str],
        named: list[str],
        rationality: RationalityKind = "bsdr",
        reward: RewardKind = "learned",
        history: int = 32,
        identity: bool = True,
        discount: float = 0.9,
        hidden: list[int] = [256, 256],  # noqa: B006  (never changed; Lightning reads the default)
        habit_hidden: list[int] = [128, 128],  # noqa: B006
        partner_hidden: list[int] = [64, 64],  # noqa: B006
        width: int = 64,
        beta_width: int = 8,
        rank: int = 8,
        tie: float = 0.1,
        beyond: float = 0.25,
        prior_scale: float = 0.5,
        offset_scale: float = 0.1,
        learning_rate: float = 2e-3,
        weight_decay: float = 1e-2,
        dropout: float = 0.1,
        habit_dropout: float = 0.1,
        forget: float = 0.1,
    ) -> None:
        super().__init__(worlds, humans, named)
        self.save_hyperparameters()
        self.discount = discount
        people = len(self.humans)
        self.habit = HabitNetwork(history, people * identity, len(self.named), habit_hidden, habit_dropout)
        self.partner = multilayer_perceptron(NUM_FEATURES, partner_hidden, NUM_ACTIONS, dropout)
        self.phi_R: FixedFeatures | MLPFeatures
        if reward == "learned":
            self.phi_R = MLPFeatures((NUM_FEATURES,), width, hidden[0])
            self._reward_features = None
        else:
            groups = [FEATURE_GROUPS[group] for group in _REWARD_GROUPS[reward]]
            self._reward_features = [place for group in groups for place in range(group.start, group.stop)]
            self.phi_R = FixedFeatures(len(self._reward_features) + 1)
        self.phi_beta = MLPFeatures((NUM_FEATURES,), beta_width, 64)
        self.rationality = Rationality(rationality, people, self.phi_R.width, beta_width, "exp", "mean_one")
        nn.init.zeros_(self.rationality.raw_theta_R)
        differ = MODELS[rationality].by_human
        self.values = ValueNetwork(hidden, people, rank * differ, dropout)
        self.register_buffer("planned_log_base", torch.zeros(2, NUM_ACTIONS))
        self.register_buffer("planned_pause", torch.tensor(0.3))
        self.planned_log_base: Tensor
        self.planned_pause: Tensor

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        layout = self.layout(batch.layout)
        return self._choices(batch, outlook(layout, batch.states, batch.seats))[0]

    def reward(self, features: Tensor, people: Tensor) -> Tensor:
        """r_i(s) of `people [B]` in states with `features [N, F]`, `[N, B]`."""
        if self.training:
            return self._reward(mirrored(features) if torch.rand(()) < 0.5 else features, people)
        return (self._reward(features, people) + self._reward(mirrored(features), people)) / 2

    def beta(self, features: Tensor, people: Tensor) -> Tensor:
        """beta_i(s) of `people [B]` in states with `features [N, F]`, `[N, B]`; the mean over all people is 1."""
        both = [self.rationality.beta(self.phi_beta(seen), people) for seen in (features, mirrored(features))]
        return (both[0] + both[1]) / 2

    def partner_probabilities(self, seen: View) -> Tensor:
        """How likely somebody who sees this is to do each action, `[N, 6]`: the partner as everybody else sees them."""
        logits = self.partner(seen.features) + mirrored_actions(self.partner(mirrored(seen.features)))
        return turned_back((logits / 2).softmax(1), seen.symmetry)

    @property
    def planned_habit(self) -> PlannedHabit:
        """The habit that plans are made with."""
        return PlannedHabit(self.planned_log_base.clone(), self.planned_pause.clone())  # training moves them on

    def residual(self, ahead: Outlook, people: Tensor, column: Tensor | None) -> Tensor:
        """V - r - backup, by how much the Bellman equation is missed: `[N]`, or `[N, B]` without a `column`."""
        values = self.values(ahead.features, people)
        own = values[ahead.own]
        reward = self.reward(ahead.features[ahead.own], people)
        if column is not None:
            own, reward = (of.gather(1, column[:, None]).squeeze(1) for of in (own, reward))
        partner = self.partner_probabilities(ahead.partner).detach()
        future = action_values(values, ahead, partner, self.discount, column)
        missed: Tensor = own - reward - backup(future, ahead.no_op, self.planned_habit)
        return missed

    def log_prior(self) -> Tensor:
        """log P(theta), up to a constant."""
        model, options = self.rationality, self.hparams
        log_prior = priors.gaussian(model.theta_R, 1.0)
        if model.varies.by_human:
            log_prior = log_prior + priors.hierarchical(model.theta_beta, options["prior_scale"])
        if model.offset is not None:
            log_prior = log_prior + priors.gaussian(model.offset, options["offset_scale"])
        return log_prior

    def training_step(self, batch: Decisions, batch_idx: int) -> Tensor:
        """The MAP loss per decision, the Bellman residual, and the cross-entropy of the partner's network."""
        layout = self.layout(batch.layout)
        batch = self.forgetful(batch, self.hparams["forget"])
        ahead = outlook(layout, batch.states, batch.seats)
        log_probs, habit, residual = self._choices(batch, ahead)
        self._remember(habit)
        cross_entropy = nll_loss(log_probs, batch.actions)
        bellman = residual.square().mean()
        unseen = residual.new_zeros(())
        many = round(self.hparams["beyond"] * len(batch.actions))
        if many:
            unseen = self._residual_beyond(layout, batch, ahead, many).square().mean()
        partner = self._partner_loss(layout, batch)
        log_prior = self.log_prior()
        share = len(batch.actions) * max(1, int(self.trainer.num_training_batches))
        loss: Tensor = cross_entropy + self.hparams["tie"] * (bellman + unseen) + partner - log_prior / share
        self._log_all(
            {
                "loss": loss,
                "cross_entropy": cross_entropy,
                **_parts(log_probs.detach(), batch.actions),
                "bellman_residual": bellman.sqrt(),
                "bellman_residual_beyond": unseen.sqrt(),
                "partner_cross_entropy": partner,
                "log_prior": log_prior,
            },
            len(batch.actions),
        )
        return loss

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW, whose rate rises for a tenth of the training and then falls to nothing."""
        options = self.hparams
        theta = list(self.rationality.parameters())
        networks = [p for name, p in self.named_parameters() if not name.startswith("rationality.")]
        optimizer = torch.optim.AdamW(
            [
                {"params": networks, "weight_decay": options["weight_decay"]},
                {"params": theta, "weight_decay": 0.0},  # they have priors
            ],
            lr=options["learning_rate"],
        )
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options["learning_rate"], steps, pct_start=0.1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _choices(self, batch: Decisions, ahead: Outlook) -> tuple[Tensor, Habit, Tensor]:
        """log P(action) `[N, 6]`, habit, and the Bellman residual `[N]`, for the person who decides."""
        people, column = torch.unique(batch.humans, return_inverse=True)
        values = self.values(ahead.features, people)
        partner = self.partner_probabilities(ahead.partner).detach()
        future = action_values(values, ahead, partner, self.discount, column)
        kitchen = torch.full_like(batch.humans, self.number(batch.layout))
        habit = self.habit(self.past(batch, self.habit.history), batch.humans, kitchen)
        log_probs = choice_log_probs(habit, ahead.no_op, future)
        if not self.training:
            return log_probs, habit, log_probs.new_zeros(0)
        own, reward = values[ahead.own], self.reward(ahead.features[ahead.own], people)
        own, reward = (of.gather(1, column[:, None]).squeeze(1) for of in (own, reward))
        return log_probs, habit, own - reward - backup(future, ahead.no_op, self.planned_habit)

    def _residual_beyond(self, layout: Layout, batch: Decisions, ahead: Outlook, many: int) -> Tensor:
        """The residual at states that the deciding players could have come to."""
        rows = torch.randint(len(batch.actions), (many,), device=self.device)
        joint = torch.randint(NUM_ACTIONS**2, (many,), device=self.device)
        places = ahead.following.flatten(1)[rows, joint]
        beyond = outlook(layout, ahead.states[places], torch.zeros_like(rows))
        people, column = torch.unique(batch.humans[rows], return_inverse=True)
        return self.residual(beyond, people, column)

    def _partner_loss(self, layout: Layout, batch: Decisions) -> Tensor:
        """Cross-entropy of the network that stands for partners: anybody, seen without their past."""
        own = view(layout, batch.states, batch.seats)
        features, actions = own.features, turned_actions(batch.actions, own.symmetry)
        log_probs = self.partner(features).log_softmax(1)
        there = mirrored_actions(self.partner(mirrored(features)).log_softmax(1))
        return (nll_loss(log_probs, actions) + nll_loss(there, actions)) / 2

    @torch.no_grad()
    def _remember(self, habit: Habit) -> None:
        """Moves the habit that plans are made with towards the mean habit of a batch, alike in all directions."""
        normalized = habit.log_base - habit.log_base.logsumexp(1, keepdim=True)
        no_op = habit.log_base_no_op - habit.log_base.logsumexp(1, keepdim=True)
        mean = torch.stack([normalized.mean(0), no_op.mean(0)])
        mean[:, :STAY] = mean[:, :STAY].mean(1, keepdim=True)
        self.planned_log_base.lerp_(mean, 1 - _HABIT_MEMORY)
        self.planned_pause.lerp_(habit.pause.sigmoid().mean(), 1 - _HABIT_MEMORY)

    def _reward(self, features: Tensor, people: Tensor) -> Tensor:
        return self.rationality.reward(self._cost_features(features), self.phi_beta(features), people)

    def _cost_features(self, features: Tensor) -> Tensor:
        if self._reward_features is not None:
            features = features[:, self._reward_features]
            features = torch.cat([features, torch.ones_like(features[:, :1])], 1)
        phi_R: Tensor = self.phi_R(features)
        return phi_R

    def _log_all(self, values: dict[str, Tensor], size: int) -> None:
        logged = {f"train/{name}": value.detach() for name, value in values.items()}
        self.log_dict(logged, on_step=False, on_epoch=True, batch_size=size)


def _parts(log_probs: Tensor, actions: Tensor) -> dict[str, Tensor]:
    """The parts of the cross-entropy of a batch: STAY or not, and which action among the steps that are not STAY."""
    moved = actions != STAY
    stay = log_probs[:, STAY]
    moves = torch.cat([log_probs[:, :STAY], log_probs[:, STAY + 1 :]], 1).logsumexp(1)
    stay_or_not = -torch.where(moved, moves, stay).mean()
    which_move = (nll_loss(log_probs, actions) - stay_or_not) / moved.float().mean().clamp(min=1e-6)
    return {"stay_or_not": stay_or_not, "which_move": which_move}
