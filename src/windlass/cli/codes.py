"""Exit codes."""

from __future__ import annotations

__all__ = ["COULD_NOT_START", "COULD_NOT_STOP", "IN_ORDER", "WORN_OUT"]

IN_ORDER = 0
"""Stopped as asked, or there was nothing left to do."""
COULD_NOT_START = 1
"""A wrong option, setting or app, or a storage that cannot be opened."""
COULD_NOT_STOP = 70
"""An error of the worker itself, or a stop that took too long and was cut short."""
WORN_OUT = 75
"""For a supervisor only: replace me at once."""
