"""The sweeps of `sweeps.cpp`, compiled on first use for the processor at hand."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from bsdr_torch.mdp import TabularMDP

_SOURCE = Path(__file__).with_name("sweeps.cpp")
_COMMON = ("-std=c++17", "-O3", "-shared", "-fPIC", "-Wno-psabi")
# The first set a compiler accepts is used: all there is, then without vectors of this processor, then one thread.
_FLAGS = (("-march=native", "-mprefer-vector-width=512", "-fopenmp"), ("-fopenmp",), ())
_HUGE_PAGE, _MADV_HUGEPAGE = 2**21, 14
_SUFFIX = {torch.float32: "float", torch.float64: "double"}
_log = logging.getLogger(__name__)


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether these sweeps can be had for tensors of this kind; compiles them if need be."""
    return device.type == "cpu" and dtype in _SUFFIX and _library() is not None


def cache_folder() -> Path:
    """Where what is made once for a machine is kept; a temporary folder where nothing can be."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bsdr_torch"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="bsdr_torch-"))


def prefer_huge_pages(table: Tensor) -> Tensor:
    """Asks Linux to back a new table with large pages, and returns it; elsewhere it only returns it.

    The system hands out large tables page by page as they are first written, and takes them back when they are freed:
    with pages of 4 kB that takes as long as the sweeps that fill them.
    """
    if table.device.type == "cpu" and sys.platform == "linux":
        begin = -(-table.data_ptr() // _HUGE_PAGE) * _HUGE_PAGE
        size = (table.data_ptr() + table.nbytes - begin) // _HUGE_PAGE * _HUGE_PAGE
        if size > 0:
            ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), _MADV_HUGEPAGE)  # it may refuse
    return table


class NativeSweeps:
    """The operations of a `Backup` on contiguous tables `[S, B]` in memory."""

    def __init__(
        self,
        mdp: TabularMDP,
        dtype: torch.dtype,
        discount: float,
        action_term: Tensor | None,
        pause: Tensor | None,
        stay: int,
    ) -> None:
        library = _library()
        assert library is not None, "callers ask available() first"
        suffix = _SUFFIX[dtype]
        self._sweep = library[f"sweep_{suffix}"]
        self._outflow = library[f"outflow_{suffix}"]
        self._arrivals = library[f"arrivals_{suffix}"]
        self._advance = library[f"advance_{suffix}"]
        self._mdp, self._dtype = mdp, dtype
        S, A, K = mdp.next_state.shape
        probability = None if mdp.probability is None else mdp.probability.to(dtype).contiguous()
        term = None if action_term is None else action_term.to(dtype).contiguous()
        next_state, terminal = mdp.next_state.contiguous(), mdp.terminal
        pause = None if pause is None else pause.to(dtype).contiguous()
        self._kept = (next_state, probability, terminal, term, pause)  # what the pointers below point to
        strides = (0, 0, 0) if term is None else (*term.expand(S, A, -1).stride()[:2], int(term.shape[2] > 1))
        self._problem = _Problem(
            S=S,
            A=A,
            K=K,
            next_state=_pointer(next_state),
            probability=_pointer(probability),
            action_stride=K if probability is not None and probability.shape[1] == A else 0,
            terminal=_pointer(terminal),
            action_term=_pointer(term),
            term_stride=strides,
            discount=discount,
            pause=_pointer(pause),
            stay=stay,
        )

    def sweep(self, reward: Tensor, next_values: Tensor, out: Tensor) -> None:
        """V_t from V_{t+1}."""
        self._sweep(self._at(next_values), _pointer(reward), _pointer(next_values), _pointer(out))

    def outflow(self, next_values: Tensor, weight: Tensor, out: Tensor) -> None:
        """weight(s) pi(a|s), into `[S, A, B]`."""
        self._outflow(self._at(next_values), _pointer(next_values), _pointer(weight), _pointer(out))

    def arrivals(self, flow: Tensor, out: Tensor) -> None:
        """Where the flow `[S, A, B]` arrives, discounted."""
        incoming = self._mdp.incoming
        chance = None if incoming.chance is None else incoming.chance.to(self._dtype)
        self._arrivals(
            self._at(flow),
            _pointer(flow),
            _pointer(incoming.offset),
            _pointer(incoming.source),
            _pointer(chance),
            _pointer(out),
        )

    def fuses_advance(self, table: Tensor) -> bool:
        """Whether `advance` is the faster way for a table `[S, B]`: see the two conditions."""
        # With few humans the numbers that arrive in a state are added one by one, and `arrivals` does that better.
        whole_lines = table.shape[1] * table.element_size() >= 64
        # Threads that share the states all look at what is in reach of theirs.
        return whole_lines and 16 * self._mdp.reach <= self._mdp.num_states

    def advance(self, next_values: Tensor, weight: Tensor, visits: Tensor, out: Tensor) -> None:
        """One step of the adjoint in one pass; `out` is not `weight`."""
        self._advance(
            self._at(weight),
            _pointer(next_values),
            _pointer(weight),
            _pointer(visits),
            _pointer(out),
            self._mdp.reach,
        )

    def _at(self, table: Tensor) -> int:
        """The problem, for as many humans as the table has columns and as many threads as torch uses."""
        self._problem.B = table.shape[-1]
        self._problem.threads = torch.get_num_threads()
        return ctypes.addressof(self._problem)


class _Problem(ctypes.Structure):
    """`Problem` of sweeps.cpp, field by field."""

    _fields_ = (
        ("S", ctypes.c_int64),
        ("A", ctypes.c_int64),
        ("K", ctypes.c_int64),
        ("B", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("next_state", ctypes.c_void_p),
        ("probability", ctypes.c_void_p),
        ("action_stride", ctypes.c_int64),
        ("terminal", ctypes.c_void_p),
        ("action_term", ctypes.c_void_p),
        ("term_stride", ctypes.c_int64 * 3),
        ("discount", ctypes.c_double),
        ("pause", ctypes.c_void_p),
        ("stay", ctypes.c_int64),
    )


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


@functools.cache
def _library() -> dict[str, ctypes._NamedFuncPointer] | None:
    """The entry points, or None where there is no compiler; says so once."""
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    path = None if compiler is None else _compiled(compiler)
    if path is None:
        _log.warning("no C++ compiler that works was found, so sweeps run in plain torch: right, but slower")
        return None
    library = ctypes.CDLL(str(path))
    functions = {}
    for suffix in _SUFFIX.values():
        for name, arguments in (("sweep", 4), ("outflow", 4), ("arrivals", 6), ("advance", 6)):
            function = library[f"{name}_{suffix}"]
            function.argtypes, function.restype = [ctypes.c_void_p] * arguments, None
            functions[f"{name}_{suffix}"] = function
    return functions


def _compiled(compiler: str) -> Path | None:
    """The shared library for this source, compiler and processor, from the cache or made now."""
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    key = hashlib.sha256(_SOURCE.read_bytes() + version + repr((_COMMON, _FLAGS)).encode() + _processor()).hexdigest()
    target = cache_folder() / f"sweeps-{key[:16]}.so"
    if target.exists():
        return target
    _log.warning("compiling the sweeps with %s, once for this machine: %s", compiler, target)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        for flags in _FLAGS:
            done = subprocess.run([compiler, *_COMMON, *flags, "-o", made, _SOURCE], capture_output=True, check=False)
            if done.returncode == 0:
                made.replace(target)  # at once, so that another process never loads half a file
                return target
    return None


def _processor() -> bytes:
    """What tells this processor's instruction set from another's: a home folder may be shared between machines."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), platform.processor())
    return f"{platform.machine()} {flags}".encode()
