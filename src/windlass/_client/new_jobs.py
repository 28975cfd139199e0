"""Calls as the store wants them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from windlass._core.job.caller import CORRELATION_KEYS, PRINCIPAL_KEYS, first_usable
from windlass._core.job.job import JobId, NewJob
from windlass._core.values.names import MAX_TEXT, shown
from windlass._settings.settings import Settings
from windlass._storage.protocol.jobs import Inserted
from windlass._tasks.handle import Job, JobClient
from windlass._tasks.limits import JOB_ATTRIBUTES
from windlass._tasks.options import first_set
from windlass._tasks.task import Call, JobOptions, Task
from windlass.errors import InvalidArgument

__all__ = ["check_calls", "job_for", "needs_limits", "new_job", "new_jobs", "note_ids"]

R = TypeVar("R")

_MOST = 100_000
"""Calls in one transaction, which keeps every other writer out as long as it takes."""


def check_calls(calls: Sequence[Call[Any]], what: str = "enqueue_many") -> None:
    """Refuse what cannot, or should not, go into one transaction. ``what`` takes the calls."""
    if len(calls) > _MOST:
        message = (
            f"{what} got {len(calls):,} calls, and one transaction blocks every other "
            f"writer. Enqueue them in slices of at most {_MOST:,}."
        )
        raise InvalidArgument(message)
    for call in calls:
        given: object = call
        if not isinstance(given, Call):
            message = f"{what} takes calls made by task.call(...), got {shown(given)}"
            raise InvalidArgument(message)


def new_job(call: Call[Any], settings: Settings, job_id: JobId) -> NewJob:
    """Return a call as the store wants it: task options filled in, identity read from the
    arguments.
    """
    ask, task = call.options, call.task.settings
    principal, correlation_id = _identity(call)
    new = NewJob(
        id=job_id,
        task=task.name,
        queue=ask.queue or settings.queue_of(task.name, task.queue),
        payload=call.payload,
        priority=task.priority if ask.priority is None else ask.priority,
        delay=ask.delay,
        at=ask.at,
        max_attempts=ask.max_attempts or task.max_attempts or settings.max_attempts,
        timeout=first_set(ask.timeout, task.timeout, settings.timeout),
        expires=ask.expires or task.expires,
        backoff=ask.backoff,
        limits=call.limits,
        unique=call.unique or ask.unique,
        tags=(*(task.tags if ask.tags is None else ask.tags), *call.task.codec.marks),
        tenant=ask.tenant,
        principal=principal,
        correlation_id=correlation_id,
        parent=None if ask.parent is None else JobId(ask.parent),
        on_failure=call.task.follow_up("on_failure", settings),
        on_lost=ask.on_lost or task.on_lost,
    )
    return _with_keys(new, call) if call.task.reads_job else new


def _identity(call: Call[Any]) -> tuple[str | None, str | None]:
    """Return the principal and the correlation id of a call."""
    principal, correlation_id = call.options.principal, call.options.correlation_id
    if call.arguments is not None:
        principal = principal or _found(call.arguments, PRINCIPAL_KEYS)
        correlation_id = correlation_id or _found(call.arguments, CORRELATION_KEYS)
    return principal, correlation_id


def _with_keys(new: NewJob, call: Call[Any]) -> NewJob:
    """Return the job with limits whose keys name values that only the finished job has, such as an
    inherited tenant.
    """
    ask, secrets = call.options, call.task.codec.secrets
    hidden = [
        name
        for name, said, keys in (
            ("principal", ask.principal, PRINCIPAL_KEYS),
            ("correlation_id", ask.correlation_id, CORRELATION_KEYS),
        )
        if said is None and not secrets.isdisjoint(keys)
    ]
    attributes = {name: getattr(new, name) for name in JOB_ATTRIBUTES}
    limits = call.task.limits_of(call, attributes, hidden)
    return msgspec.structs.replace(new, limits=limits)


def note_ids(error: BaseException, ids: Iterable[JobId]) -> None:
    """Say on an error, or a cancellation, which ids the call that it ends has used."""
    vars(error)["ids"] = tuple(ids)


def needs_limits(call: Call[Any]) -> bool:
    """Return whether something must be defined before the call is stored."""
    return bool(call.limits) or call.task.settings.on_failure is not None


def job_for(handles: JobClient, call: Call[R], reply: Inserted) -> Job[R]:
    """Return the job of a call that was stored."""
    return Job(handles, reply.id, created=reply.created, replaced=reply.replaced, task=call.task)


def _found(arguments: Mapping[str, object], keys: Sequence[str]) -> str | None:
    """Cut to the allowed length: the value is inherited, so it must fail neither this call nor the
    next one that inherits it.
    """
    found = first_usable(arguments, keys)
    return None if found is None else found[:MAX_TEXT]


def new_jobs(calls: Sequence[Call[Any]], settings: Settings, ids: Sequence[JobId]) -> list[NewJob]:
    """Return the same for many. Neighbours that differ in their arguments alone share the rest."""
    news: list[NewJob] = []
    model: NewJob | None = None
    task: Task[..., Any] | None = None
    options: JobOptions | None = None
    plain = False
    for call, job_id in zip(calls, ids, strict=True):
        if model is None or task is None or call.task is not task or call.options is not options:
            model = new_job(call, settings, job_id)
            news.append(model)
            task, options, plain = call.task, call.options, call.arguments is None
        elif plain and call.arguments is None:
            news.append(msgspec.structs.replace(model, id=job_id, payload=call.payload))
        elif task.reads_job:
            news.append(new_job(call, settings, job_id))
        else:
            news.append(_like(model, call, job_id))
    return news


def _like(model: NewJob, call: Call[Any], job_id: JobId) -> NewJob:
    """Return the job of a call that differs from that of ``model`` in what its arguments say."""
    principal, correlation_id = _identity(call)
    return msgspec.structs.replace(
        model,
        id=job_id,
        payload=call.payload,
        limits=call.limits,
        unique=call.unique or call.options.unique,
        principal=principal,
        correlation_id=correlation_id,
    )
