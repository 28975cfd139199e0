"""Giving ready jobs to a worker: from the reply of claim.lua to records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from windlass._core.job.job import Claim, ClaimedJob, FlowPlace, JobId
from windlass._core.values.instants import instant_of
from windlass._storage.protocol.jobs import ClaimReply
from windlass._storage.redis.io.layout import SOLO
from windlass._storage.redis.io.records import (
    error_of,
    instant_at,
    optional_instant,
    span_of,
    state_record_of,
)
from windlass._storage.redis.jobs.request import (
    UNREADABLE,
    JobExtras,
    JobRequest,
    decode_request,
    place_of,
    readable_request,
)

__all__ = ["ClaimedBatch", "UnreadableJob", "claimed_job", "read_claim"]

_FIRST_RECORD = 7
_ID = 16


class UnreadableJob(NamedTuple):
    """A job that was claimed and cannot be decoded."""

    id: bytes
    number: int
    reason: str


class ClaimedBatch(NamedTuple):
    """The result of one claim."""

    reply: ClaimReply
    unread: list[UnreadableJob]
    aside: Sequence[JobId]
    """Jobs the server itself could not read, and put aside."""


def read_claim(worker: str, reply: Sequence[Any]) -> ClaimedBatch:
    """Return the reply of claim.lua as records."""
    now, live, next_at, solo_due, expired, aside, earlier = reply[:_FIRST_RECORD]
    at, records = instant_at(now), reply[_FIRST_RECORD:]
    before = {
        place: (kept, said)
        for place, kept, said in zip(earlier[::3], earlier[1::3], earlier[2::3], strict=True)
    }
    unread: list[UnreadableJob] = []
    if before:
        jobs = _read_mixed(records, before, at, worker, unread)
    else:
        try:
            jobs = _read_fresh(records, at, worker)
        except UNREADABLE:
            jobs = _read_mixed(records, before, at, worker, unread)
    answer = ClaimReply(
        jobs,
        at,
        live=bool(live),
        # Jobs put aside here leave room for the jobs behind them.
        next_at=at if unread else instant_of(next_at) if next_at >= 0 else None,
        solo_due=bool(solo_due),
        expired=_ids(expired) if expired else (),
    )
    return ClaimedBatch(answer, unread, _ids(aside) if aside else ())


def _ids(joined: bytes) -> list[JobId]:
    return [JobId(joined[at : at + _ID].hex()) for at in range(0, len(joined), _ID)]


def _read_fresh(records: Iterable[bytes], at: datetime, worker: str) -> list[ClaimedJob]:
    """Decode jobs that are claimed for the first time: on the path of every job."""
    jobs: list[ClaimedJob] = []
    decode = decode_request
    places: dict[bytes, FlowPlace | None] = {}  # many members are of one part
    for record in records:
        job = decode(record)
        claim = Claim(JobId(job.id.hex()), 1, job.seq)
        budget, extras = job.budget, job.extras
        if extras is not None:
            claimed = _with_extras(job, extras, claim, at, worker)
        elif job.membership is None:
            claimed = ClaimedJob(
                claim, job.task, job.queue, job.payload, 1, budget, budget, instant_at(job.due), at,
                worker,
            )  # fmt: skip
        else:
            if job.membership not in places:
                places[job.membership] = place_of(job.membership)
            claimed = ClaimedJob(
                claim, job.task, job.queue, job.payload, 1, budget, budget, instant_at(job.due), at,
                worker, flow=places[job.membership],
            )  # fmt: skip
        jobs.append(claimed)
    return jobs


def _with_extras(
    job: JobRequest, extras: JobExtras, claim: Claim, at: datetime, worker: str
) -> ClaimedJob:
    return ClaimedJob(
        claim,
        job.task,
        job.queue,
        job.payload,
        1,
        job.budget,
        job.budget,
        instant_at(job.due),
        at,
        worker,
        timeout=span_of(extras.timeout),
        backoff=extras.backoff,
        tenant=extras.tenant,
        principal=extras.principal,
        correlation_id=extras.correlation_id,
        trace=extras.trace,
        tags=extras.tags,
        on_failure=extras.on_failure,
        on_lost=extras.on_lost,
        flow=place_of(job.membership),
    )


def _read_mixed(
    records: Iterable[bytes],
    before: dict[int, tuple[bytes, bytes]],
    at: datetime,
    worker: str,
    unread: list[UnreadableJob],
) -> list[ClaimedJob]:
    """Decode jobs some of which were claimed before, or cannot be decoded."""
    jobs: list[ClaimedJob] = []
    for place, record in enumerate(records):
        kept, said = before.get(place, (b"", b""))
        try:
            jobs.append(_started(record, kept, said, at, worker))
        except UNREADABLE as error:
            # The server has read the fixed positions, or it could not have claimed it.
            number = state_record_of(kept).number + 1 if kept else 1
            unread.append(UnreadableJob(readable_request(record).id, number, f"{error}"))
    return jobs


def _started(record: bytes, kept: bytes, said: bytes, at: datetime, worker: str) -> ClaimedJob:
    """Return a claim that starts now; ``kept`` is the state record from before, if there is one."""
    if not kept:
        (job,) = _read_fresh([record], at, worker)
        return job
    return claimed_job(record, kept, said, at=at, worker=worker, again=1)


def claimed_job(
    record: bytes,
    kept: bytes,
    said: bytes,
    *,
    at: datetime | None = None,
    worker: str = "",
    again: int = 0,
) -> ClaimedJob:
    """Return a running job from its records. ``again``: 1 if the state record is from before its
    claim, which then is one of ``worker`` that began ``at``.
    """
    asked, state = decode_request(record), state_record_of(kept)
    extras = asked.extras or JobExtras()
    return ClaimedJob(
        Claim(JobId(asked.id.hex()), state.number + again, state.seq),
        asked.task,
        asked.queue,
        asked.payload,
        state.attempt + again,
        state.max_attempts,
        asked.budget,
        instant_at(state.due),
        instant_at(state.started) if at is None else at,
        worker or state.worker,
        timeout=span_of(extras.timeout),
        lost=state.lost,
        solo=bool(state.flags & SOLO),
        backoff=extras.backoff,
        missed_at=optional_instant(state.missed),
        error=error_of(said),
        tenant=extras.tenant,
        principal=extras.principal,
        correlation_id=extras.correlation_id,
        trace=extras.trace,
        tags=extras.tags,
        on_failure=extras.on_failure,
        on_lost=extras.on_lost,
        flow=place_of(asked.membership),
    )
