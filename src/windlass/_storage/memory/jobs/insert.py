"""Storing a new job."""

from __future__ import annotations

from datetime import datetime

from windlass._core.job.job import NewJob
from windlass._core.job.state import State
from windlass._core.job.unique import OnConflict, Window, replaces
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.jobs import Inserted

__all__ = ["holder_expires", "insert"]


def insert(database: MemoryDatabase, job: NewJob, now: datetime) -> Inserted:
    """`JobStore.insert` for one job that is not refused. Runs under the database's lock."""
    if job.id in database.by_id:
        return Inserted(job.id, created=True, repeated=True)
    holder = None if job.unique is None else database.holder(job.unique.key, now)
    expired = None
    if holder is not None and holder_expires(holder, job, now):
        database.expire(holder, now)
        expired = holder.asked.id
        holder = None
    if job.unique is None or holder is None:
        database.add(job, now)
        return Inserted(job.id, created=True, expired=expired)
    what = job.unique.on_conflict
    waits = holder.state is State.WAITING and not holder.blocked
    replaced = what is not OnConflict.REUSE and waits
    if replaced:
        database.replace(holder, job, what, now)
    database.tallies.count_coalesced(job, now)
    return Inserted(holder.asked.id, created=False, replaced=replaced)


def holder_expires(holder: JobRow, job: NewJob, now: datetime) -> bool:
    """Return whether the holder of a job's key waits past its expiry, and is not replaced by the
    job.
    """
    held, unique = holder.asked.unique, job.unique
    if held is None or unique is None or held.window is Window.FOR_A_TIME:
        return False
    if holder.state is not State.WAITING or holder.blocked or not holder.is_expired(now):
        return False
    return not replaces(unique.on_conflict, holder.asked.task, job.task)
