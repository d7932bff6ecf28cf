from __future__ import annotations

from pathlib import Path

from bsdr_torch.benchmarks.prediction import benchmark, number_of_records


def test_every_promised_record_is_measured(prepared_2019: Path) -> None:
    records = list(benchmark(quick=True, folder=prepared_2019))
    assert [record.name for record in records] == [
        "KitchenModel_states_per_minute",
        "KitchenModel_vs_one_by_one",
        "KitchenModel_states_per_minute_all_threads",
        "Cloning_states_per_minute",
        "Cloning_vs_one_by_one",
        "lookahead_settled_vs_afresh",
        "adapt",
    ]
    assert len(records) == number_of_records(quick=True)
    assert all(record.value > 0 and record.unit and record.against for record in records)
