"""The one error class for bad input, and how a script ends on it."""

from __future__ import annotations

import sys
from collections.abc import Callable


class InputError(ValueError):
    """What a user gave is wrong; the message names the file, the field, and what to do."""


def run_script(main: Callable[[], None]) -> None:
    """Runs a script's `main`; bad input ends it with one line on standard error and exit code 2."""
    try:
        main()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
