"""Tables of typed columns in .parquet and .csv files, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from bsdr_torch.errors import InputError

# What writes a table after the other, by the end of a file's name.
_STREAMS: dict[str, Callable[[Path, pa.Schema], Any]] = {
    ".parquet": lambda path, schema: pa.parquet.ParquetWriter(path, schema, compression="zstd"),
    ".csv": pa.csv.CSVWriter,
}


def read_columns(path: str | Path, columns: Mapping[str, pa.DataType]) -> pa.Table:
    """The named columns of a .parquet or .csv file, in their types, without missing values."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        if path.suffix == ".parquet":
            table = pa.parquet.read_table(path)
        elif path.suffix == ".csv":
            table = pa.csv.read_csv(path)
        else:
            raise InputError(f"{path}: expected a name that ends in .parquet or .csv")
        table.validate(full=True)  # also that texts are texts
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read as {path.suffix[1:]}: {error}") from None
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise InputError(f"{path}: column {missing[0]!r} is missing; it has {', '.join(table.column_names)}")
    cast = {}
    for name, kind in columns.items():
        try:
            cast[name] = table[name].cast(kind)
        except pa.ArrowException as error:
            raise InputError(f"{path}: field {name}: {error}") from None
        if cast[name].null_count:
            row = next(i for i, value in enumerate(cast[name].is_null().to_pylist()) if value)
            raise InputError(f"{path}: row {row + 1}, field {name}: the value is missing")
    return pa.table(cast, metadata=table.schema.metadata)


def write_table(table: pa.Table, path: str | Path) -> None:
    """Writes a .parquet or .csv file; nobody sees half of it."""
    write_tables({Path(path): table})


def write_batches(path: str | Path, tables: Iterable[pa.Table]) -> int:
    """Writes tables of the same columns as one .parquet or .csv file, each when it comes; returns the number of rows.

    Nobody sees half of it: if making or writing one of them fails, what was there before is left as it is.
    """
    path, rows = Path(path), 0
    if path.suffix not in _STREAMS:
        raise InputError(f"{path}: expected a name that ends in .parquet or .csv")

    def write(temporary: Path) -> None:
        nonlocal rows
        stream = None
        try:
            for table in tables:
                stream = stream or _STREAMS[path.suffix](temporary, table.schema)
                stream.write_table(table)
                rows += table.num_rows
        finally:
            if stream is not None:
                stream.close()

    write_files({path: write})
    return rows


def write_tables(tables: Mapping[Path, pa.Table]) -> None:
    """Writes .parquet and .csv files; if one cannot be written, all that was there before is left as it is."""
    write_files({path: _writer(table, path) for path, table in tables.items()})


def write_files(writers: Mapping[Path, Callable[[Path], object]]) -> None:
    """Calls each writer with a temporary name, and when all have succeeded renames what they wrote to its place."""
    written: dict[Path, Path] = {}
    path = Path()
    try:
        for path, write in writers.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            written[path] = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
            write(written[path])
        for path, temporary in written.items():
            temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}; what was there is as before") from None
    finally:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)


def _writer(table: pa.Table, path: Path) -> Callable[[Path], None]:
    if path.suffix == ".parquet":
        return lambda temporary: pa.parquet.write_table(table, temporary, compression="zstd")
    if path.suffix == ".csv":
        return lambda temporary: pa.csv.write_csv(table, temporary)
    raise InputError(f"{path}: expected a name that ends in .parquet or .csv")
