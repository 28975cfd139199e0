"""The storage itself: its clock, its health, its event log, and copies of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from windlass._admin.copy.copy import CopyProgress, CopyRefused, CopyReport, copy
from windlass._admin.doctor.finding import format_bytes
from windlass._admin.jobs.events import EventFilter, EventPage, EventSpan, find_events
from windlass._admin.jobs.ids import resolve_id
from windlass._admin.session import AdminSession
from windlass._core.values.instants import FIRST_INSTANT, aware
from windlass._core.values.redaction import redacted_url
from windlass._observe.log import brief
from windlass._storage.open import StorageOpener
from windlass._storage.protocol.journal import EventRecord
from windlass._storage.timings import Spread, timings_of
from windlass._system.seams import monotonic

__all__ = ["StorageAdmin", "StorageReport", "format_fact"]


class StorageReport(msgspec.Struct, frozen=True, kw_only=True):
    """The storage's place, health and timings."""

    description: str
    """Backend, version and place in one line, without secrets."""
    at: datetime
    """The store's clock."""
    facts: Mapping[str, float | str]
    """The values that the backend reports: sizes in bytes, connections, settings."""
    answered_in: timedelta
    """How long it took to ask for all this."""
    timings: Mapping[str, Spread]
    """How long this process's last reads and writes took, under ``read`` and ``write``."""


_AHEAD = timedelta(minutes=1)
_BYTES = frozenset({"size", "database_size", "wal", "free_disk", "maxmemory", "append_only_file"})
_SECONDS = frozenset({"oldest_snapshot", "busy_timeout", "statement_timeout", "retry_for"})


def format_fact(name: str, value: float | str) -> str:
    """Format a fact of `StorageReport` in units that people read."""
    if isinstance(value, str):
        return value or "–"
    if name in _BYTES:
        return format_bytes(value)
    return brief(timedelta(seconds=value)) if name in _SECONDS else f"{value:,g}"


class StorageAdmin:
    """``app.admin.storage``: clock, health, event log and copies."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def now(self) -> datetime:
        """Read the storage's clock. Every instant that the storage tells is by this clock."""
        return await (await self._session.storage()).now()

    async def report(self) -> StorageReport:
        """Read the health of the storage, and measure how long the answer takes."""
        storage = await self._session.storage()
        began = monotonic()
        facts = await storage.health()
        at = await storage.now()
        took = timedelta(seconds=monotonic() - began)
        timings = timings_of(storage)
        return StorageReport(
            description=storage.describe(),
            at=at,
            facts=facts,
            answered_in=took,
            timings={} if timings is None else timings.spread(),
        )

    async def events(
        self,
        since: datetime,
        until: datetime,
        *,
        limit: int = 1000,
        job_id: str | None = None,
    ) -> Sequence[EventRecord]:
        """Read the event log, oldest first. It is empty unless ``event_log=True`` is set."""
        store = (await self._session.storage()).journal
        job = None if job_id is None else await resolve_id(self._session, job_id)
        return await store.events(since, until, limit=min(max(limit, 1), 10_000), job=job)

    async def timeline(
        self,
        wanted: EventFilter | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        newest_first: bool = True,
        limit: int = 100,
        after: str | None = None,
    ) -> EventPage:
        """Read a page of the event log by filters, the newest first. Without ``since``, all that is
        stored; without ``until``, up to now.

        ``after``: ``next`` of the page before. One call reads at most about 10,000 events; the page
        says where to continue. The job's id may be shortened.
        """
        wanted = wanted or EventFilter()
        if wanted.job is not None:
            job = await resolve_id(self._session, wanted.job)
            wanted = msgspec.structs.replace(wanted, job=job)
        storage = await self._session.storage()
        span = EventSpan(
            since=FIRST_INSTANT if since is None else aware(since, "since"),
            # An event may carry the clock of a process that is ahead of the store's.
            until=await storage.now() + _AHEAD if until is None else aware(until, "until"),
            newest_first=newest_first,
        )
        size = min(max(limit, 1), 10_000)
        return await find_events(storage.journal, wanted, span, limit=size, after=after)

    async def copy(
        self,
        url: str,
        *,
        resume: bool = False,
        progress: Callable[[CopyProgress], None] | None = None,
    ) -> CopyReport:
        """Copy jobs, schedules, limits, settings and history into the storage at ``url``, of any
        backend. Stop the workers and everything that enqueues first.

        CopyRefused while workers are live on either side, or if the target holds other jobs. You
        can interrupt it; run it again to continue. ``resume``: the target holds part of this copy,
        even if it has no record of it.
        """
        source = await self._session.storage()
        settings = msgspec.structs.replace(self._session.settings, url=url)
        target = await StorageOpener(settings).open()
        try:
            if not target.shared:
                message = f"{redacted_url(url)} ends with this call: name a storage that persists"
                raise CopyRefused(message)
            return await copy(source, target, resume=resume, progress=progress or _say_nothing)
        finally:
            await target.close()


def _say_nothing(_: CopyProgress) -> None:
    """Ignore the progress of a copy."""
