"""What people ask and order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import apsw

from windlass.core.instant import to_us
from windlass.core.job import Attempt, Job, JobId
from windlass.core.rollup import Rollup
from windlass.core.state import State
from windlass.core.unique import Window
from windlass.errors import JobNotFound, KeyConflict, WrongState
from windlass.storage.protocol import JobFilter, QueueCounts
from windlass.storage.queries import load
from windlass.storage.sqlite.database import Database
from windlass.storage.sqlite.keys import find_holder, take_key
from windlass.storage.sqlite.lanes import Lanes
from windlass.storage.sqlite.lanes import Place as LanePlace
from windlass.storage.sqlite.queues import pause, paused_queues, resume
from windlass.storage.sqlite.rollups import read_rollups
from windlass.storage.sqlite.rows import (
    CODES,
    STATES,
    WAITING,
    Row,
    attempt_of,
    fetch,
    fetch_shown,
    ids_text,
    job_of,
    known_id,
    limits_of,
    rows_by_id,
    seqs_text,
)

__all__ = ["SqliteAdmin"]

_JOBS = load("windlass.storage.sqlite.sql", "jobs.sql")
_BY_IDS, _STAND = _JOBS["by_ids"], _JOBS["stand"]
_SQL = load("windlass.storage.sqlite.sql", "admin.sql")
_GET, _FIND, _HISTORY, _COUNTS = _SQL["get"], _SQL["find"], _SQL["history"], _SQL["counts"]
_REQUEUE, _DISCARD = _SQL["requeue"], _SQL["discard"]

_REQUEUABLE = frozenset({State.FAILED, State.CANCELLED, State.DISCARDED})
_NEWEST = 2**63 - 1


class SqliteAdmin:
    """An `AdminStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # --- reading ------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        return self._db.read(lambda connection, now: _get(connection, ids, now))

    async def find(self, wanted: JobFilter, *, limit: int) -> Sequence[Job]:
        states = None
        if wanted.states is not None:
            states = seqs_text([CODES[state] for state in wanted.states])
        before = _NEWEST if wanted.before is None else wanted.before
        rows = self._db.read(
            lambda connection, now: fetch_shown(
                connection, _FIND, (before, now, states, wanted.queue, wanted.task, limit)
            )
        )
        return [job_of(row) for row in rows]

    async def history(self, job: JobId) -> Sequence[Attempt]:
        rows = self._db.read(
            lambda connection, _: fetch_shown(connection, _HISTORY, (known_id(job),))
        )
        return [attempt_of(row) for row in rows]

    async def counts(self) -> Sequence[QueueCounts]:
        rows, paused = self._db.read(
            lambda connection, now: (fetch(connection, _COUNTS, (now,)), paused_queues(connection))
        )
        queues: dict[str, dict[str, int]] = {queue: {} for queue in paused}
        for queue, state, scheduled, count in rows:
            place = STATES[state].value
            if state == WAITING:
                place = "scheduled" if scheduled else "ready"
            queues.setdefault(queue, {})[place] = count
        return [
            QueueCounts(queue=queue, paused=queue in paused, **counts)
            for queue, counts in sorted(queues.items())
        ]

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
            rows = _require(connection, ids, {State.FAILED}, "discard", "failed")
            connection.executemany(_DISCARD, [(row[1], now, reason) for row in rows])

        await self._db.write(op)
        self._db.wake()

    async def run_now(self, ids: Sequence[JobId]) -> Sequence[bool]:
        answers = await self._db.write(lambda connection, now: _run_now(connection, ids, now))
        self._db.wake()
        return answers

    async def pause(self, queue: str) -> None:
        await self._db.write(lambda connection, _: pause(connection, queue))

    async def resume(self, queue: str) -> None:
        await self._db.write(lambda connection, _: resume(connection, queue))
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
) -> list[Row]:
    """All of them, in the right state, or an error before anything has changed."""
    found = rows_by_id(connection, _BY_IDS, ids)
    rows: list[Row] = []
    for job in dict.fromkeys(ids):
        row = found.get(job)
        if row is None:
            raise JobNotFound(job)
        if STATES[row[2]] not in states:
            raise WrongState(job, STATES[row[2]], operation, needs)
        rows.append(row)
    return rows


def _requeue(connection: apsw.Connection, ids: Sequence[JobId], now: int) -> list[Job]:
    rows = _require(connection, ids, _REQUEUABLE, "requeue", "failed, cancelled or discarded")
    lanes = Lanes(connection)
    for row in rows:
        _, seq, _, _, queue, priority, _, limits, key, window, period = row
        # A window until the start stays released, whether the job ever started or not.
        if key is not None and window != Window.UNTIL_STARTED.value:
            holder = find_holder(connection, key, now)
            if holder is None:
                take_key(connection, key, seq, period=period, now=now)
            elif holder.seq != seq:
                raise KeyConflict(key, holder.id.hex())
        ready, lane = 1, None
        if limits is not None:
            ready, lane = _stand(lanes, queue, limits, (priority, now, seq))
        connection.execute(_REQUEUE, (seq, ready, lane, now))
    lanes.settle()
    jobs = _get(connection, [JobId(row[0].hex()) for row in rows], now)
    return [job for job in jobs if job is not None]


def _stand(lanes: Lanes, queue: str, limits: bytes, place: LanePlace) -> tuple[int, int | None]:
    """Ready in its lane; limits that cannot be read are left to the next claim, where it fails."""
    uses = limits_of(limits)
    return (2, lanes.enter(queue, uses, place)) if uses else (0, None)


def _run_now(connection: apsw.Connection, ids: Sequence[JobId], now: int) -> list[bool]:
    rows = rows_by_id(connection, _BY_IDS, ids)
    lanes = Lanes(connection)
    for row in rows.values():
        _, seq, state, due, queue, priority, solo, limits, *_ = row
        if state != WAITING or due <= now:
            continue
        ready, lane = 1, None
        if solo:
            ready = 3
        elif limits is not None:
            ready, lane = _stand(lanes, queue, limits, (priority, now, seq))
        connection.execute(_STAND, (seq, now, ready, lane))
    lanes.settle()
    return [job in rows and rows[job][2] == WAITING for job in ids]
