from __future__ import annotations

from pathlib import Path

from bsdr_torch.benchmarks.data import benchmark, number_of_records


def test_each_number_is_positive_and_names_its_alternative(prepared_2019: Path) -> None:
    records = list(benchmark(quick=True, folder=prepared_2019))
    assert len(records) == number_of_records(quick=True)
    assert [record.name for record in records] == [
        "reader",
        "reader_vs_literal_eval",
        "step_batches",
        "step_batches_vs_collate",
        "rollout_batches",
    ]
    assert all(record.value > 0 and record.unit and record.against for record in records)
