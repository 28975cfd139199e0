"""New jobs as arguments of a statement: arrays side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from windlass._core.job.job import JobId, NewJob
from windlass._core.job.unique import OnConflict
from windlass._core.values.instants import FIRST_INSTANT, clamp_instant
from windlass._storage.postgres.io.rows import stored_id, stored_ids, stored_span
from windlass._storage.protocol.jobs import Inserted
from windlass.errors import InvalidArgument, KeyBusy, StoreBusy

__all__ = [
    "alike_args",
    "are_alike",
    "check_size",
    "conflict_of",
    "extra_args",
    "insert_answers",
    "is_keyed",
    "limits_arg",
    "lone_args",
    "plain_args",
    "raise_if_key_busy",
]

_encode = msgspec.json.Encoder().encode

_MOST_BYTES = 640 * 2**20
"""A value has a gigabyte at most, also one that holds all payloads, perhaps as base64."""
_LOCK_NOT_AVAILABLE = "55P03"


def check_size(jobs: Sequence[NewJob]) -> None:
    """Refuse what the server would hang up on. Calls that were merged are stored apart then."""
    size = sum([len(job.payload) for job in jobs])
    if size > _MOST_BYTES:
        message = (
            f"the payloads of these {len(jobs):,} jobs are {size // 2**20:,} MiB together, and "
            f"PostgreSQL takes {_MOST_BYTES // 2**20:,} MiB in one statement. Enqueue them in "
            f"slices."
        )
        raise InvalidArgument(message)


def is_keyed(jobs: Sequence[NewJob]) -> bool:
    """Check whether another client's open transaction may have to be waited for."""
    return any(job.unique is not None for job in jobs)


def raise_if_key_busy(error: StoreBusy) -> None:
    """Raise KeyBusy if the store was busy with a unique key."""
    if getattr(error.__cause__, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
        raise KeyBusy(
            "Another open transaction decides about a unique key of these jobs. Nothing was "
            "stored; enqueue again, and keep transactions that enqueue with a key short."
        ) from error


def are_alike(jobs: Sequence[NewJob]) -> bool:
    """Return whether jobs without extras are due now and differ in id and payload alone."""
    first = jobs[0]
    queue, task = first.queue, first.task
    priority, attempts = first.priority, first.max_attempts
    return all(
        job.at is None
        and job.delay is None
        and job.queue == queue
        and job.task == task
        and job.priority == priority
        and job.max_attempts == attempts
        for job in jobs
    )


def alike_args(jobs: Sequence[NewJob]) -> tuple[Any, ...]:
    """Return the arguments of such jobs: from ``p_ids`` on, of ``insert_alike_jobs``."""
    first = jobs[0]
    return (
        stored_ids([job.id for job in jobs]),
        [job.payload for job in jobs],
        first.queue,
        first.task,
        first.priority,
        first.max_attempts,
    )


def plain_args(jobs: Sequence[NewJob]) -> tuple[Any, ...]:
    """Return the arguments of every job: from ``p_ids`` to ``p_payloads`` of ``insert_jobs``."""
    return (
        stored_ids([job.id for job in jobs]),
        [job.queue for job in jobs],
        [job.task for job in jobs],
        [job.priority for job in jobs],
        _unless_empty(
            [None if job.at is None else max(clamp_instant(job.at), FIRST_INSTANT) for job in jobs]
        ),
        _unless_empty([None if job.delay is None else stored_span(job.delay) for job in jobs]),
        [job.max_attempts for job in jobs],
        [job.payload for job in jobs],
    )


def lone_args(job: NewJob) -> tuple[Any, ...] | None:
    """Return the arguments of ``insert_plain_job``, from ``p_id`` on; None: it is not for this
    job.
    """
    due_later = job.at is not None or job.delay is not None
    if due_later or job.limits or not _is_plain_but_limits(job):
        return None
    uid = stored_id(job.id)
    return uid, job.queue, job.task, job.priority, job.max_attempts, job.payload


def _unless_empty(column: list[Any]) -> list[Any] | None:
    """Return a column, or None if no job of the batch fills it: then it costs nothing."""
    return None if all(value is None for value in column) else column


def _period(job: NewJob) -> int | None:
    return None if job.unique is None else stored_span(job.unique.period)


def conflict_of(job: NewJob) -> str | None:
    """Return the behaviour if its key is held; None: the usual one, the holder is the answer."""
    if job.unique is None or job.unique.on_conflict is OnConflict.REUSE:
        return None
    return job.unique.on_conflict.value


def _limits(job: NewJob) -> str | None:
    if not job.limits:
        return None
    return _encode([(use.gate, use.cost) for use in job.limits]).decode()


_EXTRAS: tuple[Callable[[NewJob], object], ...] = (
    lambda job: stored_span(job.timeout),
    lambda job: stored_span(job.expires),
    lambda job: None if job.unique is None else job.unique.key,
    lambda job: None if job.unique is None else job.unique.window.value,
    _period,
    _limits,
    lambda job: None if job.backoff is None else _encode(job.backoff).decode(),
    lambda job: _encode(job.tags).decode() if job.tags else None,
    lambda job: job.tenant,
    lambda job: job.principal,
    lambda job: job.correlation_id,
    lambda job: job.trace,
    lambda job: job.parent,
    conflict_of,
    lambda job: None if job.on_failure is None else _encode(job.on_failure).decode(),
    lambda job: None if job.on_lost == "retry" else job.on_lost,
)


def extra_args(jobs: Sequence[NewJob]) -> tuple[Any, ...] | None:
    """Return the arguments of few jobs: from ``p_timeouts`` to ``p_on_losts``; None: no job has
    any.
    """
    if all(map(_is_plain_but_limits, jobs)) and not any(job.limits for job in jobs):
        return None
    return tuple(_unless_empty([value_of(job) for job in jobs]) for value_of in _EXTRAS)


def limits_arg(jobs: Sequence[NewJob]) -> list[str | None] | None:
    """Return ``p_limits`` of jobs that carry limits and nothing else of `extra_args`. None: no job
    has limits, or one of them carries more.
    """
    if not all(map(_is_plain_but_limits, jobs)):
        return None
    limits = [_limits(job) for job in jobs]
    return limits if any(limits) else None


def _is_plain_but_limits(job: NewJob) -> bool:
    """Check whether a job carries nothing special, but perhaps limits."""
    return (
        not job.tags
        and job.unique is None
        and job.timeout is None
        and job.expires is None
        and job.backoff is None
        and job.tenant is None
        and job.principal is None
        and job.correlation_id is None
        and job.trace is None
        and job.parent is None
        and job.on_failure is None
        and job.on_lost == "retry"
    )


def insert_answers(
    jobs: Sequence[NewJob], met: Iterable[tuple[int, str | None, bool | None]], *, unsure: bool
) -> list[Inserted]:
    """Return the answers. ``met``: what jobs met, as ``insert_jobs`` says it. ``unsure``: an
    earlier try may have stored them.
    """
    held: dict[int, tuple[str, bool]] = {}
    expired: dict[int, JobId] = {}
    before: set[int] = set()
    for place, holder, replaced in met:
        if holder is None:
            before.add(place)
        elif replaced is None:
            expired[place] = JobId(holder)
        else:
            held[place] = (holder, replaced)
    if not held and not expired and not before:
        return [Inserted(job.id, True) for job in jobs]  # noqa: FBT003 -- per job
    answers: list[Inserted] = []
    for place, job in enumerate(jobs, 1):
        late = expired.get(place)
        if place in held:
            found, replaced = held[place]
            answers.append(Inserted(JobId(found), created=False, replaced=replaced, expired=late))
        else:
            again = place in before and not unsure
            answers.append(Inserted(job.id, created=True, expired=late, repeated=again))
    return answers
