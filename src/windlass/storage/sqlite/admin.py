"""What people ask, and the switches of queues."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import apsw

from windlass.core.instant import to_us
from windlass.core.job import Attempt, Job, JobId
from windlass.core.rollup import Rollup
from windlass.core.state import State
from windlass.errors import JobNotFound, KeyConflict, WrongState
from windlass.storage.protocol import AuditNote, ErrorLook, JobFilter, Page, QueueCounts
from windlass.storage.queries import load
from windlass.storage.sqlite.audits import keep_audit
from windlass.storage.sqlite.changes import REQUEUABLE, Asked, Changes, asked
from windlass.storage.sqlite.counting import count_jobs
from windlass.storage.sqlite.database import Database
from windlass.storage.sqlite.faults import error_groups
from windlass.storage.sqlite.finding import find
from windlass.storage.sqlite.queues import pause, resume
from windlass.storage.sqlite.rollups import read_rollups
from windlass.storage.sqlite.rows import (
    STATES,
    WAITING,
    attempt_of,
    fetch_shown,
    ids_text,
    job_of,
    known_id,
)

__all__ = ["SqliteAdmin"]

_SQL = load("windlass.storage.sqlite.sql", "admin.sql")
_GET, _HISTORY = _SQL["get"], _SQL["history"]


class SqliteAdmin:
    """An `AdminStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # --- reading ------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        return self._db.read(lambda connection, now: _get(connection, ids, now))

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        return self._db.look(lambda connection, now: find(connection, wanted, limit, now))

    async def errors(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: datetime | None = None,
        look: int = 10_000,
    ) -> ErrorLook:
        return self._db.look(
            lambda connection, _: error_groups(connection, queue, task, since, look)
        )

    async def history(self, job: JobId) -> Sequence[Attempt]:
        rows = self._db.read(
            lambda connection, _: fetch_shown(connection, _HISTORY, (known_id(job),))
        )
        return [attempt_of(row) for row in rows]

    async def counts(self, *, cap: int | None = None) -> Sequence[QueueCounts]:
        return self._db.look(lambda connection, now: count_jobs(connection, cap, now))

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        return self._db.read(
            lambda connection, _: read_rollups(connection, to_us(since), to_us(until))
        )

    # --- ordering -----------------------------------------------------------------------------

    async def requeue(self, ids: Sequence[JobId]) -> Sequence[Job]:
        jobs = await self._db.write(lambda connection, now: _requeue(connection, ids, now))
        self._db.wake()
        return jobs

    async def discard(self, ids: Sequence[JobId], *, reason: str) -> None:
        def op(connection: apsw.Connection, now: int) -> None:
            jobs = _require(connection, ids, {State.FAILED}, "discard", "failed")
            changes = Changes(connection, now)
            for job in jobs:
                changes.discard(job, reason)

        await self._db.write(op)
        self._db.wake()

    async def run_now(self, ids: Sequence[JobId]) -> Sequence[bool]:
        answers = await self._db.write(lambda connection, now: _run_now(connection, ids, now))
        self._db.wake()
        return answers

    async def pause(self, queue: str, *, audit: AuditNote | None = None) -> None:
        def op(connection: apsw.Connection, now: int) -> None:
            pause(connection, queue)
            keep_audit(connection, audit, 1, now)

        await self._db.write(op)

    async def resume(self, queue: str, *, audit: AuditNote | None = None) -> None:
        def op(connection: apsw.Connection, now: int) -> None:
            resume(connection, queue)
            keep_audit(connection, audit, 1, now)

        await self._db.write(op)
        self._db.wake()


def _get(connection: apsw.Connection, ids: Sequence[JobId], now: int) -> list[Job | None]:
    rows = fetch_shown(connection, _GET, (ids_text(ids), now))
    jobs = {row[1].hex(): job_of(row) for row in rows}
    return [jobs.get(job) for job in ids]


def _require(
    connection: apsw.Connection,
    ids: Sequence[JobId],
    states: Collection[State],
    operation: str,
    needs: str,
) -> list[Asked]:
    """All of them, in the right state, or an error before anything has changed."""
    found = asked(connection, ids)
    jobs: list[Asked] = []
    for each in dict.fromkeys(ids):
        job = found.get(each)
        if job is None:
            raise JobNotFound(each)
        if STATES[job.state] not in states:
            raise WrongState(each, STATES[job.state], operation, needs)
        jobs.append(job)
    return jobs


def _requeue(connection: apsw.Connection, ids: Sequence[JobId], now: int) -> list[Job]:
    jobs = _require(connection, ids, REQUEUABLE, "requeue", "failed, cancelled or discarded")
    changes = Changes(connection, now)
    for job in jobs:
        holder = changes.requeue(job)
        if holder is not None:
            raise KeyConflict(str(job.key), holder.id.hex())
    changes.settle()
    requeued = _get(connection, [JobId(job.id.hex()) for job in jobs], now)
    return [job for job in requeued if job is not None]


def _run_now(connection: apsw.Connection, ids: Sequence[JobId], now: int) -> list[bool]:
    jobs = asked(connection, ids)
    changes = Changes(connection, now)
    for job in jobs.values():
        if job.state == WAITING:
            changes.run_now(job)
    changes.settle()
    return [job in jobs and jobs[job].state == WAITING for job in ids]
