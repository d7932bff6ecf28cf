"""The engine against the `imitation` package, which lives in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bsdr_torch import soft_bellman
from bsdr_torch.benchmarks.measure import Record, cost
from bsdr_torch.benchmarks.soft_bellman import grid
from bsdr_torch.errors import InputError
from bsdr_torch.native import cache_folder

IMITATION = "imitation==1.0.1"
_PROGRAM = Path(__file__).with_name("imitation_program.py")


def measurements(quick: bool) -> list[Callable[[], list[Record]]]:
    """Partition and occupancy of one human on N x N grids."""
    return [partial(_against_imitation, N, 5 if quick else 100) for N in ((6,) if quick else (45, 100))]


def solve(S: int, T: int) -> Callable[[], tuple[Tensor, Tensor]]:
    """All values and the expected visits of one human by the engine, in float64 as the peer computes."""
    world, reward = grid(S), _reward(S).requires_grad_()
    start = world.start.double()

    def work() -> tuple[Tensor, Tensor]:
        values = soft_bellman.soft_values(world, reward, horizon=T)
        (visits,) = torch.autograd.grad(start @ values[0, :, 0], reward)
        return values.detach(), visits

    return work


def _against_imitation(N: int, T: int) -> list[Record]:
    S = N * N
    ours = cost(solve, {"S": S, "T": T}, {"S": 60, "T": 4}, repeats=20)
    theirs = _imitation(S, T, repeats=5 if N < 60 else 1)
    values, visits = solve(S, T)()
    policy = torch.stack([soft_bellman.log_policy(grid(S), after).exp()[..., 0] for after in values[1:]])
    gaps = {"values": values[:-1, :, 0], "policy": policy, "visits": visits[:, 0]}
    gap = max(float((ours_ - torch.from_numpy(theirs[name])).abs().max()) for name, ours_ in gaps.items())
    seconds = float(theirs["seconds"])
    return [
        Record(f"time_vs_imitation_{N}", seconds / ours.seconds, "x", f"{IMITATION}, {N} x {N} grid: {seconds:.3g} s"),
        Record(f"gap_to_imitation_{N}", gap, "", f"largest difference in values, policy, visits; {IMITATION}"),
    ]


def _imitation(S: int, T: int, repeats: int) -> dict[str, np.ndarray]:
    world = grid(S)
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "world.npz", Path(folder) / "result.npz"
        np.savez(
            given,
            next_state=world.next_state[..., 0].numpy(),
            reward=_reward(S)[:, 0].numpy(),
            start=world.start.double().numpy(),
            horizon=T,
        )
        _run([str(_environment()), str(_PROGRAM), str(given), str(result), str(repeats)])
        with np.load(result) as arrays:
            return dict(arrays)


def _environment() -> Path:
    """The Python of an environment that holds the peer, made on first use; never the project's own."""
    folder = cache_folder() / f"peers-{IMITATION.replace('==', '-')}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        same_torch = f"torch=={torch.__version__.split('+')[0]}"  # and not the newest, with everything for GPUs
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", same_torch, IMITATION])
        ready.touch()
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"--peers could not run {' '.join(command[:4])}: {last}")


def _reward(S: int) -> Tensor:
    return torch.randn(S, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
