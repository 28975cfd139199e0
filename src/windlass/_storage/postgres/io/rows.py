"""Between rows and records, on the path of every job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from windlass._core.job.job import AttemptError, Claim, ClaimedJob, FlowId, FlowPlace, JobId
from windlass._core.values.instants import LAST_US, instant_of, span_us
from windlass._storage.postgres.io.connection import Row
from windlass._storage.shared.stored_text import backoff_of, follow_up_of, readable, tags_of
from windlass.errors import InvalidArgument

__all__ = ["claimed_jobs", "place_of", "stored_id", "stored_ids", "stored_span", "stored_text"]


_HEX = frozenset("0123456789abcdef")


# --- what goes in -----------------------------------------------------------------------------


def stored_id(job: JobId) -> JobId:
    """Return an id that is to be stored."""
    if len(job) != 32 or not _HEX.issuperset(job):
        raise InvalidArgument(f"a job id is 32 hex digits, got {job!r}")
    return job


def stored_ids(jobs: Sequence[JobId]) -> Sequence[JobId]:
    """Return ids that are to be stored. All at once costs less."""
    if not _HEX.issuperset("".join(jobs)) or set(map(len, jobs)) != {32}:
        return [stored_id(job) for job in jobs]
    return jobs


def stored_span(span: timedelta | None) -> int | None:
    """Return a duration in microseconds, within what a bigint and the calendar hold."""
    return None if span is None else min(span_us(span), LAST_US)


def stored_text(text: str) -> str:
    """Return a text that PostgreSQL can store: other characters are spelled out."""
    return text.replace("\x00", "\\x00") if "\x00" in text else text


# --- what comes out ---------------------------------------------------------------------------

# Few tasks carry their own timeout, and those that do repeat it.


@lru_cache(maxsize=256)
def _span_of(us: int) -> timedelta:
    return timedelta(microseconds=us)


_EXTRAS = 11
"""The fields that ``extras_of`` always has. Behind it, where needed: the follow-up job of a
failure, the rule for a lost run, and the place in a flow.
"""
_MEMBER: Sequence[str | None] = ["0", *[None] * 12]
"""Of a member that carries nothing but its place."""
_place = itemgetter(12, 6, 0)
"""Priority, due time and number of a row of ``claim``."""
_queue = itemgetter(8)


def _in_order(rows: Sequence[Row]) -> Iterable[Row]:
    """Queue by queue as they came, within each in claim order: an UPDATE returns rows in any."""
    for _, same in groupby(rows, _queue):
        yield from sorted(same, key=_place)


def claimed_jobs(rows: Sequence[Row], started_at: datetime, worker: str) -> list[ClaimedJob]:
    """Decode rows of ``claim`` in jobs.sql. A plain job does not pay for what others carry."""
    jobs: list[ClaimedJob] = []
    for row in _in_order(rows):
        seq, uid, number, attempt, most, budget, due, timeout, queue, task, payload, extras, _ = row
        more: tuple[Any, ...] = ()
        if extras is not None:
            more = (None if timeout is None else _span_of(timeout), *_extras_of(extras))
        elif timeout is not None:
            more = (_span_of(timeout),)
        jobs.append(
            ClaimedJob(
                Claim(uid.hex(), number, seq),
                task,
                queue,
                payload,
                attempt,
                most,
                budget,
                due,
                started_at,
                worker,
                *more,
            )
        )
    return jobs


_MEMBER_FIELDS = (0, False, None, None, None, None, None, None, None, (), None, "retry")


def _extras_of(extras: Sequence[str | None]) -> tuple[Any, ...]:
    """Return the fields of a claimed job from ``lost`` on, as ``extras_of`` in the
    schema has them.
    """
    if len(extras) > len(_MEMBER) and extras[:-1] == _MEMBER:
        return (*_MEMBER_FIELDS, place_of(extras[-1]))
    lost, solo, missed_at, backoff, kind, text, tenant, principal, correlation, trace, tags = (
        extras[:_EXTRAS]
    )
    return (
        int(lost or 0),
        solo is not None,
        readable(backoff_of, backoff),
        None if missed_at is None else instant_of(int(missed_at)),
        None if kind is None else AttemptError(kind, text or ""),
        tenant,
        principal,
        correlation,
        trace,
        readable(tags_of, tags) or (),
        *_rare_of(extras[_EXTRAS:]),
    )


def _rare_of(extras: Sequence[str | None]) -> Iterator[object]:
    """``on_failure``, ``on_lost`` and ``flow``, as far as they were said."""
    if extras:
        yield readable(follow_up_of, extras[0])
    if len(extras) > 1:
        yield "fail" if extras[1] == "fail" else "retry"
    if len(extras) > 2:
        yield place_of(extras[2])


@lru_cache(maxsize=256)
def place_of(text: str | None) -> FlowPlace | None:
    """Return a place in a flow: its id, the number of the part, and perhaps "added"."""
    if text is None:
        return None
    flow, part, *added = text.split()
    return FlowPlace(FlowId(flow), int(part), added=bool(added))
