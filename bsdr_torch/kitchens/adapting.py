"""Getting to know somebody new: only what is theirs is fitted to the steps seen of them, all else stays as it is.

A person is a vector: the weights of their rationality (theta_beta), in which way their plans differ (e), and what they
add to the first layer of habit (h). `newcomers` says how it is fitted.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.errors import InputError
from bsdr_torch.kitchens.choosing import choice_log_probs
from bsdr_torch.kitchens.habit import Begun
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.newcomers import fit_newcomer
from bsdr_torch.kitchens.outlook import outlook
from bsdr_torch.kitchens.planning import action_values


class Person(NamedTuple):
    """What is a person's own in a `KitchenModel`.

    Attributes:
        theta_beta: `[F_beta]`, empty if all people are equally rational.
        plans: `[rank]`, e in V_i(s) = v(s) + e . w(s).
        habit: `[hidden[0]]`, what is added to the first layer of habit, empty if it does not see who acts.
    """

    theta_beta: Tensor
    plans: Tensor
    habit: Tensor


class Evidence(NamedTuple):
    """N decisions of one person, as far as they do not depend on who it is.

    Attributes:
        actions: `[N]`, taken.
        no_op: `[N, 6]` bool.
        futures: `[N, 6, 1 + rank]`, Q by the parts of the values.
        log_focus: `[N]`, which is everybody's.
        habit: `[N, hidden[0]]`, the first layer of habit.
        log_attention: `[N]`, which is everybody's.
        symmetry: `[N]`, the frames of habit.
    """

    actions: Tensor
    no_op: Tensor
    futures: Tensor
    log_focus: Tensor
    habit: Tensor
    log_attention: Tensor
    symmetry: Tensor

    def some(self, steps: slice) -> Evidence:
        """Some of the decisions."""
        return Evidence(*(part[steps] for part in self))

    def joined(self, later: Evidence) -> Evidence:
        """This and what was seen later."""
        return Evidence(*(torch.cat(pair) for pair in zip(self, later, strict=True)))


@torch.no_grad()
def gather_evidence(model: KitchenModel, steps: Decisions) -> Evidence:
    """What decisions in one kitchen can tell of the person who made them; who they say it is does not matter."""
    ahead = outlook(model.layout(steps.layout), steps.states, steps.seats)
    partner = model.partner_probabilities(ahead.partner)
    futures = action_values(model.values.parts(ahead.features), ahead, partner, model.discount, None)
    unknown = torch.full_like(steps.humans, -1)
    kitchen = torch.full_like(unknown, model.number(steps.layout))
    begun = model.habit.begin(model.past(steps, model.habit.history), unknown, kitchen)
    log_focus = model.rule.log_focus(ahead.features[ahead.own])
    return Evidence(steps.actions, ahead.no_op, futures, log_focus, *begun)


def fit_person(model: KitchenModel, evidence: Evidence) -> Person:
    """The person who most likely made these decisions, in view of how people differ; some tenths of a second."""
    directions = how_people_differ(model)
    z = fit_newcomer(AdaptableKitchenModel(model), evidence, evidence.actions, directions)
    return _shifted(person(model, None), z @ directions)


class AdaptableKitchenModel:
    """A `KitchenModel` in the form that `newcomers` asks for."""

    def __init__(self, model: KitchenModel) -> None:
        self.model = model.eval()
        self._anybody = person(model, None)

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        return self.model.action_log_probs(batch)

    def how_people_differ(self) -> Tensor:
        """D `[people trained on, all numbers of a person]`."""
        return how_people_differ(self.model)

    def evidence(self, batch: Decisions) -> Evidence:
        """See `gather_evidence`."""
        return gather_evidence(self.model, batch)

    def log_probs_of(self, evidence: Sequence[Tensor], shift: Tensor, fitting: bool = False) -> Tensor:
        """log P(action) `[N, 6]` by somebody who differs from the population by `shift`."""
        return log_probs(self.model, Evidence(*evidence), _shifted(self._anybody, shift))


def log_probs(model: KitchenModel, evidence: Evidence, somebody: Person) -> Tensor:
    """log P(action) at the decisions, `[N, 6]`, if this person made them."""
    first = evidence.habit + somebody.habit if len(somebody.habit) else evidence.habit
    habit = model.habit.finish(Begun(first, evidence.log_attention, evidence.symmetry))
    future = evidence.futures[..., 0] + evidence.futures[..., 1:] @ somebody.plans
    habit = model.rule(habit, evidence.log_focus, evidence.no_op, future)
    return choice_log_probs(habit, evidence.no_op, future)


@torch.no_grad()
def person(model: KitchenModel, human: int | None) -> Person:
    """Somebody the model knows, by number, or for None somebody it never saw."""
    theta, plans, habit = _everybody(model)
    if human is None:
        population = model.rationality.population if theta.shape[1] else theta[0]
        return Person(population, torch.zeros_like(plans[0]), torch.zeros_like(habit[0]))
    return Person(theta[human], plans[human], habit[human])


@torch.no_grad()
def how_people_differ(model: KitchenModel) -> Tensor:
    """D `[people trained on, all numbers of a person]`: D^T D is the covariance of people around the population."""
    population = torch.cat(list(person(model, None)))
    rows = [model.humans.index(human) for human in model.trained_on]
    differences = torch.cat(_everybody(model), 1)[rows] - population
    if not differences.numel() or not bool(differences.any()):
        raise InputError("there is nothing to adapt: this model tells nobody from anybody else")
    return differences / math.sqrt(len(rows))


@torch.no_grad()
def with_newcomer(model: KitchenModel, somebody: Person) -> KitchenModel:
    """A copy of the model in which whoever was never seen is this person; others are not to be asked of it."""
    adapted = copy.deepcopy(model)
    last = _linear(adapted.values.network, -1)
    last.weight[0] += somebody.plans @ last.weight[1:]
    last.bias[0] += somebody.plans @ last.bias[1:]
    if len(somebody.habit):
        _linear(adapted.habit.network, 0).bias.add_(somebody.habit)
    if len(somebody.theta_beta):
        adapted.rationality.newcomer = somebody.theta_beta
    return adapted


def _everybody(model: KitchenModel) -> tuple[Tensor, Tensor, Tensor]:
    """Theta_beta, e and h of all people, `[people, F_beta]`, `[people, rank]` and `[people, hidden[0]]`."""
    people, rationality = len(model.humans), model.rationality
    plans = model.values.people
    theta = rationality.theta_beta if rationality.varies.by_human else plans.new_zeros((people, 0))
    habit = plans.new_zeros((people, 0))
    if model.habit.num_humans:
        # After what is seen of the history come the people, each with a column of the first layer's weights.
        first = _linear(model.habit.network, 0)
        end = first.in_features - model.habit.num_layouts
        habit = first.weight[:, end - people : end].T
    return theta, plans, habit


def _linear(network: nn.Sequential, place: int) -> nn.Linear:
    layer = network[place]
    assert isinstance(layer, nn.Linear)
    return layer


def _shifted(start: Person, by: Tensor) -> Person:
    """The person with all numbers shifted."""
    return Person(*(a + b for a, b in zip(start, torch.split(by, [len(part) for part in start]), strict=True)))
