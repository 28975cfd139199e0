"""Log lines of runs and events of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from windlass._core.job.job import JobId
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.protocol.journal import EventRecord, LogChunk

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """A `JournalStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        with self._db.moment():
            for chunk in chunks:
                self._append_log(chunk)

    def _append_log(self, chunk: LogChunk) -> None:
        # By the row's own number: an id that was deleted and inserted again is another job.
        row = self._db.rows.get(chunk.claim.seq)
        if row is not None and row.asked.id == chunk.claim.job:
            self._db.diary.keep_chunk(row.seq, chunk)

    async def logs(self, job: JobId, *, after: tuple[int, int] = (0, 0)) -> Sequence[LogChunk]:
        with self._db.view():
            row = self._db.by_id.get(job)
            return [] if row is None else self._chunks(row.seq, after)

    def _chunks(self, seq: int, after: tuple[int, int]) -> list[LogChunk]:
        chunks = self._db.diary.chunks(seq)
        return [chunk for place, chunk in chunks if place > after]

    async def append_events(self, events: Sequence[EventRecord]) -> int:
        with self._db.moment():
            return sum(self._append_event(event) for event in events)

    def _append_event(self, event: EventRecord) -> bool:
        row = self._db.by_id.get(event.job)
        if row is None:
            return False
        self._db.diary.keep_event(row.seq, event)
        return True

    async def events(
        self,
        since: datetime,
        until: datetime,
        *,
        limit: int,
        job: JobId | None = None,
        newest_first: bool = False,
    ) -> Sequence[EventRecord]:
        with self._db.view():
            wanted = [
                event
                for event in self._db.diary.events()
                if since <= event.at < until and (job is None or event.job == job)
            ]
            return wanted[::-1][:limit] if newest_first else wanted[:limit]
