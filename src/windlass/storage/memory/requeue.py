"""Putting an ended job back to waiting."""

from __future__ import annotations

from datetime import datetime

from windlass.core.state import State
from windlass.core.unique import Window
from windlass.storage.memory.database import MemoryDatabase
from windlass.storage.memory.row import Row

__all__ = ["REQUEUABLE", "requeue", "retakes_key"]

REQUEUABLE = frozenset({State.FAILED, State.CANCELLED, State.DISCARDED})


def retakes_key(row: Row) -> bool:
    """Whether the job holds its key again. A key held until the start was given up for good."""
    return row.asked.unique is not None and row.asked.unique.window is not Window.UNTIL_STARTED


def requeue(database: MemoryDatabase, row: Row, now: datetime) -> None:
    """The job waits again, ready now, with a fresh budget. Its key is free, or its own."""
    row.max_attempts = row.attempt + row.asked.max_attempts
    row.expires_at = row.finished_at = row.missed_at = row.missed_why = row.reason = None
    row.cancel_requested = row.solo = False
    row.key_spent = True
    row.lost = 0
    if retakes_key(row) and not database.holds_key(row, now):
        database.take_key(row, now)
    database.stand(row, now, now)
