"""What the README says of results is what the committed records say."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bsdr_torch.contenders import contenders
from bsdr_torch.data.splits import PROTOCOLS
from bsdr_torch.evaluation_report import summary

ROOT = Path(__file__).parent.parent
RECORDS = json.loads((ROOT / "docs/results/prediction.json").read_text())


def test_the_readme_s_table_is_that_of_the_records() -> None:
    text = (ROOT / "README.md").read_text()
    shown = text.split("<!-- from docs/results/prediction.json -->\n")[1].split("<!-- end -->")[0]
    assert shown == summary(RECORDS)


def test_the_readme_s_comparisons_are_those_of_the_table() -> None:
    """Each `a ± b` below the table is a difference, or a score, that prediction.md has with more digits."""
    text = (ROOT / "README.md").read_text().split("<!-- end -->")[1].split("**Simulated people.**")[0]
    table = (ROOT / "docs/results/prediction.md").read_text()
    known = {(f"{abs(float(a)):.3f}", f"{float(b):.3f}") for a, b in re.findall(r"([+-]?\d\.\d+) ± (\d\.\d+)", table)}
    told = re.findall(r"(\d\.\d{3}) ± (\d\.\d{3})", text)
    assert len(told) > 5
    assert [pair for pair in told if pair not in known] == []


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
