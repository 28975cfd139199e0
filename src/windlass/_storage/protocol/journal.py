"""`JournalStore`: log lines of runs, and the event log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from windlass._core.job.job import Claim, JobId

__all__ = ["EventRecord", "JournalStore", "LogChunk", "LogLine"]


class LogLine(msgspec.Struct, frozen=True):
    """One line a handler logged."""

    at: datetime
    level: int
    """As in the standard library's logging."""
    text: str


class LogChunk(msgspec.Struct, frozen=True):
    """Lines of one run that were stored together. The writer keeps their number bounded."""

    claim: Claim
    number: int
    """From 1, within the claim."""
    lines: Sequence[LogLine]


class EventRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One fact of the event log."""

    at: datetime
    kind: str
    """enqueued, started, retried, succeeded, failed, cancelled, discarded, requeued, …"""
    job: JobId
    task: str
    queue: str
    worker: str = ""
    attempt: int = 0


class JournalStore(Protocol):
    """Log lines of runs, and the event log. Both go with their job when it is deleted."""

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        """Store the chunks. A chunk that is stored already (job, claim, number), or whose job is
        not stored any more, is left out. The claim need not be held any more.
        """
        ...

    async def logs(self, job: JobId, *, after: tuple[int, int] = (0, 0)) -> Sequence[LogChunk]:
        """Return the chunks of a job after this pair of claim number and chunk number, in order; []
        if unknown.
        """
        ...

    async def append_events(self, events: Sequence[EventRecord]) -> int:
        """Store the events whose jobs are stored, in order. Return the number that was stored.

        A repeated call stores them twice, unlike every other operation. Events are for people: a
        number for each event would cost more than a duplicate line after an outage.
        """
        ...

    async def events(
        self,
        since: datetime,
        until: datetime,
        *,
        limit: int,
        job: JobId | None = None,
        newest_first: bool = False,
    ) -> Sequence[EventRecord]:
        """Return the oldest events with ``since <= at < until``, by instant, then as stored; or the
        newest, in the opposite order.
        """
        ...
