"""New jobs as JSON, for functions that take them as a list."""

from __future__ import annotations

from datetime import datetime

import msgspec

from windlass._core.job.job import JobId, NewJob
from windlass._core.values.instants import FIRST_INSTANT, clamp_instant
from windlass._storage.postgres.io.rows import stored_span
from windlass._storage.postgres.jobs.insert import conflict_of

__all__ = ["JobJson", "job_json_of"]

_encode = msgspec.json.encode


class JobJson(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One new job. Durations are microseconds, the payload travels as base64."""

    id: JobId
    task: str
    queue: str
    payload: bytes
    priority: int
    max_attempts: int
    due: datetime | None = None
    delay: int | None = None
    timeout: int | None = None
    expires: int | None = None
    key: str | None = None
    key_window: str | None = None
    key_period: int | None = None
    limits: str | None = None
    backoff: str | None = None
    tags: str | None = None
    tenant: str | None = None
    principal: str | None = None
    correlation_id: str | None = None
    trace: str | None = None
    parent: str | None = None
    on_conflict: str | None = None
    on_failure: str | None = None
    on_lost: str | None = None


def job_json_of(new: NewJob) -> JobJson:
    """Return a job as ``insert_listed`` reads it."""
    unique = new.unique
    uses = [(use.gate, use.cost) for use in new.limits]
    return JobJson(
        id=new.id,
        task=new.task,
        queue=new.queue,
        payload=new.payload,
        priority=new.priority,
        max_attempts=new.max_attempts,
        due=None if new.at is None else max(clamp_instant(new.at), FIRST_INSTANT),
        delay=stored_span(new.delay),
        timeout=stored_span(new.timeout),
        expires=stored_span(new.expires),
        key=None if unique is None else unique.key,
        key_window=None if unique is None else str(unique.window),
        key_period=None if unique is None else stored_span(unique.period),
        limits=_encode(uses).decode() if uses else None,
        backoff=None if new.backoff is None else _encode(new.backoff).decode(),
        tags=_encode(new.tags).decode() if new.tags else None,
        tenant=new.tenant,
        principal=new.principal,
        correlation_id=new.correlation_id,
        trace=new.trace,
        parent=new.parent,
        on_conflict=conflict_of(new),
        on_failure=None if new.on_failure is None else _encode(new.on_failure).decode(),
        on_lost=None if new.on_lost == "retry" else new.on_lost,
    )
