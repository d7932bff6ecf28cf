from __future__ import annotations

import contextlib
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bsdr_torch.data.frames import parse_frame
from bsdr_torch.errors import InputError
from tests.data.pickled_tables import (
    STOP,
    arrow_array,
    arrow_text,
    call,
    frame_of_2019,
    frame_of_today,
    group,
    mapping,
    name,
    numpy_array,
    plain,
    with_state,
)

COLUMNS = {
    "state": ['{"a": 1}', "é", None],
    "reward": np.array([0.0, 5.0, math.nan]),
    "time": np.array([0, 1, 2]),
    "human": np.array([True, False, True]),
    "mixed": ["7", 7, 7.5],
}


def assert_same(columns: dict[str, np.ndarray], expected: dict[str, object]) -> None:
    assert list(columns) == list(expected)
    for label, column in columns.items():
        np.testing.assert_array_equal(column, np.asarray(expected[label], dtype=column.dtype))


@pytest.mark.parametrize("writer", [frame_of_2019, frame_of_today])
def test_a_table_of_any_age_comes_back_column_by_column(writer: Callable[[dict[str, Any]], bytes]) -> None:
    data = writer(COLUMNS)
    assert_same(parse_frame(data, "table.pickle"), COLUMNS)
    assert list(parse_frame(data, "table.pickle", wanted=["time", "absent"])) == ["time"]


def test_arrow_text_masked_numbers_and_categories_are_read() -> None:
    text = ["onion", None, "", "dish é"]
    masked = with_state(
        name("pandas.core.arrays.integer.IntegerArray") + b")\x81",
        mapping(_data=numpy_array(np.array([1, 2, 3, 4])), _mask=numpy_array(np.array([False, True, False, False]))),
    )
    dtype = with_state(
        name("pandas.core.dtypes.dtypes.CategoricalDtype") + b")\x81",
        mapping(
            categories=call(
                "pandas.core.indexes.base._new_Index",
                name("pandas.core.indexes.base.Index"),
                mapping(data=numpy_array(np.array(["a", "b"], dtype=object)), name=plain(None)),
            ),
            ordered=plain(False),
        ),
    )
    category = with_state(
        call(
            "pandas._libs.arrays.__pyx_unpickle_NDArrayBacked",
            name("pandas.core.arrays.categorical.Categorical"),
            plain(82904607),
            plain(None),
        ),
        group(dtype, numpy_array(np.array([1, 0, -1, 1], dtype=np.int8)), plain({})),
    )
    empty = dict.fromkeys(("text", "count", "layout"), [None] * 4)
    data = frame_of_today(empty, {"text": arrow_text(text), "count": masked, "layout": category})
    columns = parse_frame(data, "x")
    assert columns["text"].tolist() == text
    assert columns["count"].tolist() == [1, None, 3, 4]
    assert columns["layout"].tolist() == ["b", "a", None, "b"]


def test_cells_may_hold_plain_containers_and_numpy_scalars() -> None:
    cells = [{"players": [1, (2, 3)]}, None]
    assert parse_frame(frame_of_today({"x": cells}), "x")["x"].tolist() == [{"players": [1, [2, 3]]}, None]


def test_a_column_that_is_not_read_only_matters_when_it_is_wanted() -> None:
    dates = with_state(name("pandas.arrays.DatetimeArray") + b")\x81", mapping())
    data = frame_of_today({"when": [None], "reward": np.array([1.0])}, {"when": dates})
    assert parse_frame(data, "x", ["reward"])["reward"].tolist() == [1.0]
    with pytest.raises(InputError, match="'when': a DatetimeArray is not read"):
        parse_frame(data, "x", ["when"])


def shape_lie(size: int) -> bytes:
    array = numpy_array(np.arange(3)[None])
    return array.replace(plain((1, 3)), plain((1, size)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pickle.dumps([1, 2]), "found a list"),
        (pickle.dumps({}), "found a dict"),
        (b"\x80\x04cos\nsystem\n(X\x01\x00\x00\x00atR.", r"os\.system"),
        (b"\x80\x04cbuiltins\neval\n(X\x01\x00\x00\x00atR.", r"builtins\.eval"),
        (b"\x80\x04cpandas\nread_csv\n.", r"pandas\.read_csv"),
        (b"\x80\x04" + call("pandas.Index", plain(1)) + STOP, "expected a DataFrame"),
        (frame_of_today({"x": [0, 0, 0]}, {"x": shape_lie(2**39)}), "bytes of content"),
        (frame_of_today({"x": [0, 0]}, {"x": arrow_text(["a"])}), "shape"),
        (
            frame_of_today({"x": [0]}, {"x": arrow_array("large_string", 1, b"\1", b"\0" * 8 + b"\xff" * 8, b"")}),
            "offsets",
        ),
        (frame_of_today({"x": [0]}, {"x": arrow_array("int64", 1, b"\1", b"")}), "not of a table"),
        (frame_of_today({"x": [0]}, {"x": arrow_array("int64", 2**39, b"\1", b"")}), "too short"),
        (frame_of_today({"x": [0]}, {"x": arrow_array("list", 1, b"\1", b"")}), "'list' are not read"),
    ],
)
def test_what_is_no_table_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=f"file.pickle: .*{message}"):
        parse_frame(data, "file.pickle")


def test_two_columns_of_one_name_are_refused() -> None:
    data = frame_of_today({"ab": [1], "cd": [2]}).replace(plain("cd"), plain("ab"))
    with pytest.raises(InputError, match="two columns are called 'ab'"):
        parse_frame(data, "x")


def test_cells_that_double_at_each_level_or_hold_themselves_end_quickly() -> None:
    doubling = b"]" + b"".join(b"2\x86" for _ in range(49))
    deep = frame_of_today({"x": ["cell"]}).replace(plain(["cell"]), b"](" + doubling + b"e")
    assert isinstance(parse_frame(deep, "x")["x"][0], list)
    itself = b"]\x94(h\x00h\x00e"
    cyclic = frame_of_today({"x": ["cell"]}).replace(plain(["cell"]), b"](" + itself + b"e")
    with pytest.raises(InputError, match="contains itself"):
        parse_frame(cyclic, "x")


@given(st.data())
@settings(max_examples=500, deadline=None)
def test_a_damaged_table_loads_or_is_refused(data: st.DataObject) -> None:
    stream = bytearray(data.draw(st.sampled_from([frame_of_2019(COLUMNS), frame_of_today(COLUMNS), ARROW])))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    stream = stream[: data.draw(st.integers(0, len(stream)) | st.just(len(stream)))]
    with contextlib.suppress(InputError):
        columns = parse_frame(bytes(stream), "file.pickle")
        assert all(isinstance(column, np.ndarray) for column in columns.values())


ARROW = frame_of_today({"x": [0, 0], "y": [0, 0]}, {"x": arrow_text(["a", None])})


@given(st.binary(max_size=300))
@example(b"")
def test_any_bytes_load_or_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="file"):
        parse_frame(data, "file")
