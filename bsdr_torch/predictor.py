"""From a checkpoint to predictions: what will this person do next, and where are they unreliable?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import pyarrow as pa
import torch
from torch import Tensor

from bsdr_torch.data.grid_people import StepBatch
from bsdr_torch.data.rollouts import Rollouts, check_rollouts, read_rollouts
from bsdr_torch.errors import InputError
from bsdr_torch.human_model import HumanModel
from bsdr_torch.rationality import POPULATION
from bsdr_torch.saved_models import read_model
from bsdr_torch.worlds.gridworld import ACTIONS, GridWorld


class PredictedFile(NamedTuple):
    """Predictions for a file of games.

    Attributes:
        decisions: how many there are.
        tables: a row for each, in the order of the file, some at a time, made as they are asked for.
    """

    decisions: int
    tables: Iterator[pa.Table]


class Predictor(ABC):
    """Predictions of a trained model.

    People are named by their ids; None stands for somebody the model never saw, who gets the population's mean.
    """

    @classmethod
    def from_checkpoint(cls, path: str | Path, device: torch.device | str = "cpu") -> Self:
        """The predictor for the model in a checkpoint: `PredictorInGridWorlds` or `PredictorInKitchens`.

        Needs nothing but the file, and runs no code from it. The model of kitchens works on the `device`; what goes in
        and comes out is on the CPU.
        """
        # Here, because it builds on this class.
        from bsdr_torch.kitchens.predicting import KitchenPredictor
        from bsdr_torch.kitchens.predictor_in_kitchens import PredictorInKitchens

        model = read_model(path)
        predictor: Predictor
        if isinstance(model, HumanModel):
            predictor = PredictorInGridWorlds(model)
        elif isinstance(model, KitchenPredictor):
            predictor = PredictorInKitchens(model.to(device))
        if not isinstance(predictor, cls):
            raise InputError(f"{path}: a checkpoint for {type(predictor).__name__}, not for {cls.__name__}")
        return predictor

    @property
    @abstractmethod
    def humans(self) -> list[str]:
        """The people the model was trained on."""

    @abstractmethod
    def predict_file(self, path: str | Path, anew: bool = False) -> PredictedFile:
        """Predictions for all decisions in a file of games.

        Args:
            path: the file.
            anew: plan anew in each of its worlds from the reward, also in worlds that are new to the model.
        """

    def _index(self, humans: Sequence[str | None], numbers: Mapping[str, int]) -> Tensor:
        """`[N]`: the people by number, `POPULATION` for None."""
        unknown = sorted({h for h in humans if h is not None and h not in numbers})
        if unknown:
            known = ", ".join(self.humans[:5]) + (", ..." if len(self.humans) > 5 else "")
            raise InputError(
                f"the model does not know the human {unknown[0]!r}; use None for somebody it never saw. "
                f"It knows {known or 'nobody'}"
            )
        return torch.tensor([POPULATION if h is None else numbers[h] for h in humans], dtype=torch.int64)


class PredictorInGridWorlds(Predictor):
    """Predictions of a trained `HumanModel`.

    Example::

        predictor = Predictor.from_checkpoint("lightning_logs/gridworld/version_0/checkpoints/last.ckpt")
        predictor.action_probabilities("meadow", states=[12, 40], humans=["human 3", None], steps=[0, 5])
    """

    def __init__(self, model: HumanModel) -> None:
        self.model = model.eval()
        self._numbers = {human: i for i, human in enumerate(model.humans)}

    @property
    def humans(self) -> list[str]:
        """The people the model was trained on."""
        return list(self.model.humans)

    @torch.no_grad()
    def action_probabilities(
        self, world: str, states: Sequence[int], humans: Sequence[str | None], steps: Sequence[int]
    ) -> Tensor:
        """P(action) `[N, A]` of each human in each state, `steps` actions after the start."""
        at, who = self._states(world, states), self._index(humans, self._numbers)
        when = torch.as_tensor(steps, dtype=torch.int64)
        horizon = self._world(world).horizon
        if when.shape != at.shape or who.shape != at.shape:
            raise InputError(f"got {len(at)} states, {len(who)} humans and {len(when)} steps: give one of each a row")
        if bool(((when < 0) | (when >= horizon)).any()):
            raise InputError(f"steps must be from 0 to {horizon - 1} in the world {world}, got {when.tolist()}")
        return self.model.action_log_probs(StepBatch(world, at, who, when)).exp()

    @torch.no_grad()
    def beta(self, world: str, states: Sequence[int], humans: Sequence[str | None]) -> Tensor:
        """beta_i(s) `[N]`: small where the person is unreliable."""
        at, who = self._states(world, states), self._index(humans, self._numbers)
        people, column = torch.unique(who, return_inverse=True)
        return self.model.beta(world, people)[at, column]

    @torch.no_grad()
    def cost(self, world: str, states: Sequence[int]) -> Tensor:
        """c(s) `[N]`, shared by all people."""
        at = self._states(world, states)
        return self.model.cost(world)[at]

    def predict_file(self, path: str | Path, anew: bool = False) -> PredictedFile:
        """Predictions for all decisions in a file of rollouts; see `table`. Here plans are always made anew."""
        rollouts, humans = read_rollouts(path)
        table = self.table(rollouts, humans, str(path))
        return PredictedFile(table.num_rows, iter([table]))

    def table(self, rollouts: Mapping[str, Rollouts], humans: Sequence[str], source: str = "rollouts") -> pa.Table:
        """One row for each decision: what was done, its probability, that of all actions, beta and cost."""
        parts = []
        for world, chunk in rollouts.items():
            grid = self._world(world)
            check_rollouts(chunk, grid.mdp, grid.horizon, f"{source}, world {world}")
            steps = chunk.steps()
            names = [humans[i] for i in steps.human.tolist()]
            known = [name if name in self._numbers else None for name in names]
            states = steps.state.tolist()
            probabilities = self.action_probabilities(world, states, known, steps.step.tolist())
            columns = {
                "world": pa.array([world] * len(names), pa.string()),
                "human": pa.array(names, pa.string()),
                "known_human": pa.array([name is not None for name in known], pa.bool_()),
                "rollout": steps.rollout.numpy(),
                "step": steps.step.numpy(),
                "state": steps.state.numpy(),
                "action": steps.action.numpy(),
                "probability": probabilities.gather(1, steps.action[:, None]).squeeze(1).numpy(),
                "beta": self.beta(world, states, known).numpy(),
                "cost": self.cost(world, states).numpy(),
            }
            columns |= {f"p_{action}": probabilities[:, a].numpy() for a, action in enumerate(ACTIONS)}
            parts.append(pa.table(columns))
        return pa.concat_tables(parts)

    def _world(self, world: str) -> GridWorld:
        if world not in self.model.worlds:
            raise InputError(f"the model does not know the world {world!r}; it knows {', '.join(self.model.worlds)}")
        return self.model.worlds[world]

    def _states(self, world: str, states: Sequence[int]) -> Tensor:
        at, size = torch.as_tensor(states, dtype=torch.int64), self._world(world).mdp.num_states
        if bool(((at < 0) | (at >= size)).any()):
            raise InputError(f"states of the world {world} run from 0 to {size - 1}, got {at.tolist()}")
        return at
