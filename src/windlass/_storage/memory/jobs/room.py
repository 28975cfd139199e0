"""Room for new jobs in a bounded database."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from windlass._core.job.job import NewJob
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.shared.errors import CapacityReached

__all__ = ["require_room"]


def require_room(database: MemoryDatabase, jobs: Sequence[NewJob], now: datetime) -> None:
    """Refuse jobs beyond ``max_jobs``. Runs under the database's lock.

    For calls of producers only. Schedules, follow-up jobs and operators' actions always find room:
    they happen inside other writes, which must not fail.
    """
    most = database.bounds.max_jobs
    if most is None:
        return
    wanted = len({job.id for job in jobs if _is_new(database, job, now)})
    unfinished = _unfinished(database)
    if unfinished + wanted <= most:
        return
    if wanted > most:
        message = (
            f"{wanted:,} jobs in one call are more than max_jobs={most} of memory:// ever allows. "
            f"Enqueue fewer at once, or raise max_jobs."
        )
        raise CapacityReached(message)
    message = (
        f"memory:// holds {unfinished:,} unfinished jobs, and max_jobs={most} leaves no "
        f"room for {wanted:,} more. Enqueue again when workers have run some, raise max_jobs, or "
        f"let enqueue wait: full=wait."
    )
    waits = database.bounds.full == "wait"
    raise CapacityReached(message, partial(_until_room, database, wanted) if waits else None)


def _unfinished(database: MemoryDatabase) -> int:
    """Return how many jobs wait or run."""
    return len(database.rows) - len(database.ended)


def _is_new(database: MemoryDatabase, job: NewJob, now: datetime) -> bool:
    held = job.unique is not None and database.holder(job.unique.key, now) is not None
    return job.id not in database.by_id and not held


async def _until_room(database: MemoryDatabase, wanted: int) -> None:
    """Wait until that number of jobs fits. Another producer may be faster: then it is refused, and
    waits again.
    """
    most = database.bounds.max_jobs or 0
    freed = asyncio.Event()
    subscriber = database.room.add(freed.set)
    try:
        while _unfinished(database) + wanted > most:
            await freed.wait()
            freed.clear()
    finally:
        database.room.remove(subscriber)
