"""A recorded game, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# A kitchen as recorded: parsed, checked, with timers capped, in the schema of its file.
RecordedState = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Game:
    """Two players in one kitchen for T steps.

    Attributes:
        source: the data set, such as `mturk_2019`.
        rules: the rule set that the game obeyed.
        layout: the common name of the kitchen.
        game: the game's id, unique within its source.
        players: an id for each seat; the same id in another game of the source is the same person.
        is_human: which seats people played in.
        states: T recorded states; steps that were recorded alike share one object.
        next_states: T states that followed, None where the record does not say.
        actions: `[T, 2]` int8, indices into the simulator's `ACTIONS`.
        rewards: `[T]` float32, 20 for a delivered soup under the rules of 2019.
        time: `[T]` int32, the recorded time step, strictly increasing.
        split: the official split of the data set, where it has one.
    """

    source: str
    rules: Literal[2019, 2020]
    layout: str
    game: str
    players: tuple[str, str]
    is_human: tuple[bool, bool]
    states: list[RecordedState]
    next_states: list[RecordedState | None]
    actions: NDArray[np.int8]
    rewards: NDArray[np.float32]
    time: NDArray[np.int32]
    split: Literal["train", "test"] | None = None

    @property
    def num_steps(self) -> int:
        """T."""
        return len(self.time)

    @property
    def num_decisions(self) -> int:
        """The number of recorded actions that a person chose."""
        return self.num_steps * sum(self.is_human)
