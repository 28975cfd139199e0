"""Schedules by name, and the one step that fires them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from windlass._core.job.job import JobId
from windlass._core.values.instants import LAST_US, instant_of, to_us
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.schedules import (
    DueSchedules,
    ScheduleAnswer,
    ScheduleRow,
    ScheduleWrite,
    Written,
    storable_names,
)
from windlass._storage.protocol.wakeups import Topic
from windlass._storage.redis.admin.audit import note_bytes
from windlass._storage.redis.io.database import Argument, RedisDatabase
from windlass._storage.redis.io.scripts import script
from windlass._storage.redis.jobs import insert
from windlass._storage.redis.jobs.insert import as_text
from windlass._storage.shared.insert_rules import skip_if_key_held
from windlass._storage.shared.job_ids import known_id

__all__ = ["RedisSchedules"]

_ROWS, _DUE = script("schedule_rows"), script("schedule_due")
_NAMES, _SOME = script("schedule_names"), script("schedule_some")
_AT_ONCE = 100
_WRITE, _DECLARE = script("schedule_write"), script("schedule_declare")
_SWITCH, _PAUSED = script("schedules_switch"), script("schedules_paused")

_HEAD: Final = struct.Struct(">IBq")
"""A record begins with its revision, 1 if it is due by itself, and when."""
_PLANNED: Final = struct.Struct(">Bq")
_ID: Final = 16
_ANY: Final = -1
_ANSWERS: Final = {
    ord("w"): Written.WRITTEN,
    ord("s"): Written.STALE,
    ord("b"): Written.BUSY,
    ord("h"): Written.HELD,
}

_pack = msgspec.msgpack.Encoder().encode


class RedisSchedules:
    """A `ScheduleStore`."""

    def __init__(self, database: RedisDatabase) -> None:
        self._db = database

    async def rows(self, names: Sequence[str] | None = None) -> Sequence[ScheduleRow]:
        if names is not None:
            return await self._named(sorted({name.encode() for name in storable_names(names)}))
        records, stamps = await self._db.run_aside(_ROWS)
        declared = dict(zip(stamps[::2], stamps[1::2], strict=True))
        found = sorted(zip(records[::2], records[1::2], strict=True))
        return [_row(name, record, declared.get(name)) for name, record in found]

    async def page(self, after: str, limit: int) -> Sequence[ScheduleRow]:
        names = sorted(await self._db.run_aside(_NAMES))
        return await self._named([name for name in names if name > after.encode()][:limit])

    async def _named(self, names: Sequence[bytes]) -> Sequence[ScheduleRow]:
        """Read several rows at a time: a row may be large."""
        found: list[ScheduleRow] = []
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            told = await self._db.run_aside(_SOME, *some)
            found += [
                _row(name, record, stamp or None)
                for name, record, stamp in zip(some, told[::2], told[1::2], strict=True)
                if record
            ]
        return found

    async def due(self, limit: int) -> DueSchedules:
        now, paused, following, *found = await self._db.run(_DUE, limit)
        rows = [_row(*one) for one in zip(found[::3], found[1::3], found[2::3], strict=True)]
        next_at = None if following is None else instant_of(int(float(following)))
        return DueSchedules(instant_of(now), rows, next_at, paused=bool(paused))

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        if not writes:
            return []
        reply = await self._db.run(_WRITE, *(part for write in writes for part in _parts(write)))
        insert.require_limits(reply)
        self._db.wake(topics={Topic.SCHEDULE})
        return [_answer(write, said) for write, said in zip(writes, reply, strict=True)]

    async def declare(self, names: Sequence[str]) -> None:
        await self._db.run_aside(_DECLARE, *names)

    async def pause(self, *, audit: AuditNote | None = None) -> None:
        await self._db.run_aside(_SWITCH, "1", note_bytes(audit))

    async def resume(self, *, audit: AuditNote | None = None) -> None:
        await self._db.run_aside(_SWITCH, "", note_bytes(audit))
        self._db.wake(topics={Topic.SCHEDULE})

    async def paused(self) -> datetime | None:
        since = await self._db.run_aside(_PAUSED)
        return None if since is None else instant_of(int(since))


def _answer(write: ScheduleWrite, said: bytes) -> ScheduleAnswer:
    """Return the answer of schedule_write.lua for one write."""
    what, rest = _ANSWERS[said[0]], said[1:]
    if what is Written.HELD:
        ids = _ids(rest)
        return ScheduleAnswer(what, dict(zip(ids[::2], ids[1::2], strict=True)))
    jobs = write.jobs if rest else ()
    known = tuple(job.id for job, mark in zip(jobs, rest, strict=False) if mark)
    return ScheduleAnswer(what, known=known, expired=tuple(_ids(rest[len(jobs) :])))


def _ids(packed: bytes) -> list[JobId]:
    return [JobId(packed[at : at + _ID].hex()) for at in range(0, len(packed), _ID)]


def _row(name: bytes, record: bytes, declared: bytes | None) -> ScheduleRow:
    revision, planned, next_at = _HEAD.unpack_from(record)
    return ScheduleRow(
        name=name.decode(),
        revision=revision,
        body=record[_HEAD.size :],
        next_at=instant_of(next_at) if planned else None,
        declared_at=None if declared is None else instant_of(int(declared)),
    )


def _parts(write: ScheduleWrite) -> list[Argument]:
    """Return the arguments of schedule_write.lua."""
    at = _due_us(write.next_at)
    most = _ANY if write.most_active is None else write.most_active
    due = "" if at is None else str(at)
    note = as_text(note_bytes(write.audit))
    record = b""
    if write.body is not None:
        record = _PLANNED.pack(at is not None, at or 0) + write.body
    # An id that cannot be stored is not.
    active = [uid for job in dict.fromkeys(write.active) if len(uid := known_id(job)) == _ID]
    return [
        _pack((write.name, write.revision, due, most, len(write.jobs), note)),
        record,
        b"".join(active),
        *insert.insert_args([skip_if_key_held(job) for job in write.jobs]),
    ]


def _due_us(at: datetime | None) -> int | None:
    return None if at is None else min(to_us(at), LAST_US)
