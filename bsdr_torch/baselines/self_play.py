"""Self-play: the policy that two copies of one player learn by themselves, with soups served as their only reward.

It knows nothing of people. It predicts that a person plays as well as it does.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from filelock import FileLock
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from bsdr_torch.baselines.kitchen_games import KitchenGames
from bsdr_torch.baselines.ppo import Player, Practice, improve, play
from bsdr_torch.data.arrow_files import write_files
from bsdr_torch.data.decisions import Decisions
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.prepared import layout_to_json
from bsdr_torch.errors import InputError
from bsdr_torch.kitchens.networks import multilayer_perceptron
from bsdr_torch.kitchens.outlook import NUM_FEATURES
from bsdr_torch.kitchens.predicting import KitchenPredictor
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, Layout, encode_features

SOUP = 20.0  # what one earns; the critics count in soups
_TIMID = 0.01  # the size of the last layer at first, so that all actions are tried
_TEMPERATURES = torch.linspace(-2, 4, 61).exp()


class SelfTaught(KitchenPredictor):
    """A model that learns by playing, a player for each kitchen. Batches of people only say which kitchen is next.

    What is learned depends on the kitchen, the settings and the seed (torch's own, in a training by Lightning), and on
    no recorded game: so one player serves all protocols.

    Args:
        worlds: the kitchens as plain data (`KitchenPeople.specs`); the checkpoint carries them.
        humans: the ids of all people.
        named: as for all models; it makes no difference here.
        iterations: for how many fragments of play each player practises; then they are done.
        games: how many are played at once.
        horizon: steps of a game.
        shaped: the share of the iterations in which the rewards on the way to a soup fade away.
        practice: how to learn, see `Practice`.
        taught: a folder in which players who are done are kept, and where `teach` looks for them. None for nowhere.
        tempered: predict people by P(a)^(1/T), with one T for all kitchens, fitted to the training part.
    """

    after_practice: ClassVar[tuple[str, ...]] = ("tempered",)  # what makes no difference to what is learned

    def __init__(
        self,
        worlds: list[dict[str, Any]],
        humans: list[str],
        named: list[str],
        iterations: int,
        games: int,
        horizon: int,
        shaped: float,
        practice: dict[str, Any],
        taught: str | None,
        tempered: bool,
    ) -> None:
        super().__init__(worlds, humans, named)
        self.iterations, self.num_games, self.horizon, self.shaped = iterations, games, horizon, shaped
        self.practice = Practice(**practice)
        self.players = nn.ModuleDict({name: self.player() for name in self.layouts})
        self.practised = nn.ParameterDict(
            {name: nn.Parameter(torch.zeros((), dtype=torch.int64), requires_grad=False) for name in self.layouts}
        )
        self.automatic_optimization = False
        self.taught, self.tempered, self.seed = taught, tempered, 0
        self.register_buffer("temperature", torch.ones(()))
        self.temperature: Tensor
        self._resumed = False
        self._games: dict[str, KitchenGames] = {}
        self._generators: dict[str, torch.Generator] = {}

    @abstractmethod
    def player(self) -> nn.Module:
        """A new player for a kitchen."""

    @abstractmethod
    def practise_once(
        self, layout: Layout, optimizers: list[torch.optim.Optimizer], practice: Practice, generator: torch.Generator
    ) -> dict[str, float]:
        """Plays and learns for one iteration; returns what happened, by name."""

    @abstractmethod
    def who_plays(self, layout: str, count: int, generator: torch.Generator) -> tuple[Player, Tensor | None]:
        """Who plays in a kitchen, and what each of so many is given, `[count, D]`."""

    @abstractmethod
    def as_it_plays(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, up to a constant, if people were like the players, `[N, 6]`."""

    def action_log_probs(self, batch: Decisions) -> Tensor:
        """log P(action) at each decision, `[N, 6]`."""
        return self.at_temperature(self.as_it_plays(batch))

    def at_temperature(self, logits: Tensor) -> Tensor:
        """log P(action), `[..., 6]`, at the temperature of people."""
        return (logits / self.temperature).log_softmax(-1)

    @torch.no_grad()
    def fit_temperature(self, data: KitchenPeople) -> None:
        """The T, of a grid, that predicts the training part best, all kitchens alike."""
        training = [steps.to(self.device) for layout, steps in data.steps("train").items() if layout in self.layouts]
        if not training:
            raise InputError(f"a temperature needs people in one of the kitchens {', '.join(self.layouts)}")
        self.temperature = best_temperature(self.as_it_plays, training).to(self.device)

    def on_validation_epoch_start(self) -> None:
        """Fits the temperature to the players as they are now."""
        if self.tempered and not self.trainer.sanity_checking:
            self.fit_temperature(self.trainer.datamodule)  # type: ignore[attr-defined]  # checked by setup

    @torch.no_grad()
    def rewards(self, layout: str, count: int, generator: torch.Generator) -> Tensor:
        """What pairs earn in so many whole games, `[count]`."""
        games = KitchenGames(self.layout(layout), count, self.horizon, device=self.device)
        player, given = self.who_plays(layout, 2 * count, generator)
        play(games, player, self.horizon, generator, given)
        return games.finished()

    def begin(self, seed: int) -> None:
        """Has new players in all kitchens; those of a kitchen do not depend on which others there are."""
        self.seed = seed
        for name in self.layouts:
            with _seeded(seed):
                self.players[name] = self.player().to(self.device)
            self.practised[name].zero_()
        self._games.clear()
        self._generators.clear()

    def optimizers_of(self, players: list[nn.Module]) -> list[torch.optim.Optimizer]:
        """One Adam for all that the players are made of."""
        return [torch.optim.Adam([p for player in players for p in player.parameters()], self.practice.learning_rate)]

    def progress(self, iterations: int) -> float:
        """The share of the practice that is done after so many iterations."""
        return iterations / self.iterations

    def games(self, layout: Layout) -> KitchenGames:
        """The games of a kitchen that go on."""
        if layout.name not in self._games:
            started = KitchenGames(layout, self.num_games, self.horizon, self.practice.steps, self.device)
            self._games[layout.name] = started
        return self._games[layout.name]

    def done(self, layout: str) -> bool:
        """Whether the player of a kitchen has practised enough."""
        return int(self.practised[layout]) >= self.iterations

    def practise(self, layout: str, optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
        """One iteration in a kitchen, as late as it is; nothing if the player is done."""
        if self.done(layout):
            return {}
        if layout not in self._generators:
            self._generators[layout] = torch.Generator(self.device).manual_seed(self.seed)
        kitchen, done = self.layout(layout), self.progress(int(self.practised[layout]))
        games, practice = self.games(kitchen), self.practice.at(done)
        games.shaping = max(0.0, 1 - done / self.shaped) if self.shaped else 0.0
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = practice.learning_rate
        found = self.practise_once(kitchen, optimizers, practice, self._generators[layout])
        self.practised[layout].add_(1)
        finished = games.finished()
        if len(finished):
            found["reward"] = float(finished.mean())
        return found

    def training_step(self, batch: Decisions) -> None:
        """One iteration in the kitchen of the batch."""
        found = self.optimizers()
        optimizers: list[Any] = found if isinstance(found, list) else [found]
        for name, value in self.practise(batch.layout, optimizers).items():
            self.log(f"{name}/{batch.layout}", value, on_step=True, on_epoch=False)
        if all(map(self.done, self.layouts)):
            self.trainer.should_stop = True

    def setup(self, stage: str) -> None:
        """Begins, unless somebody has practised already; a checkpoint is read after this."""
        super().setup(stage)
        if stage == "fit" and not any(int(count) for count in self.practised.values()):
            self.begin(torch.initial_seed())

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Whoever goes on from here plays other games than without the interruption."""
        super().on_load_checkpoint(checkpoint)
        self._resumed = True

    def on_train_end(self) -> None:
        """Keeps the players who are done, if nothing but the settings and the seed made them."""
        for layout in self.layouts:
            if self.done(layout) and not self._resumed:
                self.keep(layout)

    def keep(self, layout: str) -> None:
        """Writes the player of a kitchen into the folder of those who are done, if there is one."""
        path, player = self.path_of(layout), self.players[layout]
        if path is not None:
            write_files({path: lambda temporary: torch.save(player.state_dict(), temporary)})

    def path_of(self, layout: str) -> Path | None:
        """Where the player of a kitchen is kept: by all that makes a difference to what is learned."""
        left_out = ("worlds", "humans", "named", "taught", *self.after_practice)
        # Lightning's command line adds names that begin with _.
        settings = {name: value for name, value in self.hparams.items() if name not in left_out and name[0] != "_"}
        content = json.dumps(
            [type(self).__name__, layout_to_json(self.layout(layout)), settings, self.seed], sort_keys=True
        )
        name = f"{layout}-{hashlib.sha256(content.encode()).hexdigest()[:16]}.pt"
        return None if self.taught is None else Path(self.taught) / name

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """For the players of all kitchens; those who do not play have no gradient and stay as they are."""
        return self.optimizers_of(list(self.players.values()))


class SelfPlay(SelfTaught):
    """The best joint policy of the true task, learned by PPO with the same network in both seats.

    Args:
        worlds: the kitchens as plain data (`KitchenPeople.specs`); the checkpoint carries them.
        humans: the ids of all people.
        named: as for all models; it makes no difference here.
        hidden: the widths of the hidden layers.
        iterations: for how many fragments of play each player practises.
        games: how many are played at once.
        horizon: steps of a game.
        shaped: the share of the iterations in which the rewards on the way to a soup fade away.
        practice: how to learn, see `Practice`.
        taught: a folder in which players who are done are kept, and where `teach` looks for them.
        tempered: predict people by pi(a|s)^(1/T), with one T for all kitchens, fitted to the training part.
    """

    def __init__(
        self,
        worlds: list[dict[str, Any]],
        humans: list[str],
        named: list[str],
        hidden: list[int] = [64, 64],  # noqa: B006  (never changed; Lightning reads the default)
        iterations: int = 400,
        games: int = 256,
        horizon: int = 400,
        shaped: float = 0.6,
        practice: dict[str, Any] = {"entropy": 0.02},  # noqa: B006  (never changed)
        taught: str | None = None,
        tempered: bool = False,
    ) -> None:
        self.hidden = hidden
        super().__init__(worlds, humans, named, iterations, games, horizon, shaped, practice, taught, tempered)
        self.save_hyperparameters()

    def player(self) -> Agent:
        """Two networks."""
        return Agent(self.hidden)

    def as_it_plays(self, batch: Decisions) -> Tensor:
        """What the player of the kitchen would do, `[N, 6]`."""
        seen = encode_features(self.layout(batch.layout), batch.states, batch.seats)
        return self._agent(batch.layout).logits(seen, seen[:, :0])

    def who_plays(self, layout: str, count: int, generator: torch.Generator) -> tuple[Player, Tensor | None]:
        """The same player in all seats."""
        return self._agent(layout), None

    def practise_once(
        self, layout: Layout, optimizers: list[torch.optim.Optimizer], practice: Practice, generator: torch.Generator
    ) -> dict[str, float]:
        """Plays and learns for one iteration."""
        agent = self._agent(layout.name)
        fragment = play(self.games(layout), agent, practice.steps, generator)
        return improve(agent, fragment, optimizers[0], practice, generator)

    def _agent(self, layout: str) -> Agent:
        found = self.players[layout]
        assert isinstance(found, Agent)
        return found


class Agent(nn.Module):
    """An actor, and a critic that also knows the time; see `Player`."""

    def __init__(self, hidden: list[int]) -> None:
        super().__init__()
        self.actor = multilayer_perceptron(NUM_FEATURES, hidden, NUM_ACTIONS, 0.0)
        self.critic = multilayer_perceptron(NUM_FEATURES + 1, hidden, 1, 0.0)
        with torch.no_grad():
            for parameter in self.actor[-1].parameters():
                parameter.mul_(_TIMID)

    def logits(self, observations: Tensor, latents: Tensor) -> Tensor:
        """Of each action, `[..., A]`."""
        found: Tensor = self.actor(observations)
        return found

    def values(self, observations: Tensor, latents: Tensor, clock: Tensor) -> Tensor:
        """What is still to be earned, `[...]`."""
        found: Tensor = self.critic(torch.cat([observations, clock[..., None]], -1))
        return found.squeeze(-1) * SOUP


def best_temperature(logits: Callable[[Decisions], Tensor], training: Sequence[Decisions]) -> Tensor:
    """The T, of a grid, with which P(a) ~ exp( logits / T ) predicts people best, all kitchens alike."""
    losses = torch.zeros(len(_TEMPERATURES), dtype=torch.float64)
    for steps in training:
        found = logits(steps)
        for number, temperature in enumerate(_TEMPERATURES.tolist()):
            losses[number] += float(nll_loss((found / temperature).log_softmax(1), steps.actions))
    return _TEMPERATURES[losses.argmin()]


Taught = TypeVar("Taught", bound=SelfTaught)


def teach(model: Taught, seed: int) -> Taught:
    """Practises in all kitchens until done; players who were taught before with the same settings come from the folder.

    Several processes may share the folder: they wait for one another's players.
    """
    model.begin(seed)
    for name in model.layouts:
        path = model.path_of(name)
        if path is None:
            _practise(model, name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if path.is_file():
                model.players[name].load_state_dict(torch.load(path, map_location=model.device, weights_only=True))
                model.practised[name].fill_(model.iterations)
            else:
                _practise(model, name)
                model.keep(name)
    return model.eval()


def _practise(model: SelfTaught, layout: str) -> None:
    optimizers = model.optimizers_of([model.players[layout]])
    while not model.done(layout):
        model.practise(layout, optimizers)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
