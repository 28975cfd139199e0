"""Rules for new jobs: repeated ids, and jobs that give way to the holder of their key."""

from __future__ import annotations

from msgspec.structs import replace

from windlass._core.job.job import NewJob
from windlass._core.job.unique import OnConflict

__all__ = ["MAY_BE_STORED", "is_repeat", "skip_if_key_held"]

MAY_BE_STORED = (
    "If this call was an enqueue, its jobs may have been stored: repeat it with the ids of this "
    "error (error.ids)."
)
"""The text after an outage in the middle of an operation."""


def skip_if_key_held(job: NewJob) -> NewJob:
    """Return the job as one that is left out when its key is held, with any ``on_conflict``."""
    if job.unique is None or job.unique.on_conflict is OnConflict.REUSE:
        return job
    return replace(job, unique=replace(job.unique, on_conflict=OnConflict.REUSE))


def is_repeat(job: NewJob, task: str, payload: bytes, key: str | None) -> bool:
    """Return whether what is stored under a job's id is that very call.

    Under the same unique key the arguments may have been replaced since.
    """
    if task != job.task:
        return False
    return payload == job.payload or (job.unique is not None and job.unique.key == key)
