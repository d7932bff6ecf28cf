"""Tables from files, CSV or pickled, with errors that name file, row and field."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from bsdr_torch.data.compressed import read_bytes
from bsdr_torch.data.frames import Column, parse_frame
from bsdr_torch.data.recorded_states import CellError
from bsdr_torch.errors import InputError

T = TypeVar("T")

_TRUE, _FALSE = ("true", "1", "1.0"), ("false", "0", "0.0")
_LARGEST_INTEGER = 10**9


def read_table(path: Path | str, fields: Collection[str]) -> Table:
    """The given columns of a CSV or a pickled DataFrame, plain or compressed; each of them must be there."""
    data = read_bytes(path)
    # Binary pickles start with a protocol number; the text protocol 0 rebuilds the table by copy_reg.
    columns = (
        parse_frame(data, path, fields)
        if data.startswith((b"\x80", b"ccopy_reg\n"))
        else _parse_csv(data, path, fields)
    )
    missing = [field for field in fields if field not in columns]
    if missing:
        raise InputError(f"{path}: no column {', '.join(missing)}: expected the columns {', '.join(fields)}")
    if any(len(column) == 0 for column in columns.values()):
        raise InputError(f"{path}: the table has no rows")
    return Table(Path(path), columns)


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, each `[rows]`, and the file they came from."""

    path: Path
    columns: dict[str, Column]

    def fail(self, row: int, field: str, problem: str) -> NoReturn:
        """Refuse the file for one cell; rows count from 1, without the header."""
        raise InputError(f"{self.path}: row {row + 1}, {field}: {problem}")

    def parsed(self, field: str, parse: Callable[[object], T], known: dict[str, T] | None = None) -> list[T]:
        """Each cell parsed; cells with the same text, here or already `known`, are parsed once and share the result."""
        known = {} if known is None else known
        results = []
        for row, cell in enumerate(self.columns[field].tolist()):
            result = known.get(cell) if isinstance(cell, str) else None
            if result is None:
                try:
                    result = parse(cell)
                except CellError as error:
                    self.fail(row, field, str(error))
                if isinstance(cell, str):
                    known[cell] = result
            results.append(result)
        return results

    def numbers(self, field: str) -> NDArray[np.float64]:
        """A column of finite numbers."""
        column = self.columns[field]
        if column.dtype.kind not in "iuf":
            column = np.array([self._number(row, field, cell) for row, cell in enumerate(column.tolist())], np.float64)
        numbers = column.astype(np.float64)
        bad = ~np.isfinite(numbers)
        if bad.any():
            row = int(bad.argmax())
            self.fail(row, field, f"got {numbers[row]}, expected a number")
        return numbers

    def integers(self, field: str) -> NDArray[np.int32]:
        """A column of whole numbers."""
        numbers = self.numbers(field)
        bad = (numbers != np.floor(numbers)) | (np.abs(numbers) > _LARGEST_INTEGER)
        if bad.any():
            row = int(bad.argmax())
            self.fail(row, field, f"got {numbers[row]}, expected a whole number")
        return numbers.astype(np.int32)

    def names(self, field: str) -> list[str]:
        """A column of ids: text, or numbers as text, so that 7, 7.0, '7' and '7.0' are one id; '' where missing."""
        return self.parsed(field, _name)

    def booleans(self, field: str) -> list[bool]:
        """A column of true and false, however it was written."""
        return self.parsed(field, _boolean)

    def groups(self, keys: Collection[list[Any]]) -> dict[tuple[Hashable, ...], NDArray[np.int64]]:
        """The rows that share a key, for each key, in the order of the file."""
        rows: dict[tuple[Hashable, ...], list[int]] = {}
        for row, key in enumerate(zip(*keys, strict=True)):
            rows.setdefault(key, []).append(row)
        return {key: np.array(members) for key, members in rows.items()}

    def _number(self, row: int, field: str, cell: object) -> float:
        if isinstance(cell, str | int | float) and not isinstance(cell, bool):
            try:
                return float(cell)
            except (ValueError, OverflowError):
                pass
        self.fail(row, field, f"got {short(cell)}, expected a number")


def _name(cell: object) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, str | int | float):
        name = str(cell).strip()
        return name[:-2] if name.endswith(".0") and name[:-2].removeprefix("-").isdecimal() else name
    raise CellError(f"got {short(cell)}, expected an id")


def _boolean(cell: object) -> bool:
    word = str(cell).strip().lower() if isinstance(cell, str | int | float) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise CellError(f"got {short(cell)}, expected true or false")


def _parse_csv(data: bytes, path: Path | str, fields: Collection[str]) -> dict[str, Column]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: neither a pickled table nor CSV in UTF-8: byte {error.start} is not text") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    row_number = 0
    try:
        header = next(reader, [])
        for field in fields:
            if header.count(field) > 1:
                raise InputError(f"{path}: two columns are called {field}")
        places = {field: header.index(field) for field in fields if field in header}
        cells: dict[str, list[str]] = {field: [] for field in places}
        for row_number, row in enumerate(filter(None, reader), start=1):
            if len(row) != len(header):
                raise InputError(f"{path}: row {row_number}: {len(row)} fields, but the header has {len(header)}")
            for field, place in places.items():
                cells[field].append(row[place])
    except csv.Error as error:
        raise InputError(f"{path}: row {row_number + 1}: not well-formed CSV: {error}") from None
    return {field: np.fromiter(column, dtype=object, count=len(column)) for field, column in cells.items()}
