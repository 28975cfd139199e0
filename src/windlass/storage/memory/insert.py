"""Storing a new job."""

from __future__ import annotations

from datetime import datetime

from windlass.core.job import NewJob
from windlass.core.state import State
from windlass.core.unique import OnConflict
from windlass.storage.memory.database import MemoryDatabase
from windlass.storage.protocol import Inserted

__all__ = ["insert"]


def insert(database: MemoryDatabase, job: NewJob, now: datetime) -> Inserted:
    """`JobStore.insert` for one job that is not refused. Runs under the database's lock."""
    if job.id in database.by_id:
        return Inserted(job.id, created=True)
    holder = None if job.unique is None else database.holder(job.unique.key, now)
    if job.unique is None or holder is None:
        database.add(job, now)
        return Inserted(job.id, created=True)
    what = job.unique.on_conflict
    replaced = what is not OnConflict.REUSE and holder.state is State.WAITING
    if replaced:
        database.replace(holder, job, what, now)
    return Inserted(holder.asked.id, created=False, replaced=replaced)
