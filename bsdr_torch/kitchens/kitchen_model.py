"""The model of people in kitchens: what they want, how rational they are where, their habits and their partner."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from bsdr_torch import priors
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.features import MLPFeatures
from bsdr_torch.kitchens.choosing import ChoiceRule, choice_log_probs
from bsdr_torch.kitchens.cost_features import RewardKind, cost_features
from bsdr_torch.kitchens.engines import Engine, Exact, Neural
from bsdr_torch.kitchens.habit import Habit, HabitNetwork
from bsdr_torch.kitchens.made_up import made_up_kitchen, made_up_states
from bsdr_torch.kitchens.networks import multilayer_perceptron
from bsdr_torch.kitchens.outlook import (
    NUM_FEATURES,
    Outlook,
    Places,
    View,
    mirrored,
    mirrored_actions,
    outlook,
    places,
    turned_actions,
    turned_back,
    view,
)
from bsdr_torch.kitchens.planning import PlannedHabit, ValueNetwork, action_values, backup
from bsdr_torch.kitchens.predicting import KitchenPredictor, Prediction
from bsdr_torch.kitchens.settling import implied_rewards, settle
from bsdr_torch.rationality import MODELS, Rationality, RationalityKind
from bsdr_torch.worlds.overcooked import (
    NUM_ACTIONS,
    STAY,
    Layout,
    Limits,
    load_graph,
    unique_states,
)

_SITUATIONS_EACH = 512  # in a made-up kitchen
_SETTLING_DRAWS = 60
_LONGER_AT_LAST = 10  # the reward settles at the end of each epoch, and the longer at the end of the training
_ROWS_AT_ONCE = 4096
_WARM_UP = 0.1  # the share of the training in which the learning rate rises
_HABIT_MEMORY = 0.98  # of the running mean of habits that plans are made with


class _Choices(NamedTuple):
    """N decisions as the model sees them.

    Attributes:
        log_probs: `[N, 6]`, log P(action).
        habit: before plans move it.
        residual: `[N]`, of the Bellman equation, in training.
        gauge: by how much what is free to be scaled misses its convention, in training.
    """

    log_probs: Tensor
    habit: Habit
    residual: Tensor
    gauge: Tensor


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
        hesitation: whether plans move the pause.
        focus: whether, of models in which rationality depends on the state, how much plans count does so, too.
        arbitration: whether more than the sum of habit and plans decides between actions.
        planner: values by a `neural` network, or `exact` in kitchens that can be enumerated (see `Limits`), where whole
            kitchens should be one batch.
        max_objects: on counters, in an enumerated kitchen.
        tie: the weight of the Bellman residual.
        beyond: how many situations that nobody was in, as a share of a batch, the Bellman equation is to hold in, too.
        made_up: the number of random kitchens that those are in.
        settling: for how many steps the reward settles on the values at the end of the training.
        prior_scale: the spread of theta_beta over people that is expected.
        offset_scale: standard deviation of a person's offset of theta_R, for irleed.
        learning_rate: of AdamW, at its height.
        weight_decay: of AdamW.
        dropout: of the values, the same for a whole batch.
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
        hidden: list[int] = [192, 128],  # noqa: B006  (never changed; Lightning reads the default)
        habit_hidden: list[int] = [128, 128],  # noqa: B006
        partner_hidden: list[int] = [64, 64],  # noqa: B006
        width: int = 64,
        beta_width: int = 8,
        rank: int = 8,
        hesitation: bool = True,
        focus: bool = True,
        arbitration: bool = False,
        planner: Literal["neural", "exact"] = "neural",
        max_objects: int = 0,
        tie: float = 0.1,
        beyond: float = 0.125,
        made_up: int = 24,
        settling: int = 2000,
        prior_scale: float = 0.5,
        offset_scale: float = 0.1,
        learning_rate: float = 8e-3,
        weight_decay: float = 1e-2,
        dropout: float = 0.0,
        habit_dropout: float = 0.1,
        forget: float = 0.1,
    ) -> None:
        super().__init__(worlds, humans, named)
        self.save_hyperparameters()
        self.discount = discount
        people = len(self.humans)
        self.habit = HabitNetwork(history, people * identity, len(self.named), habit_hidden, habit_dropout)
        self.partner = multilayer_perceptron(NUM_FEATURES, partner_hidden, NUM_ACTIONS, dropout)
        self.phi_R = cost_features(reward, width, hidden[0])
        self.phi_beta = MLPFeatures((NUM_FEATURES,), beta_width, 64)
        self.rationality = Rationality(rationality, people, self.phi_R.width, beta_width, "exp", "mean_one")
        nn.init.zeros_(self.rationality.raw_theta_R)
        # A constant added to the cost changes no plan of people who are alike everywhere, but turns rationality around
        # where it turns the sign of the cost: that a step costs something is a convention, like the mean of beta.
        nn.init.ones_(self.rationality.raw_theta_R[-1:].detach())
        differ = MODELS[rationality].by_human
        self.values = ValueNetwork(hidden, people, rank * differ, dropout, start=-1 / (1 - discount))
        self.engine: Engine = Neural(self)
        if planner == "exact":
            limits = Limits(max_objects=max_objects)
            graphs = {name: load_graph(layout, limits) for name, layout in self.layouts.items()}
            self.engine = Exact(self, graphs, self.engine)
        generator = torch.Generator().manual_seed(0)
        like = next(iter(self.layouts.values()))
        kitchens = [made_up_kitchen(like, generator) for _ in range(made_up)]
        self._made_up = [(kitchen, made_up_states(kitchen, _SITUATIONS_EACH, generator)) for kitchen in kitchens]
        self.register_buffer("planned_log_base", torch.zeros(2, NUM_ACTIONS))
        self.register_buffer("planned_pause", torch.tensor(0.3))
        self.planned_log_base: Tensor
        self.planned_pause: Tensor
        self.rule = ChoiceRule(hesitation, beta_width if focus and MODELS[rationality].by_state else 0, arbitration)

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        layout = self.layout(batch.layout)
        return self._choices(batch, outlook(layout, batch.states, batch.seats, self._in_training)).log_probs

    def habit_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision by habit alone, as though all plans were as good, `[N, 6]`."""
        no_op = places(self.layout(batch.layout), batch.states, batch.seats).no_op
        future = torch.zeros_like(no_op, dtype=torch.float32)
        habit = self.rule(self._habit(batch), future.new_zeros(()), no_op, future)
        return choice_log_probs(habit, no_op, future)

    def predict_step(self, batch: Decisions, batch_idx: int = 0) -> Prediction:
        """Action probabilities, beta, focus and the planner's values; faster than `action_log_probs`, and the same."""
        layout = self.layout(batch.layout)
        # People stand still a lot: each different situation is looked at once.
        rows = torch.cat([batch.states, batch.seats[:, None].to(batch.states.dtype)], 1)
        situations, where = unique_states(rows)
        states, seats = situations[:, :-1], situations[:, -1].long()
        at = places(layout, states, seats)
        partner = _in_pieces(lambda s, seat: self.partner_probabilities(view(layout, s, 1 - seat)), states, seats)
        people, column = torch.unique(batch.humans, return_inverse=True)

        def rationality(states: Tensor, seats: Tensor) -> Tensor:
            features = view(layout, states, seats).features
            return torch.cat([self.beta(features, people), self.rule.log_focus(features)[:, None]], 1)

        beta, log_focus = torch.split(_in_pieces(rationality, states, seats), [len(people), 1], 1)
        if isinstance(self.engine, Neural):
            parts = _in_pieces(lambda s: self.values.parts(view(layout, s, 0).features), at.states)
            values = self.values.of_people(parts, people)
        else:
            values = self.engine(layout, at.states, view(layout, at.states, 0).features, people)
        at = Places(at.states, at.own[where], at.following[where], at.no_op[where])
        future = action_values(values, at, partner[where], self.discount, column)
        log_focus = log_focus[where, 0]
        habit = self.rule(self._habit(batch), log_focus, at.no_op, future)
        log_probs = choice_log_probs(habit, at.no_op, future)
        return Prediction(log_probs.exp(), beta[where, column], values[at.own, column], future, log_focus.exp())

    def reward(self, features: Tensor, people: Tensor) -> Tensor:
        """r_i(s) of `people [B]` in states with `features [N, F]`, `[N, B]`."""
        if self.training:
            return self._reward(mirrored(features) if torch.rand(()) < 0.5 else features, people)
        return self.symmetric_reward(features, people)

    def symmetric_reward(self, features: Tensor, people: Tensor) -> Tensor:
        """r_i(s), `[N, B]`, in training mode, too, the mean over a kitchen and its mirror."""
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
        """By how much the network misses the Bellman equation: `[N]`, or `[N, B]` without a `column`."""
        values = self.values(ahead.features, people)
        partner = self.partner_probabilities(ahead.partner).detach()
        future = action_values(values, ahead, partner, self.discount, column)
        return self._missed(values, future, ahead, people, column)

    def beyond(self, many: int) -> Outlook:
        """Situations that nobody was in, in a kitchen that does not exist."""
        kitchen, situations = self._made_up[int(torch.randint(len(self._made_up), ()))]
        states = situations[torch.randint(len(situations), (max(1, many),))].to(self.device)
        seats = torch.zeros(len(states), dtype=torch.int64, device=self.device)
        return outlook(kitchen, states, seats, remember=True)

    @property
    def _in_training(self) -> bool:
        """Whether the same situations come epoch after epoch."""
        return self._trainer is not None

    def log_prior(self) -> Tensor:
        """log P(theta), up to a constant."""
        model, options = self.rationality, self.hparams
        log_prior = priors.gaussian(model.theta_R, 1.0)
        if model.varies.by_human:
            log_prior = log_prior + priors.hierarchical(model.theta_beta, options["prior_scale"])
        if model.offset is not None:
            log_prior = log_prior + priors.gaussian(model.offset, options["offset_scale"])
        return log_prior

    def setup(self, stage: str) -> None:
        """Whoever is not in the training part is as the population is."""
        super().setup(stage)
        if stage == "fit":
            self.rationality.known.copy_(torch.tensor([human in self.trained_on for human in self.humans]))

    def training_step(self, batch: Decisions, batch_idx: int) -> Tensor:
        """The MAP loss per decision, the Bellman residual, and the cross-entropy of the partner's network."""
        layout = self.layout(batch.layout)
        batch = self.forgetful(batch, self.hparams["forget"])
        ahead = outlook(layout, batch.states, batch.seats, remember=True)
        log_probs, habit, residual, gauge = self._choices(batch, ahead)
        self._remember(habit)
        cross_entropy = nll_loss(log_probs, batch.actions)
        bellman = residual.square().mean()
        beyond = self.beyond(round(self.hparams["beyond"] * len(batch.actions)))
        people, column = torch.unique(batch.humans[: len(beyond.own)], return_inverse=True)
        unseen = self.residual(beyond, people, column).square().mean()
        partner = self._partner_loss(layout, batch)
        log_prior = self.log_prior()
        share = len(batch.actions) * max(1, int(self.trainer.num_training_batches))
        loss: Tensor = cross_entropy + self.hparams["tie"] * (bellman + unseen) + partner + gauge - log_prior / share
        self._log_all(
            {
                "loss": loss,
                "cross_entropy": cross_entropy,
                **_parts(log_probs.detach(), batch.actions),
                "bellman_residual": bellman.sqrt(),
                "bellman_residual_beyond": unseen.sqrt(),
                "partner_cross_entropy": partner,
                "gauge": gauge,
                "log_prior": log_prior,
            },
            len(batch.actions),
        )
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Decisions, batch_idx: int) -> None:
        """Settles the reward at the end of an epoch, before validation and checkpoints."""
        if isinstance(self.engine, Neural) and batch_idx + 1 == int(self.trainer.num_training_batches):
            last = self.current_epoch + 1 == self.trainer.max_epochs
            self._settle(self.hparams["settling"] // (1 if last else _LONGER_AT_LAST))

    def finish(self) -> None:
        """Settles the reward for as long as at the end of a training."""
        if isinstance(self.engine, Neural):
            self.train()
            self._settle(self.hparams["settling"])

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
        warm_up = max(1, round(_WARM_UP * steps))

        def share(step: int) -> float:
            left = (step - warm_up) / max(1, steps - warm_up)
            return (step + 1) / warm_up if step < warm_up else 0.5 * (1 + math.cos(math.pi * min(1.0, left)))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _choices(self, batch: Decisions, ahead: Outlook) -> _Choices:
        people, column = torch.unique(batch.humans, return_inverse=True)
        values = self.engine(self.layout(batch.layout), ahead.states, ahead.features, people)
        partner = self.partner_probabilities(ahead.partner).detach()
        future = action_values(values, ahead, partner, self.discount, column)
        habit, log_focus = self._habit(batch), self.rule.log_focus(ahead.features[ahead.own])
        moved = self.rule(habit, log_focus, ahead.no_op, future)
        log_probs = choice_log_probs(moved, ahead.no_op, future)
        if not self.training:
            return _Choices(log_probs, habit, log_probs.new_zeros(0), log_probs.new_zeros(()))
        if isinstance(self.engine, Neural):
            residual = self._missed(values, future, ahead, people, column)
        else:  # the network learns what the exact values are
            residual = self.residual(ahead, people, column)
        # Plans are made with an attention and a focus of 1, the pause of habit and no arbitration, which are to be what
        # they are in the mean: else small values pass for small residuals.
        gains = future.detach() - future.detach().mean(1, keepdim=True)
        free = (habit.log_attention, log_focus, moved.pause - habit.pause, (moved.log_base - habit.log_base) * gains)
        return _Choices(log_probs, habit, residual, torch.stack([each.mean().square() for each in free]).sum())

    def _missed(self, values: Tensor, future: Tensor, ahead: Outlook, people: Tensor, column: Tensor | None) -> Tensor:
        """V - r - backup, of values `[U, B]` and what they say of the future."""
        own, reward = values[ahead.own], self.reward(ahead.features[ahead.own], people)
        if not isinstance(self.engine, Neural):  # which learns from people, not from what the network has not learned
            reward = reward.detach()
        if column is not None:
            own, reward = (of.gather(1, column[:, None]).squeeze(1) for of in (own, reward))
        return own - reward - backup(future, ahead.no_op, self.planned_habit)

    def _settle(self, steps: int) -> None:
        """Settles the reward on the values, where people of the training part decided and beyond."""
        decisions = self.trainer.datamodule.steps("train")  # type: ignore[attr-defined]  # checked by setup
        draws = max(1, min(_SETTLING_DRAWS, steps // 10))
        implied = implied_rewards(self, decisions, draws, self.hparams["beyond"])
        # What is implied where people decided and beyond is drawn alike, and the loss of training is their sum.
        share = 2 * self.hparams["tie"] * sum(len(there.actions) for there in decisions.values())
        settle(self, implied, steps, self.hparams["learning_rate"], 1 / share)

    def _habit(self, batch: Decisions) -> Habit:
        """Habit at the decisions; where they come without any history, that of everybody's mean."""
        if self.habit.history and not batch.history.shape[1]:
            mean = self.planned_log_base[:, None].expand(-1, len(batch.humans), -1)
            pause = self.planned_pause.logit().expand(len(batch.humans))
            return Habit(mean[0], mean[1], pause, torch.zeros_like(pause))
        kitchen = torch.full_like(batch.humans, self.number(batch.layout))
        habit: Habit = self.habit(self.past(batch, self.habit.history), batch.humans, kitchen)
        return habit

    def _partner_loss(self, layout: Layout, batch: Decisions) -> Tensor:
        """Cross-entropy of the network that stands for partners: anybody, seen without their past."""
        own = view(layout, batch.states, batch.seats, remember=True)
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
        self.planned_log_base.lerp_(mean.to(self.planned_log_base), 1 - _HABIT_MEMORY)
        self.planned_pause.lerp_(habit.pause.sigmoid().mean().to(self.planned_pause), 1 - _HABIT_MEMORY)

    def _reward(self, features: Tensor, people: Tensor) -> Tensor:
        return self.rationality.reward(self.phi_R(features), self.phi_beta(features), people)

    def _log_all(self, values: dict[str, Tensor], size: int) -> None:
        logged = {f"train/{name}": value.detach() for name, value in values.items()}
        self.log_dict(logged, on_step=False, on_epoch=True, batch_size=size)


def _in_pieces(of: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """A function of rows, for some at a time: what it makes on the way stays near the processor."""
    return torch.cat([of(*some) for some in zip(*(torch.split(each, _ROWS_AT_ONCE) for each in rows), strict=True)])


def _parts(log_probs: Tensor, actions: Tensor) -> dict[str, Tensor]:
    """The parts of the cross-entropy of a batch: STAY or not, and which action among the steps that are not STAY."""
    moved = actions != STAY
    stay = log_probs[:, STAY]
    moves = torch.cat([log_probs[:, :STAY], log_probs[:, STAY + 1 :]], 1).logsumexp(1)
    stay_or_not = -torch.where(moved, moves, stay).mean()
    which_move = (nll_loss(log_probs, actions) - stay_or_not) / moved.float().mean().clamp(min=1e-6)
    return {"stay_or_not": stay_or_not, "which_move": which_move}
