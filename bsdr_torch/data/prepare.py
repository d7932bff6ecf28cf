"""From recorded games to prepared data: read, replay, write, and what to tell about it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from bsdr_torch.data.games import Game
from bsdr_torch.data.mturk import FILES_2019, LAYOUTS_2019, SOURCE_2019, read_mturk_2019, read_mturk_2020
from bsdr_torch.data.packed_games import kitchen
from bsdr_torch.data.prepared import (
    PreparedSet,
    Provenance,
    read_prepared,
    read_provenance,
    write_prepared,
)
from bsdr_torch.data.verification import OnBreak, verify
from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked import packaged_file

# Called at the start of each stage with its name, how many stages are done, and how many there are, once it is known.
Progress = Callable[[str, int, int | None], object]


def prepare(
    source: Path | str = SOURCE_2019,
    folder: Path | str = "datasets/mturk_2019",
    rules: Literal[2019, 2020] = 2020,
    on_break: OnBreak = "keep",
    progress: Progress = lambda stage, done, total: None,
) -> tuple[PreparedSet, bool]:
    """The prepared set in a folder, made there if it is not; and whether it had to be made.

    Args:
        source: `mturk_2019`, for the games inside the installed overcooked-ai, or a file in the 2020 schema.
        folder: where the prepared files are.
        rules: the year of the rules that the games of a file obey.
        on_break: what to do with games that the simulator does not follow.
        progress: told at the start of each stage.
    """
    progress("looking for prepared data", 0, None)
    found = _already_there(folder, source, rules, on_break)
    if found is not None:
        return found, False
    prepared = read_and_verify(source, rules, on_break, progress)
    progress("writing", 1 + len(prepared.kitchens), 2 + len(prepared.kitchens))
    write_prepared(folder, prepared)
    return prepared, True


def read_and_verify(
    source: Path | str,
    rules: Literal[2019, 2020] = 2020,
    on_break: OnBreak = "keep",
    progress: Progress = lambda stage, done, total: None,
) -> PreparedSet:
    """The games of a source, replayed, in memory; nothing is written."""
    progress("reading", 0, None)
    games = read_mturk_2019() if source == SOURCE_2019 else read_mturk_2020(source, rules)
    by_layout: dict[str, list[Game]] = {}
    for game in games:
        if any(game.is_human):
            by_layout.setdefault(game.layout, []).append(game)
    if not by_layout:
        raise InputError(f"{source}: nobody in it is human: player_0_is_human and player_1_is_human are never true")
    kitchens, replays = {}, {}
    for number, layout in enumerate(_in_order(by_layout), start=1):
        progress(f"replaying {layout}", number, 2 + len(by_layout))
        try:
            kitchens[layout], replays[layout] = verify(by_layout[layout], on_break)
        except InputError as error:
            raise InputError(f"{source}: {error}") from None
        if not len(kitchens[layout]):
            raise InputError(
                f"{source}: no game on {layout} follows the rules of {games[0].rules}, so that nothing is left of it: "
                "choose the other rules, or keep or cut games at the break"
            )
    provenance = Provenance(
        source=games[0].source,
        checksums=_checksums(source),
        rules=games[0].rules,
        on_break=on_break,
        layouts=list(kitchens),
    )
    return PreparedSet(provenance, kitchens, replays)


def _already_there(
    folder: Path | str, source: Path | str, rules: Literal[2019, 2020], on_break: OnBreak
) -> PreparedSet | None:
    """The set in the folder, if preparing again would make the same."""
    checksums = _checksums(source)
    try:
        there = read_provenance(folder)
        expected_rules = 2019 if source == SOURCE_2019 else rules
        if (there.checksums, there.rules, there.on_break) != (checksums, expected_rules, on_break):
            return None
        prepared = read_prepared(folder)
    except InputError:
        return None
    # A kitchen's file may have been edited since, which changes what states mean.
    if any(games.layout != kitchen(name, there.rules) for name, games in prepared.kitchens.items()):
        return None
    return prepared


def _checksums(source: Path | str) -> dict[str, str]:
    paths = [packaged_file(name) for name in FILES_2019.values()] if source == SOURCE_2019 else [Path(source)]
    found = {}
    for path in paths:
        try:
            with path.open("rb") as file:
                found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read ({error.strerror}): a source is {SOURCE_2019} or the path of a file"
            ) from None
    return found


def _in_order(layouts: dict[str, list[Game]]) -> list[str]:
    """The kitchens of 2019 in the order of every table, then others by name."""
    known = [layout for layout in LAYOUTS_2019 if layout in layouts]
    return known + sorted(set(layouts).difference(known))
