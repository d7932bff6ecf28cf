"""People on the way to subgoals: how rational they are where, and their habits, learned from ways whose end is known.

Plans are those of the paper, with uniform b and no pauses. What a person does also depends on the action before, see
`habitual_steps`: b is the same for everybody, pauses are each person's own, whatever the rationality model.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bsdr_torch import priors
from bsdr_torch.experiments.fitting import minimise
from bsdr_torch.experiments.habitual_steps import NUM_HABITS, CountedSteps, act
from bsdr_torch.experiments.kitchen_stretches import Stretches
from bsdr_torch.experiments.subgoal_plans import FEATURES, SubgoalPlans
from bsdr_torch.rationality import Rationality, RationalityKind
from bsdr_torch.soft_bellman import action_log_probs, initial_values, uniform_base
from bsdr_torch.solver import Solver, WarmStart
from bsdr_torch.worlds.overcooked import NUM_ACTIONS

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
        self.habits = nn.Parameter(torch.zeros(1, NUM_HABITS))
        self.pause = nn.Parameter(torch.zeros(1, 3))
        self.own_pause = nn.Parameter(torch.zeros(num_humans, 1))
        self.double()

    def reward(self, plans: SubgoalPlans, humans: Tensor) -> Tensor:
        """r_i(s) of `humans [B]`, `[S, B]`."""
        return self.rationality.reward(plans.phi_R, plans.phi_beta, humans)

    def log_probs(self, planned: Tensor, humans: Tensor, last: Tensor) -> Tensor:
        """log P(a) `[N, 6]` of `humans [N]`, with plans `planned [N, 6]`, after their actions `last [N]`."""
        return act(planned, self.habits, self.pauses, humans, last)

    @property
    def pauses(self) -> Tensor:
        """`[N, 3]`, logits after a move, a STAY and an INTERACT."""
        return self.pause + self.own_pause

    @torch.no_grad()
    def start_from(self, simpler: SubgoalPeople) -> None:
        """Takes over the habits of a model with one beta, and that beta everywhere."""
        for name in ("habits", "pause", "own_pause"):
            getattr(self, name).copy_(getattr(simpler, name))
        self.rationality.raw_theta_beta[:, 0] = simpler.rationality.raw_theta_beta.squeeze()

    def log_prior(self) -> Tensor:
        """log P(theta), up to a constant."""
        theta = self.rationality.theta_beta
        log_prior = priors.gaussian(theta, _BETA_SCALE) if self.alike else priors.hierarchical(theta, SPREAD)
        return log_prior + priors.gaussian(self.habits, _HABIT_SCALE) + priors.gaussian(self.own_pause, _PAUSE_SCALE)


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


def exchanged_people(humans: Tensor) -> Tensor:
    """`[B]`: the people in such an order that nobody is in their own place; always the same."""
    order = torch.randperm(len(humans), generator=torch.Generator().manual_seed(0))
    found = torch.empty_like(humans)
    found[order] = humans[order.roll(1)]
    return found


def ways(plans: SubgoalPlans, seen: Stretches, ended: Tensor) -> CountedSteps:
    """The steps of stretches that ended `[R]` in one way or another, their last steps, too."""
    there = torch.arange(seen.actions.shape[1]) < seen.length[:, None]
    human = seen.human[:, None].expand_as(seen.actions)
    return CountedSteps.of(*(of[there] for of in (plans.numbers(seen, ended), human, seen.last, seen.actions)))


def fit_people(
    kind: str,
    seen: Mapping[str, tuple[SubgoalPlans, CountedSteps]],
    num_humans: int,
    simpler: SubgoalPeople | None = None,
) -> tuple[SubgoalPeople, bool]:
    """The MAP model of people on their `ways`, in all kitchens together, and whether its gradient vanished.

    It starts where a `simpler` one ends, which costs less: habit alone, then BR, then the others.
    """
    model = SubgoalPeople(kind, num_humans)
    steps = sum(float(of.times.sum()) for _, of in seen.values())
    solvers = {name: Solver(tolerance=_TOLERANCE, warm_start=WarmStart()) for name in seen}

    def loss(by_plan: Mapping[str, Tensor]) -> Tensor:
        found = [of.log_likelihood(by_plan[name], model.habits, model.pauses) for name, (_, of) in seen.items()]
        return -(torch.cat(found).sum() + model.log_prior()) / steps

    def planning_loss() -> Tensor:
        by_plan = {}
        for name, (plans, of) in seen.items():
            planned = Planned(plans, torch.unique(of.who), model, solvers[name])
            by_plan[name] = planned(of.state, planned.column(of.who))
        return loss(by_plan)

    if kind == "br":
        nothing = {name: torch.zeros(len(of.state), NUM_ACTIONS, dtype=torch.float64) for name, (_, of) in seen.items()}
        minimise(lambda: loss(nothing), [model.habits, model.pause, model.own_pause], _GRADIENT)
    else:
        model.start_from(simpler or fit_people("br", seen, num_humans)[0])
    converged = minimise(planning_loss, [p for p in model.parameters() if p.requires_grad], _GRADIENT)
    return model.requires_grad_(False), converged
