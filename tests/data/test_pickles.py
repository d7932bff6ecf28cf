from __future__ import annotations

import contextlib
import os
import pickle
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsdr_torch.data.pickles import Call, Name, PickleError, load

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


def nothing(module: str, name: str) -> bool:
    return False


def everything(module: str, name: str) -> bool:
    return True


@given(plain_values, st.sampled_from([2, 3, 4, 5]))
def test_plain_values_come_back_as_the_standard_unpickler_reads_them(value: object, protocol: int) -> None:
    if protocol == 2:
        value = repr(value)  # protocol 2 spells bytes as a call
    data = pickle.dumps(value, protocol=protocol)
    assert load(data, nothing) == pickle.loads(data)


@given(st.recursive(st.integers() | st.booleans() | st.text(), st.lists, max_leaves=10))
def test_the_text_protocol_is_read(value: object) -> None:
    assert load(pickle.dumps(value, protocol=0), nothing) == value


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_imports_os_is_refused_by_name_and_runs_nothing(protocol: int, tmp_path: Path) -> None:
    target = tmp_path / "owned"
    with pytest.raises(PickleError, match=r"posix\.mkdir"):
        load(pickle.dumps(Malicious(target), protocol=protocol), nothing)
    call = load(pickle.dumps(Malicious(target), protocol=protocol), everything)
    assert isinstance(call, Call)
    assert call.function == Name("posix", "mkdir")
    assert not target.exists()


@given(st.binary(max_size=200))
@settings(max_examples=500)
def test_any_bytes_are_a_value_or_a_pickle_error(data: bytes) -> None:
    with contextlib.suppress(PickleError):
        load(data, everything)


@given(plain_values, st.data())
def test_a_truncated_pickle_is_an_error(value: object, data: st.DataObject) -> None:
    stream = pickle.dumps(value, protocol=4)
    cut = data.draw(st.integers(0, len(stream) - 1))
    with pytest.raises(PickleError):
        load(stream[:cut], nothing)


def test_a_large_memo_index_takes_no_memory() -> None:
    # The standard unpickler makes room for 2**33 entries here.
    assert load(b"\x80\x04Nr\xff\xff\xff\xff.", nothing) is None


@pytest.mark.parametrize("operation", [b"\x96", b"\x8e", b"\x8d"])
@pytest.mark.parametrize("size", [2**40, 2**63])
def test_announced_bytes_that_are_not_there_take_no_memory(operation: bytes, size: int) -> None:
    with pytest.raises(PickleError, match="cut short"):
        load(b"\x80\x04" + operation + struct.pack("<Q", size) + b".", nothing)


def test_a_key_that_takes_forever_to_hash_is_refused() -> None:
    doubling = b")" + b"".join(b"2\x86" for _ in range(200))
    with pytest.raises(PickleError, match="key of type tuple"):
        load(b"}" + doubling + b"Ns.", nothing)


def test_the_number_of_operations_is_bounded() -> None:
    with pytest.raises(PickleError, match="more than 100 operations"):
        load(b"N0" * 1000 + b"N.", nothing, max_operations=100)


def test_deep_nesting_is_harmless() -> None:
    value = load(b"]" * 100_000 + b"a" * 99_999 + b".", nothing)
    assert isinstance(value, list)
    assert len(value) == 1


@pytest.mark.parametrize("stream", [b"P1\n.", b"\x82\x01.", b"\x8f.", b"\x97.", b"(i__main__\nx\n."])
def test_operations_no_table_needs_are_refused(stream: bytes) -> None:
    with pytest.raises(PickleError, match="no pickled table holds"):
        load(stream, everything)
