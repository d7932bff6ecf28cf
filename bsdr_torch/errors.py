"""The one error class for bad input, and how a script ends on it."""

from __future__ import annotations


class InputError(ValueError):
    """What a user gave is wrong; the message names the file, the field, and what to do."""
