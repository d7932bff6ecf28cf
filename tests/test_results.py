"""What the README says of results is what the committed records say."""

from __future__ import annotations

import json
from pathlib import Path

from bsdr_torch.contenders import contenders
from bsdr_torch.evaluation_report import summary

ROOT = Path(__file__).parent.parent
RECORDS = json.loads((ROOT / "docs/results/prediction.json").read_text())


def test_the_readme_s_table_is_that_of_the_records() -> None:
    text = (ROOT / "README.md").read_text()
    shown = text.split("<!-- from docs/results/prediction.json -->\n")[1].split("<!-- end -->")[0]
    assert shown == summary(RECORDS)


def test_the_records_are_of_models_that_there_are() -> None:
    rows = contenders()
    for record in RECORDS:
        contender = rows[record["model"]]
        assert record["protocol"] in contender.protocols
        assert (record["history"], record["identity"]) == (contender.history, contender.identity)
