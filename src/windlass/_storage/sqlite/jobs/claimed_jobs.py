"""From the rows of a claim to the jobs that a worker gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from windlass._core.job.job import Claim, ClaimedJob
from windlass._core.values.instants import instant_of
from windlass._storage.shared.stored_text import backoff_of, follow_up_of, readable, tags_of
from windlass._storage.sqlite.flows.parts import Place
from windlass._storage.sqlite.io.rows import Row, error_of, on_lost_of, optional_instant, span_of

__all__ = ["claimed_jobs"]

# Up to the year 2112 a float of seconds is exact to less than half a microsecond.
_EXACT = 2**52


def claimed_jobs(
    rows: Iterable[Row],
    extras: Mapping[int, Row],
    places: Mapping[int, Place],
    *,
    queue: str,
    started_at: datetime,
    worker: str,
) -> list[ClaimedJob]:
    """Decode rows of ``best`` or ``chosen`` in claim.sql, and those of ``extras`` by number, with
    the places of their parts.

    On the path of every job: a plain one does not pay for what others carry.
    """
    jobs: list[ClaimedJob] = []
    for (
        seq,
        uid,
        number,
        task,
        payload,
        attempt,
        most,
        budget,
        us,
        timeout,
        _,
        special,
        part,
    ) in rows:
        claim = Claim(uid.hex(), number, seq)
        # A third of the time that adding a timedelta takes.
        due = datetime.fromtimestamp(us / 1e6, UTC) if 0 < us < _EXACT else instant_of(us)
        more: tuple[Any, ...] = ()
        if special:
            more = (span_of(timeout), *_extras_of(extras[seq]))
        elif timeout is not None:
            more = (span_of(timeout),)
        job = ClaimedJob(
            claim, task, queue, payload, attempt, most, budget, due, started_at, worker, *more
        )
        if part is not None:
            job = replace(job, flow=places[part].of(seq))
        jobs.append(job)
    return jobs


def _extras_of(row: Row) -> tuple[Any, ...]:
    """Return the fields of a claimed job from ``lost`` on."""
    _, _, _, lost, solo, backoff, missed_at, kind, text, *who, tags, on_failure, on_lost = row
    return (
        lost,
        bool(solo),
        readable(backoff_of, backoff),
        optional_instant(missed_at),
        error_of(kind, text),
        *who,
        readable(tags_of, tags) or (),
        readable(follow_up_of, on_failure),
        on_lost_of(on_lost),
    )
