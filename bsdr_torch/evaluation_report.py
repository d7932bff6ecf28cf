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
from bsdr_torch.evaluation import Results, kitchen_mean, standard_error
from bsdr_torch.metrics import MEASURES, SUMS, kitchen_measures, rollout_measures
from bsdr_torch.worlds.overcooked import NUM_ACTIONS

ALL = "all"  # stands for the mean over kitchens where the name of one is expected

# What the README shows: the first of the rows that there is under a protocol. Who watches learns while people play.
_SUMMARY = {
    "action frequencies": ("frequencies",),
    "habit alone": ("habit-id", "habit"),
    "self-play, with a temperature": ("self-play-tempered",),
    "BPD, with a temperature, watching": ("bpd-inference-tempered",),
    "ILEED": ("ileed-tuned", "ileed-symmetric"),
    "ILEED, watching": ("ileed-tuned-online", "ileed-symmetric-online"),
    "cloning, 64-64, 8 own actions": ("cloning-64-history",),
    "cloning": ("cloning-tuned-id", "cloning-tuned"),
    "cloning, watching": ("cloning-tuned-online", "cloning-tuned-weighed"),
    "`br`": ("br",),
    "`br_per_human`": ("br_per_human",),
    "`irleed`": ("irleed",),
    "`bsdr` whose plans count alike in all states": ("bsdr-unfocused",),
    "`bsdr`": ("bsdr",),
    "`br` with arbitration": ("br-arbitrated",),
    "`bsdr` with arbitration": ("bsdr-arbitrated",),
    "`bsdr`, watching": ("bsdr-online", "bsdr-weighed"),
    "`bsdr` with arbitration, watching": ("bsdr-arbitrated-online", "bsdr-arbitrated-weighed"),
}

_FITS_THEM = """ The fits are in the cache; without `--kept` the same command makes those that are missing, in numbers \
of 16 bits where the processor multiplies in them and else in 32, which differ as seeds do."""

_FAR_OFF = 1.6  # nats, where the figure ends
_MOST_ROWS = 16  # of a figure that shows all models
_WATCHING = ("-online", "-weighed", "-weighed-evenly")  # the ends of the names of those who learn while people play

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
            paths[0]: partial(Path.write_text, data=text),
            paths[1]: partial(Path.write_text, data=content),
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
        f"Made by `{command}`." + _FITS_THEM * ("--kept" in command),
        "",
        "Cross-entropy (CE) in nats per step, averaged per game and player, then over those, then over kitchens; no "
        "floor on probabilities. *STAY* is the part of CE about acting at all, *moves* the CE of which action, among "
        "steps that are not STAY, *re-planned* the CE when values are thrown away and planned anew from the reward. "
        "± is one standard error by bootstrap over pairs of people; *seeds* is how many, and "
        f"the standard deviation of CE between them. *against* is CE less that of `{against}`, paired. *history* is "
        "how many own last actions a network sees; `-online`, `-weighed` and BPD also see all earlier steps of the "
        "game.",
    ]
    for protocol in dict.fromkeys(protocol for _, protocol, _ in results.sums):
        lines += ["", f"## `{protocol}`: {_ABOUT[protocol]}", "", *_table(results, contenders, protocol, against)]
        differences = _differences(results, contenders, protocol)
        if differences:
            lines += ["", "CE of planners less that of others, paired, by kitchen:", "", *differences]
    return "\n".join(lines) + "\n"


def summary(records: Sequence[Mapping[str, Any]]) -> str:
    """The small table of the README, from the records of prediction.json."""
    lines = ["| | " + " | ".join(f"`{protocol}`" for protocol in _ABOUT) + " |", "|---|" + "---|" * len(_ABOUT)]
    for label, names in _SUMMARY.items():
        cells = []
        for protocol in _ABOUT:
            here = [r for r in records if r["protocol"] == protocol]
            name = next((name for name in names if any(r["model"] == name for r in here)), None)
            own = [r for r in here if r["model"] == name]
            kitchens, most = (len({r["layout"] for r in rows} - {ALL}) for rows in (own, here))
            cell = _summary_cell([r for r in own if r["layout"] == ALL])
            cells.append(cell if kitchens in (0, most) else f"{cell} in {kitchens} of {most} kitchens")
        if any(cell != "-" for cell in cells):
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _summary_cell(seeds: Sequence[Mapping[str, Any]]) -> str:
    if not seeds:
        return "-"
    ce, error = (math.fsum(record[name] for record in seeds) / len(seeds) for name in ("ce", "se"))
    replanned = [record["ce_replanned"] for record in seeds]
    again = f", re-planned {math.fsum(replanned) / len(seeds):.3f}" if None not in replanned else ""
    return f"{ce:.3f} ± {error:.3f}{again}"


def figure(results: Results) -> Figure:
    """Cross-entropy with its standard error, a panel for each protocol: of all models, or of the README's if many."""
    protocols = list(dict.fromkeys(protocol for _, protocol, _ in results.sums))
    models = [model for model in dict.fromkeys(model for model, _, _ in results.sums) if model != "uniform"]
    rows: dict[str, tuple[str, ...]] = {model: (model,) for model in models or ["uniform"]}
    if len(models) > _MOST_ROWS:
        known = {label.replace("`", ""): names for label, names in _SUMMARY.items() if {*names} & {*models}}
        rows = known or rows
    drawing = Figure(figsize=(4 + 2.7 * len(protocols), 1.5 + 0.3 * len(rows)), layout="constrained")
    panels = drawing.subplots(1, len(protocols), sharex=True, sharey=True, squeeze=False)[0]
    kitchens, partly = {key.layout for key in results.rollouts}, set()
    for panel, protocol in zip(panels, protocols, strict=True):
        here = _by_model(results, protocol)
        shown = {
            label: next(name for name in names if name in here) for label, names in rows.items() if {*names} & {*here}
        }
        places = {label: list(rows).index(label) for label in shown}
        heights = {label: float(_scores(results, _mean(here[model]))["ce"]) for label, model in shown.items()}
        errors = [standard_error(_losses(here[model]), results.rollouts) for model in shown.values()]
        panel.errorbar(
            heights.values(), places.values(), xerr=errors, fmt="o", markersize=4, capsize=2, label="as trained"
        )
        partly |= {label for label, model in shown.items() if _tested(results, here[model][0]) != kitchens}
        again = {
            label: _replanned(results, [key for key in results.sums if key[:2] == (model, protocol)])
            for label, model in shown.items()
        }
        plans = [label for label, found in again.items() if found]
        if plans:
            anew = [float(again[label]["ce"]) for label in plans]
            panel.plot(anew, [places[label] for label in plans], "D", markersize=4, mfc="none", label="re-planned")
        for label, height in heights.items():
            beyond = height > _FAR_OFF
            text, where, align = (
                (f"{height:.2f} →", _FAR_OFF, "right") if beyond else (f"  {height:.3f}", height, "left")
            )
            offset = (0, 0) if beyond else (9, 0)
            panel.annotate(
                text, (where, places[label]), offset, textcoords="offset points", ha=align, va="center", fontsize=8
            )
        panel.set(title=f"protocol {protocol}", xlabel="cross-entropy (nats per step)")
        panel.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(rows)), [f"{label} *" if label in partly else label for label in rows])
    panels[0].invert_yaxis()
    found = [float(x) for panel in panels for line in panel.lines for x in line.get_xdata()]
    panels[0].set_xlim(min(found) - 0.05, min(max(found) + 0.15, _FAR_OFF))
    legend = {
        label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    drawing.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=len(legend), fontsize=8)
    note = "; *: not in all kitchens" if partly else ""
    chance = f"chance is {math.log(NUM_ACTIONS):.3f}"
    drawing.suptitle(f"Predicting people's next action; bars: one standard error over pairs; {chance}{note}")
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
            value, error = kitchen_mean(gap, results.rollouts), standard_error(gap, results.rollouts)
            difference = f"{value:+.3f} ± {error:.3f}"
        tested = _tested(results, seeds[0])
        mark = "" if len(tested) == len(layouts) else " \\*"
        cells = [
            model,
            str(contender.history or "-"),
            "yes" if contender.identity else "-",
            contender.fitted_on,
            f"{float(scores['ce']):.3f} ± {standard_error(losses, results.rollouts):.3f}{mark}",
            difference,
            f"{float(again['ce']):.3f}" if again else "-",
            *(f"{float(scores[name]):.3f}" for name in ("ce_stay", "ce_moves", "accuracy")),
            *(f"{float(scores[f'{layout}/ce']):.3f}" if layout in tested else "-" for layout in layouts),
            f"{len(seeds)} ({float(spread.std()):.3f})" if len(seeds) > 1 else str(len(seeds)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    if any(" \\* |" in line for line in lines):
        lines += ["", "\\* Not in all kitchens: *against* is in the same ones, other rows are not to be compared."]
    return lines


def _differences(results: Results, contenders: Mapping[str, Contender], protocol: Protocol) -> list[str]:
    """A table of how far planners are from the best cloning row and from one another, in each kitchen."""
    losses = {model: _losses(seeds) for model, seeds in _by_model(results, protocol).items()}
    watching = [model for model in losses if model.endswith(_WATCHING)]  # they know more: compare with one another
    plan = [model for model in losses if contenders[model].replan is not None]
    planners = [model for model in plan if model not in watching]
    if not planners:
        return []
    anew = {model: f"{model}, re-planned" for model in plan}
    level = {model: float(_scores(results, _mean(s))["ce"]) for model, s in _by_model(results, protocol).items()}
    cloning = [model for model in losses if model.startswith("cloning") and model not in watching]
    pairs: list[tuple[str, str]] = []
    if cloning:
        best = min(cloning, key=lambda model: level[model])
        pairs += [(model, best) for model in (*planners, *(anew[model] for model in planners))]
    ours = [model for model in watching if model.split("-")[0] in planners]
    uses = [name for model in ours for name in (model, anew.get(model)) if name is not None]
    pairs += [(name, other) for name in uses for other in watching if other not in ours]
    pairs += [(model, other) for place, model in enumerate(ours) for other in ours[:place]]
    simpler = [(model, other) for place, model in enumerate(planners) for other in planners[:place]]
    pairs += simpler + [(anew[model], anew[other]) for model, other in simpler]
    losses |= {anew[model]: _replanned_losses(results, model, protocol) for model in plan}
    kitchens = list(dict.fromkeys(key.layout for key in results.rollouts))
    lines = ["| model | less | all | " + " | ".join(kitchens) + " |", "|---|---|" + "---:|" * (len(kitchens) + 1)]
    for name, other in pairs:
        gap = losses[name] - losses[other]
        cells = []
        for kitchen in (None, *kitchens):
            inside = torch.tensor([kitchen in (None, key.layout) for key in results.rollouts])
            here = gap.where(inside, torch.nan)
            mean, error = kitchen_mean(here, results.rollouts), standard_error(here, results.rollouts)
            cells.append(f"{mean:+.4f} ± {error:.4f}")
        lines.append(f"| {name} | {other} | " + " | ".join(cells) + " |")
    return lines


def _replanned_losses(results: Results, model: str, protocol: Protocol) -> Tensor:
    """The re-planned cross-entropy of each rollout, over seeds, `[R]`; NaN for those that do not test."""
    keys = [key for key in results.sums if key[:2] == (model, protocol)]
    steps = _mean([results.sums[key] for key in keys])[:, SUMS.index("steps")]
    return torch.stack([results.replanned_loss[key] for key in keys]).mean(0) / steps


def _replanned(results: Results, keys: Sequence[tuple[str, Protocol, int]]) -> dict[str, Tensor]:
    """The measures of a model that planned anew, over seeds; only `ce` means anything. Nothing if it does not plan."""
    losses = torch.stack([results.replanned_loss[key] for key in keys]).mean(0)
    sums = _mean([results.sums[key] for key in keys]).clone()
    tested = sums[:, SUMS.index("steps")] > 0
    if bool(losses[tested].isnan().any()):
        return {}
    sums[:, SUMS.index("loss")] = torch.where(tested, losses, 0.0)
    return _scores(results, sums)


def _tested(results: Results, sums: Tensor) -> set[str]:
    """The kitchens that a model was tested in."""
    steps = sums[:, SUMS.index("steps")].tolist()
    return {key.layout for key, count in zip(results.rollouts, steps, strict=True) if count}


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
