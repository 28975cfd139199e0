"""What a worker that ends because nothing is ready leaves behind, in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from windlass.errors import StorageError
from windlass.storage.protocol import QueueCounts, Storage

__all__ = ["in_words", "remaining"]

_EMPTY = "nothing is left to do"


async def remaining(storage: Storage, queues: Sequence[str]) -> str:
    """How things stand on ``queues``: asked of the store, which other programs use too."""
    try:
        counts = [one for one in await storage.admin.counts() if one.queue in queues]
        due = await storage.maintenance.next_due(queues)
        return in_words(counts, due, await storage.now())
    except StorageError:
        return "nothing is ready"  # what else there is cannot be asked just now


def in_words(counts: Sequence[QueueCounts], due: datetime | None, now: datetime) -> str:
    """``nothing is ready; 2 jobs wait for later, the next at 23:18:53``."""
    later = sum(one.scheduled for one in counts)
    paused = sum(one.ready for one in counts if one.paused)
    parts = []
    if later:
        at = f", the next at {_clock(due, now)}" if due is not None else ""
        parts.append(f"{_jobs(later)} for later{at}")
    if paused:
        parts.append(f"{_jobs(paused)} in a paused queue")
    return "; ".join(["nothing is ready", *parts]) if parts else _EMPTY


def _jobs(count: int) -> str:
    return "1 job waits" if count == 1 else f"{count:,} jobs wait"


def _clock(due: datetime, now: datetime) -> str:
    """Local time, with the day when it is not within one."""
    near = due - now < timedelta(hours=24)
    return f"{due.astimezone():%H:%M:%S}" if near else f"{due.astimezone():%Y-%m-%d %H:%M:%S}"
