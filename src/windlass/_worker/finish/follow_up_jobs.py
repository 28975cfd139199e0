"""The job that follows another one: its arguments, cut to what fits."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass._core.job.job import ClaimedJob, FollowUp, JobId, NewJob
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._core.values.redaction import secret_tags_in
from windlass._tasks.follow_ups import Failure, Success

__all__ = ["follow_up_job", "minimal_follow_up_job"]

_TEXTS = ("error_kind", "error_message", "traceback")
_TRACE, _MESSAGE = 2_000, 1_000
"""Characters to keep of a text that does not fit."""
_LEAST: dict[str, Any] = {
    "arguments": None,
    "result": None,
    "traceback": "",
    "error_message": "",
    "tags": (),
}
_UNWRITABLE = (msgspec.MsgspecError, ValueError, RecursionError)


def follow_up_job(
    job: ClaimedJob, wanted: FollowUp, ended: Transition, job_id: JobId, *, room: int
) -> NewJob:
    """Make the job that follows ``job``, with at most ``room`` bytes of arguments."""
    told = _success(job, ended) if ended.verb is Verb.SUCCEED else _failure(job, ended)
    return NewJob(
        id=job_id,
        task=wanted.task,
        queue=wanted.queue,
        payload=_payload(told, room),
        priority=wanted.priority,
        max_attempts=wanted.max_attempts,
        timeout=wanted.timeout,
        expires=wanted.expires,
        limits=wanted.limits,
        tags=(*wanted.tags, *secret_tags_in(job.tags)),  # its arguments are among this one's
        tenant=job.tenant,
        principal=job.principal,
        correlation_id=job.correlation_id,
        trace=job.trace,
        parent=job.claim.job,
        on_lost=wanted.on_lost,
    )


def minimal_follow_up_job(then: NewJob) -> NewJob:
    """Make the smallest job that follows: which job has ended and, if it failed, the error."""
    payload = msgspec.json.decode(then.payload, type=dict[str, dict[str, Any]])
    ((argument, fields),) = payload.items()
    less = [name for name in _LEAST if name in fields and fields[name] not in (_LEAST[name], [])]
    shortened = list(dict.fromkeys((*fields["shortened"], *less)))
    told = {**fields, **{name: _LEAST[name] for name in less}, "shortened": shortened}
    return NewJob(
        id=then.id,
        task=then.task,
        queue=then.queue,
        payload=msgspec.json.encode({argument: told}),
        max_attempts=then.max_attempts,
        on_lost=then.on_lost,
        tags=secret_tags_in(then.tags),
        parent=then.parent,
    )


def _failure(job: ClaimedJob, failed: Transition) -> Failure:
    error = failed.error
    return Failure(
        **_facts(job),
        error_kind="" if error is None else error.kind,
        error_message="" if error is None else error.message,
        traceback="" if error is None else error.traceback,
    )


def _success(job: ClaimedJob, ended: Transition) -> Success:
    result = None if ended.result is None else msgspec.json.decode(ended.result)
    return Success(**_facts(job), result=result)


def _facts(job: ClaimedJob) -> dict[str, Any]:
    return {
        "job_id": job.claim.job,
        "task": job.task,
        "queue": job.queue,
        "arguments": _arguments(job.payload),
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "started_at": job.started_at,
        "tenant": job.tenant,
        "principal": job.principal,
        "correlation_id": job.correlation_id,
        "tags": job.tags,
    }


def _arguments(payload: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(payload)
    except _UNWRITABLE:
        return None  # it may be why the job has failed
    return found if isinstance(found, dict) else None


def _plain(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _payload(told: Failure | Success, room: int) -> bytes:
    """Encode as much as fits. Fields that can be read elsewhere go first."""
    try:
        payload = _encoded(told)
    except _UNWRITABLE:
        # Values that can be read but not written again: nested too deeply, or broken surrogates.
        told = _writable(told)
        payload = _encoded(told)
    cuts: tuple[tuple[str, object], ...] = (("arguments", None), ("result", None))
    if isinstance(told, Failure):
        cuts = (
            ("traceback", told.traceback[-_TRACE:]),
            ("arguments", None),
            ("traceback", ""),
            ("error_message", told.error_message[:_MESSAGE]),
        )
    for field, less in cuts:
        if len(payload) <= room:
            break
        if getattr(told, field) != less:
            cut = tuple(dict.fromkeys((*told.shortened, field)))
            told = msgspec.structs.replace(told, **{field: less, "shortened": cut})
            payload = _encoded(told)
    return payload


def _encoded(told: Failure | Success) -> bytes:
    return msgspec.json.encode({"failure" if isinstance(told, Failure) else "success": told})


def _writable(told: Failure | Success) -> Failure | Success:
    less: dict[str, Any] = {"arguments": None, "result": None}
    if isinstance(told, Failure):
        less = {"arguments": None, **{name: _plain(getattr(told, name)) for name in _TEXTS}}
    return msgspec.structs.replace(told, **less, shortened=tuple(less))
