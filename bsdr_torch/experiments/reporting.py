"""What the reports have in common: tables, sentences that go no further than their interval, figures, files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bsdr_torch.data.arrow_files import write_files
from bsdr_torch.experiments.running import Record
from bsdr_torch.experiments.statistics import (
    CONFIDENCE,
    Estimate,
    estimate,
    half_sample_estimate,
    half_sample_p,
    sign_flip_p,
)

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; markers tell them apart in grey.
STYLES: dict[str, dict[str, Any]] = {
    "br": {"color": "#E69F00", "marker": "s"},
    "br_per_human": {"color": "#56B4E9", "marker": "^"},
    "irleed": {"color": "#CC79A7", "marker": "v"},
    "ileed": {"color": "#661100", "marker": "<"},
    "bpd-inference": {"color": "#D55E00", "marker": "P"},
    "bpd-sequence": {"color": "#E69F00", "marker": "X"},
    "bsdr": {"color": "#0072B2", "marker": "o"},
    "bsdr_population": {"color": "#009E73", "marker": "D"},
    "bsdr_aggregate": {"color": "#009E73", "marker": "D"},
    "optimal": {"color": "#D55E00", "marker": "P"},
    "random": {"color": "#999999", "marker": "X"},
    "truth": {"color": "#000000", "marker": "*"},
    "prior": {"color": "#999999", "marker": "x"},
    "clone": {"color": "#661100", "marker": "<"},
    "people": {"color": "#000000", "marker": "*"},
}

NAMES = {
    "br": "BR",
    "br_per_human": "BR per person",
    "irleed": "IRLEED",
    "ileed": "ILEED",
    "bpd-inference": "BPD (inference of z)",
    "bpd-sequence": "BPD (network that watched)",
    "bsdr": "BSDR",
    "bsdr_population": "BSDR, population",
    "bsdr_aggregate": "BSDR without identities",
    "optimal": "optimal with lapses",
    "random": "random",
    "truth": "true parameters",
    "prior": "prior alone",
    "clone": "another clone",
    "people": "recorded people",
}

READING = (
    f"Numbers are means over seeds with their {CONFIDENCE:.0%} interval (Student's, over seeds: each seed draws new "
    "people). Differences are between models on the same people, seed by seed, and p is that of flipping their signs. "
    "No sentence below claims a difference whose interval contains zero. Priors are left as they are in the library."
)

READING_PAIRS = (
    f"Numbers are means over pairs of people who played together, with their {CONFIDENCE:.0%} interval (Student's, "
    "over pairs: what somebody does depends on the partner, and a pair played in several kitchens). Differences are "
    "between models on the same games, pair by pair, and p is that of flipping their signs. No sentence below claims a "
    "difference whose interval contains zero."
)

SIMULATED_BY_BSDR = (
    "The people are simulated by the rule of BSDR, with the features that it is given: the experiment shows what can "
    "be learned if people are like that, not that they are."
)


class Finding(NamedTuple):
    """A sentence about what was found, and whether it belongs on the page that sums up all experiments."""

    words: str
    headline: bool = True


def chosen(records: Iterable[Record], **fields: object) -> list[Record]:
    """The records with these values."""
    return [record for record in records if all(record[name] == value for name, value in fields.items())]


def by_unit(records: Iterable[Record], measure: str, unit: str = "seed") -> list[float]:
    """One number for each seed, or other field, in order: the mean of its records, over worlds for instance."""
    found: dict[Any, list[float]] = {}
    for record in records:
        found.setdefault(record[unit], []).append(record[measure])
    return [sum(values) / len(values) for _, values in sorted(found.items())]


def values_of(records: Iterable[Record], field: str) -> list[Any]:
    """The values of a field, each once, in order of appearance."""
    return list(dict.fromkeys(record[field] for record in records))


def level(records: Iterable[Record], measure: str, unit: str = "seed") -> Estimate:
    """The mean of a measure over seeds, or other units that are independent of one another."""
    return estimate(by_unit(records, measure, unit))


class Gap:
    """How much more of a measure there is in one of two, with what can be claimed of it.

    Args:
        estimate: of the difference.
        p: that there is none.
    """

    def __init__(self, estimate: Estimate, p: float) -> None:
        self.estimate, self.p = estimate, p

    def cell(self, digits: int = 3) -> str:
        """For a table."""
        return f"{shown(self.estimate, digits, sign=True)}, {p_value(self.p)}"

    def sentence(self, subject: str, other: str, more: str, less: str, digits: int = 3, unit: str = "") -> str:
        """Says that the subject is `more` or `less` than the other, or that no difference is clear."""
        amount = f"{shown(self.estimate, digits, sign=True)}{unit}, {p_value(self.p)}"
        if self.estimate.above_zero:
            return f"{subject} {more} {other} ({amount})"
        if self.estimate.below_zero:
            return f"{subject} {less} {other} ({amount})"
        return f"no clear difference between {subject} and {other}, the interval contains zero ({amount})"


class Difference(Gap):
    """How much more of a measure some records have than others, paired by seed or another unit."""

    def __init__(self, some: Iterable[Record], others: Iterable[Record], measure: str, unit: str = "seed") -> None:
        values = _differences(some, others, measure, unit)
        super().__init__(estimate(values), sign_flip_p(values))


class HalvesDifference(Gap):
    """The same over random halves of one sample of people; see `half_sample_estimate`."""

    def __init__(self, some: Iterable[Record], others: Iterable[Record], measure: str, unit: str = "seed") -> None:
        values = _differences(some, others, measure, unit)
        super().__init__(half_sample_estimate(values), half_sample_p(values))


def _differences(some: Iterable[Record], others: Iterable[Record], measure: str, unit: str) -> list[float]:
    return [a - b for a, b in zip(by_unit(some, measure, unit), by_unit(others, measure, unit), strict=True)]


def model_difference(records: Sequence[Record], model: str, other: str, measure: str, unit: str = "seed") -> Difference:
    """How much more of a measure one model has than another on the same people."""
    return Difference(chosen(records, model=model), chosen(records, model=other), measure, unit)


def control_sentence(difference: Gap, subject: str, other: str, digits: int = 3, unit: str = "") -> str:
    """What a control found, where `subject` should not come out above `other`."""
    amount = f"{shown(difference.estimate, digits, sign=True)}{unit}, {p_value(difference.p)}"
    found = "no advantage, as it should be"
    if difference.estimate.above_zero:
        found = "an effect that should not be there"
    elif difference.estimate.below_zero:
        found = "no advantage, as it should be, but a cost"
    return f"control, no effect to find: {found}, {subject} against {other} {amount}"


def p_value(p: float) -> str:
    """Of a test, as it is written."""
    return f"p = {p:.3f}" if p >= 0.0005 else "p < 0.001"


def shown(value: Estimate, digits: int = 3, sign: bool = False) -> str:
    """An estimate with its interval."""
    plus = "+" if sign else ""
    mean, low, high = (f"{number:{plus}.{digits}f}" for number in value[:3])
    return f"{mean} [{low}, {high}]"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])


def bullets(found: Iterable[Finding]) -> str:
    """A Markdown list of findings."""
    return "\n".join(f"- {finding.words[:1].upper()}{finding.words[1:]}." for finding in found)


def panels(count: int, width: float = 3.2, height: float = 3.3, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side that share their axes."""
    figure = Figure(figsize=(1.0 + width * -(-count // rows), 0.4 + height * rows), layout="constrained")
    axes = figure.subplots(rows, -(-count // rows), sharex=True, sharey=True, squeeze=False)
    return figure, list(axes.flat)


def draw_line(axis: Axes, x: Sequence[float], estimates: Sequence[Estimate], model: str, line: str = "-") -> None:
    """A model's estimates over x with their intervals."""
    errors = list(zip(*(e.reach for e in estimates), strict=True))
    style = STYLES[model] | {"capsize": 3, "markersize": 5, "linewidth": 1.2, "linestyle": line, "label": NAMES[model]}
    axis.errorbar(x, [e.mean for e in estimates], errors, **style)


def dodged(x: Sequence[float], number: int, count: int, width: float) -> list[float]:
    """x moved a little to a side, so that the intervals of `count` models do not hide one another."""
    return [value + width * (number - (count - 1) / 2) for value in x]


def short_name(kitchen: str, between: str = "\n") -> str:
    """The name of a kitchen for a figure, with a new line or something else between its words."""
    return kitchen.removesuffix("_o_1order").replace("_", between)


def legend_below(figure: Figure, axis: Axes) -> None:
    """One legend for all panels, below them, with as many columns as there is room for."""
    entries: dict[str, Any] = {}  # the first of those with the same label
    for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
        entries.setdefault(label, handle)
    widest = max(1.75, 0.6 + 0.07 * max(len(label) for label in entries))  # inches
    columns = max(1, min(len(entries), int(figure.get_figwidth() / widest)))
    figure.legend(
        list(entries.values()), list(entries), loc="outside lower center", ncols=columns, frameon=False, fontsize=9
    )


def write_report(out: Path, text: str, figures: Mapping[str, Figure]) -> None:
    """report.md and its figures, all of them or none."""
    writers: dict[Path, Callable[[Path], object]] = {
        out / f"{name}.png": partial(figure.savefig, dpi=150) for name, figure in figures.items()
    }
    writers[out / "report.md"] = partial(Path.write_text, data=text)
    write_files(writers)
