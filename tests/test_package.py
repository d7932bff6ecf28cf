"""What users get when they install."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel_holds_the_package_and_its_worlds_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"bsdr_torch", "bsdr_torch-0.1.0.dist-info"}
    assert "bsdr_torch/envs/gridworld/meadow.yaml" in names
    assert "bsdr_torch/envs/overcooked/cramped_room.yaml" in names
    assert "bsdr_torch/py.typed" in names


def test_importing_prints_nothing_and_warns_of_nothing() -> None:
    modules = "bsdr_torch.worlds.overcooked, bsdr_torch.mdp, bsdr_torch.soft_bellman"
    done = subprocess.run([sys.executable, "-W", "error", "-c", f"import {modules}"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
