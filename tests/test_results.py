"""What the README says of results is what the committed records say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bsdr_torch.contenders import contenders
from bsdr_torch.data.splits import PROTOCOLS
from bsdr_torch.evaluation_report import summary

ROOT = Path(__file__).parent.parent
RECORDS = json.loads((ROOT / "docs/results/prediction.json").read_text())


def test_the_readme_s_table_is_that_of_the_records() -> None:
    text = (ROOT / "README.md").read_text()
    shown = text.split("<!-- from docs/results/prediction.json -->\n")[1].split("<!-- end -->")[0]
    assert shown == summary(RECORDS)


# What the README says below its table: by protocol, a row of prediction.md less another, and in which words.
COMPARISONS = (
    ("rollout", "bsdr-arbitrated", "cloning-tuned-id", "ahead of BSDR with arbitration by +0.007 ± 0.002"),
    ("rollout", "bsdr-arbitrated, re-planned", "cloning-tuned-id", "and by +0.017 ± 0.002 if BSDR is re-planned"),
    ("human", "bsdr-arbitrated", "cloning-tuned", "cloning is ahead by +0.003 ± 0.003"),
    ("human", "bsdr-arbitrated, re-planned", "cloning-tuned", "re-planned by +0.006 ± 0.002"),
    ("human", "bsdr-arbitrated-online", "cloning-tuned-online", "BSDR is ahead by -0.013 ± 0.002"),
    ("human", "bsdr-online", "cloning-tuned-online", "without arbitration by -0.006 ± 0.002"),
    ("layout", "bsdr-arbitrated", "cloning-tuned-id", "ahead of cloning by -0.008 ± 0.003"),
    ("layout", "bsdr-arbitrated, re-planned", "cloning-tuned-id", "re-planned by -0.004 ± 0.003"),
    ("layout", "bsdr-arbitrated-weighed", "cloning-tuned-weighed", "BSDR is ahead by -0.017 ± 0.002"),
    ("layout", "bsdr-arbitrated-weighed, re-planned", "cloning-tuned-weighed", "re-planned by -0.014 ± 0.002"),
    ("rollout", "bsdr-arbitrated", "br-arbitrated", "both have arbitration, by -0.005 ± 0.001"),
    ("human", "bsdr-arbitrated", "br-arbitrated", ", -0.004 ± 0.001"),
    ("layout", "bsdr-arbitrated", "br-arbitrated", "and -0.005 ± 0.001"),
)


@pytest.mark.parametrize(("protocol", "row", "less", "words"), COMPARISONS)
def test_the_readme_s_comparisons_are_those_of_the_table(protocol: str, row: str, less: str, words: str) -> None:
    parts = (ROOT / "docs/results/prediction.md").read_text().split("\n## ")
    table = next(part for part in parts if part.startswith(f"`{protocol}`"))
    line = next(line for line in table.splitlines() if line.startswith(f"| {row} | {less} |"))
    difference, error = (float(number) for number in line.split("|")[3].split(" ± "))
    told = re.search(r"[+-]\d\.\d{3} ± \d\.\d{3}", words)
    assert told is not None
    assert told.group() == f"{difference:+.3f} ± {error:.3f}"
    assert words.replace("+0", "0").replace("-0", "0") in " ".join((ROOT / "README.md").read_text().split())


def test_the_table_in_words_is_that_of_the_records() -> None:
    text = (ROOT / "docs/results/prediction.md").read_text()
    for protocol, part in zip(PROTOCOLS, text.split("\n## ")[1:], strict=True):
        assert part.startswith(f"`{protocol}`")
        for model in {record["model"] for record in RECORDS if record["protocol"] == protocol}:
            own = [r for r in RECORDS if (r["model"], r["protocol"], r["layout"]) == (model, protocol, "all")]
            ce = sum(record["ce"] for record in own) / len(own)
            row = next(line for line in part.splitlines() if line.startswith(f"| {model} |"))
            assert row.split("|")[5].split()[0] == f"{ce:.3f}", row


def test_the_records_are_of_models_that_there_are() -> None:
    rows = contenders()
    for record in RECORDS:
        contender = rows[record["model"]]
        assert record["protocol"] in contender.protocols
        assert (record["history"], record["identity"]) == (contender.history, contender.identity)
