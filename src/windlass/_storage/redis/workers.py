"""Registered workers, and workers that are declared dead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from windlass._core.job.job import Claim, ClaimedJob, JobId
from windlass._core.job.transition import Transition
from windlass._core.stats.gauges import Readings, first_gauges
from windlass._core.values.instants import instant_of, span_us
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import Applied
from windlass._storage.protocol.workers import (
    Duty,
    HeartbeatAnswer,
    WorkerRecord,
    WorkerStart,
    WorkerState,
)
from windlass._storage.redis.admin.audit import note_bytes
from windlass._storage.redis.admin.gauges import gauge_bytes
from windlass._storage.redis.io.database import Argument, RedisDatabase
from windlass._storage.redis.io.records import UNREADABLE, job_of
from windlass._storage.redis.io.scripts import script
from windlass._storage.redis.jobs.apply import apply_answers, transition_bytes
from windlass._storage.redis.jobs.claim import claimed_job

__all__ = ["RedisHeartbeatChannel", "RedisLeader", "RedisWorkers"]

_REGISTER, _BEAT, _CANCEL_REQUESTS = script("register"), script("beat"), script("cancel_requests")
_BURY, _OVERDUE, _ORPHANS = script("bury"), script("overdue"), script("orphans")
_LEAVE, _WORKERS = script("leave"), script("workers")
_LIVE, _STARTS, _ASSIGN = script("live"), script("starts"), script("assign")

_encode_start = msgspec.msgpack.Encoder().encode
_start_parts = msgspec.msgpack.Decoder(WorkerStart).decode

_LEAD, _RESIGN = script("lead"), script("resign")


class RedisLeader:
    """A `LeaderStore`. Leases end by the server's clock."""

    def __init__(self, database: RedisDatabase) -> None:
        self._db = database

    async def lead(self, role: str, worker: str, lease: timedelta) -> bool:
        return bool(await self._db.run_aside(_LEAD, role, worker, span_us(lease)))

    async def resign(self, worker: str) -> None:
        await self._db.run_aside(_RESIGN, worker)


class RedisWorkers:
    """A `WorkerStore`. Leases are judged by the server's clock."""

    def __init__(self, database: RedisDatabase, forget: Callable[[str], None]) -> None:
        """Make the store. ``forget`` gets the workers that were declared dead: their locks prove
        nothing any more.
        """
        self._db, self._forget = database, forget
        # Every worker asks every second who is live: what they said never changes, so what is
        # asked of the server is no more than their names.
        self._starts: dict[bytes, tuple[int, WorkerStart]] = {}

    def pulse(self) -> RedisHeartbeatChannel:
        return RedisHeartbeatChannel(self._db)

    async def register(self, start: WorkerStart) -> datetime:
        row = (start.id, _encode_start(start), span_us(start.lease))
        return instant_of(await self._db.run(_REGISTER, *row))

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        return _beat_of(await self._db.run(_BEAT, *_beat_args(worker, memory, readings)))

    async def assign(
        self, workers: Sequence[str], duty: Duty, *, audit: AuditNote | None = None
    ) -> Sequence[str]:
        asked = dict.fromkeys(workers)
        having = await self._db.run_aside(_ASSIGN, duty.value, note_bytes(audit), *asked)
        return [worker.decode() for worker in having]

    async def cancel_requests(self, worker: str) -> Sequence[Claim]:
        return _claims_of(await self._db.run(_CANCEL_REQUESTS, worker))

    async def bury(self, workers: Sequence[str]) -> Sequence[str]:
        return await self._declare_dead("any", workers)

    async def bury_overdue(self, workers: Sequence[str]) -> Sequence[str]:
        return await self._declare_dead("overdue", workers)

    async def _declare_dead(self, which: str, workers: Sequence[str]) -> Sequence[str]:
        found = await self._db.run_aside(_BURY, which, *workers)
        dead = [worker.decode() for worker in found]
        for worker in dead:
            self._forget(worker)
        return dead

    async def overdue(self) -> Sequence[str]:
        return [worker.decode() for worker in await self._db.run_aside(_OVERDUE)]

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        found = await self._db.run_aside(_ORPHANS, limit)
        return [replace(_orphan(*row), payload=b"") for row in found]

    async def leave(self, worker: str, releases: Sequence[Transition]) -> Applied:
        items = [b"T" + transition_bytes(release) for release in releases]
        reply = await self._db.run(_LEAVE, worker, *items)
        self._db.wake()
        return apply_answers(reply, None)

    async def live(self) -> Sequence[WorkerStart]:
        _, *live = await self._db.run_aside(_LIVE)
        if unknown := [worker for worker in live if worker not in self._starts]:
            told = await self._db.run_aside(_STARTS, *unknown)
            for worker, number, start in zip(unknown, told[::2], told[1::2], strict=True):
                if start:  # else it is gone by now
                    self._starts[worker] = (int(float(number or 0)), _decode_start(start))
        self._starts = {worker: self._starts[worker] for worker in live if worker in self._starts}
        newest = sorted(self._starts.values(), key=lambda row: row[0], reverse=True)
        return [start for _, start in newest]

    async def workers(self) -> Sequence[WorkerRecord]:
        return [_record_of(row) for row in await self._db.run_aside(_WORKERS)]


class RedisHeartbeatChannel:
    """A `HeartbeatChannel` with a separate connection, made on the loop of its first heartbeat."""

    def __init__(self, database: RedisDatabase) -> None:
        self._db, self._line = database, database.line()

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        given = _beat_args(worker, memory, readings)
        return _beat_of(await self._db.run_on(self._line, _BEAT, *given))

    async def close(self) -> None:
        await self._line.close()


def _decode_start(text: bytes) -> WorkerStart:
    start = _start_parts(text)
    return replace(start, tasks=tuple(start.tasks))


def _orphan(asked: bytes, kept: bytes, error: bytes) -> ClaimedJob:
    try:
        return claimed_job(asked, kept, error)
    except UNREADABLE:
        # Ending the claim needs little of it: unreadable parts must not keep it running.
        job = job_of(asked, kept, key_held=False, error=None)
    return ClaimedJob(
        Claim(job.id, job.claim_number, job.seq),
        job.task,
        job.queue,
        b"",
        job.attempt,
        job.max_attempts,
        job.budget,
        job.due,
        job.started_at or job.due,
        job.worker or "",
        lost=job.lost,
        solo=job.solo,
    )


def _beat_args(worker: str, memory: int | None, readings: Readings | None) -> list[Argument]:
    given: list[Argument] = [worker, "" if memory is None else memory]
    for source, values in (readings or {}).items():
        given += (source, gauge_bytes(first_gauges(values)))
    return given


def _beat_of(reply: Sequence[Any]) -> HeartbeatAnswer:
    live, now, rows, duty = reply
    return HeartbeatAnswer(
        bool(live),
        instant_of(now),
        cancelled=_claims_of([row for row in rows if row[3]]),
        holding=_claims_of(rows),
        duty=_duty_of(duty),
    )


def _duty_of(text: bytes | None) -> Duty:
    return Duty(text.decode()) if text else Duty.WORK


def _claims_of(rows: Sequence[Sequence[Any]]) -> list[Claim]:
    claims = [Claim(JobId(row[0].hex()), row[1], row[2]) for row in rows]
    claims.sort(key=lambda claim: claim.seq)
    return claims


def _record_of(row: Sequence[Any]) -> WorkerRecord:
    start, state, started_at, beat_at, ended_at, memory, duty, running = row
    return WorkerRecord(
        start=_decode_start(start),
        state=WorkerState(state.decode()),
        started_at=instant_of(int(started_at)),
        beat_at=instant_of(int(beat_at)),
        ended_at=None if ended_at is None else instant_of(int(ended_at)),
        running=running,
        memory=None if memory is None else int(memory),
        duty=_duty_of(duty),
    )
