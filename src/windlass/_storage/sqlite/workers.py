"""Registered workers, workers that are declared dead, and leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import apsw
import msgspec

from windlass._core.job.job import Claim, ClaimedJob, JobId
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._core.stats.gauges import Readings
from windlass._core.values.instants import instant_of, span_us, us_or_none
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import Applied
from windlass._storage.protocol.workers import (
    Duty,
    HeartbeatAnswer,
    WorkerRecord,
    WorkerStart,
    WorkerState,
)
from windlass._storage.shared.heartbeat_channel import SharedHeartbeatChannel
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.shared.stored_text import worker_description_of, worker_description_text
from windlass._storage.sqlite.admin.audit import keep_audit
from windlass._storage.sqlite.admin.gauges import keep_readings
from windlass._storage.sqlite.flows.parts import Place, places_of
from windlass._storage.sqlite.io.database import SqliteDatabase
from windlass._storage.sqlite.io.rows import (
    Row,
    fetch,
    fetch_shown,
    optional_instant,
    value_of,
)
from windlass._storage.sqlite.io.writer import Urgency
from windlass._storage.sqlite.jobs.apply import apply
from windlass._storage.sqlite.jobs.claimed_jobs import claimed_jobs

__all__ = ["SqliteLeader", "SqliteWorkers"]

_SQL = load_sql("windlass._storage.sqlite.sql", "workers.sql")
_REGISTER, _BEAT, _HOLDING, _END = _SQL["register"], _SQL["beat"], _SQL["holding"], _SQL["end"]
_OVERDUE, _NEXT_RUNNING = _SQL["overdue"], _SQL["next_running_worker"]
_IS_LIVE, _CLAIMS_OF, _HELD = _SQL["is_live"], _SQL["claims_of"], _SQL["held"]
_CANCEL_REQUESTS, _LIVE_STARTS = _SQL["cancel_requests"], _SQL["live_starts"]
_WORKERS, _LEAD, _RESIGN = _SQL["workers"], _SQL["lead"], _SQL["resign"]
_ASSIGN, _DUTY = _SQL["assign"], _SQL["duty"]

_names_of = msgspec.json.Decoder(list[str]).decode


class SqliteWorkers:
    """A `WorkerStore`. Leases are judged by the clock that counts from boot."""

    def __init__(self, database: SqliteDatabase, forget: Callable[[str], None]) -> None:
        """Make the store. ``forget`` gets the workers that were declared dead: their locks prove
        nothing any more.
        """
        self._db, self._forget = database, forget

    def pulse(self) -> SharedHeartbeatChannel:
        return SharedHeartbeatChannel(self)

    async def register(self, start: WorkerStart) -> datetime:
        queues = msgspec.json.encode(list(start.queues)).decode()
        tasks = msgspec.json.encode(list(start.tasks)).decode()
        clock = us_or_none(start.clock)
        about = worker_description_text(start)

        def op(connection: apsw.Connection, now: int) -> int:
            connection.execute(
                _REGISTER,
                (
                    start.id,
                    start.host,
                    start.pid,
                    start.version,
                    queues,
                    start.slots,
                    span_us(start.lease),
                    self._db.boot,
                    self._db.since_boot(),
                    start.boot_id,
                    start.lock_device,
                    start.lock_inode,
                    now,
                    tasks,
                    clock,
                    about,
                ),
            )
            return now

        return instant_of(await self._db.write(op))

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        def op(connection: apsw.Connection, now: int) -> tuple[str | None, int, list[Row]]:
            values = (worker, now, self._db.boot, self._db.since_boot(), memory)
            duty = value_of(connection, _BEAT, values)
            if readings and duty is not None:
                keep_readings(connection, readings, now)
            return duty, now, fetch(connection, _HOLDING, (worker,))

        duty, now, rows = await self._db.write(op, Urgency.FIRST)
        holding = [Claim(JobId(uid.hex()), number, seq) for uid, number, seq, _ in rows]
        return HeartbeatAnswer(
            duty is not None,
            instant_of(now),
            cancelled=[claim for claim, row in zip(holding, rows, strict=True) if row[3]],
            holding=holding,
            duty=Duty.WORK if duty is None else Duty(duty),
        )

    async def assign(
        self, workers: Sequence[str], duty: Duty, *, audit: AuditNote | None = None
    ) -> Sequence[str]:
        def op(connection: apsw.Connection, now: int) -> list[str]:
            asked = list(dict.fromkeys(workers))
            changed = sum(bool(fetch(connection, _ASSIGN, (one, duty.value))) for one in asked)
            if changed:
                keep_audit(connection, audit, changed, now)
            return [one for one in asked if value_of(connection, _DUTY, (one,)) == duty.value]

        return await self._db.write(op)

    async def cancel_requests(self, worker: str) -> Sequence[Claim]:
        rows = self._db.read(lambda connection, _: fetch(connection, _CANCEL_REQUESTS, (worker,)))
        return [Claim(JobId(uid.hex()), number, seq) for uid, number, seq in rows]

    async def bury(self, workers: Sequence[str]) -> Sequence[str]:
        dead = await self._db.write(
            lambda connection, now: [
                worker for worker in workers if _end(connection, worker, WorkerState.DEAD, now)
            ]
        )
        for worker in dead:
            self._forget(worker)
        return dead

    async def bury_overdue(self, workers: Sequence[str]) -> Sequence[str]:
        def op(connection: apsw.Connection, now: int) -> list[str]:
            late = set(self._overdue(connection))
            return [w for w in workers if w in late and _end(connection, w, WorkerState.DEAD, now)]

        dead = await self._db.write(op)
        for worker in dead:
            self._forget(worker)
        return dead

    async def overdue(self) -> Sequence[str]:
        return self._db.read(lambda connection, _: self._overdue(connection))

    def _overdue(self, connection: apsw.Connection) -> list[str]:
        rows = fetch(connection, _OVERDUE, (self._db.boot, self._db.since_boot()))
        return [worker for (worker,) in rows]

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        def op(connection: apsw.Connection, _: int) -> tuple[list[Row], dict[int, Place]]:
            rows: list[Row] = []
            for worker in _running_workers(connection):
                if len(rows) >= limit:
                    break
                if not fetch(connection, _IS_LIVE, (worker,)):
                    rows += fetch_shown(connection, _CLAIMS_OF, (worker, limit - len(rows)))
            parts = {row[-1] for row in rows if row[-1] is not None}
            return rows, places_of(connection, parts) if parts else {}

        rows, places = self._db.read(op)
        return [_orphan(row, places) for row in rows]

    async def leave(self, worker: str, releases: Sequence[Transition]) -> Applied:
        def op(connection: apsw.Connection, now: int) -> Applied:
            applied = apply(connection, now, releases)
            left = [_release(row, worker) for row in fetch(connection, _HELD, (worker,))]
            apply(connection, now, left)
            _end(connection, worker, WorkerState.GONE, now)
            return applied

        applied = await self._db.write(op)
        self._db.subscribers.wake()
        return applied

    async def live(self) -> Sequence[WorkerStart]:
        rows = self._db.read(lambda connection, _: fetch(connection, _LIVE_STARTS))
        return [_start(row) for row in rows]

    async def workers(self) -> Sequence[WorkerRecord]:
        return await self._db.ask(
            lambda connection, _: [_record(row) for row in fetch(connection, _WORKERS)]
        )


def _end(connection: apsw.Connection, worker: str, state: WorkerState, now: int) -> bool:
    """End a live row; False: it was not live, and stays as it is."""
    return bool(fetch(connection, _END, (worker, state.value, now)))


def _orphan(row: Row, places: Mapping[int, Place]) -> ClaimedJob:
    seq, job, extras, (queue, started_at, worker, part) = row[0], row[:10], row[10:-4], row[-4:]
    more, at = {seq: (seq, *extras)}, instant_of(started_at)
    rows = [(*job, None, True, part)]
    return claimed_jobs(rows, more, places, queue=queue, started_at=at, worker=worker)[0]


def _running_workers(connection: apsw.Connection) -> Iterator[str]:
    """Workers of running jobs: from one to the next by the index."""
    worker = value_of(connection, _NEXT_RUNNING, ("",))
    while worker is not None:
        yield worker
        worker = value_of(connection, _NEXT_RUNNING, (worker,))


def _release(row: Row, worker: str) -> Transition:
    uid, number, seq, lost, solo = row
    claim = Claim(JobId(uid.hex()), number, seq)
    return Transition(
        Verb.RELEASE, claim, worker, refund=True, lost=lost, solo=bool(solo), started=False
    )


def _start(row: Row) -> WorkerStart:
    worker, host, pid, version, queues, slots, lease, boot, device, inode, tasks, clock, text = row
    about = worker_description_of(text)
    return WorkerStart(
        id=worker,
        host=host,
        pid=pid,
        version=version,
        queues=_names_of(queues),
        slots=slots,
        lease=timedelta(microseconds=lease),
        boot_id=boot,
        lock_device=device,
        lock_inode=inode,
        tasks=tuple(_names_of(tasks)),
        clock=optional_instant(clock),
        signatures=about.signatures,
        pools=about.pools,
    )


def _record(row: Row) -> WorkerRecord:
    state, started_at, beat_at, ended_at, memory, duty, running = row[13:]
    return WorkerRecord(
        start=_start(row[:13]),
        state=WorkerState(state),
        started_at=instant_of(started_at),
        beat_at=instant_of(beat_at),
        ended_at=optional_instant(ended_at),
        running=running,
        memory=memory,
        duty=Duty(duty),
    )


class SqliteLeader:
    """A `LeaderStore`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._db = database

    async def lead(self, role: str, worker: str, lease: timedelta) -> bool:
        def op(connection: apsw.Connection, _: int) -> bool:
            values = (role, worker, self._db.boot, self._db.since_boot(), span_us(lease))
            return bool(fetch(connection, _LEAD, values))

        return await self._db.write(op)

    async def resign(self, worker: str) -> None:
        await self._db.write(lambda connection, _: fetch(connection, _RESIGN, (worker,)))
