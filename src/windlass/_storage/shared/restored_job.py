"""Jobs that come from another storage."""

from __future__ import annotations

from windlass._core.job.job import NewJob
from windlass._storage.protocol.copy import StoredJob

__all__ = ["asked_of"]


def asked_of(stored: StoredJob) -> NewJob:
    """Rebuild what was asked for, as far as it still matters: due time and expiry are instants
    by now.
    """
    job = stored.job
    return NewJob(
        id=job.id,
        task=job.task,
        queue=job.queue,
        payload=job.payload,
        priority=job.priority,
        max_attempts=job.budget,
        timeout=job.timeout,
        backoff=job.backoff,
        unique=stored.unique,
        limits=job.limits,
        tags=job.tags,
        tenant=job.tenant,
        principal=job.principal,
        correlation_id=job.correlation_id,
        trace=job.trace,
        parent=job.parent,
        on_failure=job.on_failure,
        on_lost=job.on_lost,
    )
