"""How a model does with other settings, on data that never tests it; each trial becomes a row of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bsdr_torch.contenders import LONG_HISTORY, Contender, Predicts
from bsdr_torch.data.kitchen_people import KitchenPeople
from bsdr_torch.data.splits import Part, Protocol
from bsdr_torch.errors import InputError
from bsdr_torch.evaluation import score
from bsdr_torch.kitchens.predicting import KitchenPredictor

_MEASURES = ("ce", "ce_stay", "ce_moves")


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
        model = contender.fit(parts[0], seed, **settings)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise InputError(f"{name}: {error}") from None
    for data, scored_on in zip(parts, without or [part], strict=True):
        if isinstance(model, KitchenPredictor):
            model.layouts |= {layout: games.layout for layout, games in data.kitchens.items()}
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
    """Adds a line of JSON to a file, which is made if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(row) + "\n")


def _losses(model: Predicts, data: KitchenPeople, part: Part, kitchens: list[str]) -> dict[str, float]:
    found = score(model, data, part, kitchens).compute()
    return {measure: round(float(found[measure]), 4) for measure in _MEASURES}
