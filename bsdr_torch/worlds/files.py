"""Where the files that define worlds are."""

from __future__ import annotations

from pathlib import Path


def world_folder(kind: str) -> Path:
    """Where the files of `kind` of world are."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "envs" / kind
    return installed if installed.is_dir() else package.parent / "envs" / kind
