"""Rollouts of people in an enumerated world, and the files they are kept in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from bsdr_torch.data.arrow_files import read_columns, write_table
from bsdr_torch.errors import InputError
from bsdr_torch.mdp import TabularMDP

NO_ACTION = -1
COLUMNS = {"world": pa.string(), "human": pa.string(), "rollout": pa.int64(), "step": pa.int64()} | {
    "state": pa.int64(),
    "action": pa.int64(),
}


class Steps(NamedTuple):
    """Every action of some rollouts, one row each: all `[N]` int64; `rollout` is the row of `Rollouts`."""

    state: Tensor
    action: Tensor
    human: Tensor
    step: Tensor
    rollout: Tensor


@dataclass
class Rollouts:
    """Rollouts in one world.

    Attributes:
        human: `[R]` int64, who acted: an index into the list of humans that goes with the data.
        states: `[R, L+1]` int64, the states s_0 .. s_L, -1 after the end.
        actions: `[R, L]` int64, the action taken in each state, -1 after the end.
    """

    human: Tensor
    states: Tensor
    actions: Tensor

    def __len__(self) -> int:
        return self.human.shape[0]

    def select(self, rows: Tensor) -> Rollouts:
        """Some of the rollouts, by mask or index."""
        return Rollouts(self.human[rows], self.states[rows], self.actions[rows])

    def steps(self) -> Steps:
        """All actions, one row each."""
        rollout, step = (self.actions >= 0).nonzero(as_tuple=True)
        return Steps(self.states[rollout, step], self.actions[rollout, step], self.human[rollout], step, rollout)


def check_rollouts(rollouts: Rollouts, mdp: TabularMDP, horizon: int | None, source: str) -> None:
    """Refuses rollouts that could not have happened in the world; errors name `source`, rollout and step."""
    states, actions = rollouts.states, rollouts.actions
    ended = states < 0
    for name, table, limit in (("state", states, mdp.num_states), ("action", actions, mdp.num_actions)):
        wrong = (table < -1) | (table >= limit)
        if bool(wrong.any()):
            row, step = (int(i) for i in wrong.nonzero()[0])
            raise InputError(
                f"{source}: rollout {row}, step {step}: {name} is {int(table[row, step])}, "
                f"but {name}s run from 0 to {limit - 1}"
            )
    if horizon is not None and actions.shape[1] > horizon:
        late = (actions[:, horizon:] >= 0).any(1)
        if bool(late.any()):
            raise InputError(
                f"{source}: rollout {int(late.nonzero()[0])} has more than {horizon} actions, the horizon of the world"
            )
    places = (actions >= 0).nonzero()
    r, t = places.unbind(1)
    before, taken, after = states[r, t], actions[r, t], states[r, t + 1]
    if bool((ended[r, t] | ended[r, t + 1]).any()):
        bad = places[ended[r, t] | ended[r, t + 1]][0]
        raise InputError(f"{source}: rollout {int(bad[0])}, step {int(bad[1])}: an action without a state around it")
    if mdp.terminal is not None and bool(mdp.terminal[before].any()):
        bad = places[mdp.terminal[before]][0]
        raise InputError(f"{source}: rollout {int(bad[0])}, step {int(bad[1])}: an action after the world ended")
    if mdp.allowed is not None and not bool(mdp.allowed[before, taken].all()):
        bad = places[~mdp.allowed[before, taken]][0]
        raise InputError(f"{source}: rollout {int(bad[0])}, step {int(bad[1])}: an action that is not allowed there")
    outcome = mdp.next_state[before, taken].long() == after[:, None]  # [N, K]
    if mdp.probability is not None:
        column = taken if mdp.probability.shape[1] > 1 else torch.zeros_like(taken)
        outcome &= mdp.probability[before, column] > 0
    impossible = ~outcome.any(1)
    if bool(impossible.any()):
        n = int(impossible.nonzero()[0])
        raise InputError(
            f"{source}: rollout {int(r[n])}, step {int(t[n])}: action {int(taken[n])} in state {int(before[n])} "
            f"cannot lead to state {int(after[n])}"
        )


def write_rollouts(path: str | Path, rollouts: Mapping[str, Rollouts], humans: Sequence[str]) -> None:
    """Writes rollouts by world to .parquet or .csv, one row per state; the last state of a rollout has no action."""
    columns: dict[str, list[np.ndarray]] = {name: [] for name in COLUMNS}
    names = np.array(list(humans), dtype=object)
    for world, chunk in rollouts.items():
        rollout, step = (t.numpy() for t in (chunk.states >= 0).nonzero(as_tuple=True))
        actions = torch.nn.functional.pad(chunk.actions, (0, 1), value=NO_ACTION)
        columns["world"].append(np.full(len(rollout), world, dtype=object))
        columns["human"].append(names[chunk.human.numpy()][rollout])
        columns["rollout"].append(rollout)
        columns["step"].append(step)
        columns["state"].append(chunk.states.numpy()[rollout, step])
        columns["action"].append(actions.numpy()[rollout, step])
    table = pa.table({name: pa.array(np.concatenate(parts), COLUMNS[name]) for name, parts in columns.items()})
    write_table(table, path)


def read_rollouts(path: str | Path) -> tuple[dict[str, Rollouts], list[str]]:
    """The rollouts by world and the humans, in order of name, of a .parquet or .csv file."""
    table = read_columns(path, COLUMNS)
    if table.num_rows == 0:
        raise InputError(f"{path}: the file has no rows")
    worlds, human_names = (np.array(table[name].to_pylist(), dtype=object) for name in ("world", "human"))
    numbers = {name: table[name].to_numpy() for name in ("rollout", "step", "state", "action")}
    humans, human_of_row = np.unique(human_names.astype(str), return_inverse=True)
    found: dict[str, Rollouts] = {}
    for world in sorted(set(worlds.tolist())):
        rows = np.flatnonzero(worlds == world)
        found[world] = _one_world(path, rows, human_of_row, numbers)
    return found, humans.tolist()


def _one_world(
    path: str | Path, rows: np.ndarray, human_of_row: np.ndarray, numbers: dict[str, np.ndarray]
) -> Rollouts:
    """Gathers the rows of one world into rollouts; a rollout is a (human, rollout) pair."""
    rows = rows[np.lexsort((numbers["step"][rows], numbers["rollout"][rows], human_of_row[rows]))]
    human, rollout, step = human_of_row[rows], numbers["rollout"][rows], numbers["step"][rows]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (human[1:] != human[:-1]) | (rollout[1:] != rollout[:-1])
    expected = np.arange(len(rows)) - np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    if (step != expected).any():
        n = int(np.flatnonzero(step != expected)[0])
        raise InputError(
            f"{path}: row {rows[n] + 1}, field step: expected step {expected[n]} of rollout {rollout[n]}, "
            f"got {step[n]}; steps of a rollout count 0, 1, 2, ... with one row each"
        )
    last = np.append(first[1:], True)
    wrong = (numbers["action"][rows] == NO_ACTION) != last
    if wrong.any():
        n = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"{path}: row {rows[n] + 1}, field action: {numbers['action'][rows[n]]} on "
            f"{'the last' if last[n] else 'an inner'} row of a rollout; the last row is the state it ended in, and it "
            f"alone has the action {NO_ACTION}"
        )
    index = np.cumsum(first) - 1
    length = int(step.max())
    states = torch.full((int(index[-1]) + 1, length + 1), -1, dtype=torch.int64)
    actions = torch.full((int(index[-1]) + 1, length + 1), NO_ACTION, dtype=torch.int64)
    at = (torch.from_numpy(index), torch.from_numpy(step))
    states[at] = torch.from_numpy(numbers["state"][rows])
    actions[at] = torch.from_numpy(numbers["action"][rows])
    return Rollouts(torch.from_numpy(human[first]), states, actions[:, :length])
