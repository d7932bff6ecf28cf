"""The prepared format: one Parquet file per kitchen, one row per joint step, with where it all came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch

from bsdr_torch.data.arrow_files import read_columns, write_tables
from bsdr_torch.data.packed_games import PackedGames
from bsdr_torch.data.verification import OnBreak, Replay
from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import NUM_ACTIONS, Layout, check_states, state_dtype, width

SCHEMA_VERSION = 1

_METADATA_KEY = b"bsdr_torch"
_COLUMNS = {
    "game": pa.string(),
    "time": pa.int32(),
    "action_0": pa.uint8(),
    "action_1": pa.uint8(),
    "reward": pa.float32(),
    "soups": pa.uint8(),
    "agrees": pa.int8(),
    "player_0": pa.string(),
    "player_1": pa.string(),
    "is_human_0": pa.bool_(),
    "is_human_1": pa.bool_(),
    "official": pa.string(),
}


@dataclass(frozen=True)
class Provenance:
    """What a set was prepared from, and how: the same provenance means the same content.

    Attributes:
        source: the data set, such as `mturk_2019`.
        checksums: the sha256 of each file it was read from, by name.
        rules: the year of the rule set it was verified with.
        on_break: what was done with games that the simulator does not follow.
        layouts: all kitchens of the set, in the order of tables.
        schema: the version of the prepared format.
    """

    source: str
    checksums: dict[str, str]
    rules: int
    on_break: OnBreak
    layouts: list[str]
    schema: int = SCHEMA_VERSION


@dataclass(frozen=True, eq=False)
class PreparedSet:
    """A data set in memory: its games by kitchen, what replaying them found, and where they came from."""

    provenance: Provenance
    kitchens: dict[str, PackedGames]
    replays: dict[str, Replay]

    @property
    def humans(self) -> list[str]:
        """Everybody in the set, sorted."""
        return sorted({human for games in self.kitchens.values() for human in games.humans})


def write_prepared(folder: Path | str, prepared: PreparedSet) -> None:
    """Writes all files of a set; if that fails, those of an earlier set are left as they are."""
    folder = Path(folder)
    tables = {
        folder / f"{name}.parquet": _table(games, prepared.replays[name], prepared.provenance)
        for name, games in prepared.kitchens.items()
    }
    of_an_earlier_set = [path for path in folder.glob("*.parquet") if path not in tables]
    for path in of_an_earlier_set:
        _metadata(path)  # an error, before anything is touched, if it is somebody else's file
    write_tables(tables)
    for path in of_an_earlier_set:
        path.unlink()


def read_prepared(folder: Path | str) -> PreparedSet:
    """The set in a folder."""
    provenance = read_provenance(folder)
    kitchens, replays = {}, {}
    for name in provenance.layouts:
        kitchens[name], replays[name] = _read_kitchen(Path(folder) / f"{name}.parquet")
    return PreparedSet(provenance, kitchens, replays)


def read_provenance(folder: Path | str) -> Provenance:
    """Where the set in a folder came from; an error unless all its files are there and of one making."""
    folder = Path(folder)
    paths = sorted(folder.glob("*.parquet"))
    if not paths:
        raise InputError(f"{folder}: no prepared data there: run scripts/prepare_data.py first")
    first = Provenance(**_metadata(paths[0])["provenance"])
    for name in first.layouts:
        path = folder / f"{name}.parquet"
        if not path.is_file() or Provenance(**_metadata(path)["provenance"]) != first:
            raise InputError(
                f"{path}: missing, or not of one making with {paths[0].name}: run scripts/prepare_data.py again"
            )
    return first


def layout_to_json(layout: Layout) -> dict[str, Any]:
    """A kitchen as plain data."""
    return asdict(layout)


def layout_from_json(data: Mapping[str, Any]) -> Layout:
    """The kitchen that `layout_to_json` wrote."""
    return Layout(**{key: _tuples(value) for key, value in data.items()})


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _table(games: PackedGames, replay: Replay, provenance: Provenance) -> pa.Table:
    game = games.game.numpy()
    by_game = {
        "game": games.games,
        "player_0": [players[0] for players in games.players],
        "player_1": [players[1] for players in games.players],
        "is_human_0": [human[0] for human in games.is_human],
        "is_human_1": [human[1] for human in games.is_human],
        "official": games.official,
    }
    columns = {name: pa.array(values, _COLUMNS[name]).take(pa.array(game)) for name, values in by_game.items()}
    by_step = {
        "time": games.time,
        "action_0": games.actions[:, 0],
        "action_1": games.actions[:, 1],
        "reward": games.rewards,
        "soups": games.soups,
        "agrees": games.agrees,
    }
    columns |= {name: pa.array(values.numpy(), _COLUMNS[name]) for name, values in by_step.items()}
    states = games.states.numpy()
    columns["state"] = pa.FixedSizeListArray.from_arrays(pa.array(states.reshape(-1)), states.shape[1])
    metadata = {
        "provenance": asdict(provenance),
        "layout": layout_to_json(games.layout),
        "replay": replay.to_json(),
    }
    return pa.table(columns).replace_schema_metadata({_METADATA_KEY: json.dumps(metadata).encode()})


def _metadata(path: Path) -> dict[str, Any]:
    try:
        metadata = json.loads((pa.parquet.read_schema(path).metadata or {})[_METADATA_KEY])
        schema = metadata["provenance"]["schema"]
        if not {field.name for field in fields(Provenance)} == set(metadata["provenance"]):
            raise KeyError("provenance")
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        raise InputError(
            f"{path}: not a file that scripts/prepare_data.py wrote, or damaged: move it away and prepare again"
        ) from None
    if schema != SCHEMA_VERSION:
        raise InputError(
            f"{path}: prepared in version {schema} of the format, this is version {SCHEMA_VERSION}: "
            "run scripts/prepare_data.py again"
        )
    return metadata  # type: ignore[no-any-return]


def _read_kitchen(path: Path) -> tuple[PackedGames, Replay]:
    metadata = _metadata(path)
    try:
        layout, replay = layout_from_json(metadata["layout"]), Replay(**metadata["replay"])
    except (KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: its metadata are not as scripts/prepare_data.py wrote them: prepare again") from None
    value = pa.uint8() if state_dtype(layout) == torch.uint8 else pa.int16()
    table = read_columns(path, {**_COLUMNS, "state": pa.list_(value, width(layout))})
    columns = {name: table[name].to_numpy() for name in _COLUMNS}
    names, first, game = np.unique(columns["game"].astype(str), return_index=True, return_inverse=True)
    order = np.argsort(first)  # games in the order of the file, not of their names
    first, game = first[order], np.argsort(order)[game]
    later_in_game = np.diff(game) == 0
    if (np.diff(game) < 0).any() or (np.diff(columns["time"])[later_in_game] <= 0).any():
        raise InputError(f"{path}: fields game and time: the rows are not in order: prepare again")
    if columns["action_0"].max() >= NUM_ACTIONS or columns["action_1"].max() >= NUM_ACTIONS:
        raise InputError(f"{path}: fields action_0 and action_1: actions are 0 to {NUM_ACTIONS - 1}: prepare again")
    states = torch.from_numpy(table["state"].combine_chunks().flatten().to_numpy().reshape(-1, width(layout)).copy())
    try:
        check_states(layout, states)
    except InputError as error:
        raise InputError(f"{path}: field state: {error}") from None
    by_game = {name: columns[name][first].tolist() for name in _COLUMNS}
    tensors = {name: torch.from_numpy(columns[name].copy()) for name in ("time", "reward", "soups", "agrees")}
    return PackedGames(
        layout=layout,
        games=names[order].tolist(),
        players=list(zip(by_game["player_0"], by_game["player_1"], strict=True)),
        is_human=list(zip(by_game["is_human_0"], by_game["is_human_1"], strict=True)),
        official=by_game["official"],
        game=torch.from_numpy(game),
        time=tensors["time"],
        states=states,
        actions=torch.from_numpy(np.stack([columns["action_0"], columns["action_1"]], axis=1)),
        rewards=tensors["reward"],
        soups=tensors["soups"],
        agrees=tensors["agrees"],
    ), replay
