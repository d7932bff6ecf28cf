"""People on the way to subgoals: how rational they are where, and their habits, learned from ways whose end is known.

    P_i(a|s, h, goal) = rho_i(h) 1[a = STAY] + (1 - rho_i(h)) softmax_a( log b(a|h) + Q_i(s, a; goal) )

Plans are those of the paper, with uniform b and no pauses. What a person does also depends on h, the person's action
before: b is the same for everybody, pauses are each person's own, whatever the rationality model.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from bsdr_torch import priors
from bsdr_torch.data.decisions import UNRECORDED
from bsdr_torch.experiments.fitting import minimise
from bsdr_torch.experiments.kitchen_stretches import Stretches
from bsdr_torch.experiments.subgoal_plans import FEATURES, SubgoalPlans
from bsdr_torch.rationality import Rationality, RationalityKind
from bsdr_torch.soft_bellman import action_log_probs, initial_values, uniform_base
from bsdr_torch.solver import Solver, WarmStart
from bsdr_torch.worlds.overcooked import INTERACT, NUM_ACTIONS, STAY

DISCOUNT = 0.9
_TOLERANCE = 1e-7  # of plans
_GRADIENT = 1e-3  # of a fit: with a smaller one, the loss changes by less than 0.0002 nats per step
SPREAD = 0.5  # of theta_beta between people, expected
_BETA_SCALE, _HABIT_SCALE, _PAUSE_SCALE = 3.0, 3.0, 0.5  # standard deviations expected, the last one between people


class SubgoalPeople(nn.Module):
    """A rationality model of people on the way to subgoals, in any number of kitchens.

    Args:
        kind: br, br_per_human, bsdr, or bsdr_aggregate, whose beta(s) is everybody's.
        num_humans: how many people there are.
    """

    def __init__(self, kind: str, num_humans: int) -> None:
        super().__init__()
        self.alike = kind in ("br", "bsdr_aggregate")
        of: RationalityKind = kind.removesuffix("_aggregate")  # type: ignore[assignment]  # checked by Rationality
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a step costs is known, so that one person is enough
            self.rationality = Rationality(of, 1 if self.alike else num_humans, 1, len(FEATURES))
        self.rationality.raw_theta_R.requires_grad_(False)  # a step costs 1
        self.log_base = nn.Parameter(torch.zeros(_NUM_RELATIONS))
        self.pause = nn.Parameter(torch.zeros(3))  # after a move, a STAY, an INTERACT
        self.own_pause = nn.Parameter(torch.zeros(num_humans))
        self.double()

    def reward(self, plans: SubgoalPlans, humans: Tensor) -> Tensor:
        """r_i(s) of `humans [B]`, `[S, B]`."""
        return self.rationality.reward(plans.phi_R, plans.phi_beta, humans)

    def act(self, planned: Tensor, humans: Tensor, last: Tensor) -> Tensor:
        """log P(a) `[N, 6]` of `humans [N]`, with plans `planned [N, 6]`, after their actions `last [N]`."""
        log_base = torch.cat([self.log_base.new_zeros(1), self.log_base])[_RELATIONS[last]]  # that of STAY is 0
        chosen = (planned + log_base).log_softmax(1)
        pause = self.pause[_AFTER[last]] + self.own_pause[humans]
        chosen = chosen + logsigmoid(-pause)[:, None]
        stays = torch.logaddexp(chosen[:, STAY], logsigmoid(pause))
        return torch.where(torch.arange(NUM_ACTIONS) == STAY, stays[:, None], chosen)

    @torch.no_grad()
    def start_from(self, simpler: SubgoalPeople) -> None:
        """Takes over the habits of a model with one beta, and that beta everywhere."""
        for name in ("log_base", "pause", "own_pause"):
            getattr(self, name).copy_(getattr(simpler, name))
        self.rationality.raw_theta_beta[:, 0] = simpler.rationality.raw_theta_beta.squeeze()

    def log_prior(self) -> Tensor:
        """log P(theta), up to a constant."""
        theta = self.rationality.theta_beta
        log_prior = priors.gaussian(theta, _BETA_SCALE) if self.alike else priors.hierarchical(theta, SPREAD)
        return log_prior + priors.gaussian(self.log_base, _HABIT_SCALE) + priors.gaussian(self.own_pause, _PAUSE_SCALE)


class Planned:
    """Plans of people for all subgoals of a kitchen, made as the model has it.

    Args:
        plans: the problems.
        humans: whose plans are wanted, `[B]`, each once.
        model: of these people.
        solver: of the engine.
        as_if: `[B]`, with whose rationality each of them plans; their own by default.
    """

    def __init__(
        self,
        plans: SubgoalPlans,
        humans: Tensor,
        model: SubgoalPeople,
        solver: Solver | None = None,
        as_if: Tensor | None = None,
    ) -> None:
        self.plans, self.alike = plans, model.alike
        self._column = torch.full((int(humans.max()) + 1,), -1)
        self._column[humans] = torch.arange(len(humans))
        planners = torch.zeros_like(humans[:1]) if self.alike else humans if as_if is None else as_if
        self._values = initial_values(
            plans.mdp,
            model.reward(plans, planners),
            discount=DISCOUNT,
            log_base=uniform_base(plans.mdp, torch.float64),
            solver=solver or Solver(tolerance=_TOLERANCE),
        )[None]

    def column(self, humans: Tensor) -> Tensor:
        """`[N]`: where the plans of people are."""
        return torch.zeros_like(humans) if self.alike else self._column[humans]

    def __call__(self, states: Tensor, columns: Tensor) -> Tensor:
        """log P(a) `[N, 6]` by plans alone at numbered `states [N]`; that of nobody's plans where the number is -1."""
        found = action_log_probs(
            self.plans.mdp, self._values, states.clamp(min=0), columns, torch.zeros_like(states), discount=DISCOUNT
        )
        return torch.where((states < 0)[:, None], 0.0, found)


class Ways(NamedTuple):
    """Steps of people in a kitchen on the way to what they then did, those that are alike counted.

    Attributes:
        humans: `[B]`, who was there.
        state: `[U]`, numbered states, -1 if the way led to no subgoal.
        who: `[U]`, who was in them.
        place: `[M]`, which of the U each kind of step was taken in.
        last: `[M]`, the action before.
        action: `[M]`, the action.
        times: `[M]`, how often.
    """

    humans: Tensor
    state: Tensor
    who: Tensor
    place: Tensor
    last: Tensor
    action: Tensor
    times: Tensor

    @staticmethod
    def of(plans: SubgoalPlans, seen: Stretches, ended: Tensor) -> Ways:
        """The ways of some stretches that ended `[R]` in so many ways, their last steps, too."""
        there = torch.arange(seen.actions.shape[1]) < seen.length[:, None]
        human = seen.human[:, None].expand_as(seen.actions)
        rows = torch.stack([plans.numbers(seen, ended), human, seen.last, seen.actions], 2)[there]
        rows, count = torch.unique(rows, dim=0, return_counts=True)
        pairs, place = torch.unique(rows[:, :2], dim=0, return_inverse=True)
        return Ways(torch.unique(seen.human), pairs[:, 0], pairs[:, 1], place, rows[:, 2], rows[:, 3], count.double())

    def log_likelihood(self, planned: Planned | None, model: SubgoalPeople) -> Tensor:
        """log P of all actions, a scalar; by habit alone, without plans."""
        if planned is None:
            by_plan = torch.zeros(len(self.state), NUM_ACTIONS, dtype=torch.float64)
        else:
            by_plan = planned(self.state, planned.column(self.who))
        log_probs = model.act(by_plan[self.place], self.who[self.place], self.last)
        return (self.times * log_probs.gather(1, self.action[:, None]).squeeze(1)).sum()


def fit_people(kind: str, ways: Mapping[str, tuple[SubgoalPlans, Ways]], num_humans: int) -> tuple[SubgoalPeople, bool]:
    """The MAP model of people whose ways are seen, in all kitchens together, and whether its gradient vanished.

    It starts where a simpler one ends, which costs less: habit alone, then BR, then the others.
    """
    model = SubgoalPeople(kind, num_humans)
    steps = sum(float(way.times.sum()) for _, way in ways.values())
    solvers = {name: Solver(tolerance=_TOLERANCE, warm_start=WarmStart()) for name in ways}

    def habit_loss() -> Tensor:
        return -sum((way.log_likelihood(None, model) for _, way in ways.values()), model.log_prior()) / steps

    def loss() -> Tensor:
        total = model.log_prior()
        for name, (plans, way) in ways.items():
            total = total + way.log_likelihood(Planned(plans, way.humans, model, solvers[name]), model)
        return -total / steps

    if kind == "br":
        minimise(habit_loss, [model.log_base, model.pause, model.own_pause], _GRADIENT)
    else:
        model.start_from(fit_people("br", ways, num_humans)[0])
    converged = minimise(loss, [p for p in model.parameters() if p.requires_grad], _GRADIENT)
    return model.requires_grad_(False), converged


def _relations() -> Tensor:
    """`[7, 6]`: how an action relates to the one before, in a way that holds in all directions alike; 0 for STAY."""
    found = torch.zeros(UNRECORDED + 1, NUM_ACTIONS, dtype=torch.int64)
    moves = torch.arange(STAY)
    same, opposite = moves[:, None] == moves, (moves[:, None] ^ 1) == moves  # north 0, south 1; east 2, west 3
    found[:STAY, :STAY] = torch.where(same, 1, torch.where(opposite, 2, 3))
    found[:STAY, INTERACT] = 4
    for last, first in ((STAY, 5), (UNRECORDED, 5), (INTERACT, 7)):
        found[last, :STAY], found[last, INTERACT] = first, first + 1
    return found


_RELATIONS = _relations()
_NUM_RELATIONS = int(_RELATIONS.max())
_AFTER = torch.tensor([0, 0, 0, 0, 1, 2, 1])
