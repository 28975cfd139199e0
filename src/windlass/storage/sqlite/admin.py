"""What people ask, and the switches of queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import apsw

from windlass.core.instant import to_us
from windlass.core.job import Attempt, Job, JobId
from windlass.core.rollup import Rollup
from windlass.storage.protocol import AuditNote, ErrorLook, JobFilter, Named, Page, QueueCounts
from windlass.storage.queries import load
from windlass.storage.sqlite.audits import keep_audit
from windlass.storage.sqlite.counting import count_jobs
from windlass.storage.sqlite.database import Database
from windlass.storage.sqlite.faults import error_groups
from windlass.storage.sqlite.finding import find
from windlass.storage.sqlite.naming import named
from windlass.storage.sqlite.queues import pause, resume
from windlass.storage.sqlite.rollups import read_rollups
from windlass.storage.sqlite.rows import (
    attempt_of,
    fetch_shown,
    ids_text,
    job_of,
    known_id,
)

__all__ = ["SqliteAdmin"]

_SQL = load("windlass.storage.sqlite.sql", "admin.sql")
_GET, _HISTORY = _SQL["get"], _SQL["history"]
_SECRET, _KEEP_SECRET = _SQL["secret"], _SQL["keep_secret"]
_CHANGE_SECRET = _SQL["change_secret"]


class SqliteAdmin:
    """An `AdminStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # --- reading ------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        return await self._db.ask(lambda connection, now: _get(connection, ids, now))

    async def named(self, first: str, last: str, *, after: str | None = None) -> Named:
        return await self._db.ask(lambda connection, _: named(connection, first, last, after))

    async def secret(self, new: str = "", *, old: str = "") -> str:
        def op(connection: apsw.Connection, _: int) -> str:
            if old:
                connection.execute(_CHANGE_SECRET, (new, old))
            else:
                connection.execute(_KEEP_SECRET, (new,))
            return _secret(connection)

        if not new:
            return self._db.read(lambda connection, _: _secret(connection))
        return await self._db.write(op)

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        return await self._db.ask(lambda connection, now: find(connection, wanted, limit, now))

    async def errors(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: datetime | None = None,
        look: int = 10_000,
    ) -> ErrorLook:
        return await self._db.ask(
            lambda connection, _: error_groups(connection, queue, task, since, look)
        )

    async def history(self, job: JobId) -> Sequence[Attempt]:
        return await self._db.ask(
            lambda connection, _: [
                attempt_of(row) for row in fetch_shown(connection, _HISTORY, (known_id(job),))
            ]
        )

    async def counts(self, *, cap: int | None = None) -> Sequence[QueueCounts]:
        return await self._db.ask(lambda connection, now: count_jobs(connection, cap, now))

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        return await self._db.ask(
            lambda connection, _: read_rollups(connection, to_us(since), to_us(until))
        )

    # --- switching ----------------------------------------------------------------------------

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
        self._db.wake({queue})


def _get(connection: apsw.Connection, ids: Sequence[JobId], now: int) -> list[Job | None]:
    rows = fetch_shown(connection, _GET, (ids_text(ids), now))
    jobs = {row[1].hex(): job_of(row) for row in rows}
    return [jobs.get(job) for job in ids]


def _secret(connection: apsw.Connection) -> str:
    return str(connection.execute(_SECRET).get or "")
