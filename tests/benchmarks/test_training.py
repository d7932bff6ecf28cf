from __future__ import annotations

from pathlib import Path

import pytest

from bsdr_torch.benchmarks.training import PARTS, benchmark, number_of_records


def test_every_promised_record_is_measured(prepared_2019: Path) -> None:
    records = {record.name: record for record in benchmark(quick=True, folder=prepared_2019)}
    assert len(records) == number_of_records(quick=True)
    assert all(record.value >= 0 and record.unit and record.against for record in records.values())
    for engine in ("neural", "exact", "exact_br"):
        name = f"{engine}_forced_coordination"
        assert records[f"{name}_step"].value > 0
        assert records[f"{name}_vs_cloning"].value > 0
        shares = [records[f"{name}_{part}"].value for part in PARTS]
        assert sum(shares) == pytest.approx(1)
        # The watch was told of each part; Lightning's is what is left, which a busy machine may round to nothing.
        assert min(share for part, share in zip(PARTS, shares, strict=True) if part != "lightning") > 0
    assert records["lookahead_forced_coordination_vs_neural"].value > 0
