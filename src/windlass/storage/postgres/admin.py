"""What people ask and order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from windlass.core.job import Attempt, Job, JobId
from windlass.core.rollup import Rollup, merge
from windlass.core.state import State
from windlass.errors import JobNotFound, KeyConflict, WindlassError, WrongState
from windlass.storage.postgres.connection import Row
from windlass.storage.postgres.database import Database
from windlass.storage.postgres.records import CODES, STATES, attempt_of, job_of, known_ids
from windlass.storage.postgres.translate import Refused
from windlass.storage.protocol import JobFilter, QueueCounts
from windlass.storage.queries import load

__all__ = ["PostgresAdmin"]

_SQL = load("windlass.storage.postgres.sql", "admin.sql")
_GET, _FIND, _HISTORY, _COUNTS = _SQL["get"], _SQL["find"], _SQL["history"], _SQL["counts"]
_PAUSED, _PAUSE, _ROLLUPS = _SQL["paused"], _SQL["pause"], _SQL["rollups"]
_REQUEUE, _DISCARD, _RUN_NOW = _SQL["requeue"], _SQL["discard"], _SQL["run_now"]

_NEWEST = 2**63 - 1


class PostgresAdmin:
    """An `AdminStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def _ask(self, sql: str, *args: object, again: bool = True) -> list[Row]:
        return await self._db.fetch_aside(self._db.sql(sql), *args, again=again)

    # --- reading ------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        rows = await self._ask(_GET, self._db.instant(), known_ids(ids))
        jobs = {job.id: job for job in map(job_of, rows)}
        return [jobs.get(job) for job in ids]

    async def find(self, wanted: JobFilter, *, limit: int) -> Sequence[Job]:
        states = None if wanted.states is None else [CODES[state] for state in wanted.states]
        before = _NEWEST if wanted.before is None else wanted.before
        rows = await self._ask(
            _FIND, self._db.instant(), before, states, wanted.queue, wanted.task, limit
        )
        return [job_of(row) for row in rows]

    async def history(self, job: JobId) -> Sequence[Attempt]:
        found = known_ids([job])
        rows = await self._ask(_HISTORY, found[0]) if found else []
        return [attempt_of(row) for row in rows]

    async def counts(self) -> Sequence[QueueCounts]:
        rows = await self._ask(_COUNTS, self._db.instant())
        paused = {row[0] for row in await self._ask(_PAUSED)}
        queues: dict[str, dict[str, int]] = {queue: {} for queue in paused}
        for queue, state, scheduled, count in rows:
            place = STATES[state].value
            if STATES[state] is State.WAITING:
                place = "scheduled" if scheduled else "ready"
            queues.setdefault(queue, {})[place] = count
        return [
            QueueCounts(queue=queue, paused=queue in paused, **counts)
            for queue, counts in sorted(queues.items())
        ]

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        return merge(_rollup_of(row) for row in await self._ask(_ROLLUPS, since, until))

    # --- ordering -----------------------------------------------------------------------------

    async def requeue(self, ids: Sequence[JobId]) -> Sequence[Job]:
        asked = _asked(ids)
        try:
            rows = await self._ask(_REQUEUE, self._db.instant(), asked, again=False)
        except Refused as refusal:
            raise _reason(refusal, "requeue", "failed, cancelled or discarded") from None
        self._db.wake()
        jobs = {job.id: job for job in map(job_of, rows)}
        return [jobs[job] for job in dict.fromkeys(ids)]

    async def discard(self, ids: Sequence[JobId], *, reason: str) -> None:
        asked = _asked(ids)
        try:
            await self._ask(_DISCARD, self._db.instant(), asked, reason, again=False)
        except Refused as refusal:
            raise _reason(refusal, "discard", "failed") from None
        self._db.wake()

    async def run_now(self, ids: Sequence[JobId]) -> Sequence[bool]:
        rows = await self._ask(_RUN_NOW, self._db.instant(), known_ids(ids))
        self._db.wake()
        waiting = {row[0].hex for row in rows}
        return [job in waiting for job in ids]

    async def pause(self, queue: str) -> None:
        await self._ask(_PAUSE, queue, True)  # noqa: FBT003 -- a bound value

    async def resume(self, queue: str) -> None:
        await self._ask(_PAUSE, queue, False)  # noqa: FBT003 -- a bound value
        self._db.wake()


def _asked(ids: Sequence[JobId]) -> list[UUID]:
    for job in ids:
        if not known_ids([job]):
            raise JobNotFound(job)
    return known_ids(ids)


def _reason(refusal: Refused, operation: str, needs: str) -> WindlassError:
    """What a function of 0006_operations.sql raised."""
    job, _, rest = refusal.detail.partition(" ")
    match refusal.code:
        case "WL404":
            return JobNotFound(job)
        case "WL409":
            return WrongState(job, STATES[int(rest)], operation, needs)
        case _:
            return KeyConflict(rest, job)


def _rollup_of(row: Row) -> Rollup:
    return Rollup(
        minute=row["minute"],
        queue=row["queue"],
        task=row["task"],
        counts={
            verb: count for verb, count in zip(row["verbs"], row["counts"], strict=True) if count
        },
        wait=_histogram_of(row["wait"], row["wait_from"]),
        run=_histogram_of(row["run"], row["run_from"]),
    )


def _histogram_of(counts: Sequence[int | None], first: int | None) -> dict[int, int]:
    return {bucket: count for bucket, count in enumerate(counts, first or 0) if count}
