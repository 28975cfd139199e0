"""Jobs that come from another storage."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from windlass._core.job.job import FlowId, NewJob
from windlass._storage.protocol.copy import CopiedRecord, HeldMember, StoredJob
from windlass.errors import StorageError

__all__ = ["asked_of", "require_flows"]


def asked_of(stored: StoredJob) -> NewJob:
    """Rebuild what was asked for, as far as it still matters: due time and expiry are instants
    by now, but for members whose turn has not come.
    """
    job, held = stored.job, stored.held or HeldMember()
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
        at=held.at,
        delay=held.delay,
        expires=held.expires,
    )


def require_flows(things: Sequence[CopiedRecord], known: Collection[FlowId]) -> None:
    """Refuse a member whose flow is not known: as a plain job it would wait for nothing."""
    for thing in things:
        if isinstance(thing, StoredJob) and thing.job.flow is not None:
            flow = thing.job.flow.flow
            if flow not in known:
                raise StorageError(
                    f"job {thing.job.id} belongs to flow {flow}, which was not copied: the source "
                    f"was changed during the copy. Stop producers, and copy again"
                )
