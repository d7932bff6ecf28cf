"""Pickled pandas tables of any age, read into columns without pandas.

pandas has pickled a table in two ways: up to 1.2 a BlockManager with a state, since then one with arguments. Either
way it is blocks of columns of one type: numpy arrays `[columns, rows]`, or extension arrays `[rows]` (text, missing
values, categories, Arrow). What is not understood is refused by name, and only when that column is asked for.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bsdr_torch.data.pickles import Call, Name, PickleError, load
from bsdr_torch.errors import InputError

Column = NDArray[Any]

# The names a pickled table may hold, whatever module they have moved to. They are only compared, never imported.
_NAMES = {
    "pandas": (
        "DataFrame BlockManager _unpickle_block new_block _new_Index Index RangeIndex Int64Index UInt64Index "
        "Float64Index MultiIndex NA NaT _nat_unpickle NAType C_NA StringDtype StringArray StringArrayNumpySemantics "
        "ArrowStringArray ArrowStringArrayNumpySemantics ArrowExtensionArray ArrowDtype BooleanArray BooleanDtype "
        "IntegerArray FloatingArray Int8Dtype Int16Dtype Int32Dtype Int64Dtype UInt8Dtype UInt16Dtype UInt32Dtype "
        "UInt64Dtype Float32Dtype Float64Dtype Categorical CategoricalDtype __pyx_unpickle_NDArrayBacked "
        "DatetimeArray DatetimeTZDtype DatetimeIndex _new_DatetimeIndex TimedeltaArray TimedeltaIndex "
        "SparseArray SparseDtype IntIndex BlockIndex PandasArray NumpyExtensionArray Timestamp _unpickle_timestamp"
    ),
    "numpy": "ndarray dtype _reconstruct _frombuffer scalar",
    "pyarrow": "_restore_array chunked_array py_buffer type_for_alias",
    "builtins": "slice bytearray bytes object list",
    "__builtin__": "slice bytearray bytes object list",
    "copyreg": "_reconstructor",
    "copy_reg": "_reconstructor",
    "_codecs": "encode",
    "datetime": "datetime timedelta timezone date",
    "pytz": "_UTC",
}
_ALLOWED = {(package, name) for package, names in _NAMES.items() for name in names.split()}

_MEMORY_ORDER: tuple[Literal["C"], Literal["F"]] = ("C", "F")
_PLAIN = (str, int, float, bool, type(None))
_DTYPE = re.compile(r"b1|[iu][1248]|f[248]|O8?|[US][0-9]{1,6}")
_MAX_CELLS = 100_000_000
_MAX_DEPTH = 50
_MAX_LABELS = 10_000

# Cells that were already made plain, by the id of what the pickle held.
_Converted = dict[int, Any]
_UNFINISHED = object()


def parse_frame(data: bytes, path: Path | str, wanted: Collection[str] | None = None) -> dict[str, Column]:
    """The columns of a pickled DataFrame by name, each `[rows]`: those wanted, or all; errors name the path.

    Numbers come as numpy numbers; text, mixed and missing values as objects, with None for what is missing. A column
    that is wanted and not there is left out.
    """
    columns: dict[str, Column] = {}
    try:
        frame = _Unpacked(load(data, lambda module, name: (module.split(".")[0], name) in _ALLOWED))
        for name, column in _columns(frame):
            if wanted is None or name in wanted:
                if name in columns:
                    raise PickleError(f"two columns are called {name!r:.60}")
                columns[name] = column()
    except PickleError as error:
        raise InputError(f"{path}: not a pickled table that can be read: {error}") from None
    # Hand-made files reach every line below with the wrong type; all of it means one thing to the user.
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise InputError(
            f"{path}: a pickle, but not of a table as pandas writes it ({type(error).__name__}: {error!s:.80})"
        ) from None
    return columns


class _Unpacked:
    """A call in the pickle with its name, arguments and state, however the protocol spelled it."""

    def __init__(self, node: Any) -> None:
        if not isinstance(node, Call):
            raise PickleError(f"expected an object of pandas or numpy, found a {type(node).__name__}")
        self.name, self.args, self.state = node.function.name, node.args, node.state
        if self.name in ("_reconstructor", "__pyx_unpickle_NDArrayBacked"):
            self.name, self.args = _name(node.args[0]), ()

    def attributes(self) -> dict[str, Any]:
        if not isinstance(self.state, dict):
            raise PickleError(f"a {self.name} without its contents")
        return self.state

    def parts(self) -> list[Any]:
        """The values in its state, which versions of pandas name or order differently."""
        return list(self.state.values() if isinstance(self.state, dict) else self.state)


def _name(node: Any) -> str:
    return node.name if isinstance(node, Name) else ""


def _columns(frame: _Unpacked) -> Iterator[tuple[str, Callable[[], Column]]]:
    """Each column's name and how to get it."""
    if frame.name != "DataFrame":
        raise PickleError(f"it holds a {frame.name}, expected a DataFrame")
    attributes = frame.attributes()
    manager = _Unpacked(attributes.get("_mgr", attributes.get("_data")))
    if isinstance(manager.state, tuple):
        contents = manager.state[3]["0.14.1"]
        axes, blocks = contents["axes"], [(block["values"], block["mgr_locs"]) for block in contents["blocks"]]
    else:
        axes, blocks = manager.args[1], [_Unpacked(block).args[:2] for block in manager.args[0]]
    converted: _Converted = {}
    names, rows = _labels(axes[0], converted), _index_length(axes[1])
    # One list in the file may be named as the content of many columns, so its length does not bound the work.
    if len(names) * rows > _MAX_CELLS:
        raise PickleError(f"{len(names):,} columns of {rows:,} rows: split the table")
    free = set(range(len(names)))
    for values, placement in blocks:
        places = _placement(placement, free)
        if _is_array(values):
            array = _array(values)
            if array.shape == (rows,) and len(places) == 1:
                array = array[None]
            if array.shape != (len(places), rows):
                raise PickleError(f"a block of shape {array.shape}, expected {(len(places), rows)}")
            for row, place in zip(array, places, strict=True):
                yield names[place], partial(_tidy, row, converted)
        else:
            if len(places) != 1:
                raise PickleError(f"an extension array for {len(places)} columns, expected one")
            yield names[places[0]], partial(_extension_column, names[places[0]], values, rows, converted)


def _extension_column(name: str, values: Any, rows: int, converted: _Converted) -> Column:
    try:
        column = _tidy(_one_dimensional(values), converted)
    except PickleError as error:
        raise PickleError(f"column {name!r}: {error}") from None
    if column.shape != (rows,):
        raise PickleError(f"column {name!r} has shape {column.shape}, expected {(rows,)}")
    return column


def _one_dimensional(node: Any) -> Column:
    """A numpy or extension array, with None for what is missing."""
    call = _Unpacked(node)
    if call.name in ("_reconstruct", "_frombuffer"):
        return _array(node)
    if call.name in ("IntegerArray", "FloatingArray", "BooleanArray"):
        attributes = call.attributes()
        values, missing = _array(attributes["_data"]), _array(attributes["_mask"])
        return _with_missing(values, missing)
    if call.name.startswith("Arrow"):
        attributes = call.attributes()
        return _arrow(attributes.get("_pa_array", attributes.get("_data")))
    if call.name == "Categorical":
        parts = call.parts()
        codes = next(_array(part) for part in parts if _is_array(part))
        dtype = next(_Unpacked(part) for part in parts if isinstance(part, Call) and not _is_array(part))
        categories = _labels(dtype.attributes()["categories"] if dtype.state else dtype.args[0], {})
        if codes.dtype.kind != "i" or (codes.size and not -1 <= codes.min() <= codes.max() < len(categories)):
            raise PickleError("category codes out of range")
        return _objects([*categories, None])[codes]
    if call.name in ("StringArray", "StringArrayNumpySemantics", "PandasArray", "NumpyExtensionArray"):
        parts = call.parts()
        return next(_array(part) for part in parts if _is_array(part))
    raise PickleError(f"a {call.name} is not read: save it as text or numbers")


def _is_array(node: Any) -> bool:
    return isinstance(node, Call) and node.function.name in ("_reconstruct", "_frombuffer")


def _array(node: Any) -> Column:
    """A numpy array from its bytes, or from its list of cells."""
    call = _Unpacked(node)
    if call.name == "_reconstruct" and isinstance(call.state, tuple):
        shape, dtype, fortran, raw = call.state[-4:]
    elif call.name == "_frombuffer":
        raw, dtype, shape, order = call.args
        fortran = order == "F"
    else:
        raise PickleError(f"a {call.name} where a numpy array was expected")
    shape = _shape(shape)
    size, memory_order = math.prod(shape), _MEMORY_ORDER[bool(fortran)]
    numpy_dtype = _dtype(dtype)
    if numpy_dtype.kind == "O":
        if not isinstance(raw, list) or len(raw) != size:
            raise PickleError(f"an array of {size:,} objects that does not hold them")
        return np.fromiter(raw, dtype=object, count=size).reshape(shape, order=memory_order)
    content = _bytes(raw)
    if len(content) != size * numpy_dtype.itemsize:
        raise PickleError(f"an array of {size:,} {numpy_dtype} with {len(content):,} bytes of content")
    return np.frombuffer(content, numpy_dtype, count=size).reshape(shape, order=memory_order)


def _shape(node: Any) -> tuple[int, ...]:
    if not isinstance(node, tuple) or len(node) > 2 or not all(type(n) is int and 0 <= n < 1 << 40 for n in node):
        raise PickleError("an array whose shape is not one or two lengths")
    return node


def _dtype(node: Any) -> np.dtype[Any]:
    call = _Unpacked(node)
    code = call.args[0] if call.name == "dtype" and call.args else None
    # Nothing but text is shown or compared: what hides in other places may be too large to print.
    if not isinstance(code, str) or not _DTYPE.fullmatch(code) or code in ("U0", "S0"):
        kind = repr(code[:30]) if isinstance(code, str) else type(code).__name__
        raise PickleError(f"values of type {kind} are not read: save them as text or numbers")
    dtype = np.dtype(code)
    big_endian = isinstance(call.state, tuple) and call.state[1:2] == (">",)
    return dtype.newbyteorder(">" if big_endian else "<")


def _bytes(node: Any) -> bytes:
    if isinstance(node, bytes):
        return node
    if isinstance(node, str):
        return node.encode("latin-1")
    call = _Unpacked(node)
    if call.name == "encode" and isinstance(call.args[0], str):
        return call.args[0].encode("latin-1")
    if call.name in ("bytes", "bytearray", "py_buffer"):
        return _bytes(call.args[0]) if call.args else b""
    raise PickleError(f"a {call.name} where bytes were expected")


def _labels(node: Any, converted: _Converted) -> list[str]:
    """The labels of an index that names things, as text."""
    attributes = _index_attributes(node)
    labels = _tidy(_one_dimensional(attributes["data"]), converted) if "data" in attributes else _range(attributes)
    if len(labels) > _MAX_LABELS or not all(isinstance(label, _PLAIN) for label in labels):
        raise PickleError(f"an index of {len(labels):,} labels, expected up to {_MAX_LABELS:,} pieces of text")
    return [str(label) for label in labels]


def _index_length(node: Any) -> int:
    call = _Unpacked(node)
    if _name(call.args[0]) == "MultiIndex":
        attributes = _index_attributes(node)
        return len(_array(attributes["codes" if "codes" in attributes else "labels"][0]))
    attributes = _index_attributes(node)
    return len(_one_dimensional(attributes["data"])) if "data" in attributes else len(_range(attributes))


def _index_attributes(node: Any) -> dict[str, Any]:
    call = _Unpacked(node)
    if not call.name.startswith("_new_") or not isinstance(call.args[1], dict):
        raise PickleError(f"a {call.name} where an index was expected")
    return call.args[1]


def _range(attributes: dict[str, Any]) -> range:
    return range(*(_integer(attributes[key]) for key in ("start", "stop", "step")))


def _placement(node: Any, free: set[int]) -> list[int]:
    """Which columns a block holds, taken from those that no block has held yet."""
    if isinstance(node, Call) and node.function.name == "slice":
        start, stop, step = (_integer(bound) for bound in node.args)
        places = list(range(start, stop, step)[: len(free) + 1])
    else:
        places = _array(node).tolist()
    if len(set(places)) != len(places) or not free.issuperset(places):
        raise PickleError("a block for columns that are not there, or are there already")
    free.difference_update(places)
    return places


def _integer(node: Any) -> int:
    # Some versions write the bounds of a slice as numpy integers.
    value = _plain(node, {}, 0)
    if type(value) is not int:
        raise PickleError(f"a {type(value).__name__} where an integer was expected")
    return value


def _arrow(node: Any) -> Column:
    """An Arrow array from its buffers. Arrow itself would trust the offsets in the file."""
    call = _Unpacked(node)
    if call.name == "chunked_array":
        if len(call.args[0]) != 1:
            raise PickleError(f"an Arrow array in {len(call.args[0])} chunks, expected one")
        call = _Unpacked(call.args[0][0])
    if call.name != "_restore_array":
        raise PickleError(f"a {call.name} where an Arrow array was expected")
    kind, length, _, offset, buffers, _, dictionary = call.args[0]
    alias = _Unpacked(kind).args[0]
    if type(length) is not int or type(offset) is not int or not 0 <= length < 1 << 40 or not 0 <= offset < 1 << 40:
        raise PickleError("an Arrow array of no valid length")
    end = offset + length
    if not isinstance(alias, str) or dictionary is not None or alias not in _ARROW_WIDTHS:
        kind = repr(alias[:30]) if isinstance(alias, str) else type(alias).__name__
        raise PickleError(f"Arrow values of type {kind} are not read: save them as text or numbers")
    present = np.ones(length, bool) if buffers[0] is None else _bits(_bytes(buffers[0]), offset, end)
    if alias == "bool":
        return _with_missing(_bits(_bytes(buffers[1]), offset, end), ~present)
    dtype = np.dtype(_ARROW_WIDTHS[alias])
    count = end + 1 if alias in ("string", "large_string") else end
    numbers = np.frombuffer(_bytes(buffers[1]), dtype, count=count if buffers[1] else 0)[offset:]
    if alias not in ("string", "large_string"):
        return _with_missing(numbers, ~present)
    text = b"" if buffers[2] is None else _bytes(buffers[2])
    starts = numbers.tolist()
    # Offsets that go back would let a small file spell a huge table.
    if len(starts) and (starts[0] < 0 or starts[-1] > len(text) or np.any(np.diff(numbers) < 0)):
        raise PickleError("Arrow text with offsets outside its buffer")
    cells = (text[a:b].decode() for a, b in itertools.pairwise(starts))
    return _objects([cell if here else None for cell, here in zip(cells, present.tolist(), strict=True)])


_ARROW_WIDTHS = {
    "string": "<i4",
    "large_string": "<i8",
    "bool": "?",
    "int8": "<i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "<u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "float": "<f4",
    "double": "<f8",
}


def _bits(packed: bytes, start: int, end: int) -> NDArray[np.bool_]:
    if len(packed) * 8 < end:
        raise PickleError("an Arrow bitmap that is too short")
    return np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")[start:end].astype(bool)


def _with_missing(values: Column, missing: Column) -> Column:
    if values.shape != missing.shape or missing.dtype != bool:
        raise PickleError(f"{len(values)} values with {len(missing)} marks for missing ones")
    if not missing.any():
        return values
    cells = values.astype(object)
    cells[missing] = None
    return cells


def _objects(cells: list[Any]) -> Column:
    return np.fromiter(cells, dtype=object, count=len(cells))


def _tidy(column: Column, converted: _Converted) -> Column:
    """Cells as plain Python values; text arrays as objects."""
    if column.dtype.kind == "S":
        raise PickleError("columns of bytes are not read: save them as text")
    if column.dtype.kind != "O":
        return column.astype(object) if column.dtype.kind == "U" else column
    if all(kind in _PLAIN for kind in set(map(type, column))):
        return column
    return _objects([_plain(cell, converted, 0) for cell in column])


def _plain(node: Any, converted: _Converted, depth: int) -> Any:
    """A cell as plain values; what the pickle shares stays shared, so that small files stay small."""
    if isinstance(node, _PLAIN):
        return node
    if id(node) not in converted:
        if depth > _MAX_DEPTH:
            raise PickleError("cells nested too deeply to be data")
        converted[id(node)] = _UNFINISHED
        converted[id(node)] = _convert(node, converted, depth + 1)
    if converted[id(node)] is _UNFINISHED:
        raise PickleError("a cell that contains itself")
    return converted[id(node)]


def _convert(node: Any, converted: _Converted, depth: int) -> Any:
    if isinstance(node, list | tuple):
        return [_plain(item, converted, depth) for item in node]
    if isinstance(node, dict):
        return {key: _plain(value, converted, depth) for key, value in node.items()}
    if _name(node) in ("NA", "NaT"):
        return None
    if isinstance(node, Call) and node.function.name in ("NAType", "C_NA", "_nat_unpickle"):
        return None
    if isinstance(node, Call) and node.function.name == "scalar":
        dtype = _dtype(node.args[0])
        if dtype.kind in "biuf":
            return np.frombuffer(_bytes(node.args[1]), dtype, count=1)[0].item()
    raise PickleError(f"a cell holds a {node.function if isinstance(node, Call) else type(node).__name__}")
