"""How a model does with other settings, on data that never tests it; each trial becomes a row of a file.

The same rows are shown as a table in a second file, beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bsdr_torch.contenders import LONG_HISTORY, Contender
from bsdr_torch.data.arrow_files import write_files
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.splits import PROTOCOLS, Part, Protocol
from bsdr_torch.errors import InputError
from bsdr_torch.evaluation import score
from bsdr_torch.kitchens.predicting import KitchenPredictor, Predicts
from bsdr_torch.kitchens.weighing import Weighed

_MEASURES = ("ce", "ce_stay", "ce_moves")
_FIELDS = {"model", "protocol", "changes", "seed", "scored_on", "ce", "ce_replanned"}


def trials(
    name: str,
    contender: Contender,
    protocol: Protocol,
    changes: dict[str, Any],
    without: Sequence[str] = (),
    seed: int = 0,
    folder: Path | str = "datasets/mturk_2019",
) -> Iterator[dict[str, Any]]:
    """Fits a model with changed settings and scores it, as rows of `append`.

    Under `rollout` and `human` it is scored on the validation part. Under `layout` that would say nothing of a new
    kitchen: it is trained without two kitchens and scored in each of them, which tells what to choose where the other
    one tests. Models that learn by playing have no such trials.

    Args:
        name: of the contender.
        contender: which is fitted.
        protocol: how training and test differ.
        changes: settings other than the contender's own; `max_epochs` is one of them.
        without: the two kitchens left out, under `layout`.
        seed: of training.
        folder: of the prepared games.
    """
    if protocol not in contender.protocols or not contender.seeded:
        raise InputError(f"{name} has nothing to tune under {protocol}")
    if len(set(without)) != (2 if protocol == "layout" else 0):
        raise InputError(f"without: two different kitchens under layout, none otherwise; got {list(without)}")
    under = contender.settings.get("under")  # of models that are trained on people
    if protocol == "layout" and not under:
        raise InputError(f"{name} learns in each kitchen by itself: there is nothing to tune under layout")
    settings = contender.settings | ({"under": {protocol: under[protocol] | changes}} if under else changes)
    contender = replace(contender, settings=settings)

    def people(**options: Any) -> KitchenPeople:
        return KitchenPeople(str(folder), protocol=protocol, history=LONG_HISTORY, seed=seed, **options)

    if protocol == "layout":
        layouts = people(held_out=without[0]).provenance.layouts
        others = [layout for layout in layouts if layout not in without]
        parts = [people(layouts=[*others, left_out], held_out=left_out) for left_out in without]
    else:
        parts = [people()]
    part: Part = "test" if protocol == "layout" else "validation"
    try:
        model = contender.fit(parts[0], seed, **contender.settings)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise InputError(f"{name}: {error}") from None
    for data, scored_on in zip(parts, without or [part], strict=True):
        trained = model.model if isinstance(model, Weighed) else model
        if isinstance(trained, KitchenPredictor):
            trained.layouts |= {layout: games.layout for layout, games in data.kitchens.items()}
        there = contender.kitchens(list(data.kitchens))
        replanned = contender.replan and _losses(contender.replan(model, data, seed), data, part, there)
        yield {
            "model": name,
            "protocol": protocol,
            "without": sorted(without),
            "scored_on": scored_on,
            "changes": changes,
            "seed": seed,
            **_losses(model, data, part, there),
            "ce_replanned": replanned and replanned["ce"],
        }


def append(path: Path, row: dict[str, Any]) -> None:
    """Adds a line of JSON to a file, which is made if it is missing, and shows all of them in a table beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(row) + "\n")
    write_files({path.with_suffix(".md"): partial(Path.write_text, data=overview(read(path)))})


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, if there is one."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else [], 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not (isinstance(row, dict) and set(row) >= _FIELDS):
            raise InputError(
                f"{path}: line {number} is not a trial with {', '.join(sorted(_FIELDS))}; give another --out"
            )
        rows.append(row)
    return rows


def overview(rows: Sequence[dict[str, Any]]) -> str:
    """All trials in a table, by model and protocol, the best first; under `layout`, the mean over the kitchens."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        changes = ", ".join(f"{name} {value}" for name, value in row["changes"].items()) or "as it is"
        groups.setdefault((row["model"], row["protocol"], changes, str(row["seed"])), []).append(row)
    lines = []
    for (model, protocol, changes, seed), found in groups.items():
        ce, replanned = (_mean([row[measure] for row in found]) for measure in ("ce", "ce_replanned"))
        scored_on = ", ".join(sorted({row["scored_on"].split("_")[0] for row in found}))
        lines.append((model, PROTOCOLS.index(protocol), scored_on, ce, [protocol, changes, seed, ce, replanned]))
    header = ["model", "protocol", "settings", "seed", "cross-entropy", "planned anew", "scored on"]
    cells = [[model, *row, scored_on] for model, _, scored_on, _, row in sorted(lines)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *cells])
    return f"""# Settings that were tried

Made by `scripts/tune.py MODEL NAME=VALUE ...`, with `--protocol` and, under `layout`, twice, `--without` two \
kitchens, each of which is predicted by a model that was trained in neither. Settings that are not named are those \
of the model's row in [prediction.md](prediction.md); some that are named are, too. The test part was never looked \
at; under `layout`, where kitchens are the test, see [models.md](../models.md#tuning). Nats per step, the mean over \
kitchens; all trials, the best first.

{table}
"""


def _mean(values: Sequence[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    return f"{sum(numbers) / len(numbers):.3f}" if numbers else ""


def _losses(model: Predicts, data: KitchenPeople, part: Part, kitchens: list[str]) -> dict[str, float]:
    found = score(model, data, part, kitchens).compute()
    return {measure: round(float(found[measure]), 4) for measure in _MEASURES}
