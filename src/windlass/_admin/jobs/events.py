"""The event log, page by page and by filters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from windlass._core.job.job import JobId
from windlass._core.values.instants import LAST_US, add_clamped, instant_of, to_us
from windlass._storage.protocol.journal import EventRecord, JournalStore
from windlass.errors import InvalidArgument

__all__ = ["EventFilter", "EventPage", "EventSpan", "find_events"]

_CHUNK = 1_000
_LOOK = 10_000
"""Events that one call reads. A rare kind of event may be further away."""
_TICK = timedelta(microseconds=1)
_CURSOR = re.compile(r"(?P<at>[0-9]{1,18})\.(?P<read>[0-9]{1,7})", re.ASCII)


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events. Fields combine."""

    kinds: Sequence[str] = ()
    """Any of these, such as ``started`` or ``failed``; empty: all."""
    task: str | None = None
    queue: str | None = None
    worker: str | None = None
    job: str | None = None
    """The id of a job."""

    def matches(self, event: EventRecord) -> bool:
        """Return whether an event is wanted. The store compares the job."""
        return (
            (not self.kinds or event.kind in self.kinds)
            and self.task in (None, event.task)
            and self.queue in (None, event.queue)
            and self.worker in (None, event.worker)
        )


class EventPage(msgspec.Struct, frozen=True):
    """Some events in their order, and where they continue."""

    events: Sequence[EventRecord]
    next: str | None = None
    """``after`` of the next page; None: there are no more."""
    reached: datetime | None = None
    """The instant that this call reached, if it stopped before it found enough."""


class EventSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Events with ``since <= at < until``, and the order to read them in."""

    since: datetime
    until: datetime
    newest_first: bool = False


class _Position(msgspec.Struct, frozen=True):
    """Behind the last event that was read: its instant, and how many of this instant were read."""

    at: datetime
    read: int

    @classmethod
    def of(cls, text: str) -> _Position:
        found = _CURSOR.fullmatch(text)
        if found is None:
            message = f"after takes the cursor that the page before ended with, got {text[:60]!r}"
            raise InvalidArgument(message)
        return cls(instant_of(min(int(found["at"]), LAST_US)), int(found["read"]))

    def text(self) -> str:
        return f"{to_us(self.at)}.{self.read}"

    def behind(self, event: EventRecord) -> _Position:
        return _Position(event.at, self.read + 1 if event.at == self.at else 1)


async def find_events(
    store: JournalStore,
    wanted: EventFilter,
    span: EventSpan,
    *,
    limit: int,
    after: str | None = None,
) -> EventPage:
    """Read a page of at most ``limit`` events. Reads at most about 10,000 to find them."""
    start = span.until if span.newest_first else span.since
    place = _Position(start, 0) if after is None else _Position.of(after)
    found: list[EventRecord] = []
    end = place
    """Behind the last event of the page."""
    looked = 0
    while looked < _LOOK:
        rows, complete = await _chunk(store, wanted, span, place, fresh=looked == 0 and not after)
        for event in rows:
            place = place.behind(event)
            if wanted.matches(event):
                if len(found) == limit:
                    return EventPage(found, end.text())
                found.append(event)
                end = place
        if complete:
            return EventPage(found)
        looked += len(rows)
    return EventPage(found, place.text(), place.at)


async def _chunk(
    store: JournalStore, wanted: EventFilter, span: EventSpan, place: _Position, *, fresh: bool
) -> tuple[Sequence[EventRecord], bool]:
    """Return the events behind a position, and whether these are the last of the span."""
    since, until = span.since, span.until
    if not fresh and span.newest_first:
        until = min(until, add_clamped(place.at, _TICK))
    elif not fresh:
        since = max(since, place.at)
    limit = _CHUNK + place.read
    job = None if wanted.job is None else JobId(wanted.job)
    rows = await store.events(since, until, limit=limit, job=job, newest_first=span.newest_first)
    return rows[place.read :], len(rows) < limit
