from __future__ import annotations

from pathlib import Path

from bsdr_torch.benchmarks.data import data_records
from bsdr_torch.data.prepare import prepare


def test_each_number_is_positive_and_names_its_alternative(tmp_path: Path) -> None:
    prepare("mturk_2019", tmp_path / "mturk_2019")
    records = data_records(quick=True, folder=tmp_path / "mturk_2019")
    assert [record["name"] for record in records] == [
        "reader",
        "reader_vs_literal_eval",
        "step_batches",
        "step_batches_vs_collate",
        "rollout_batches",
    ]
    assert all(record["value"] > 0 and record["unit"] and record["against"] for record in records)
