"""Claims about the benchmark of kitchens; how fast they are is not tested, because tests share their machine."""

from __future__ import annotations

from bsdr_torch.benchmarks.overcooked import benchmark, number_of_records, visited_states
from bsdr_torch.worlds.overcooked import load_layout, unique_states


def test_every_promised_record_is_measured() -> None:
    records = list(benchmark(quick=True))
    assert [record.name for record in records] == [
        "steps_vs_overcooked_ai",
        "successors_per_second",
        "encodings_per_second",
        "grid_encodings_per_second",
        "enumerated_states_per_second",
    ]
    assert len(records) == number_of_records(quick=True)
    assert all(record.value > 0 and record.unit and record.against for record in records)


def test_the_states_that_are_measured_are_different_ones() -> None:
    states = visited_states(load_layout("cramped_room"), 500)
    assert len(unique_states(states)[0]) > 300
