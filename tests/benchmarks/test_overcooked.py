"""Claims about the benchmark of kitchens; how fast they are is not tested, because tests share their machine."""

from __future__ import annotations

from bsdr_torch.benchmarks.overcooked import overcooked_records, visited_states
from bsdr_torch.worlds.overcooked import load_layout, unique_states


def test_every_promised_record_is_measured() -> None:
    records = overcooked_records(quick=True, encoding=lambda layout, states, seat: states.float())
    assert [record.name for record in records] == [
        "steps_vs_overcooked_ai",
        "successors_per_second",
        "encodings_per_second",
        "enumerated_states_per_second",
    ]
    assert all(record.value > 0 and record.unit and record.against for record in records)


def test_there_is_no_record_of_an_encoding_that_is_not_there() -> None:
    assert "encodings_per_second" not in [record.name for record in overcooked_records(quick=True)]


def test_the_states_that_are_measured_are_different_ones() -> None:
    states = visited_states(load_layout("cramped_room"), 500)
    assert len(unique_states(states)[0]) > 300
