"""Whoever reads what goes on for long may have had enough of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["while_read"]


@contextmanager
def while_read() -> Iterator[None]:
    """Ends quietly when the reader of a pipe has gone: ``windlass top --json | head -1``."""
    try:
        yield
    except BrokenPipeError:
        # What is still in the buffer would be tried once more at the exit, and fail it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
