"""Planning anew: a model keeps what it knows of people, throws its values away and finds them again from the reward."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from tqdm import trange

from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.kitchens.kitchen_model import KitchenModel
from bsdr_torch.kitchens.outlook import outlook
from bsdr_torch.kitchens.planning import ValueNetwork, action_values, backup
from bsdr_torch.rationality import POPULATION
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, start_states, step, unique_states


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
    steps: int = 2000,
    batch_size: int = 1024,
    beyond: float = 0.5,
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
        beyond: the share of them that are replaced by random successors of theirs.
        learning_rate: of Adam, at the start; it falls to nothing along a cosine.
        target_memory: how slowly the copy follows.
        seed: of the fresh network and of the order.
    """
    planned = copy.deepcopy(model).eval().requires_grad_(False)
    options = model.hparams
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        fresh = ValueNetwork(options["hidden"], len(model.humans), model.values.people.shape[1]).to(model.device)
        target = copy.deepcopy(fresh).requires_grad_(False)
        optimizer = torch.optim.Adam(fresh.parameters(), learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        everybody = torch.arange(len(model.humans)) if model.values.people.shape[1] else torch.zeros(0)
        people = torch.cat([everybody.long(), torch.tensor([POPULATION])]).to(model.device)
        names = list(situations)
        sizes = torch.tensor([float(len(situations[name].seats)) for name in names])
        bar = trange(steps, desc="planning", leave=False, disable=None)
        for _ in bar:
            name = names[int(torch.multinomial(sizes, 1, generator=generator))]
            with torch.no_grad():
                states, seats = _sample(model, name, situations[name], batch_size, beyond, generator)
                ahead = outlook(model.layouts[name], states, seats)
                partner = planned.partner_probabilities(ahead.partner)
                values = target(ahead.features, people)
                future = action_values(values, ahead, partner, model.discount, None)
                own = ahead.features[ahead.own]
                wanted = planned.reward(own, people) + backup(future, ahead.no_op, planned.planned_habit)
            loss = mse_loss(fresh(own, people), wanted)
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


def plan_anew(model: KitchenModel, data: KitchenPeople, seed: int = 0, steps_each: int = 300) -> KitchenModel:
    """`replan` in all kitchens that are tested: where people trained the model, from their situations; else, `imagine`.

    Args:
        model: a trained model.
        data: what it was trained on.
        seed: of planning and imagining.
        steps_each: optimiser steps for each kitchen, after as many for all of them.
    """
    known = data.steps("train")
    tested = data.kitchens_of("test")
    situations = {
        name: Situations(known[name].states, known[name].seats) if name in known else imagine(model, name, seed=seed)
        for name in tested
    }
    return replan(model, situations, steps_each * (1 + len(tested)), seed=seed)


@torch.no_grad()
def imagine(
    model: KitchenModel, name: str, games: int = 256, steps: int = 200, noise: float = 0.1, seed: int = 0
) -> Situations:
    """Situations that two people nobody knows come to in a kitchen, as far as the model can tell, from its start.

    Args:
        model: a trained model; it need not know anybody in this kitchen.
        name: the kitchen.
        games: played side by side.
        steps: of each game.
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


def _sample(
    model: KitchenModel, name: str, pool: Situations, size: int, beyond: float, generator: torch.Generator
) -> Situations:
    """Some situations, a share of them replaced by what may come next."""
    rows = torch.randint(len(pool.seats), (size,), generator=generator)
    states, seats = pool.states[rows], pool.seats[rows]
    many = round(beyond * size)
    if many:
        joint = torch.randint(NUM_ACTIONS, (many, 2), generator=generator)
        states = torch.cat([step(model.layouts[name], states[:many], joint)[0], states[many:]])
    return Situations(states, seats)
