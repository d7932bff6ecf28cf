"""The table of models as Markdown, JSON and a figure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from bsdr_torch.contenders import Contender
from bsdr_torch.data.arrow_files import write_files
from bsdr_torch.data.splits import Protocol
from bsdr_torch.errors import InputError
from bsdr_torch.evaluation import Results, standard_error
from bsdr_torch.metrics import MEASURES, SUMS, kitchen_measures, rollout_measures

ALL = "all"  # stands for the mean over kitchens where the name of one is expected

_ABOUT: dict[Protocol, str] = {
    "rollout": "the first two thirds of each game train, the last third tests: the same people",
    "human": "the official split: nobody who tests is known",
    "layout": "four kitchens train, the fifth tests; each kitchen is the fifth once",
}


def write_report(
    out: Path, results: Results, contenders: Mapping[str, Contender], against: str, command: str
) -> list[Path]:
    """Writes prediction.json, prediction.md and prediction.png into a folder, all of them or none."""
    paths = [out / f"prediction.{kind}" for kind in ("md", "json", "png")]
    text = markdown(results, contenders, against, command)
    content = json.dumps(records(results, contenders), indent=1) + "\n"
    drawing = figure(results)
    write_files(
        {
            paths[0]: lambda path: _write(path, text),
            paths[1]: lambda path: _write(path, content),
            paths[2]: partial(drawing.savefig, dpi=150),
        }
    )
    return paths


def records(results: Results, contenders: Mapping[str, Contender]) -> list[dict[str, Any]]:
    """One for each model, protocol, seed and kitchen, and for the mean over kitchens (`all`).

    What is infinite or was not measured is null: `ce_replanned` is for models that plan.
    """
    found = []
    for (model, protocol, seed), sums in results.sums.items():
        scores = _scores(results, sums)
        losses = rollout_measures(sums)["ce"]
        replanned = _replanned(results, [(model, protocol, seed)])
        tested = [name.removesuffix("/ce") for name in scores if name.endswith("/ce")]
        for layout in (*tested, ALL):
            prefix = "" if layout == ALL else f"{layout}/"
            inside = [layout in (ALL, key.layout) for key in results.rollouts]
            error = standard_error(losses.where(torch.tensor(inside), torch.nan), results.rollouts)
            found.append(
                {
                    "model": model,
                    "protocol": protocol,
                    "layout": layout,
                    "seed": seed,
                    "ce": _finite(scores[f"{prefix}ce"]),
                    "ce_replanned": _finite(replanned[f"{prefix}ce"]) if replanned else None,
                    **{name: _finite(scores[prefix + name]) for name in MEASURES if name != "ce"},
                    "se": _finite(error),
                    "history": contenders[model].history,
                    "identity": contenders[model].identity,
                    "fitted_on": contenders[model].fitted_on,
                }
            )
    return found


def markdown(results: Results, contenders: Mapping[str, Contender], against: str, command: str) -> str:
    """A table for each protocol, with differences against one of the models."""
    lines = [
        "# Predicting the next action of people in kitchens",
        "",
        f"Made by `{command}`.",
        "",
        "Cross-entropy (CE) in nats per step, averaged per game and player, then over those, then over kitchens; no "
        "floor on probabilities. *STAY* is the part of CE about acting at all, *moves* the CE of which action, among "
        "steps that are not STAY, *re-planned* the CE when values are thrown away and planned anew from the reward. "
        "± is one standard error by bootstrap over pairs of people; *seeds* is how many, and "
        f"the standard deviation of CE between them. *against* is CE less that of `{against}`, paired.",
    ]
    for protocol in dict.fromkeys(protocol for _, protocol, _ in results.sums):
        lines += ["", f"## `{protocol}`: {_ABOUT[protocol]}", "", *_table(results, contenders, protocol, against)]
    return "\n".join(lines) + "\n"


def figure(results: Results) -> Figure:
    """Cross-entropy of each model with its standard error, a panel for each protocol."""
    protocols = list(dict.fromkeys(protocol for _, protocol, _ in results.sums))
    models = list(dict.fromkeys(model for model, _, _ in results.sums))
    drawing = Figure(figsize=(3 + 3 * len(protocols), 1.5 + 0.25 * len(models)), layout="constrained")
    panels = drawing.subplots(1, len(protocols), sharex=True, sharey=True, squeeze=False)[0]
    for panel, protocol in zip(panels, protocols, strict=True):
        rows = _by_model(results, protocol)
        places = [models.index(model) for model in rows]
        heights = [float(_scores(results, _mean(seeds))["ce"]) for seeds in rows.values()]
        errors = [standard_error(_losses(seeds), results.rollouts) for seeds in rows.values()]
        panel.errorbar(heights, places, xerr=errors, fmt="o", markersize=4, capsize=2, label="as trained")
        again = {m: _replanned(results, [key for key in results.sums if key[:2] == (m, protocol)]) for m in rows}
        plans = [model for model, found in again.items() if found]
        if plans:
            heights = [float(again[model]["ce"]) for model in plans]
            panel.plot(heights, [models.index(m) for m in plans], "D", markersize=4, mfc="none", label="re-planned")
            panel.legend(fontsize=7)
        panel.set(title=f"protocol {protocol}", xlabel="cross-entropy (nats per step)")
        panel.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(models)), models)
    panels[0].invert_yaxis()
    drawing.suptitle("Predicting people's next action; bars: one standard error over pairs")
    return drawing


def check_against(against: str, models: Sequence[str]) -> None:
    """Refuses a row to compare with that the table does not have."""
    if against not in models:
        raise InputError(f"against: {against!r} is not in the table, which has {', '.join(models)}")


def _table(results: Results, contenders: Mapping[str, Contender], protocol: Protocol, against: str) -> list[str]:
    rows = _by_model(results, protocol)
    layouts = list(dict.fromkeys(key.layout for key in results.rollouts))
    heads = [
        "model",
        "history",
        "id",
        "fitted on",
        "CE",
        "against",
        "re-planned",
        "STAY",
        "moves",
        "accuracy",
        *layouts,
        "seeds",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for model, seeds in rows.items():
        contender, losses = contenders[model], _losses(seeds)
        scores = _scores(results, _mean(seeds))
        spread = torch.stack([_scores(results, sums)["ce"] for sums in seeds])
        again = _replanned(results, [key for key in results.sums if key[:2] == (model, protocol)])
        difference = "-"
        if against in rows and against != model:
            gap = losses - _losses(rows[against])
            value = float(scores["ce"] - _scores(results, _mean(rows[against]))["ce"])
            difference = f"{value:+.3f} ± {standard_error(gap, results.rollouts):.3f}"
        cells = [
            model,
            str(contender.history or "-"),
            "yes" if contender.identity else "-",
            contender.fitted_on,
            f"{float(scores['ce']):.3f} ± {standard_error(losses, results.rollouts):.3f}",
            difference,
            f"{float(again['ce']):.3f}" if again else "-",
            *(f"{float(scores[name]):.3f}" for name in ("ce_stay", "ce_moves", "accuracy")),
            *(f"{float(scores[f'{layout}/ce']):.3f}" if f"{layout}/ce" in scores else "-" for layout in layouts),
            f"{len(seeds)} ({float(spread.std()):.3f})" if len(seeds) > 1 else str(len(seeds)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _replanned(results: Results, keys: Sequence[tuple[str, Protocol, int]]) -> dict[str, Tensor]:
    """The measures of a model that planned anew, over seeds; only `ce` means anything. Nothing if it does not plan."""
    losses = torch.stack([results.replanned_loss[key] for key in keys]).mean(0)
    sums = _mean([results.sums[key] for key in keys]).clone()
    tested = sums[:, SUMS.index("steps")] > 0
    if bool(losses[tested].isnan().any()):
        return {}
    sums[:, SUMS.index("loss")] = torch.where(tested, losses, 0.0)
    return _scores(results, sums)


def _by_model(results: Results, protocol: Protocol) -> dict[str, list[Tensor]]:
    """The sums `[R, 6]` of each seed, by model."""
    rows: dict[str, list[Tensor]] = {}
    for (model, of, _), sums in results.sums.items():
        if of == protocol:
            rows.setdefault(model, []).append(sums)
    return rows


def _mean(seeds: list[Tensor]) -> Tensor:
    """The mean sums over seeds; as the steps are the same, all measures become their means over seeds."""
    return torch.stack(seeds).mean(0)


def _losses(seeds: list[Tensor]) -> Tensor:
    return rollout_measures(_mean(seeds))["ce"]


def _scores(results: Results, sums: Tensor) -> dict[str, Tensor]:
    return kitchen_measures(sums, [key.layout for key in results.rollouts])


def _finite(value: Tensor | float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _write(path: Path, text: str) -> None:
    path.write_text(text)
