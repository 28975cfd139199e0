"""Ids that are stored already: a repeated call, or another one."""

from __future__ import annotations

from windlass.core.job import NewJob

__all__ = ["MAY_BE_STORED", "is_repeat"]

MAY_BE_STORED = (
    "If this call was an enqueue, its jobs may have been stored: repeat it with the ids of this "
    "error (error.ids)."
)
"""What an outage in the middle of an operation leaves to say."""


def is_repeat(job: NewJob, task: str, payload: bytes, key: str | None) -> bool:
    """Whether what is stored under a job's id is that very call.

    Under the same unique key the arguments may have been replaced since.
    """
    if task != job.task:
        return False
    return payload == job.payload or (job.unique is not None and job.unique.key == key)
