"""Recovery in a kitchen: is the rationality of simulated people found, with learned features?

People act by the rule of BSDR in a small kitchen, with known cost and known beta_i(s); `KitchenModel` sees their games
and none of the features that their rationality depends on.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.prepared import write_prepared
from bsdr_torch.data.splits import TEST, TRAIN, VALIDATION
from bsdr_torch.experiments import kitchen_recovery_report
from bsdr_torch.experiments.reporting import Finding
from bsdr_torch.experiments.running import Record, Run, run_cases
from bsdr_torch.experiments.statistics import rank_correlation
from bsdr_torch.kitchens.engines import Exact
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.outlook import outlook, view
from bsdr_torch.kitchens.predicting import fit
from bsdr_torch.kitchens.simulated_people import PARTNER, SimulatedPeople, as_prepared, draw_people, play
from bsdr_torch.rationality import RationalityKind
from bsdr_torch.worlds.overcooked import unique_states

STEPS = 60  # of a game
HELD_OUT = 10  # games of each person that no fit sees
LEARNING_RATE, TOLERANCE = 3e-2, 1e-3  # of fits with exact plans
NEURAL_SEEDS, EPOCHS = 5, 8  # of fits with the plans of a network
LEVEL, DEPENDENCE = 0.5, 0.7  # standard deviations of log beta: between people, and of each situation's effect on each


@dataclass(frozen=True)
class Case:
    """One fit: who is watched for how long, and what is fitted.

    Attributes:
        people: `state-dependent`, or `alike`: the control, in which beta depends on neither person nor state.
        engine: how the model plans: `exact` or `neural`.
        model: the rationality model.
        reward: what its cost is made of; see `KitchenModel`.
        humans: how many people there are.
        games: of each person, to learn from.
        seed: of the people, their games and the model.
        fit_steps: steps of the optimiser if the engine is exact, else epochs.
        focus: whether the model expects what these people do not have: plans that move the pause, and that count more
            in some states than in others.
    """

    people: str
    engine: str
    model: RationalityKind
    reward: str
    humans: int
    games: int
    seed: int
    fit_steps: int
    focus: bool = False


def run(settings: Run) -> list[Finding]:
    """Runs the experiment, writes its report and returns what was found."""
    records = run_cases(settings.out, cases(settings.quick, settings.seeds), run_case, settings.workers)
    return kitchen_recovery_report.write(settings, records)


def cases(quick: bool, seeds: int) -> list[Case]:
    """For each seed: every model with all data, BSDR with less of it or a learned cost, and the control.

    For the first `NEURAL_SEEDS`, also with the plans of a network, with a focus and without, unless it is `quick`.
    """
    humans, games, steps = (6, 60, 40) if quick else (12, 100, 160)
    less = 30
    fits: list[tuple[str, str, RationalityKind, str, int]] = [
        ("state-dependent", "exact", "bsdr", "events", games),
        ("state-dependent", "exact", "br", "events", games),
        ("alike", "exact", "br", "events", games),
        ("alike", "exact", "bsdr", "events", games),
    ]
    if not quick:
        fits += [
            ("state-dependent", "exact", "br_per_human", "events", games),
            ("state-dependent", "exact", "bsdr", "events", less),
            ("state-dependent", "exact", "bsdr", "learned", games),
            ("state-dependent", "neural", "bsdr", "events", games),
            ("state-dependent", "neural", "br_per_human", "events", games),
            ("state-dependent", "neural", "bsdr", "learned", games),
            ("state-dependent", "neural", "br_per_human", "learned", games),
            ("alike", "neural", "br", "learned", games),
            ("alike", "neural", "bsdr", "learned", games),
        ]
    return [
        Case(people, engine, model, reward, humans, many, seed, EPOCHS if engine == "neural" else steps, focus)
        for seed in range(seeds)
        for people, engine, model, reward, many in fits
        if engine == "exact" or seed < NEURAL_SEEDS
        for focus in ((False, True) if (engine, model, reward) == ("neural", "bsdr", "learned") else (False,))
    ]


def run_case(case: Case) -> list[Record]:
    """Simulates the people of a case, fits its model to them and scores it; see `scores`.

    If its plans are those of a network, `replanned_excess` is that of exact plans from the reward it learned.
    """
    people = simulated(case.people, case.humans, case.seed)
    data = watched(people, case.games, torch.Generator().manual_seed(9500 + case.seed))
    torch.manual_seed(case.seed)
    # Nothing that people do depends on what they did before, or on who they are but for beta.
    options: dict[str, Any] = {"history": 0, "identity": False, "habit_hidden": [16], "habit_dropout": 0.0}
    options |= {"hesitation": case.focus, "focus": case.focus}  # they choose by the paper's rule
    options |= {"hidden": [64], "width": 32, "made_up": 1, "beyond": 1 / 32}  # a small kitchen, and no other
    if case.engine == "exact":
        options["rank"] = 1  # of the network's plans, which nobody asks for
    model = KitchenModel(
        data.specs,
        data.humans,
        data.named,
        case.model,
        case.reward,  # type: ignore[arg-type]  # checked by the model
        partner_hidden=[],
        discount=people.discount,
        **options,
    )
    know_the_partner(model)
    exact = Exact(model, {people.graph.layout.name: people.graph}, model.engine, TOLERANCE)
    if case.engine == "exact":
        model.engine = exact
        fit_exactly(model, data, people, case.fit_steps)
        return [scores(model, data, people)]
    fit(model, data, case.fit_steps, patience=case.fit_steps)
    found = scores(model, data, people)
    model.engine = exact
    return [found | {"replanned_excess": scores(model, data, people)["excess"]}]


@lru_cache(maxsize=2)
def simulated(kind: str, humans: int, seed: int) -> SimulatedPeople:
    """The people of a case: the same for every model, engine and amount of data."""
    level, dependence = (0.0, 0.0) if kind == "alike" else (LEVEL, DEPENDENCE)
    return draw_people(humans, level, dependence, torch.Generator().manual_seed(9000 + seed))


def watched(people: SimulatedPeople, games: int, generator: torch.Generator) -> KitchenPeople:
    """Some games of each person to learn from, a tenth as many to validate, and `HELD_OUT` to test, in whole games."""
    validating = max(1, games // 10)
    played = play(people, HELD_OUT + validating + games, STEPS, generator)
    with tempfile.TemporaryDirectory() as folder:
        write_prepared(folder, as_prepared(played))
        # Balanced, so that situations are drawn one by one: in a small kitchen, batches of all that was decided in one
        # situation after another would have few of them.
        data = KitchenPeople(folder, history=0, balanced=True)
    parts = [TEST] * HELD_OUT + [VALIDATION] * validating + [TRAIN] * games
    of_games = torch.tensor(parts, dtype=torch.int8).repeat(len(people.names))
    data.parts = {played.layout.name: of_games[played.game]}
    return data


@torch.no_grad()
def know_the_partner(model: KitchenModel) -> None:
    """Gives the model the partner's policy, to keep: what it would learn of partners, it would learn from people."""
    last = model.partner[-1]
    last.weight.zero_()  # type: ignore[operator]  # a linear layer, which torch's types do not say
    last.bias.copy_(torch.tensor(PARTNER).log())  # type: ignore[operator]
    model.partner.requires_grad_(False)


def fit_exactly(model: KitchenModel, data: KitchenPeople, people: SimulatedPeople, steps: int) -> None:
    """Moves the model to its MAP with exact plans, by AdamW on all data at once.

    What people do depends on who they are and on the state alone, so that each such pair is looked at once.
    """
    seen = data.steps("train")[people.graph.layout.name]
    pairs, pair = unique_states(torch.stack([people.graph.index(seen.states), seen.humans], 1))
    counts = torch.zeros(len(pairs), 6).index_put_((pair, seen.actions), torch.ones(()), accumulate=True)
    nothing = torch.zeros(len(pairs), dtype=torch.int64)
    batch = seen._replace(
        states=people.graph.states[pairs[:, 0]],
        humans=pairs[:, 1],
        history=seen.history[: len(pairs)],
        seats=nothing,
        partner_last=nothing,
        actions=nothing,
        rollouts=nothing,
        times=nothing,
    )
    ahead = outlook(people.graph.layout, batch.states, batch.seats)
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learned, LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps, pct_start=0.1)
    model.eval()
    for _ in range(steps):
        choices = model._choices(batch, ahead)
        model._remember(choices.habit)
        loss = -((counts * choices.log_probs).sum() + model.log_prior()) / counts.sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        optimizer.step()
        schedule.step()


@torch.no_grad()
def scores(model: KitchenModel, data: KitchenPeople, people: SimulatedPeople) -> Record:
    """How well held-out games are predicted, and how well beta is recovered.

    Everything of beta is over all people and the states that anybody visited in training, each alike: `beta_rank` is
    the rank correlation of learned and true beta_i(s), `beta_rank_of_people` the mean over states of that over people,
    `beta_rank_of_states` that of log beta_i(s) less its mean over states for each person, which no beta of a person
    alone can have, and the spreads are standard deviations of log beta. Over the same states, `positive_cost` is the
    share of those whose learned cost is positive, and `cost_rank` the rank correlation of learned and true cost.
    `focus_spread` is the standard deviation of log lambda. `excess` is the cross-entropy above that of the people's own
    policies on the same steps; `unaware` is that of the mean of all people's policies.
    """
    graph, name = people.graph, people.graph.layout.name
    seen, unseen = data.steps("train")[name], data.steps("test")[name]
    where, taken = graph.index(unseen.states), unseen.actions[:, None]
    mean_loss = float(-model.eval().action_log_probs(unseen).double().gather(1, taken).mean())
    own = float(-people.policy[where, :, unseen.humans].gather(1, taken).log().mean())
    anybody = float(-people.policy[where].mean(2).gather(1, taken).log().mean())
    visited = torch.unique(graph.index(seen.states))
    features = view(graph.layout, graph.states[visited], 0).features
    everybody = torch.arange(len(people.names))
    beta = model.beta(features, everybody).double()
    cost = -model.reward(features, everybody).mean(1)  # as the mean of beta is 1
    true = people.beta[visited]
    by_state = [rank_correlation(one, other) for one, other in zip(beta, true, strict=True)]
    return {
        "decisions": len(seen.actions) // len(people.names),
        "cross_entropy": mean_loss,
        "truth": own,
        "excess": mean_loss - own,
        "unaware": anybody - own,
        "beta_rank": rank_correlation(beta.flatten(), true.flatten()),
        "beta_rank_of_people": sum(by_state) / len(by_state),
        "beta_rank_of_states": rank_correlation(_about_the_mean(beta), _about_the_mean(true)),
        "beta_spread": float(beta.log().std()),
        "true_spread": float(true.log().std()),
        "focus_spread": float(model.rule.log_focus(features).std()),
        "positive_cost": float((cost > 0).float().mean()),
        "cost_rank": rank_correlation(cost, people.cost[visited]),
    }


def _about_the_mean(beta: torch.Tensor) -> torch.Tensor:
    """log beta `[S, N]`, less each person's mean, flat; to six digits, so that rounding errors tie."""
    log_beta = beta.log()
    return (log_beta - log_beta.mean(0)).flatten().round(decimals=6)
