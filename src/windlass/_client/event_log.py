"""The event log, where it is switched on: events of jobs, stored at no job's cost."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import weakref
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice

import msgspec

from windlass._core.job.event import Event, JobEnqueued, JobMoved
from windlass._core.job.state import Verb
from windlass._observe.bus import Bus
from windlass._storage.protocol.journal import EventRecord
from windlass._storage.protocol.storage import Storage
from windlass._storage.shared.errors import is_retryable

__all__ = ["KINDS", "EventJournal"]

log = logging.getLogger("windlass")

_MOST = 50_000
_EVERY = 2.0
_BATCH = 500
_INSTANT = timedelta(microseconds=1)
_UNKNOWN = datetime.max.replace(tzinfo=UTC)

KINDS: Mapping[Verb, str] = {
    Verb.CLAIM: "started",
    Verb.SUCCEED: "succeeded",
    Verb.RETRY: "retried",
    Verb.SNOOZE: "snoozed",
    Verb.THROTTLE: "throttled",
    Verb.RELEASE: "released",
    Verb.FAIL: "failed",
    Verb.CANCEL: "cancelled",
    Verb.REQUEUE: "requeued",
    Verb.DISCARD: "discarded",
    Verb.EXPIRE: "expired",
}
EVENT_KINDS = ("enqueued", *KINDS.values())
"""Every kind of event, in the order of a job's way."""


class EventJournal:
    """A listener that writes what it hears every two seconds, through its own loop's storage.

    Events are published after the commit, so none tells of what did not happen; a crash loses
    those that were not written yet, and nothing else.
    """

    def __init__(self, storage: Storage, bus: Bus) -> None:
        """Make a journal on the event loop that ``storage`` was opened for. It listens as long as
        it lives: dropping it is enough.
        """
        self._storage = storage
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[EventRecord | tuple[EventRecord, float]] = deque()
        self._dropped = 0
        self._task: asyncio.Task[None] | None = None
        self._flushing = asyncio.Lock()
        self._failing = False
        _subscribe(bus, weakref.ref(self))

    def hear(self, event: Event) -> None:
        """Keep an event of this loop. Another loop has its own journal."""
        if not isinstance(event, JobEnqueued | JobMoved) or not self._is_here():
            return
        if len(self._waiting) >= _MOST:
            self._dropped += 1
            return
        # As it is written, so that what waits keeps no arguments in memory.
        if isinstance(event, JobMoved):
            self._waiting.append(_moved(event))
        else:
            self._waiting.append((_enqueued(event), self._loop.time()))
        if self._task is None:
            # In an empty context: the current one may be a run's, and this is no part of it.
            self._task = self._loop.create_task(self._write(), context=contextvars.Context())

    def _is_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def _write(self) -> None:
        try:
            while self._waiting or self._dropped:
                await asyncio.sleep(_EVERY)
                await self.flush()
        finally:
            self._task = None

    async def flush(self) -> int:
        """Store what was heard; how many events the store has kept."""
        async with self._flushing:
            dropped, self._dropped = self._dropped, 0
            kept = 0
            while self._waiting:
                batch = list(islice(self._waiting, _BATCH))
                try:
                    kept += await self._storage.journal.append_events(await self._records(batch))
                except Exception as error:  # noqa: BLE001 -- an event is worth no job and no worker
                    if is_retryable(error):
                        self._away(error)
                        break  # they stay, as long as there is room
                    dropped += len(batch)
                    log.warning("events could not be stored: %s", error)
                self._failing = False
                for _ in batch:
                    self._waiting.popleft()
            if dropped:
                log.warning(
                    "%d events are missing from the event log: more than %d were waiting, or the "
                    "store refused them",
                    dropped,
                    _MOST,
                )
            return kept

    def _away(self, error: Exception) -> None:
        if not self._failing:
            log.warning("events cannot be stored, retrying: %s", error)
        self._failing = True

    async def _records(
        self, batch: list[EventRecord | tuple[EventRecord, float]]
    ) -> list[EventRecord]:
        whole = [record for record in batch if isinstance(record, EventRecord)]
        if len(whole) == len(batch):
            return whole
        # By the store's clock an insert was so long ago. A worker here may have begun before this
        # process learnt that the job is stored: no later than that.
        now, here = await self._storage.now(), self._loop.time()
        begun = {record.job: record.at for record in reversed(whole)}
        records = []
        for record in batch:
            if isinstance(record, EventRecord):
                records.append(record)
                continue
            inserted, heard = record
            at = now - timedelta(seconds=max(here - heard, 0.0))
            if inserted.job in begun:
                at = min(at, begun[inserted.job] - _INSTANT)
            records.append(msgspec.structs.replace(inserted, at=at))
        return records

    async def close(self) -> None:
        """Write the remaining events now. It continues to listen as long as it is kept."""
        if self._waiting or self._dropped:
            await self.flush()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


def _subscribe(bus: Bus, journal: weakref.ref[EventJournal]) -> None:
    def listener(event: Event) -> None:
        found = journal()
        if found is None:
            undo()
        else:
            found.hear(event)

    undo = bus.subscribe(listener)


def _moved(event: JobMoved) -> EventRecord:
    return EventRecord(
        at=event.at,
        kind=KINDS[event.verb],
        job=event.job,
        task=event.task,
        queue=event.queue,
        worker=event.worker,
        attempt=event.attempt,
    )


def _enqueued(event: JobEnqueued) -> EventRecord:
    return EventRecord(
        at=_UNKNOWN, kind="enqueued", job=event.job, task=event.task, queue=event.queue
    )
