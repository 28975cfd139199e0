"""How the life of a job went: each claim with how long it waited before and how long it ran."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from windlass._core.job.job import Attempt, AttemptError, JobRecord
from windlass._core.job.state import State
from windlass._core.values.metadata import Metadata

__all__ = ["TimelineBar", "TimelineSpan", "timeline_of"]

_WIDTH = 1000.0
_THINNEST = 4.0
"""Of those: what takes a millisecond in a day must still be seen."""
_OUTCOMES = {
    "succeed": ("succeeded", "good"),
    "fail": ("failed", "bad"),
    "retry": ("retried", "again"),
    "snooze": ("snoozed", "again"),
    "throttle": ("throttled", "again"),
    "release": ("released", "again"),
    "cancel": ("cancelled", "bad"),
}
_BADGES = {"good": "succeeded", "bad": "failed", "again": "retrying"}
_ENDS = {State.SUCCEEDED: "succeed", State.FAILED: "fail", State.CANCELLED: "cancel"}


class TimelineBar(msgspec.Struct, frozen=True):
    """A piece of the line, in thousandths of it."""

    x: float
    width: float


class TimelineSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One claim, or the wait for the next."""

    claim_number: int | None = None
    """None: not claimed yet."""
    attempt: int | None = None
    outcome: str
    """succeeded, retried, running, waiting …"""
    tone: str
    """How its bar is coloured."""
    waited: timedelta
    ran: timedelta | None = None
    worker: str | None = None
    ended_at: datetime | None = None
    error: AttemptError | None = None
    metadata: Metadata | None = None
    wait_bar: TimelineBar
    run_bar: TimelineBar | None = None

    @property
    def badge(self) -> str:
        """The colour of its word."""
        return "running" if self.outcome == "running" else _BADGES.get(self.tone, self.outcome)


class _UnscaledSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch before it is known how long the whole is."""

    since: datetime
    started: datetime | None
    ended: datetime | None
    outcome: str
    tone: str
    claim_number: int | None = None
    attempt: int | None = None
    worker: str | None = None
    error: AttemptError | None = None
    metadata: Metadata | None = None


def timeline_of(job: JobRecord, history: Sequence[Attempt], now: datetime) -> list[TimelineSpan]:
    """Oldest first. What is under way ends now."""
    pieces = [*_past(job, history), *_present(job, history)]
    begin = job.created_at
    end = max([now if piece.ended is None else piece.ended for piece in pieces], default=begin)
    return [_stretch(piece, begin, max(end, begin), now) for piece in pieces]


def _past(job: JobRecord, history: Sequence[Attempt]) -> list[_UnscaledSpan]:
    pieces: list[_UnscaledSpan] = []
    since = job.created_at
    for one in history:
        outcome, tone = _OUTCOMES.get(one.verb, (str(one.verb), "again"))
        pieces.append(
            _UnscaledSpan(
                since=since,
                started=one.started_at,
                ended=one.ended_at,
                outcome=outcome,
                tone=tone,
                claim_number=one.claim_number,
                attempt=one.attempt,
                worker=one.worker,
                error=one.error,
                metadata=one.metadata,
            )
        )
        since = one.ended_at
    return pieces


def _present(job: JobRecord, history: Sequence[Attempt]) -> list[_UnscaledSpan]:
    """Return the entries that no history has: the current or successful run, or the wait for the
    next.
    """
    since = history[-1].ended_at if history else job.created_at
    told = bool(history) and history[-1].claim_number == job.claim_number
    if job.state is State.RUNNING or (job.state in _ENDS and not told and job.claim_number):
        outcome, tone = _OUTCOMES.get(_ENDS.get(job.state, ""), ("running", "run"))
        return [
            _UnscaledSpan(
                since=since,
                started=job.started_at,
                ended=job.finished_at,
                outcome=outcome,
                tone=tone,
                claim_number=job.claim_number,
                attempt=job.attempt,
                worker=job.worker,
                # While it runs, the job has what the run before noted.
                metadata=None if job.state is State.RUNNING else job.metadata,
            )
        ]
    if job.state is State.WAITING:
        outcome = "blocked" if job.blocked else "waiting"
        return [_UnscaledSpan(since=since, started=None, ended=None, outcome=outcome, tone="wait")]
    if not history:
        ended = job.finished_at
        return [
            _UnscaledSpan(
                since=since, started=None, ended=ended, outcome=job.state.value, tone="bad"
            )
        ]
    return []


def _stretch(piece: _UnscaledSpan, begin: datetime, end: datetime, now: datetime) -> TimelineSpan:
    whole = max(end - begin, timedelta(microseconds=1))
    over = piece.ended or now
    started = piece.started or over

    def bar(since: datetime, until: datetime, thinnest: float) -> TimelineBar:
        width = max((until - since) / whole * _WIDTH, thinnest)
        x = min(max((since - begin) / whole * _WIDTH, 0.0), _WIDTH - min(width, _WIDTH))
        return TimelineBar(round(x, 2), round(min(width, _WIDTH), 2))

    zero = timedelta(0)
    return TimelineSpan(
        claim_number=piece.claim_number,
        attempt=piece.attempt,
        outcome=piece.outcome,
        tone=piece.tone,
        waited=max(started - piece.since, zero),
        ran=None if piece.started is None else max(over - piece.started, zero),
        worker=piece.worker,
        ended_at=piece.ended,
        error=piece.error,
        metadata=piece.metadata,
        wait_bar=bar(piece.since, max(started, piece.since), 0.0),
        run_bar=None if piece.started is None else bar(piece.started, over, _THINNEST),
    )
