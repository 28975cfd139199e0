"""Storing new jobs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

import apsw
import msgspec

from windlass._core.job.job import JobId, JobRecord, NewJob
from windlass._core.job.state import State
from windlass._core.job.unique import OnConflict, refuses, replaces
from windlass._core.values.instants import LAST_US, add_clamped_us, span_us, to_us
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.shared.insert_rules import is_repeat
from windlass._storage.shared.job_ids import id_of
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.rows import (
    NEVER,
    Row,
    backoff_text,
    first,
    follow_up_text,
    limits_of,
    limits_text,
    on_lost_text,
    tags_text,
)
from windlass._storage.sqlite.io.wide_statement import WideStatement
from windlass._storage.sqlite.jobs.unique_keys import Holder, find_holder, take_key
from windlass._storage.sqlite.jobs.waiting_jobs import end_waiting
from windlass._storage.sqlite.limits.lanes import BEHIND_ALL, LaneChanges
from windlass.errors import IdConflict, KeyConflict, LimitUnknown

__all__ = [
    "full_row",
    "insert",
    "is_plain",
    "is_stored",
    "plain_rows",
    "require_limits",
]

_SQL = load_sql("windlass._storage.sqlite.sql", "jobs.sql")
_INSERT, _INSERT_PLAIN = WideStatement(_SQL["insert"]), WideStatement(_SQL["insert_plain"])
_INSERT_LIMITED = WideStatement(_SQL["insert_limited"])
_IS_STORED, _LIMIT_NAMES = _SQL["is_stored"], _SQL["limit_names"]
_NUMBER_OF = _SQL["number_of"]
_STANDING, _PUT_OFF, _REPLACE = _SQL["standing"], _SQL["put_off"], _SQL["replace"]

_COUNT_COALESCED = load_sql("windlass._storage.sqlite.sql", "rollups.sql")["count_coalesced"]

_MINUTE = 60_000_000

_is_id = re.compile("[0-9A-Fa-f]{32}").fullmatch

_fields = msgspec.structs.astuple
_CARRIED = NewJob.__struct_fields__.index("max_attempts") + 1
_NOTHING = _fields(NewJob(id=JobId(""), task=""))[_CARRIED:]
"""The columns after the attempts for a job without special values."""

_LIMITS = NewJob.__struct_fields__.index("limits") - _CARRIED
_BEFORE_LIMITS, _BEHIND_LIMITS = _NOTHING[:_LIMITS], _NOTHING[_LIMITS + 1 :]

_DUE = 5
"""The column of ``insert_plain`` with the due time."""

_PLAIN, _LIMITED, _FULL, _APART = range(4)
"""How a job is stored: by the short statement, by the one with limits, by the long one, or after a
look at its key.
"""


def insert(
    connection: apsw.Connection, now: int, jobs: Sequence[NewJob], *, strict: bool = False
) -> list[Inserted]:
    """Insert jobs as `JobStore.insert` does, at the instant ``now``.

    Neighbours of one kind share a statement, so the order of insertion is the order given. Not
    ``strict``: a stored id is a repeated call, with any payload.
    """
    if len(jobs) == 1 and _kind(jobs[0]) == _PLAIN:  # as most calls are
        connection.execute(_INSERT_PLAIN.one, plain_rows(jobs, now)[0])
        if connection.changes() == 1:
            return [Inserted(jobs[0].id, True)]  # noqa: FBT003 -- per job
    lanes: LaneChanges | None = None
    if any(job.limits for job in jobs):
        require_limits(connection, jobs)
    answers: list[Inserted] = []
    for kind, run in groupby(jobs, _kind):
        if kind != _PLAIN and lanes is None:
            lanes = LaneChanges(connection)
        if kind == _APART and lanes is not None:
            answers += _insert_keyed(connection, list(run), lanes, now, strict=strict)
            continue
        together, before = list(run), connection.total_changes()
        if lanes is None or kind == _PLAIN:
            _INSERT_PLAIN.run(connection, plain_rows(together, now))
        else:
            limited = kind == _LIMITED
            rows = (_limited_rows if limited else _full_rows)(together, lanes, now)
            (_INSERT_LIMITED if limited else _INSERT).run(connection, rows)
        stored = connection.total_changes() - before
        if stored < len(together):
            if strict:
                _refuse_others(connection, together)
            answers += _some_repeated(connection, together, stored)
        else:
            answers += [Inserted(job.id, True) for job in together]  # noqa: FBT003 -- per job
    if lanes is not None:
        lanes.settle()
    return answers


def _refuse_others(connection: apsw.Connection, jobs: Iterable[NewJob]) -> None:
    """Refuse ids that are stored with another call."""
    for job in jobs:
        found = first(connection, _IS_STORED, (id_of(job.id),))
        if found is not None and not is_repeat(job, *found):
            raise IdConflict(job.id)


def _some_repeated(
    connection: apsw.Connection, jobs: Sequence[NewJob], stored: int
) -> list[Inserted]:
    """Return the answers for jobs of which only this number was stored: those with the highest
    numbers.
    """
    places = {job.id: first(connection, _NUMBER_OF, (id_of(job.id),)) for job in jobs}
    numbers = sorted((found[0], job) for job, found in places.items() if found is not None)
    new = {job for _, job in numbers[len(numbers) - stored :]}
    answers: list[Inserted] = []
    for job in jobs:
        answers.append(Inserted(job.id, created=True, repeated=job.id not in new))
        new.discard(job.id)  # again in the same batch
    return answers


def _kind(job: NewJob) -> int:
    if job.unique is not None:
        return _APART
    # Compared in one go: this is asked of every job.
    carried = _fields(job)[_CARRIED:]
    if carried == _NOTHING:
        return _PLAIN
    if carried[:_LIMITS] == _BEFORE_LIMITS and carried[_LIMITS + 1 :] == _BEHIND_LIMITS:
        return _LIMITED
    return _FULL


def is_plain(job: NewJob) -> bool:
    """Return whether a job carries nothing special."""
    return _kind(job) == _PLAIN


def require_limits(connection: apsw.Connection, jobs: Iterable[NewJob | JobRecord]) -> None:
    """Refuse jobs that name an undefined limit."""
    named = {use.name for job in jobs if job.limits for use in job.limits}
    if not named:
        return
    known = {name for (name,) in connection.execute(_LIMIT_NAMES)}
    for name in sorted(named - known):
        raise LimitUnknown(name, known)


def is_stored(connection: apsw.Connection, job: JobId) -> bool:
    """Return whether a job with this id is there."""
    return first(connection, _IS_STORED, (id_of(job),)) is not None


def _insert_keyed(
    connection: apsw.Connection,
    jobs: Sequence[NewJob],
    lanes: LaneChanges,
    now: int,
    *,
    strict: bool,
) -> list[Inserted]:
    """Insert jobs with unique keys, and count those that were answered with a stored job."""
    answers: list[Inserted] = []
    coalesced: Counter[tuple[str, str]] = Counter()
    for job in jobs:
        if strict:
            _refuse_others(connection, (job,))  # one by one: the one before may have its id
        answer = _insert_apart(connection, job, lanes, now)
        if not answer.created:
            coalesced[job.queue, job.task] += 1
        answers.append(answer)
    for whose, number in coalesced.items():
        connection.execute(_COUNT_COALESCED, (now - now % _MINUTE, *whose, number))
    return answers


def _insert_apart(
    connection: apsw.Connection, job: NewJob, lanes: LaneChanges, now: int
) -> Inserted:
    """Insert a job with a unique key."""
    unique = job.unique
    if unique is None or is_stored(connection, job.id):
        return Inserted(job.id, created=True, repeated=True)
    holder, what = find_holder(connection, unique.key, now, job.task), unique.on_conflict
    its_task = job.task if holder is not None and holder.alike else ""
    expired: JobId | None = None
    if holder is not None and holder.late and not replaces(what, its_task, job.task):
        seqs, expired = [holder.seq], JobId(holder.id.hex())
        end_waiting(connection, seqs, lanes, state=State.DISCARDED, reason="expired", now=now)
        holder = None
    if holder is not None:
        found = JobId(holder.id.hex())
        if refuses(what, its_task, job.task):
            raise KeyConflict(unique.key, found)
        replaced = what is not OnConflict.REUSE and _replace(connection, job, holder, lanes, now)
        return Inserted(found, created=False, replaced=replaced)
    connection.execute(_INSERT.one, full_row(job, lanes, now))
    period = None if unique.period is None else span_us(unique.period)
    take_key(connection, unique.key, connection.last_insert_rowid(), period=period, now=now)
    return Inserted(job.id, created=True, expired=expired)


def _replace(
    connection: apsw.Connection, job: NewJob, holder: Holder, lanes: LaneChanges, now: int
) -> bool:
    """Let a waiting holder take over the values of the new job; False: it does not wait
    any more.
    """
    found = first(connection, _STANDING, (holder.seq,))
    if found is None or job.unique is None:
        return False
    due, queue, priority, solo, lane, limits = found
    what = job.unique.on_conflict
    anew = what is not OnConflict.REPLACE_DUE
    if anew:
        limits = limits_text(job.limits)
        lanes.renew(lane)
    else:
        lanes.touch(lane)
    if what is not OnConflict.REPLACE_ARGUMENTS:
        due = _due(job, now)
    ready, lane = 0, None
    if due <= now:
        ready = 3 if solo else 1
        if ready == 1 and limits is not None:
            uses = limits_of(limits)
            # An unreadable job is left to the step that makes it ready, and fails there.
            ready = 2 if uses else 0
            lane = lanes.enter(queue, uses, (priority, due, holder.seq)) if uses else None
    # The new request must not be lost to the expiry of an earlier one.
    place = (holder.seq, due, ready, lane, _expiry(job, now))
    if anew:
        said = (limits, job.principal, job.correlation_id, job.trace, job.payload)
        connection.execute(_REPLACE, (*place, *said))
    else:
        connection.execute(_PUT_OFF, place)
    return True


def _due(job: NewJob, now: int) -> int:
    if job.delay is not None:
        return add_clamped_us(now, span_us(job.delay))
    return now if job.at is None else min(to_us(job.at), LAST_US)


def _expiry(job: NewJob, now: int) -> int | None:
    return None if job.expires is None else add_clamped_us(now, span_us(job.expires))


def plain_rows(jobs: Iterable[NewJob], now: int, line: int = 1) -> list[Row]:
    """Return the values of ``insert_plain`` in jobs.sql. ``line``: where those are ready that are
    due.
    """
    rows: list[Row] = []
    for job in jobs:
        uid, task, queue, payload, priority, delay, at, most, *_ = _fields(job)
        due = now if delay is None and at is None else _due(job, now)
        ready = line if due <= now else 0
        key = bytes.fromhex(uid) if _is_id(uid) else id_of(uid)  # which says what is wrong
        rows.append((key, queue, task, ready, priority, due, most, most, now, payload))
    return rows


def _limited_rows(jobs: Sequence[NewJob], lanes: LaneChanges, now: int) -> list[Row]:
    rows = plain_rows(jobs, now, line=2)
    entered = _enter(jobs, [row[_DUE] for row in rows], lanes, now)
    return [
        (*row, entered.get(number), limits_text(jobs[number].limits))
        for number, row in enumerate(rows)
    ]


def _full_rows(jobs: Sequence[NewJob], lanes: LaneChanges, now: int) -> list[Row]:
    _enter(jobs, [_due(job, now) for job in jobs], lanes, now)  # together, not one by one
    return [full_row(job, lanes, now) for job in jobs]


def _enter(
    jobs: Sequence[NewJob], dues: Sequence[int], lanes: LaneChanges, now: int
) -> dict[int, int]:
    """Return the lanes of the limited jobs that are due, by their numbers in ``jobs``."""
    numbers: dict[str, list[int]] = {}
    for number, (job, due) in enumerate(zip(jobs, dues, strict=True)):
        if due <= now and job.limits:
            numbers.setdefault(job.queue, []).append(number)
    entered: dict[int, int] = {}
    for queue, its in numbers.items():
        needs = [(jobs[n].limits, (jobs[n].priority, dues[n], BEHIND_ALL)) for n in its]
        entered.update(zip(its, lanes.enter_all(queue, needs), strict=True))
    return entered


def full_row(job: NewJob, lanes: LaneChanges | None, now: int) -> Row:
    """Return the values of ``insert`` in jobs.sql. Without lanes: of a job that is blocked."""
    due, unique = NEVER if lanes is None else _due(job, now), job.unique
    ready, lane = 1 if due <= now else 0, None
    if ready and job.limits and lanes is not None:
        ready, lane = 2, lanes.enter(job.queue, job.limits, (job.priority, due, BEHIND_ALL))
    return (
        id_of(job.id),
        job.queue,
        job.task,
        ready,
        lane,
        job.priority,
        due,
        job.max_attempts,
        job.max_attempts,
        now,
        None if lanes is None else _expiry(job, now),
        None if job.timeout is None else min(span_us(job.timeout), LAST_US),
        None if unique is None else unique.key,
        None if unique is None else unique.window.value,
        None if unique is None or unique.period is None else min(span_us(unique.period), LAST_US),
        limits_text(job.limits),
        backoff_text(job.backoff),
        tags_text(job.tags),
        job.tenant,
        job.principal,
        job.correlation_id,
        job.trace,
        job.parent,
        follow_up_text(job.on_failure),
        on_lost_text(job.on_lost),
        job.payload,
    )
