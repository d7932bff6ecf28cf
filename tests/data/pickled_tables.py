"""Pickles of tables as pandas writes them, spelled out by hand, so that no pandas is needed to test against them."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

STOP = b"."


def plain(value: object) -> bytes:
    """The operations that leave a plain value on the stack."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=4)
    pickler.fast = True  # no memo, so that pieces can be put together
    pickler.dump(value)
    body = stream.getvalue()
    return body[11:-1] if body[2:3] == b"\x95" else body[2:-1]


def name(dotted: str) -> bytes:
    module, _, last = dotted.rpartition(".")
    return f"c{module}\n{last}\n".encode()


def call(function: str, *args: bytes) -> bytes:
    return name(function) + b"(" + b"".join(args) + b"tR"


def with_state(target: bytes, state: bytes) -> bytes:
    return target + state + b"b"


def mapping(**items: bytes) -> bytes:
    return b"}(" + b"".join(plain(key) + value for key, value in items.items()) + b"u"


def sequence(*items: bytes) -> bytes:
    return b"](" + b"".join(items) + b"e"


def group(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def numpy_array(values: np.ndarray, core: str = "numpy.core") -> bytes:
    code = "O8" if values.dtype == object else values.dtype.str[1:]
    order = "|" if values.dtype.str[0] == "|" else "<"
    dtype = with_state(
        call("numpy.dtype", plain(code), plain(False), plain(True)),
        plain((3, order, None, None, None, -1, -1, 63 if code == "O8" else 0)),
    )
    content = values.ravel().tolist() if values.dtype == object else values.tobytes()
    empty = call(f"{core}.multiarray._reconstruct", name("numpy.ndarray"), plain((0,)), plain(b"b"))
    return with_state(empty, group(plain(1), plain(values.shape), dtype, plain(False), plain(content)))


def index(labels: list[str]) -> bytes:
    data = numpy_array(np.array(labels, dtype=object))
    return call(
        "pandas.core.indexes.base._new_Index",
        name("pandas.core.indexes.base.Index"),
        mapping(data=data, name=plain(None)),
    )


def row_range(rows: int) -> bytes:
    return call(
        "pandas.core.indexes.base._new_Index",
        name("pandas.core.indexes.range.RangeIndex"),
        mapping(name=plain(None), start=plain(0), stop=plain(rows), step=plain(1)),
    )


def column_block(values: list[Any] | np.ndarray) -> np.ndarray:
    array = values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=object, count=len(values))
    return array[None]


def slice_of(place: int) -> bytes:
    return call("builtins.slice", plain(place), plain(place + 1), plain(1))


def frame_of_2019(columns: dict[str, Any]) -> bytes:
    """A table as pandas wrote it up to 1.2: one block per column here, the manager has a state."""
    rows = len(next(iter(columns.values())))
    axes = sequence(index(list(columns)), row_range(rows))
    blocks = [
        mapping(values=numpy_array(column_block(values)), mgr_locs=slice_of(place))
        for place, values in enumerate(columns.values())
    ]
    state = group(
        axes,
        plain([]),
        plain([]),
        b"}" + plain("0.14.1") + mapping(axes=axes, blocks=sequence(*blocks)) + b"s",
    )
    manager = with_state(name("pandas.core.internals.managers.BlockManager") + b")\x81", state)
    frame = name("pandas.core.frame.DataFrame") + b")\x81"
    return b"\x80\x04" + with_state(frame, mapping(_data=manager, _typ=plain("dataframe"))) + STOP


def frame_of_today(columns: dict[str, Any], blocks: dict[str, bytes] | None = None) -> bytes:
    """A table as pandas writes it since 1.3; `blocks` gives the values of some columns as other operations."""
    rows = len(next(iter(columns.values())))
    unpickled = [
        call(
            "pandas._libs.internals._unpickle_block",
            (blocks or {}).get(label) or numpy_array(column_block(values), core="numpy._core"),
            slice_of(place),
            plain(2),
        )
        for place, (label, values) in enumerate(columns.items())
    ]
    manager = call(
        "pandas.core.internals.managers.BlockManager",
        group(*unpickled),
        sequence(index(list(columns)), row_range(rows)),
    )
    frame = name("pandas.DataFrame") + b")\x81"
    return b"\x80\x05" + with_state(frame, mapping(_mgr=manager, _typ=plain("dataframe"))) + STOP


def arrow_text(cells: list[str | None]) -> bytes:
    """A column of text as pandas 3 keeps it."""
    encoded = [(cell or "").encode() for cell in cells]
    offsets = np.cumsum([0, *map(len, encoded)]).astype("<i8")
    present = np.packbits([cell is not None for cell in cells], bitorder="little")
    return arrow_array("large_string", len(cells), present.tobytes(), offsets.tobytes(), b"".join(encoded))


def arrow_array(kind: str, length: int, *buffers: bytes) -> bytes:
    array = call(
        "pyarrow.lib._restore_array",
        group(
            call("pyarrow.lib.type_for_alias", plain(kind)),
            plain(length),
            plain(0),
            plain(0),
            sequence(*(call("pyarrow.lib.py_buffer", plain(buffer)) for buffer in buffers)),
            plain([]),
            plain(None),
        ),
    )
    return with_state(name("pandas.arrays.ArrowStringArray") + b")\x81", mapping(_pa_array=array))
