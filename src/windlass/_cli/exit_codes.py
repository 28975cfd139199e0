"""Exit codes."""

from __future__ import annotations

__all__ = [
    "COULD_NOT_START",
    "COULD_NOT_STOP",
    "HANDLER_FAILED",
    "IN_ORDER",
    "OUTDATED",
    "PENDING",
    "STORAGE_LOST",
    "UNHEALTHY",
    "UNSTORED",
    "WORN_OUT",
]

IN_ORDER = 0
"""Stopped as asked, or there was nothing left to do."""
COULD_NOT_START = 1
"""A wrong option, setting or app, or a storage that cannot be used."""
UNHEALTHY = 2
"""`windlass doctor` found something that is bad; with --strict, something to warn of."""
PENDING = 2
"""`windlass db migrate --check` found a storage that must be migrated."""
HANDLER_FAILED = 3
"""`windlass jobs replay` has run the handler, and it did not return."""
COULD_NOT_STOP = 70
"""An error of the worker itself, an event loop that a handler ended for good, or a stop that took
too long and was cut short."""
UNSTORED = 73
"""It ended before it could store every outcome: an outage outlasted the stop."""
STORAGE_LOST = 74
"""The database was deleted or replaced while it was open. Started again, it opens the new one."""
WORN_OUT = 75
"""For a supervisor only: replace me at once."""
OUTDATED = 78
"""A newer Windlass has changed the storage: upgrade this one before it is started again."""
