"""Log lines of runs and events of jobs."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from windlass._core.job.job import Claim, JobId
from windlass._core.values.instants import instant_of, to_us
from windlass._storage.protocol.journal import EventRecord, LogChunk, LogLine
from windlass._storage.redis.admin.listed_jobs import pairs
from windlass._storage.redis.io.database import Argument, RedisDatabase
from windlass._storage.redis.io.scripts import script
from windlass._storage.shared.job_ids import known_id

__all__ = ["RedisJournal", "chunk_bytes", "chunks_of", "event_bytes"]

_APPEND_LOGS, _LOGS = script("append_logs"), script("logs")
_APPEND_EVENTS, _EVENTS, _EVENTS_OF = (
    script("append_events"),
    script("events"),
    script("events_of"),
)

_AT_ONCE = 500
"""Events one script reads."""
_PLACE = struct.Struct(">II")
"""Claim number and number of a chunk."""
_pack = msgspec.msgpack.Encoder().encode
_lines_of = msgspec.msgpack.Decoder(tuple[tuple[int, int, str], ...]).decode


class _Event(msgspec.Struct, array_like=True, frozen=True):
    at: int
    kind: str
    task: str
    queue: str
    worker: str
    attempt: int


_event_of = msgspec.msgpack.Decoder(_Event).decode


class RedisJournal:
    """A `JournalStore`."""

    def __init__(self, database: RedisDatabase) -> None:
        self._db = database

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        if not chunks:
            return
        given: list[Argument] = []
        for chunk in chunks:
            given += (known_id(chunk.claim.job), chunk.claim.seq, *chunk_bytes(chunk))
        await self._db.run(_APPEND_LOGS, *given)

    async def logs(self, job: JobId, *, after: tuple[int, int] = (0, 0)) -> Sequence[LogChunk]:
        found = await self._db.run_aside(_LOGS, known_id(job))
        if not found:
            return []
        chunks = chunks_of(job, found[0], dict(pairs(found[1:])))
        return [chunk for chunk in chunks if (chunk.claim.number, chunk.number) > after]

    async def append_events(self, events: Sequence[EventRecord]) -> int:
        if not events:
            return 0
        given: list[Argument] = []
        for event in events:
            given += (known_id(event.job), to_us(event.at), event_bytes(event))
        return int(await self._db.run(_APPEND_EVENTS, *given))

    async def events(
        self,
        since: datetime,
        until: datetime,
        *,
        limit: int,
        job: JobId | None = None,
        newest_first: bool = False,
    ) -> Sequence[EventRecord]:
        if job is not None:
            found = await self._db.run_aside(_EVENTS_OF, known_id(job))
            kept = sorted((_event_of(text).at, number, text) for number, text in pairs(found))
            events = [_event(job, text) for _, _, text in (kept[::-1] if newest_first else kept)]
            return [event for event in events if since <= event.at < until][: max(limit, 0)]
        told: list[EventRecord] = []
        span = ("newest" if newest_first else "oldest", to_us(since), to_us(until))
        skip = 0
        while len(told) < limit:
            part = min(limit - len(told), _AT_ONCE)
            found = await self._db.run_aside(_EVENTS, *span, skip, part)
            told += [_event(JobId(uid.hex()), text) for uid, text in pairs(found) if text]
            skip += part
            if len(found) < 2 * part:
                break
        return told


def chunk_bytes(chunk: LogChunk) -> tuple[bytes, bytes]:
    """Return a chunk as it is stored: its place among those of its job, and its lines."""
    lines = [(to_us(line.at), line.level, line.text) for line in chunk.lines]
    return _PLACE.pack(chunk.claim.number, chunk.number), _pack(lines)


def chunks_of(job: JobId, seq: int, stored: Mapping[bytes, bytes]) -> list[LogChunk]:
    """Return the chunks of a job, in their order."""
    return [
        LogChunk(
            Claim(job, claim, seq),
            number,
            [LogLine(instant_of(at), level, text) for at, level, text in _lines_of(lines)],
        )
        for (claim, number), lines in sorted(
            (_PLACE.unpack(place), lines) for place, lines in stored.items()
        )
    ]


def event_bytes(event: EventRecord) -> bytes:
    """Return an event as it is stored, without its job."""
    return _pack(
        (to_us(event.at), event.kind, event.task, event.queue, event.worker, event.attempt)
    )


def _event(job: JobId, record: bytes) -> EventRecord:
    event = _event_of(record)
    return EventRecord(
        at=instant_of(event.at),
        kind=event.kind,
        job=job,
        task=event.task,
        queue=event.queue,
        worker=event.worker,
        attempt=event.attempt,
    )
