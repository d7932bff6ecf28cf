"""Getting to know somebody new: only what is theirs is fitted to the steps seen of them, all else stays as it is.

A person is a vector p: the weights of their rationality (theta_beta), in which way their plans differ (e), and what
they add to the first layer of habit (h). Those of the people in training show how people differ: somebody new is

    p = p_population + z D,    z ~ N(0, I / strength)

where D^T D is the covariance of people around the population: what is rare among people needs much evidence, and what
goes together in them is learned together. z is fitted by maximum a posteriori. Whatever does not depend on z is
computed once for each step.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from bsdr_torch.data.decisions import Decisions
from bsdr_torch.errors import InputError
from bsdr_torch.kitchens.habit import Begun
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.newcomers import Memory
from bsdr_torch.kitchens.outlook import outlook
from bsdr_torch.kitchens.planning import action_values, choice_log_probs

# Of the prior: 1 takes the spread of people in training at its word. On the validation people of the 2019 games (their
# steps after the first 400 of a game) it was best after 50 steps seen, and near the best after 100 and 400.
STRENGTH = 1.0
STRETCH = 20  # steps of a game that `OnlinePeople` predicts as the same person's
_MORE_ITERATIONS = 8  # of a fit that goes on from one to fewer steps


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
        habit: `[N, hidden[0]]`, the first layer of habit.
        log_attention: `[N]`, which is everybody's.
        symmetry: `[N]`, the frames of habit.
    """

    actions: Tensor
    no_op: Tensor
    futures: Tensor
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
    return Evidence(steps.actions, ahead.no_op, futures, *begun)


def fit_person(model: KitchenModel, evidence: Evidence, strength: float = STRENGTH) -> Person:
    """The person who most likely made these decisions, in view of how people differ; some tenths of a second."""
    directions = how_people_differ(model)
    z = _fit(model, evidence, directions, directions.new_zeros(len(directions)), 40, strength)
    return _shifted(person(model, None), z @ directions)


@torch.enable_grad()
def _fit(
    model: KitchenModel, evidence: Evidence, directions: Tensor, start: Tensor, iterations: int, strength: float
) -> Tensor:
    """Z of the person who made these decisions `[D]`, looked for from a start."""
    anybody, z = person(model, None), start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([z], max_iter=iterations, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        somebody = _shifted(anybody, z @ directions)
        found = nll_loss(log_probs(model, evidence, somebody), evidence.actions, reduction="sum")
        found = found + strength / 2 * z.square().sum()
        z.grad = torch.autograd.grad(found, z)[0]  # of nothing else: the model is not touched
        return found

    optimizer.step(loss)  # type: ignore[no-untyped-call]  # torch has no types here
    return z.detach()


class OnlinePeople:
    """A `KitchenModel` that gets to know people it never saw while they play.

    It remembers the decisions that it was asked about (see `Memory`), and predicts each as that of the person who most
    likely made those of the same game before it.

    Args:
        model: trained.
        stretch: steps of a game that are predicted with what is known before the first of them.
        strength: of the prior, as for `fit_person`.
    """

    def __init__(self, model: KitchenModel, stretch: int = STRETCH, strength: float = STRENGTH) -> None:
        self.model, self.stretch, self.strength = model.eval(), stretch, strength
        self._memory: Memory[Evidence] = Memory()

    @torch.no_grad()
    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        found = self.model.action_log_probs(batch)
        for rows, seen in self._memory.newcomers(batch, gather_evidence(self.model, batch)):
            found[rows] = self._as_seen(seen)[-len(rows) :]
        return found

    def _as_seen(self, evidence: Evidence) -> Tensor:
        """log P(action) `[L, 6]` at all steps of a game so far."""
        directions, anybody = how_people_differ(self.model), person(self.model, None)
        z, found = directions.new_zeros(len(directions)), []
        for first in range(0, len(evidence.actions), self.stretch):
            if first:
                seen = evidence.some(slice(first))
                z = _fit(self.model, seen, directions, z, _MORE_ITERATIONS, self.strength)
            now = evidence.some(slice(first, first + self.stretch))
            found.append(log_probs(self.model, now, _shifted(anybody, z @ directions)))
        return torch.cat(found)


def log_probs(model: KitchenModel, evidence: Evidence, somebody: Person) -> Tensor:
    """log P(action) at the decisions, `[N, 6]`, if this person made them."""
    first = evidence.habit + somebody.habit if len(somebody.habit) else evidence.habit
    habit = model.habit.finish(Begun(first, evidence.log_attention, evidence.symmetry))
    future = evidence.futures[..., 0] + evidence.futures[..., 1:] @ somebody.plans
    return choice_log_probs(habit, evidence.no_op, future)


@torch.no_grad()
def person(model: KitchenModel, human: int | None) -> Person:
    """Somebody the model knows, by number, or for None somebody it never saw."""
    theta, plans, habit = _everybody(model)
    if human is None:
        return Person(theta.mean(0), torch.zeros_like(plans[0]), torch.zeros_like(habit[0]))
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
