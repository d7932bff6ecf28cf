"""Parameter recovery: can the parameters of simulated people be found from their rollouts? (paper, experiment 1)

People act by the BSDR model with known parameters. The posterior over a grid is the paper's figure; MAP fits over
worlds, numbers of people and rollouts, and seeds are what the paper did not do. Then the same people again, for
models that are not given the features that people's cost and rationality are made of, and learn them by networks.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from bsdr_torch.data.grid_people import Parts, RolloutData, Truth, simulate
from bsdr_torch.experiments import recovery_report
from bsdr_torch.experiments.fitting import fit, fit_networks
from bsdr_torch.experiments.reporting import Finding
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.experiments.statistics import rank_correlation
from bsdr_torch.human_model import HumanModel
from bsdr_torch.objective import visit_counts
from bsdr_torch.rationality import RationalityKind
from bsdr_torch.recovery import Recovery, TrueModel, recovery, regret
from bsdr_torch.training import Predicts
from bsdr_torch.worlds.gridworld import GridWorld

HELD_OUT = 8  # rollouts of each person that the fit does not see
VIEW_RADIUS = {"cell": 0, "window": 1}  # how far networks see


@dataclass(frozen=True)
class Case:
    """One fit: which people, which model, how much data."""

    world: str
    people: str
    model: RationalityKind
    humans: int
    rollouts: int
    seed: int


@dataclass(frozen=True)
class FeaturesCase(Case):
    """One fit, with the features that people's cost and rationality are made of, or without.

    Attributes:
        features: `given`, or learned by networks that see the `cell` alone, or a `window` of it and its neighbours.
    """

    features: str


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    quick, seeds, workers = settings.quick, settings.seeds, settings.workers
    records = run_cases(settings.out, cases(quick, seeds), run_case, workers)
    of_features = run_cases(settings.out / "learned_features", features_cases(quick, seeds), run_features_case, workers)
    return recovery_report.write(settings, records, of_features)


def cases(quick: bool, seeds: int) -> list[Case]:
    """All fits: BSDR over amounts of data; every model on the same data; people whose beta is constant."""
    worlds = ["meadow"] if quick else ["meadow", "orchard", "maze", "frozen_lake"]
    amounts = [(1, 8), (5, 8), (20, 8)] if quick else list(itertools.product((1, 5, 20), (2, 8, 32)))
    found = [
        Case(world, "state-dependent", "bsdr", humans, rollouts, seed)
        for world, (humans, rollouts), seed in itertools.product(worlds, amounts, range(seeds))
    ]
    models: tuple[RationalityKind, ...] = ("br", "br_per_human", "irleed", "bsdr")
    for world, people, model, seed in itertools.product(worlds, ("state-dependent", "constant"), models, range(seeds)):
        case = Case(world, people, model, 20, 8, seed)
        if case not in found:
            found.append(case)
    return found


def features_cases(quick: bool, seeds: int) -> list[FeaturesCase]:
    """BSDR with given and learned features, BR per person with the latter, and all of it again with constant beta."""
    worlds = ("meadow",) if quick else ("meadow", "orchard")
    humans, amounts = (5, (8,)) if quick else (20, (8, 32))
    fits: list[tuple[str, RationalityKind]] = [("given", "bsdr"), ("cell", "bsdr"), ("cell", "br_per_human")]
    if not quick:
        fits += [("window", "bsdr"), ("window", "br_per_human")]
    return [
        FeaturesCase(world, who, model, humans, rollouts, seed, features)
        for seed, rollouts, world, who, (features, model) in itertools.product(
            range(seeds), amounts, worlds, ("state-dependent", "constant"), fits
        )
    ]


def run_case(case: Case) -> list[Record]:
    """Simulates the people of a case, fits its model to them and scores it; see `Recovery` and `heldout_gap`."""
    data = people(case)
    model, converged = fit(data, case.model)
    errors = model_errors(data, model)
    return [{**errors._asdict(), "heldout_gap": heldout_gap(data, model), "converged": converged}]


def run_features_case(case: FeaturesCase) -> list[Record]:
    """Simulates the people of a case, fits its model to them and scores it; see `function_errors`."""
    data = people(case)
    if case.features == "given":
        model, _ = fit(data, case.model)
    else:
        radius = VIEW_RADIUS[case.features]
        # A sum over a window varies as much as one over a cell.
        model = fit_networks(data, case.model, case.seed, weight_scale=1 / (2 * radius + 1), view_radius=radius)
    return [{**function_errors(data, model), "heldout_gap": heldout_gap(data, model)}]


def people(case: Case) -> RolloutData:
    """The people of a case: the same for every model, and the same first people whatever their number."""
    world = GridWorld.load(case.world)
    generator = torch.Generator().manual_seed(5000 + case.seed)
    theta_R = torch.rand(world.reward_features.shape[1], generator=generator) * 0.9 + 0.1
    spread = torch.randn(20, world.rationality_features.shape[1], generator=generator)
    if case.people == "constant":
        spread = spread[:, :1].expand_as(spread)
    truth = Truth(theta_R, 2.0 * torch.exp(1.0 * spread[: case.humans]))
    generator.manual_seed(6000 + case.seed)
    train, test = (simulate(world, truth, count, generator) for count in (case.rollouts, HELD_OUT))
    parts = Parts(train, validation=train.select(torch.arange(0)), test=test)
    return RolloutData([world], [f"human {i}" for i in range(case.humans)], {world.name: parts}, truth=truth)


def model_errors(data: RolloutData, model: HumanModel) -> Recovery:
    """The gauge-invariant errors of a model of people in one world."""
    (name, world), truth = next(iter(data.worlds.items())), data.truth
    assert truth is not None
    steps = data.parts[name].train.steps()
    with torch.no_grad():
        beta = model.beta(name, torch.arange(len(data.humans)))
        theta_R = model.rationality.theta_R
    return recovery(world, truth, theta_R, beta, steps.state, steps.human)


@torch.no_grad()
def function_errors(data: RolloutData, model: HumanModel) -> Record:
    """How close the functions c(s) and beta_i(s) of a model come to the true ones, whatever they are made of.

    Both are first brought to the gauge in which the mean of beta over people is 1 in every state. Everything but
    regret, which is of the whole world, is over the states that people visited in training: `cost_correlation` over
    states; `beta_rank` the rank correlation of beta_i(s) over people and the states that each visited;
    `beta_rank_of_states` that of log beta_i(s) less the person's mean, and `beta_spread` the standard deviation of it
    (`true_spread` of the true one), which no beta that is constant has; `beta_relative_error` as in `Recovery`.
    `regret` is of the cost in this gauge by the true one in this gauge; `regret_as_is` that of the model's cost by the
    true cost, each as it is.
    """
    (name, world), truth = next(iter(data.worlds.items())), data.truth
    assert truth is not None
    own_cost, own_beta = model.cost(name), model.beta(name, torch.arange(len(data.humans)))
    cost, beta = with_mean_one(own_cost, own_beta)
    true_cost, true_beta = with_mean_one(truth.cost(world), truth.beta(world))
    steps = data.parts[name].train.steps()
    visits = visit_counts(steps.state, steps.human, *beta.shape)
    seen, anywhere = visits > 0, visits.sum(1) > 0
    share = visits / visits.sum()
    by_state, true_by_state = (_about_the_mean(b, visits) for b in (beta, true_beta))
    return {
        "cost_correlation": float(torch.corrcoef(torch.stack([cost[anywhere], true_cost[anywhere]]))[0, 1]),
        "regret": regret(world, cost, true_cost),
        "regret_as_is": regret(world, own_cost, truth.cost(world)),
        "beta_rank": rank_correlation(_to_six_digits(beta.log())[seen], _to_six_digits(true_beta.log())[seen]),
        "beta_rank_of_states": rank_correlation(by_state[seen], true_by_state[seen]),
        "beta_relative_error": float((((beta - true_beta).abs() / true_beta) * share)[seen].sum()),
        "beta_spread": float((by_state.square() * share).sum().sqrt()),
        "true_spread": float((true_by_state.square() * share).sum().sqrt()),
    }


def with_mean_one(cost: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """The same cost `[S]` and beta `[S, N]` with a mean of beta over people of 1 in every state."""
    mean = beta.mean(1)
    return cost * mean, beta / mean[:, None]


def _about_the_mean(beta: Tensor, visits: Tensor) -> Tensor:
    """log beta `[S, N]` less each person's mean over visits, 0 where there are none."""
    log_beta = torch.where(visits > 0, beta.log(), 0.0)
    centred = log_beta - (log_beta * visits).sum(0) / visits.sum(0)
    return torch.where(visits > 0, _to_six_digits(centred), 0.0)


def _to_six_digits(values: Tensor) -> Tensor:
    """So that what differs by rounding errors ties."""
    return values.round(decimals=6)


def heldout_gap(data: RolloutData, model: Predicts) -> float:
    """(log-likelihood of the truth - that of the model) / |that of the truth| on held-out rollouts."""
    assert data.truth is not None
    truth = _log_likelihood(TrueModel(data.worlds, data.truth), data)
    return (truth - _log_likelihood(model, data)) / abs(truth)


@torch.no_grad()
def _log_likelihood(predictor: Predicts, data: RolloutData) -> float:
    """Of all actions in the held-out rollouts."""
    total = 0.0
    for chunk in data.chunks("test").chunks:
        batch, actions, _ = chunk.decisions()
        total += float(predictor.action_log_probs(batch).gather(1, actions[:, None]).sum())
    return total
