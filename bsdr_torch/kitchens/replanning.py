"""Planning anew: a model keeps what it knows of people, throws its values away and finds them again from the reward."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from tqdm import trange

from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.kitchens.engines import Exact, Lookahead, Neural
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.made_up import made_up_states
from bsdr_torch.kitchens.networks import multiplies_in_bfloat16
from bsdr_torch.kitchens.outlook import outlook
from bsdr_torch.kitchens.planning import ValueNetwork, action_values, backup, expected_values
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import (
    NUM_ACTIONS,
    Layout,
    Limits,
    load_graph,
    start_states,
    step,
    unique_states,
)

RESIDUAL = 0.1
"""By how many nats plans made anew may miss the Bellman equation, before more steps are taken; see `residual`."""
_ROUNDS = 3
_ROWS_AT_ONCE = 512


class Situations(NamedTuple):
    """States of a kitchen to plan in.

    Attributes:
        states: `[P, W]`.
        seats: `[P]`, who decides.
    """

    states: Tensor
    seats: Tensor


def replan(
    model: KitchenModel,
    situations: Mapping[str, Situations],
    steps: int = 1200,
    batch_size: int = 1024,
    most: int = 4096,
    beyond: int = 16384,
    learning_rate: float = 3e-3,
    target_memory: float = 0.95,
    seed: int = 0,
) -> KitchenModel:
    """A copy of the model whose values are planned from nothing but its reward, habit, partner and the rules.

    Fitted soft value iteration: a fresh network is drawn towards what the Bellman equation says of a slow copy of it,
    with exact expectations over successors, for all people at once.

    Args:
        model: a trained model.
        situations: where to plan, by kitchen; nothing in them may come from what is to be predicted.
        steps: of the optimiser.
        batch_size: situations in a step, all of one kitchen.
        most: how many of the different situations of a kitchen to plan in.
        beyond: how many random ones to plan in besides, in all kitchens together. With each situation comes a random
            successor of it.
        learning_rate: of Adam, at the start; it falls to nothing along a cosine.
        target_memory: how slowly the copy follows.
        seed: of the fresh network, of the situations and of their order.
    """
    planned = copy.deepcopy(model).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    people = _everybody(model)
    many = most, max(1, beyond // len(situations))
    problems = {name: _problem(planned, name, pool, many, people, generator) for name, pool in situations.items()}
    names = list(problems)
    sizes = torch.tensor([float(len(problem.reward)) for problem in problems.values()])
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        hidden, rank = model.hparams["hidden"], model.values.people.shape[1]
        start = float(torch.cat([problem.reward for problem in problems.values()]).mean()) / (1 - model.discount)
        fresh = ValueNetwork(hidden, len(model.humans), rank, start=start).to(model.device)
        target = copy.deepcopy(fresh).requires_grad_(False)
        optimizer = torch.optim.Adam(fresh.parameters(), learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        bar = trange(steps, desc="planning", leave=False, disable=None)
        for _ in bar:
            problem = problems[names[int(torch.multinomial(sizes, 1, generator=generator))]]
            rows = torch.randint(len(problem.reward), (batch_size,), generator=generator).to(model.device)
            with torch.no_grad():
                wanted = problem.backed_up(target, people, rows, planned)
            loss = mse_loss(fresh(problem.own_features[rows], people), wanted)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), fresh.parameters(), strict=True):
                    slow.lerp_(fast, 1 - target_memory)
            bar.set_postfix(residual=f"{float(loss.detach().sqrt()):.3f}", refresh=False)
    planned.values = fresh.requires_grad_(False).eval()
    return planned


def _everybody(model: KitchenModel) -> Tensor:
    """All who plan differently, and somebody never seen."""
    known = len(model.humans) if model.values.people.shape[1] else 0
    return torch.tensor([*range(known), POPULATION], device=model.device)


class _Problem(NamedTuple):
    """P situations of a kitchen with all that does not change while values are sought.

    Attributes:
        features: `[U, F]`, of all states, in bfloat16 where that is faster: most of the time goes to reading them.
        own_features: `[P, F]`, of the situations.
        following: `[P, 6, 6]`, where the actions of both lead.
        no_op: `[P, 6]`.
        partner: `[P, 6]`, how likely the partner is to do what.
        reward: `[P, B]`.
    """

    features: Tensor
    own_features: Tensor
    following: Tensor
    no_op: Tensor
    partner: Tensor
    reward: Tensor

    def backed_up(self, values: ValueNetwork, people: Tensor, rows: Tensor, planned: KitchenModel) -> Tensor:
        """What the Bellman equation makes of the values in some of the situations, `[N, B]`."""
        states, following = torch.unique(self.following[rows], return_inverse=True)
        coarse = self.features.dtype == torch.bfloat16
        with torch.autocast(planned.device.type, torch.bfloat16, enabled=coarse):  # values stay exact
            there = values(self.features[states], people)
        future = expected_values(there, following, self.partner[rows])
        return self.reward[rows] + backup(planned.discount * future, self.no_op[rows], planned.planned_habit)


@torch.no_grad()
def _problem(
    planned: KitchenModel,
    name: str,
    pool: Situations,
    many: tuple[int, int],
    people: Tensor,
    generator: torch.Generator,
) -> _Problem:
    """Some of the situations, some random ones, and for each a random successor."""
    layout, (most, beyond) = planned.layouts[name], many
    rows = torch.cat([pool.states, pool.seats[:, None].to(pool.states.dtype)], 1)
    different = unique_states(rows)[0]
    some = different[torch.randperm(len(different), generator=generator)[:most]]
    random = made_up_states(layout, beyond, generator).to(some.device)
    states = torch.cat([some[:, :-1], random])
    seats = torch.cat([some[:, -1].long(), torch.arange(beyond, device=some.device) % 2])
    joint = torch.randint(NUM_ACTIONS, (len(states), 2), generator=generator).to(states.device)
    states = torch.cat([states, step(layout, states, joint)[0]])
    ahead = outlook(layout, states, seats.repeat(2))
    partner = planned.partner_probabilities(ahead.partner)
    own = ahead.features[ahead.own]
    read = ahead.features.to(torch.bfloat16) if multiplies_in_bfloat16(own.device) else ahead.features
    return _Problem(read, own, ahead.following, ahead.no_op, partner, planned.reward(own, people))


def plan_in(
    model: KitchenModel,
    layout: Layout,
    max_objects: int | None = None,
    lookahead: int = 0,
    steps: int = 1200,
    wanted: float = RESIDUAL,
    imagined: int = 800,
    seed: int = 0,
) -> KitchenModel:
    """A copy of the model for one kitchen, which may be new to it, whose values are planned from its reward alone.

    A network plans from imagined situations; while it misses the Bellman equation by more than is `wanted`, anew with
    twice and with four times the steps. On enumerated states an exact solution takes its place.

    Args:
        model: a trained model.
        layout: the kitchen.
        max_objects: on counters, in the states to enumerate and to solve exactly; None for the network alone.
        lookahead: how many exact steps are put on top of the network, see `Lookahead`; where states are enumerated,
            there is nothing to gain.
        steps: of the optimiser, at first.
        wanted: the residual of the network to reach, see `residual`; a warning says by how much it is missed.
        imagined: steps of games that are imagined.
        seed: of planning and imagining.
    """
    graphs = {}
    if max_objects is not None:  # first, as this is where a kitchen may be too large
        graphs[layout.name] = load_graph(layout, Limits(max_objects=max_objects), device=model.device)
    there = copy.deepcopy(model)
    there.layouts = {layout.name: layout}
    situations = imagine(there, layout.name, steps=imagined, seed=seed)
    for more in range(1 if graphs else _ROUNDS):
        planned = replan(there, {layout.name: situations}, steps * 2**more, seed=seed)
        missed = residual(planned, layout.name, situations)
        if missed <= wanted or graphs:
            break
    else:
        warnings.warn(
            f"{layout.name}: plans miss the Bellman equation by {missed:.2g} nats, more than the {wanted:.2g} that was "
            f"wanted, after {steps * 2 ** (_ROUNDS - 1)} steps: give more steps",
            stacklevel=2,
        )
    planned.engine = Neural(planned)
    if lookahead:
        planned.engine = Lookahead(planned, lookahead, planned.engine, settled=True)
    if graphs:
        planned.engine = Exact(planned, graphs, planned.engine)
    return planned


@torch.no_grad()
def residual(planned: KitchenModel, name: str, situations: Situations, many: int = 1024, seed: int = 1) -> float:
    """By how many nats the values of the network miss the Bellman equation in a kitchen, root mean square.

    In `many` of the situations, as many random ones, and a random successor of each; for all people.
    """
    people, generator = _everybody(planned), torch.Generator().manual_seed(seed)
    problem = _problem(planned, name, situations, (many, many), people, generator)
    total = 0.0
    for rows in torch.split(torch.arange(len(problem.reward), device=planned.device), _ROWS_AT_ONCE):
        wanted = problem.backed_up(planned.values, people, rows, planned)
        total += float((planned.values(problem.own_features[rows], people) - wanted).square().sum())
    return float((total / problem.reward.numel()) ** 0.5)


def plan_anew(
    model: KitchenModel,
    data: KitchenPeople,
    seed: int = 0,
    steps: int | None = None,
    imagined: int = 800,
    lookahead: int = 1,
) -> KitchenModel:
    """`replan` in all kitchens that are tested: where people trained the model, from their situations; else, `imagine`.

    Args:
        model: a trained model.
        data: what it was trained on.
        seed: of planning and imagining.
        steps: of the optimiser; by default 700, and 100 more for each kitchen.
        imagined: steps of games that are imagined.
        lookahead: how many steps of each plan are exact, see `Lookahead`.
    """
    known = data.steps("train")
    tested = data.kitchens_of("test")
    situations = {
        name: Situations(known[name].states.to(model.device), known[name].seats.to(model.device))
        if name in known
        else imagine(model, name, steps=imagined, seed=seed)
        for name in tested
    }
    planned = replan(model, situations, 700 + 100 * len(tested) if steps is None else steps, seed=seed)
    if lookahead:
        planned.engine = Lookahead(planned, lookahead, planned.engine, settled=True)
    return planned


@torch.no_grad()
def imagine(
    model: KitchenModel, name: str, games: int = 16, steps: int = 800, noise: float = 0.1, seed: int = 0
) -> Situations:
    """Situations that two people nobody knows come to in a kitchen, as far as the model can tell, from its start.

    Args:
        model: a trained model; it need not know anybody in this kitchen.
        name: the kitchen.
        games: played side by side.
        steps: of each game. Where people come late, things lie about that were not there before.
        noise: the share of actions that are random, so that more is seen.
        seed: of the actions.
    """
    layout, habit = model.layout(name), model.planned_habit
    people = torch.tensor([POPULATION], device=model.device)
    generator = torch.Generator(model.device).manual_seed(seed)
    states = start_states(layout, games).to(model.device)
    seats = torch.tensor([0, 1], device=model.device).repeat(games)
    seen = [states]
    for _ in trange(steps, desc=f"imagining {name}", leave=False, disable=None):
        ahead = outlook(layout, states.repeat_interleave(2, 0), seats)
        partner = model.partner_probabilities(ahead.partner)
        future = action_values(model.values(ahead.features, people), ahead, partner, model.discount, None).squeeze(2)
        chances = (torch.where(ahead.no_op, habit.log_base[1], habit.log_base[0]) + future).softmax(1)
        actions = torch.multinomial((1 - noise) * chances + noise / NUM_ACTIONS, 1, generator=generator)
        states = step(layout, states, actions.view(games, 2))[0]
        seen.append(states)
    different = unique_states(torch.cat(seen))[0]
    return Situations(different.repeat(2, 1), torch.arange(2, device=model.device).repeat_interleave(len(different)))
