"""The installed overcooked-ai package: its files, and its game, imported in silence."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from functools import cache
from pathlib import Path
from types import ModuleType

from bsdr_torch.errors import InputError
from bsdr_torch.worlds.overcooked.layouts import DIRECTIONS

# What overcooked-ai calls each of `ACTIONS`.
OVERCOOKED_AI_ACTIONS = (*DIRECTIONS, (0, 0), "interact")


def packaged_file(name: str) -> Path:
    """A file or folder of overcooked-ai, such as "data/layouts"; found without importing the package."""
    spec = importlib.util.find_spec("overcooked_ai_py")
    if spec is None or not spec.submodule_search_locations:
        raise InputError("the package overcooked-ai is not installed: pip install overcooked-ai")
    path = Path(spec.submodule_search_locations[0]) / name
    if not path.exists():
        raise InputError(f"{path}: not there: install overcooked-ai 1.1.0 from its source package, which has the data")
    return path


@cache
def overcooked_ai_mdp() -> ModuleType:
    """overcooked-ai's module of the game, imported without the text that its dead dependency `gym` prints."""
    with contextlib.redirect_stderr(io.StringIO()):
        from overcooked_ai_py.mdp import overcooked_mdp
    return overcooked_mdp  # type: ignore[no-any-return]
