"""Jobs that come with something else, and must not stop it over a key."""

from __future__ import annotations

from msgspec.structs import replace

from windlass.core.job import NewJob
from windlass.core.unique import OnConflict

__all__ = ["yielding"]


def yielding(job: NewJob) -> NewJob:
    """The job as one that is left out when its key is held, whatever it says itself."""
    if job.unique is None or job.unique.on_conflict is OnConflict.REUSE:
        return job
    return replace(job, unique=replace(job.unique, on_conflict=OnConflict.REUSE))
