"""The Boltzmann policy distribution as a predictor of people in kitchens; a re-implementation.

See `policy_distribution` for the model and `getting_to_know` for the two ways to predict. Nothing but a temperature is
fitted to people.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from bsdr_torch.baselines.getting_to_know import Belief, Forecaster, infer, watch
from bsdr_torch.baselines.policy_distribution import Boltzmann, PolicyDistribution, Revelation, iterate
from bsdr_torch.baselines.ppo import Player, Practice, play
from bsdr_torch.baselines.self_play import SOUP, SelfTaught
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.errors import InputError
from bsdr_torch.kitchens.outlook import NUM_FEATURES
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, Layout, encode_features

Way = Literal["sequence", "inference"]
PRACTICE = {"steps": 40, "window": 10, "entropy": 0.02}
BOLTZMANN = {"spread": 0.3}


class BPD(SelfTaught):
    """People as policies drawn from a Boltzmann distribution, two of them in each game.

    It predicts a decision from the earlier ones of the same rollout in the batch, by their times; without any, as the
    mean over all people.

    Args:
        worlds: the kitchens as plain data (`KitchenPeople.specs`); the checkpoint carries them.
        humans: the ids of all people.
        named: as for all models; it makes no difference here.
        iterations: for how many fragments of play the distribution of each kitchen is trained.
        lessons: for how many more the forecaster watches.
        games: how many are played at once.
        horizon: steps of a game.
        shaped: the share of the iterations in which the rewards on the way to a soup fade away.
        practice: how to learn, see `Practice`; a game ends with a fragment.
        taught: a folder in which those who are done are kept, and where `teach` looks for them.
        boltzmann: which distribution, see `Boltzmann`.
        warm_up: the share of the iterations before the KL counts; it counts in full after another such share. People
            who serve no soups yet have no reason not to drift apart, and would never come to serve any.
        memory: the width of the forecaster.
        predict_by: `sequence`, by the forecaster, or `inference` of z.
        inference: how z is inferred, see `Belief`.
        tempered: predict people by P(a)^(1/T), with one T for all kitchens, fitted to the training part.
    """

    after_practice = (*SelfTaught.after_practice, "predict_by", "inference")

    def __init__(
        self,
        worlds: list[dict[str, Any]],
        humans: list[str],
        named: list[str],
        iterations: int = 1200,
        lessons: int = 500,
        games: int = 256,
        horizon: int = 400,
        shaped: float = 0.3,
        practice: dict[str, Any] = PRACTICE,
        taught: str | None = None,
        boltzmann: dict[str, Any] = BOLTZMANN,
        warm_up: float = 0.25,
        memory: int = 64,
        predict_by: Way = "sequence",
        inference: dict[str, Any] = {},  # noqa: B006  (never changed; Lightning reads the default)
        tempered: bool = False,
    ) -> None:
        self.boltzmann, self.memory = Boltzmann(**boltzmann), memory
        play_by = Practice(**practice)
        if horizon % play_by.steps or play_by.steps % play_by.window:
            raise InputError(
                f"games must end with a fragment and fragments with a window: horizon {horizon} must be a multiple of "
                f"practice.steps {play_by.steps}, and that of practice.window {play_by.window}"
            )
        self.before_lessons, self.lessons, self.warm_up = iterations, lessons, warm_up
        super().__init__(
            worlds, humans, named, iterations + lessons, games, horizon, shaped, practice, taught, tempered
        )
        self.save_hyperparameters()
        self.predict_by, self.inference = predict_by, inference
        self._people: dict[str, Tensor] = {}
        self._remembered: dict[str, Tensor] = {}

    def begin(self, seed: int) -> None:
        """Has new networks in all kitchens, and nobody who plays yet."""
        super().begin(seed)
        self._people.clear()
        self._remembered.clear()

    def player(self) -> Population:
        """The networks of a kitchen."""
        return Population(self.boltzmann, self.memory)

    def optimizers_of(self, players: list[nn.Module]) -> list[torch.optim.Optimizer]:
        """An Adam each for distributions, for what they reveal, and for forecasters."""
        rate = self.practice.learning_rate
        parts = [[getattr(player, part) for player in players] for part in ("distribution", "revelation", "forecaster")]
        return [torch.optim.Adam(nn.ModuleList(part).parameters(), rate) for part in parts]

    def practise_once(
        self, layout: Layout, optimizers: list[torch.optim.Optimizer], practice: Practice, generator: torch.Generator
    ) -> dict[str, float]:
        """Trains the distribution once, or, when that is done, the forecaster."""
        name = layout.name
        population, games = self.population(name), self.games(layout)
        distribution = population.distribution
        if name not in self._people:
            rows = 2 * self.num_games
            self._people[name] = distribution.draw(rows, generator)
            self._remembered[name] = torch.zeros(rows, self.memory, device=self.device)
        people = self._people[name]
        number = int(self.practised[name])
        if number < self.before_lessons:
            late = self.progress(number) / self.warm_up - 1 if self.warm_up else 1.0
            share = min(max(late, 0.0), 1.0)
            return iterate(distribution, population.revelation, optimizers, games, people, practice, generator, share)
        played = play(
            games, distribution, practice.steps, generator, people, lambda over: distribution.draw(len(over), generator)
        )
        self._remembered[name], loss = watch(
            population.forecaster,
            optimizers[2],
            played.observations,
            played.actions,
            played.ends,
            self._remembered[name],
        )
        return {"forecast": loss}

    def who_plays(self, layout: str, count: int, generator: torch.Generator) -> tuple[Player, Tensor | None]:
        """People drawn from the distribution."""
        distribution = self.population(layout).distribution
        return distribution, distribution.draw(count, generator)

    def progress(self, iterations: int) -> float:
        """The share that is done of what is trained now."""
        if iterations < self.before_lessons:
            return iterations / self.before_lessons
        return (iterations - self.before_lessons) / self.lessons

    def population(self, layout: str) -> Population:
        """The networks of a kitchen."""
        found = self.players[self.layout(layout).name]
        assert isinstance(found, Population)
        return found

    def as_it_plays(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, given the earlier ones of the same rollout in the batch, `[N, 6]`."""
        order = sequences(batch)
        real = order >= 0
        rows = order.clamp(min=0)
        seen, actions = self.seen(batch)[rows], batch.actions[rows]
        if self.predict_by == "sequence":
            log_probs, _ = self.population(batch.layout).forecaster(seen, actions)
        else:
            with torch.inference_mode(False):  # in which Lightning validates, and nothing can be learned
                log_probs = infer(self.belief(batch.layout, seen.shape[1]), seen.clone(), actions.clone(), real)
        found: Tensor = log_probs.new_empty((len(batch.actions), NUM_ACTIONS))
        found[order[real]] = log_probs[real]
        return found

    def seen(self, batch: Decisions) -> Tensor:
        """What those who decide see, `[N, F]`."""
        return encode_features(self.layout(batch.layout), batch.states, batch.seats)

    def belief(self, layout: str, people: int) -> Belief:
        """What is known of so many people before they play."""
        generator = torch.Generator(self.device).manual_seed(0)
        return Belief(self.population(layout).distribution, people, generator, **self.inference)


class Reminded:
    """BPD that remembers what people did in the same game: in the training part, and when it was asked about them.

    Games are asked about in the order of time, in as many batches as one likes; who asks about a time again takes back
    all that came after.
    """

    def __init__(self, model: BPD, data: KitchenPeople) -> None:
        self.model = model
        self._past: dict[str, Decisions] = {}
        for part in (data.steps("train"), data.steps("validation")):
            for layout, steps in part.items():
                self._past[layout] = self._past[layout].joined(steps) if layout in self._past else steps

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        past = self._past.get(batch.layout, batch.some(slice(0)))
        again = torch.isin(past.rollouts, batch.rollouts)
        first = batch.times.new_zeros(1 + int(torch.cat([past.rollouts, batch.rollouts]).max()))
        first.scatter_reduce_(0, batch.rollouts, batch.times, "amin", include_self=False)
        earlier = past.some(again & (past.times < first[past.rollouts]))
        joined = earlier.joined(batch)
        self._past[batch.layout] = past.some(~again).joined(joined)
        return self.model.action_log_probs(joined)[len(earlier.actions) :]


class Population(nn.Module):
    """The networks of a kitchen: the distribution, what a window of play reveals of a policy, and the forecaster."""

    def __init__(self, boltzmann: Boltzmann, memory: int) -> None:
        super().__init__()
        self.distribution = PolicyDistribution(NUM_FEATURES, NUM_ACTIONS, boltzmann, SOUP)
        self.revelation = Revelation(NUM_FEATURES, NUM_ACTIONS, boltzmann)
        self.forecaster = Forecaster(NUM_FEATURES, NUM_ACTIONS, memory)


def sequences(batch: Decisions) -> Tensor:
    """`[T, R]`: the decisions of a batch by rollout and time, -1 where a rollout is over.

    Decisions that say nothing of when they were made are told apart: each is a rollout by itself.
    """
    order = torch.argsort(batch.times, stable=True)
    order = order[torch.argsort(batch.rollouts[order], stable=True)]
    rollouts, times = batch.rollouts[order], batch.times[order]
    same = rollouts[1:] == rollouts[:-1]
    if bool((same & (times[1:] == times[:-1])).any()):
        return torch.arange(len(order), device=order.device)[None]
    number = torch.cat([same.new_zeros(1, dtype=torch.int64), (~same).cumsum(0)])
    first = torch.cat([same.new_ones(1), ~same]).nonzero()[:, 0]
    place = torch.arange(len(order), device=order.device) - first[number]
    found = order.new_full((int(place.max()) + 1, int(number[-1]) + 1), -1)
    found[place, number] = order
    return found
