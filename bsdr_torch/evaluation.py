"""How well models predict people in kitchens: every model under every protocol, each result kept when it is there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import torch
from torch import Tensor
from tqdm import tqdm

from bsdr_torch.contenders import LONG_HISTORY, Contender
from bsdr_torch.data.arrow_files import read_columns, write_table
from bsdr_torch.data.decisions import Decisions, RolloutKey
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.prepared import read_provenance
from bsdr_torch.data.splits import PROTOCOLS, Part, Protocol
from bsdr_torch.errors import InputError
from bsdr_torch.kitchens.predicting import Predicts
from bsdr_torch.metrics import SUMS, KitchenScores

# Part of what all results are kept under; those of one contender also under its own version.
_VERSION = 4
_ROWS_AT_ONCE = 4096
_LOSS = SUMS.index("loss")
_COLUMNS = {"rollout": pa.int64(), **{name: pa.float64() for name in SUMS}, "replanned_loss": pa.float64()}


class Task(NamedTuple):
    """One fit and its test: a model under a protocol, with the kitchen that tests under `layout`."""

    model: str
    protocol: Protocol
    held_out: str | None
    seed: int


class Measured(NamedTuple):
    """What was measured of one model.

    Attributes:
        sums: `[R, 6]`: `SUMS` of each rollout, 0 for those that do not test.
        replanned_loss: `[R]`, the loss when it plans anew from its reward; NaN if it does not plan.
    """

    sums: Tensor
    replanned_loss: Tensor


class Results(NamedTuple):
    """What was measured.

    Attributes:
        rollouts: R of them: who played where.
        sums: by model, protocol and seed, `Measured.sums`.
        replanned_loss: the same, `Measured.replanned_loss`.
    """

    rollouts: list[RolloutKey]
    sums: dict[tuple[str, Protocol, int], Tensor]
    replanned_loss: dict[tuple[str, Protocol, int], Tensor]


def evaluate(
    contenders: Mapping[str, Contender],
    protocols: Sequence[Protocol] = PROTOCOLS,
    seeds: Iterable[int] = (0, 1, 2),
    folder: Path | str = "datasets/mturk_2019",
    cache: Path | str = "lightning_logs/evaluation",
    layouts: Sequence[str] | None = None,
    only_kept: bool = False,
) -> Results:
    """Fits and tests whatever is not in the cache, one task at a time; a run that was stopped goes on from there.

    Several processes may share a cache, each with models or protocols of its own.

    Args:
        contenders: the models, by name.
        protocols: `rollout`, `human`, `layout`; under `human` everybody who tests is presented as somebody never seen.
        seeds: of the models that chance is involved in; others are fitted once, as seed 0.
        folder: of the prepared games.
        cache: a folder; there is a file for each task, named after it and a digest of everything it depends on.
        layouts: the kitchens to use; all by default.
        only_kept: fit nothing, and leave out what the cache does not have in full.
    """
    cache = Path(cache)
    provenance = read_provenance(folder)
    used = list(provenance.layouts if layouts is None else layouts)
    names = tasks(contenders, protocols, seeds, used)
    paths = {task: cache / _file_name(task, contenders[task.model], provenance.checksums, used) for task in names}
    rollouts = KitchenPeople(str(folder), used, history=LONG_HISTORY).rollouts
    found = {task: _kept(path, len(rollouts)) for task, path in paths.items()}
    missing = [task for task, measured in found.items() if measured is None]
    if only_kept:
        incomplete = {(task.model, task.protocol, task.seed) for task in missing}
        names = [task for task in names if (task.model, task.protocol, task.seed) not in incomplete]
        missing = []
    bar = tqdm(sorted(missing, key=_data), unit="fit", disable=None)
    data_of: tuple[object, KitchenPeople] | None = None
    at_hand: dict[str, tuple[Any, Predicts | None]] = {}
    for task in bar:
        bar.set_description(" ".join(str(word) for word in task if word is not None))
        measured = _kept(paths[task], len(rollouts))  # another process may have been here since
        if measured is None:
            if data_of is None or data_of[0] != task[1:]:
                people = KitchenPeople(
                    str(folder), used, task.protocol, task.held_out, history=LONG_HISTORY, seed=task.seed
                )
                data_of, at_hand = (task[1:], people), {}
            models = _models(task.model, contenders, data_of[1], task.seed, at_hand)
            measured = _measure(*models, data_of[1], contenders[task.model].kitchens(used))
            _keep(paths[task], measured)
        found[task] = measured
    results = Results(rollouts, {}, {})
    for task in names:
        key, part = (task.model, task.protocol, task.seed), found[task]
        assert part is not None
        # Under `layout` each task tests another kitchen.
        for kept, of_task in ((results.sums, part.sums), (results.replanned_loss, part.replanned_loss)):
            kept[key] = kept[key] + of_task if key in kept else of_task
    return results


def tasks(
    contenders: Mapping[str, Contender], protocols: Sequence[Protocol], seeds: Iterable[int], layouts: Sequence[str]
) -> list[Task]:
    """All that there is to do, in the order of the table."""
    unknown = sorted(set(protocols).difference(PROTOCOLS))
    if unknown:
        raise InputError(f"protocols: {unknown[0]!r} is not one of {', '.join(PROTOCOLS)}")
    seeds = list(seeds)
    return [
        Task(model, protocol, held_out, seed)
        for protocol in protocols
        for model, contender in contenders.items()
        if protocol in contender.protocols and (kitchens := contender.kitchens(layouts))
        for seed in (seeds if contender.seeded else [0])
        for held_out in (kitchens if protocol == "layout" else [None])
    ]


@torch.no_grad()
def score(
    predictor: Predicts, data: KitchenPeople, part: Part = "test", kitchens: Sequence[str] | None = None
) -> KitchenScores:
    """The scores of a model on a part of the data, in all kitchens or in some."""
    scores = KitchenScores([rollout.layout for rollout in data.rollouts])
    for steps in data.steps(part).values():
        if kitchens is not None and steps.layout not in kitchens:
            continue
        for batch in steps.chunks(_ROWS_AT_ONCE):
            scores.update(predictor.action_log_probs(batch), batch.actions, batch.rollouts)
    return scores


def pairs(rollouts: Sequence[RolloutKey]) -> Tensor:
    """`[R]`: the number of the two people who played together, which is the unit that the bootstrap draws."""
    players: dict[str, set[str]] = {}
    for rollout in rollouts:
        players.setdefault(rollout.game, set()).add(rollout.human)
    numbers: dict[frozenset[str], int] = {}
    return torch.tensor([numbers.setdefault(frozenset(players[key.game]), len(numbers)) for key in rollouts])


def kitchen_mean(values: Tensor, rollouts: Sequence[RolloutKey]) -> float:
    """The mean over kitchens of the mean over rollouts of values `[R]`, NaN for rollouts that do not count."""
    names = [rollout.layout for rollout in rollouts]
    inside = (values[torch.tensor([name == layout for name in names])] for layout in dict.fromkeys(names))
    return float(torch.stack([found.nanmean() for found in inside]).nanmean())


def standard_error(values: Tensor, rollouts: Sequence[RolloutKey], draws: int = 2000, seed: int = 0) -> float:
    """How far the mean over kitchens of the mean over rollouts may be off, had other pairs played.

    The values `[R]` (NaN for rollouts that do not count) are those of a model, or the differences of two models, which
    makes the comparison paired. The bootstrap is Rubin's: pairs get random weights instead of random numbers of
    copies, so that a kitchen in which few pairs test is never empty.
    """
    counts = ~values.isnan()
    unit, names = pairs(rollouts), [rollout.layout for rollout in rollouts]
    generator = torch.Generator().manual_seed(seed)
    weights = torch.empty(draws, int(unit.max()) + 1, dtype=torch.float64).exponential_(generator=generator)[:, unit]
    means = []
    for layout in dict.fromkeys(names):
        inside = torch.tensor([name == layout for name in names]) & counts
        if inside.any():
            means.append((weights[:, inside] @ values[inside]) / weights[:, inside].sum(1))
    return float(torch.stack(means).mean(0).std())


def _models(
    name: str,
    contenders: Mapping[str, Contender],
    data: KitchenPeople,
    seed: int,
    at_hand: dict[str, tuple[Any, Predicts | None]],
) -> tuple[Any, Predicts | None]:
    """A model of the data, and the same planned anew, if it plans; what is fitted to the same data stays `at_hand`."""
    contender = contenders[name]
    if contender.made_of and contender.made_of[0] in contenders:
        of, use = contender.made_of
        model, again = _models(of, contenders, data, seed, at_hand)
        return use(model, data, seed), use(again, data, seed) if contender.replan and again is not None else None
    if name not in at_hand:
        model = contender.fit(data, seed, **contender.settings)
        again = contender.replan(model, data, seed) if contender.replan else None
        if any(other.made_of and other.made_of[0] == name for other in contenders.values()):
            for used_again in (model, again) if again is not None else (model,):
                _ask_once(used_again)
        at_hand[name] = model, again
    return at_hand[name]


def _ask_once(model: Predicts) -> None:
    """Makes a model that does not change any more keep what it says of decisions, which several rows ask it for."""
    ask = model.action_log_probs
    said: dict[tuple[str, bytes], Tensor] = {}

    def recall(batch: Decisions) -> Tensor:
        key = batch.layout, torch.stack([batch.rollouts, batch.times, batch.humans]).numpy(force=True).tobytes()
        if key not in said:
            said[key] = ask(batch)
        return said[key]

    model.action_log_probs = recall  # type: ignore[method-assign]  # for this one alone


def _measure(model: Predicts, again: Predicts | None, data: KitchenPeople, kitchens: Sequence[str]) -> Measured:
    sums = score(model, data, kitchens=kitchens).sums
    replanned = torch.full_like(sums[:, 0], torch.nan)
    if again is not None:
        replanned = score(again, data, kitchens=kitchens).sums[:, _LOSS]
    return Measured(sums, replanned)


def _data(task: Task) -> tuple[int, int, str]:
    """Tasks on the same data follow one another; a seed is done with before the next begins."""
    return task.seed, PROTOCOLS.index(task.protocol), task.held_out or ""


def _file_name(task: Task, contender: Contender, checksums: dict[str, str], layouts: Sequence[str]) -> str:
    fit = f"{contender.fit.__module__}.{contender.fit.__qualname__}"
    version = [_VERSION, contender.version] if contender.version else _VERSION
    settings = contender.settings
    if "under" in settings:  # what is only for other protocols makes no difference
        settings = settings | {"under": settings["under"].get(task.protocol)}
    configuration = [version, fit, settings, task[1:], checksums, list(layouts)]
    digest = hashlib.sha256(json.dumps(configuration, sort_keys=True).encode()).hexdigest()
    words = [str(word) for word in task if word is not None]
    return "-".join([*words, digest[:12]]) + ".parquet"


def _kept(path: Path, num_rollouts: int) -> Measured | None:
    """What a file of the cache holds; None if there is none or it cannot be used."""
    try:
        table = read_columns(path, _COLUMNS)
    except InputError:
        return None
    if table["rollout"].to_pylist() != list(range(num_rollouts)):
        return None
    columns = [torch.tensor(table[name].to_pylist(), dtype=torch.float64) for name in (*SUMS, "replanned_loss")]
    return Measured(torch.stack(columns[:-1], 1), columns[-1])


def _keep(path: Path, measured: Measured) -> None:
    columns = {"rollout": list(range(len(measured.sums))), **dict(zip(SUMS, measured.sums.T.tolist(), strict=True))}
    columns["replanned_loss"] = measured.replanned_loss.tolist()
    write_table(pa.table(columns, schema=pa.schema(_COLUMNS)), path)
