"""Workers and their leases, judged by the server's clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from windlass._core.job.job import Claim, ClaimedJob
from windlass._core.job.transition import Transition
from windlass._core.stats.gauges import Readings, first_gauges
from windlass._core.values.instants import FIRST_INSTANT, clamp_instant, span_us
from windlass._storage.postgres.admin.audit import audit_note_text
from windlass._storage.postgres.io.connection import PostgresConnection, Row
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.postgres.io.records import claim_of, orphan_of
from windlass._storage.postgres.jobs.apply import (
    answers_of,
    by_seq,
    cooldown_args,
    frame_args,
    metadata_args,
    start_args,
    transition_args,
)
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import Applied
from windlass._storage.protocol.workers import (
    Duty,
    HeartbeatAnswer,
    WorkerRecord,
    WorkerStart,
    WorkerState,
)
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.shared.stored_text import worker_description_of, worker_description_text

__all__ = ["PostgresHeartbeatChannel", "PostgresLeader", "PostgresWorkers"]

_SQL = load_sql("windlass._storage.postgres.sql", "workers.sql")
_REGISTER, _BEAT, _BURY, _OVERDUE = _SQL["register"], _SQL["beat"], _SQL["bury"], _SQL["overdue"]
_ORPHANS, _CANCEL_REQUESTS = _SQL["orphans"], _SQL["cancel_requests"]
_LEAVE, _LIVE, _WORKERS, _ASSIGN = _SQL["leave"], _SQL["live"], _SQL["workers"], _SQL["assign"]

_BEAT_SECONDS = 10.0
"""A beat that takes longer goes over a new connection: the lease is not much longer."""


class PostgresLeader:
    """A `LeaderStore`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database
        self._lead, self._resign = database.sql(_SQL["lead"]), database.sql(_SQL["resign"])

    async def lead(self, role: str, worker: str, lease: timedelta) -> bool:
        at = self._db.instant()
        return bool(await self._db.fetch_aside(self._lead, at, role, worker, span_us(lease)))

    async def resign(self, worker: str) -> None:
        await self._db.fetch_aside(self._resign, worker)


class PostgresWorkers:
    """A `WorkerStore`."""

    def __init__(self, database: PostgresDatabase, forget: Callable[[str], None]) -> None:
        """Make the store. ``forget`` gets the workers that were declared dead: their locks prove
        nothing any more.
        """
        self._db, self._forget = database, forget

    async def register(self, start: WorkerStart) -> datetime:
        rows = await self._db.fetch(
            self._db.sql(_REGISTER),
            self._db.instant(),
            start.id,
            start.host,
            start.pid,
            start.version,
            list(start.queues),
            start.slots,
            span_us(start.lease),
            start.boot_id,
            start.lock_device,
            start.lock_inode,
            list(start.tasks),
            None if start.clock is None else max(clamp_instant(start.clock), FIRST_INSTANT),
            worker_description_text(start),
        )
        at: datetime = rows[0][0]
        return at

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        given = (worker, memory, _readings_text(readings))
        return _beat_of(await self._db.fetch(self._db.sql(_BEAT), self._db.instant(), *given))

    def pulse(self) -> PostgresHeartbeatChannel:
        return PostgresHeartbeatChannel(self._db)

    async def bury(self, workers: Sequence[str]) -> Sequence[str]:
        return await self._declare_dead(workers, overdue=False)

    async def bury_overdue(self, workers: Sequence[str]) -> Sequence[str]:
        return await self._declare_dead(workers, overdue=True)

    async def _declare_dead(self, workers: Sequence[str], *, overdue: bool) -> Sequence[str]:
        rows = await self._db.fetch_aside(
            self._db.sql(_BURY), self._db.instant(), list(workers), overdue
        )
        turned = {row[0] for row in rows}
        dead = [worker for worker in dict.fromkeys(workers) if worker in turned]
        for worker in dead:
            self._forget(worker)
        return dead

    async def overdue(self) -> Sequence[str]:
        rows = await self._db.fetch_aside(self._db.sql(_OVERDUE), self._db.instant(), reads=True)
        return [row[0] for row in rows]

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        rows = await self._db.fetch_aside(self._db.sql(_ORPHANS), limit, reads=True)
        return [orphan_of(row) for row in rows]

    async def assign(
        self, workers: Sequence[str], duty: Duty, *, audit: AuditNote | None = None
    ) -> Sequence[str]:
        asked = (self._db.instant(), list(workers), duty.value, audit_note_text(audit))
        having = {row[0] for row in await self._db.fetch_aside(self._db.sql(_ASSIGN), *asked)}
        return [worker for worker in dict.fromkeys(workers) if worker in having]

    async def cancel_requests(self, worker: str) -> Sequence[Claim]:
        rows = await self._db.fetch(self._db.sql(_CANCEL_REQUESTS), worker, reads=True)
        return [claim_of(row) for row in rows]

    async def leave(self, worker: str, releases: Sequence[Transition]) -> Applied:
        places = by_seq(releases)
        ordered = [releases[place] for place in places]
        rows = await self._db.fetch(
            self._db.sql(_LEAVE),
            self._db.instant(),
            self._db.durable,
            worker,
            *transition_args(ordered),
            *cooldown_args(ordered, places),
            frame_args(ordered),
            start_args(ordered),
            metadata_args(ordered),
        )
        self._db.wake()
        at, left_out, *found = rows[0]
        answers = dict(zip(places, answers_of(ordered, *found), strict=True))
        return Applied(at, [answers[place] for place in range(len(releases))], left_out or ())

    async def live(self) -> Sequence[WorkerStart]:
        rows = await self._db.fetch_aside(self._db.sql(_LIVE), reads=True)
        return [_start_of(row) for row in rows]

    async def workers(self) -> Sequence[WorkerRecord]:
        rows = await self._db.fetch_aside(self._db.sql(_WORKERS), reads=True)
        return [_record_of(row) for row in rows]


class PostgresHeartbeatChannel:
    """A `HeartbeatChannel` over a separate connection, on the event loop that it is used on."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database
        self._link = PostgresConnection(database.server)

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        given = (self._db.instant(), worker, memory, _readings_text(readings))
        beat = self._link.fetch(self._db.sql(_BEAT), *given, within=_BEAT_SECONDS)
        return _beat_of(await self._db.timings.measure(beat, reads=False))

    async def close(self) -> None:
        await self._link.close()


def _readings_text(readings: Readings | None) -> str | None:
    """Return what a heartbeat stores, as JSON; None: nothing."""
    if not readings:
        return None
    kept = {source: first_gauges(values) for source, values in readings.items()}
    return msgspec.json.encode(kept).decode()


def _beat_of(rows: Sequence[Row]) -> HeartbeatAnswer:
    held = [row for row in rows if row["id"] is not None]
    holding = [claim_of((row["id"], row["claim_number"], row["seq"])) for row in held]
    return HeartbeatAnswer(
        rows[0]["live"],
        rows[0]["at"],
        cancelled=[
            claim for claim, row in zip(holding, held, strict=True) if row["cancel_requested"]
        ],
        holding=holding,
        duty=Duty(rows[0]["duty"] or Duty.WORK),
    )


def _start_of(row: Row) -> WorkerStart:
    about = worker_description_of(row["about"])
    return WorkerStart(
        id=row["id"],
        host=row["host"],
        pid=row["pid"],
        version=row["version"],
        queues=row["queues"],
        slots=row["slots"],
        lease=timedelta(microseconds=row["lease"]),
        boot_id=row["lock_boot"],
        lock_device=row["lock_device"],
        lock_inode=row["lock_inode"],
        tasks=tuple(row["tasks"]),
        clock=row["clock"],
        signatures=about.signatures,
        pools=about.pools,
    )


def _record_of(row: Row) -> WorkerRecord:
    return WorkerRecord(
        start=_start_of(row),
        state=WorkerState(row["state"]),
        started_at=row["started_at"],
        beat_at=row["beat_at"],
        ended_at=row["ended_at"],
        running=row["running"],
        memory=row["memory"],
        duty=Duty(row["duty"]),
    )
