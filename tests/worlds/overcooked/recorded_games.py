"""The 2019 games inside the installed overcooked-ai package, as plain columns, for the tests of the simulator."""

from __future__ import annotations

import importlib.util
import pickle
from pathlib import Path
from typing import Any

import numpy as np

_NUMPY = {
    "_reconstruct": np.empty(0).__reduce__()[0],  # numpy's own constructor of arrays, wherever this numpy has it
    "ndarray": np.ndarray,
    "dtype": np.dtype,
}


class _Part:
    """Stands for whatever pandas class the file names; keeps what it was given and does nothing."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numpy") and name in _NUMPY:
            return _NUMPY[name]
        if module.startswith("pandas"):
            return _Part
        raise pickle.UnpicklingError(f"refused {module}.{name}")


def recorded_columns() -> dict[str, np.ndarray]:
    """The columns of both files, one after the other: 91,102 rows."""
    spec = importlib.util.find_spec("overcooked_ai_py")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "data" / "human_data"
    tables = [_columns(folder / f"clean_{part}_trials.pickle") for part in ("train", "test")]
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _columns(path: Path) -> dict[str, np.ndarray]:
    with path.open("rb") as file:
        frame = _Unpickler(file).load()
    manager = frame.state["_data"] if isinstance(frame.state, dict) else frame.state
    parts = manager.state[-1]["0.14.1"]
    names = parts["axes"][0].arguments[1]["data"]
    return {
        names[column]: values
        for block in parts["blocks"]
        for column, values in zip(np.atleast_1d(block["mgr_locs"]), block["values"], strict=True)
    }
