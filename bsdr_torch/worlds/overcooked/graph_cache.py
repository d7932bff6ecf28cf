"""Enumerated kitchens on disk, so that each is enumerated once."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked.graph import KitchenGraph, checked_starts, enumerate_kitchen
from bsdr_torch.worlds.overcooked.layouts import Layout
from bsdr_torch.worlds.overcooked.limits import Limits


def load_graph(
    layout: Layout,
    limits: Limits | None = None,
    starts: Tensor | None = None,
    device: torch.device | str = "cpu",
    folder: str | Path | None = None,
) -> KitchenGraph:
    """The graph of `enumerate_kitchen`, from disk if it was enumerated before.

    Args:
        layout: The kitchen.
        limits: What to limit the enumeration to.
        starts: `[N, W]`, the layout's start if not given.
        device: Where to enumerate it and put it.
        folder: Where the graphs are, `graph_folder()` if not given. A file that cannot be read is made again.
    """
    limits = limits or Limits()
    starts = checked_starts(layout, limits, starts)
    folder = graph_folder() if folder is None else Path(folder)
    path = folder / f"{layout.name}-{graph_key(layout, limits, starts)[:32]}.npz"
    if path.exists():
        try:
            graph = _read(path, layout, limits)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            warnings.warn(
                f"{path} is damaged ({error}): the kitchen is enumerated again and the file replaced", stacklevel=2
            )
        else:
            _check_budget(graph)
            return graph.to(device)
    graph = enumerate_kitchen(layout, limits, starts, device)
    try:
        _write(path, graph)
    except OSError as error:
        warnings.warn(f"{path} cannot be written ({error.strerror}): the graph is not kept", stacklevel=2)
    return graph


def graph_folder() -> Path:
    """Where graphs are kept: bsdr_torch/kitchens in $XDG_CACHE_HOME, which is ~/.cache if not set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bsdr_torch" / "kitchens"


def graph_key(layout: Layout, limits: Limits, starts: Tensor) -> str:
    """A digest of all that a graph depends on: the kitchen, the limits, the starts, and the code of the rules."""
    digest = hashlib.sha256()
    content = asdict(layout)
    del content["name"]
    digest.update(json.dumps([content, limits.max_objects, limits.timers]).encode())
    digest.update(f"{starts.dtype} {tuple(starts.shape)}".encode())
    digest.update(starts.cpu().contiguous().numpy().tobytes())
    # The code itself stands for its version: a number would be forgotten when a rule changes.
    for name in ("layouts", "state", "rules", "dynamics", "limits", "key_index", "graph"):
        digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    return digest.hexdigest()


def _write(path: Path, graph: KitchenGraph) -> None:
    """All of the file or none of it: it gets its name when it is complete."""
    tensors = {"states": graph.states, "next_state": graph.next_state, "start": graph.start}
    if graph.chance is not None:
        tensors["chance"] = graph.chance
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        try:
            arrays: dict[str, Any] = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
            np.savez(file, **arrays)
            file.close()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _read(path: Path, layout: Layout, limits: Limits) -> KitchenGraph:
    """The graph in a file; zip archives carry a checksum of each tensor, which reading compares."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in ("states", "next_state", "start", "chance") if name in file}
    if not all(isinstance(array, np.ndarray) and len(array) == len(arrays["states"]) for array in arrays.values()):
        raise ValueError("it does not hold a graph")
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return KitchenGraph(
        layout, limits, tensors["states"], tensors["next_state"], tensors.get("chance"), tensors["start"]
    )


def _check_budget(graph: KitchenGraph) -> None:
    limits = graph.limits
    if graph.num_states > limits.max_states:
        raise InputError(
            f"{graph.layout.name} has {graph.num_states:,} states with {limits.max_objects} objects on counters and "
            f"{limits.timers} timers, more than max_states = {limits.max_states:,}: raise it, allow fewer objects, or "
            'use timers="cooking"'
        )
