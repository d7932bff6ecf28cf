"""DataModules of people in GridWorlds: simulated, or read from a file of rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from bsdr_torch.data.rollouts import Rollouts, check_rollouts, read_rollouts
from bsdr_torch.errors import InputError
from bsdr_torch.mdp import TabularMDP
from bsdr_torch.objective import Evidence
from bsdr_torch.rationality import Link, LinkKind
from bsdr_torch.soft_bellman import Problem, sample, uniform_base
from bsdr_torch.worlds.gridworld import GridWorld


def grid_problem(mdp: TabularMDP, horizon: int, dtype: torch.dtype) -> Problem:
    """How people plan in a GridWorld: to its horizon, undiscounted, over a uniform base measure."""
    return Problem(horizon=horizon, log_base=uniform_base(mdp, dtype))


class Truth(NamedTuple):
    """The parameters of simulated people: `theta_R [F_R]`, `theta_beta [N, F_beta]` and the link of the latter."""

    theta_R: Tensor
    theta_beta: Tensor
    link: LinkKind = "identity"

    def cost(self, world: GridWorld) -> Tensor:
        """c(s), `[S]`."""
        return world.reward_features.double() @ self.theta_R.double()

    def beta(self, world: GridWorld) -> Tensor:
        """beta_i(s), `[S, N]`."""
        beta: Tensor = Link(self.link)(world.rationality_features.double() @ self.theta_beta.double().T)
        return beta

    def reward(self, world: GridWorld) -> Tensor:
        """r_i(s), `[S, N]`."""
        return -self.beta(world) * self.cost(world)[:, None]


def simulate(world: GridWorld, truth: Truth, rollouts: int, generator: torch.Generator) -> Rollouts:
    """`rollouts` of each of the people."""
    for name, theta, width in (
        ("theta_R", truth.theta_R, world.reward_features.shape[1]),
        ("theta_beta", truth.theta_beta, world.rationality_features.shape[1]),
    ):
        if theta.shape[-1] != width:
            raise InputError(f"{name} has {theta.shape[-1]} entries, but {world.name} has {width} features for it")
    humans = torch.arange(truth.theta_beta.shape[0]).repeat_interleave(rollouts)
    problem = grid_problem(world.mdp, world.horizon, torch.float64)
    sampled = sample(world.mdp, truth.reward(world), humans, generator, **problem)
    return Rollouts(humans, *sampled)


class StepBatch(NamedTuple):
    """Decisions in one world, all `[N]`: the state, who decides (`POPULATION` if never seen), and the time step."""

    world: str
    states: Tensor
    humans: Tensor
    steps: Tensor


class Parts(NamedTuple):
    """Rollouts in one world, divided."""

    train: Rollouts
    validation: Rollouts
    test: Rollouts


@dataclass
class Chunk:
    """Rollouts of some humans in one world, ready for the model.

    Attributes:
        world: the world's name.
        humans: `[B]`, who they are; the columns of rewards in this chunk.
        rollouts: with `rollouts.human` an index into `humans`.
        evidence: the same rollouts, as the likelihood wants them.
        num_chunks: how many chunks the data has.
        total_actions: how many decisions all chunks hold.
    """

    world: str
    humans: Tensor
    rollouts: Rollouts
    evidence: Evidence
    num_chunks: int
    total_actions: int

    def decisions(self) -> tuple[StepBatch, Tensor, Tensor]:
        """All decisions in the chunk, with the actions taken `[N]` and the rollouts they belong to `[N]`."""
        steps = self.rollouts.steps()
        batch = StepBatch(self.world, steps.state, self.humans[steps.human], steps.step)
        return batch, steps.action, steps.rollout

    def to(self, device: torch.device) -> Chunk:
        """The same chunk on another device; Lightning calls it."""
        if self.humans.device == device:
            return self
        return replace(
            self,
            humans=self.humans.to(device),
            rollouts=_moved(self.rollouts, device),
            evidence=_moved(self.evidence, device),
        )


class ChunkList(Dataset[Chunk]):
    """A list as a torch Dataset."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self.chunks = chunks

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, index: int) -> Chunk:
        return self.chunks[index]


class RolloutData(lightning.LightningDataModule):
    """Rollouts chunked by world and human.

    Args:
        worlds: the worlds.
        humans: the ids of all humans.
        parts: by name of the world; `human` is an index into `humans`.
        humans_per_chunk: how many humans one training step takes; 0 for all at once.
        seed: of the order of chunks, drawn anew each epoch.
        truth: the parameters of simulated people, to compare with.
    """

    def __init__(
        self,
        worlds: Sequence[GridWorld],
        humans: Sequence[str],
        parts: Mapping[str, Parts],
        humans_per_chunk: int = 0,
        seed: int = 0,
        truth: Truth | None = None,
    ) -> None:
        super().__init__()
        if humans_per_chunk < 0:
            raise InputError(f"humans_per_chunk must be 0 (all at once) or more, got {humans_per_chunk}")
        self.worlds = {world.name: world for world in worlds}
        self.humans, self.parts, self.truth = list(humans), dict(parts), truth
        self._humans_per_chunk, self._seed = humans_per_chunk, seed

    @property
    def specs(self) -> list[dict[str, Any]]:
        """The worlds as plain data, which a model's checkpoint carries."""
        return [world.spec for world in self.worlds.values()]

    def train_dataloader(self) -> DataLoader[Chunk]:
        """One chunk a batch, in an order that depends on the seed and the epoch, shared out under ddp."""
        chunks = self.chunks("train", self._humans_per_chunk)
        processes, rank = (1, 0) if self.trainer is None else (self.trainer.world_size, self.trainer.global_rank)
        return DataLoader(chunks, batch_size=None, sampler=_LateSampler(chunks, processes, rank, seed=self._seed))

    def val_dataloader(self) -> DataLoader[Chunk]:
        """The validation rollouts, one world a batch."""
        return DataLoader(self.chunks("validation"), batch_size=None)

    def test_dataloader(self) -> DataLoader[Chunk]:
        """The test rollouts, one world a batch."""
        return DataLoader(self.chunks("test"), batch_size=None)

    def chunks(self, part: str, humans_per_chunk: int = 0) -> ChunkList:
        """The rollouts of one of the `Parts`, by world, and by `humans_per_chunk` humans (0 for all at once)."""
        chunks = []
        for name, parts in self.parts.items():
            world, rollouts = self.worlds[name], getattr(parts, part)
            for humans in torch.unique(rollouts.human).split(humans_per_chunk or max(len(self.humans), 1)):
                chosen = rollouts.select(torch.isin(rollouts.human, humans))
                chosen.human = torch.searchsorted(humans, chosen.human)
                evidence = Evidence.of(chosen, world.mdp, len(humans), world.horizon)
                chunks.append(Chunk(name, humans, chosen, evidence, 0, 0))
        total = sum(chunk.evidence.num_actions for chunk in chunks)
        return ChunkList([replace(chunk, num_chunks=len(chunks), total_actions=total) for chunk in chunks])


class SimulatedPeople(RolloutData):
    """People with known parameters who act by the BSDR model.

    Args:
        worlds: names in envs/gridworld, or paths of .yaml files. Their features must be the same.
        humans: how many people.
        rollouts: of each person in each world, for training.
        held_out: of each person in each world, for validation, and as many again for the test.
        theta_R: weights of the cost; drawn uniformly from [0, 1] if not given.
        theta_beta: one row of weights for each person; drawn if not given, log-normal around
            `beta_median` with standard deviation `beta_spread` of the logarithm.
        beta_median: see theta_beta.
        beta_spread: see theta_beta.
        humans_per_chunk: how many humans one training step takes; 0 for all at once.
        seed: of parameters, rollouts and order.
    """

    def __init__(
        self,
        worlds: list[str],
        humans: int = 20,
        rollouts: int = 8,
        held_out: int = 4,
        theta_R: list[float] | None = None,
        theta_beta: list[list[float]] | None = None,
        beta_median: float = 2.0,
        beta_spread: float = 1.0,
        humans_per_chunk: int = 0,
        seed: int = 0,
    ) -> None:
        loaded = [GridWorld.load(name) for name in worlds]
        _check_worlds(loaded)
        if humans < 1 or rollouts < 1 or held_out < 1:
            raise InputError(f"humans, rollouts and held_out must be 1 or more, got {humans}, {rollouts}, {held_out}")
        generator = torch.Generator().manual_seed(seed)
        truth = Truth(
            _given("theta_R", theta_R, torch.rand(loaded[0].reward_features.shape[1], generator=generator)),
            _given(
                "theta_beta",
                theta_beta,
                beta_median
                * torch.exp(
                    beta_spread * torch.randn(humans, loaded[0].rationality_features.shape[1], generator=generator)
                ),
            ),
        )
        parts = {
            world.name: Parts(*(simulate(world, truth, n, generator) for n in (rollouts, held_out, held_out)))
            for world in loaded
        }
        super().__init__(loaded, [f"human {i}" for i in range(humans)], parts, humans_per_chunk, seed, truth)


class RecordedPeople(RolloutData):
    """Rollouts read from a file.

    Args:
        path: a .parquet or .csv file with columns world, human, rollout, step, state, action.
        worlds: names in envs/gridworld, or paths of .yaml files, for the worlds in the file.
        validation: share of each human's rollouts in a world, the last but the test ones.
        test: share of each human's rollouts in a world, the last ones.
        humans_per_chunk: how many humans one training step takes; 0 for all at once.
        seed: of the order of chunks.
    """

    def __init__(
        self,
        path: str,
        worlds: list[str],
        validation: float = 0.2,
        test: float = 0.2,
        humans_per_chunk: int = 0,
        seed: int = 0,
    ) -> None:
        if not (validation >= 0 and test >= 0 and validation + test < 1):
            raise InputError(f"validation and test must be shares that leave something, got {validation} and {test}")
        loaded = [GridWorld.load(name) for name in worlds]
        _check_worlds(loaded)
        by_name = {world.name: world for world in loaded}
        rollouts, humans = read_rollouts(path)
        for name, chunk in rollouts.items():
            if name not in by_name:
                raise InputError(f"{path}: field world: {name!r} is not among the worlds given: {', '.join(by_name)}")
            check_rollouts(chunk, by_name[name].mdp, by_name[name].horizon, f"{path}, world {name}")
        parts = {name: _split(chunk, validation, test) for name, chunk in rollouts.items()}
        super().__init__(loaded, humans, parts, humans_per_chunk, seed)


class _LateSampler(DistributedSampler[int]):
    """Draws the order when the first chunk is asked for: a Trainer that resumes makes the iterator before it announces
    the epoch."""

    def __iter__(self) -> Iterator[int]:
        yield from super().__iter__()


def _moved(data: Any, device: torch.device) -> Any:
    """A dataclass with its tensors on another device."""
    values = {field.name: getattr(data, field.name) for field in fields(data)}
    return replace(data, **{name: v.to(device) for name, v in values.items() if isinstance(v, Tensor)})


def _split(rollouts: Rollouts, validation: float, test: float) -> Parts:
    """The last rollouts of each human to the test, those before to validation: at least one each of three or more."""
    order = torch.argsort(rollouts.human, stable=True)
    humans, count = torch.unique(rollouts.human, return_counts=True)
    number = torch.empty_like(order)  # of a rollout among those of its human
    number[order] = torch.cat([torch.arange(int(n)) for n in count])
    of = count[torch.searchsorted(humans, rollouts.human)]
    tested = _held_out(of, test)
    validated = _held_out(of, validation)
    is_test = number >= of - tested
    is_validation = ~is_test & (number >= of - tested - validated)
    return Parts(*(rollouts.select(rows) for rows in (~is_test & ~is_validation, is_validation, is_test)))


def _held_out(count: Tensor, share: float) -> Tensor:
    rounded = torch.round(count * share).long()
    return torch.where(count >= 3, rounded.clamp(min=1), 0) if share > 0 else torch.zeros_like(count)


def _check_worlds(worlds: list[GridWorld]) -> None:
    if not worlds:
        raise InputError("worlds: give the name of at least one world")
    for world in worlds[1:]:
        for name in ("reward_feature_names", "rationality_feature_names"):
            if getattr(world, name) != getattr(worlds[0], name):
                raise InputError(
                    f"worlds: {world.name} has the {name.removesuffix('_names')}s {getattr(world, name)}, "
                    f"but {worlds[0].name} has {getattr(worlds[0], name)}: one model needs the same ones"
                )


def _given(name: str, value: list[Any] | None, drawn: Tensor) -> Tensor:
    """The parameter that was given, if it has the shape of the drawn one, which it replaces."""
    if value is None:
        return drawn
    try:
        given = torch.tensor(value, dtype=torch.float32)
    except (ValueError, TypeError):
        raise InputError(f"{name} must be numbers of shape {tuple(drawn.shape)}, got {value}") from None
    if given.shape != drawn.shape:
        raise InputError(f"{name} must have shape {tuple(drawn.shape)}, got {tuple(given.shape)}")
    return given
