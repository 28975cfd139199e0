"""Where jobs wait, are claimed and are finished."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import apsw

from windlass._core.job.job import Claim, JobId, NewJob, Progress
from windlass._core.job.state import TERMINAL, State
from windlass._core.job.transition import Transition
from windlass._core.values.instants import instant_of, span_us
from windlass._storage.protocol.jobs import (
    Applied,
    CancelAnswer,
    ClaimReply,
    Inserted,
    Outlook,
    Settled,
    Want,
)
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.shared.stored_text import note_text
from windlass._storage.shared.subscribers import changed_queues
from windlass._storage.sqlite.io.database import SqliteDatabase
from windlass._storage.sqlite.io.rows import (
    NEVER,
    RUNNING,
    STATES,
    WAITING,
    Row,
    limits_of,
    rows_by_id,
    value_of,
)
from windlass._storage.sqlite.io.writer import Urgency
from windlass._storage.sqlite.jobs.apply import apply
from windlass._storage.sqlite.jobs.claim import SOLO_AFTER, SOLO_CANDIDATES, ClaimOperation
from windlass._storage.sqlite.jobs.insert import insert
from windlass._storage.sqlite.jobs.waiting_jobs import end_waiting
from windlass._storage.sqlite.limits.budgets import SqliteBudgets, set_back_by
from windlass._storage.sqlite.limits.lane_claims import OrderedRows
from windlass._storage.sqlite.limits.lanes import LaneChanges

__all__ = ["SqliteJobs"]

log = logging.getLogger("windlass")

_SQL = load_sql("windlass._storage.sqlite.sql", "jobs.sql")
_BY_IDS, _REQUEST_CANCEL, _REPORT = _SQL["by_ids"], _SQL["request_cancel"], _SQL["report"]
_SETTLED, _CLAIMABLE, _ACTIVE = _SQL["settled"], _SQL["claimable"], _SQL["active"]
_OUTLOOK, _RESTS = _SQL["outlook"], _SQL["rests"]
_IS_UNSETTLED = load_sql("windlass._storage.sqlite.sql", "flows.sql")["is_unsettled"]
_NEXT_TIMED = load_sql("windlass._storage.sqlite.sql", "lanes.sql")["next_timed"]

_NONE = timedelta(0)
_MANY = 100
"""A claim of fewer is for slots that fell free beside others: what it waits for is the sync, so it
does not wait for another's. One of more shares its commit with the finishes before it."""


class SqliteJobs:
    """A `JobStore`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._db = database

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return await self.start_insert(jobs, lambda _: None)

    def start_insert(
        self, jobs: Sequence[NewJob], told: Callable[[Sequence[Inserted]], None]
    ) -> asyncio.Future[Sequence[Inserted]]:
        """Implement `StartedInserts`."""

        def stored(answers: Sequence[Inserted]) -> None:
            self._db.subscribers.wake(changed_queues(jobs, answers))
            told(answers)

        op: Callable[[apsw.Connection, int], Sequence[Inserted]]
        op = partial(insert, jobs=jobs, strict=True)
        return self._db.write(op, told=stored)

    def insert_here(self, jobs: Sequence[NewJob]) -> Sequence[Inserted] | None:
        """Implement `DirectInserts`."""
        answers = self._db.write_here(partial(insert, jobs=jobs, strict=True))
        if answers is not None and self._db.subscribers:
            self._db.wake_from_thread(changed_queues(jobs, answers))
        return answers

    async def claim(
        self,
        worker: str,
        wants: Sequence[Want],
        *,
        total: int,
        solo: bool = False,
        head_start: timedelta = _NONE,
    ) -> ClaimReply:
        claim = ClaimOperation(
            self._db,
            worker,
            wants,
            total=total,
            solo=solo,
            head_start=span_us(head_start) if head_start else 0,
        )
        await self._db.write(claim.run, Urgency.SOON if total < _MANY else Urgency.NORMAL)
        if claim.expired or claim.damaged or claim.settled:
            self._db.subscribers.wake()  # for those who wait for their results, or for jobs
        for job in claim.damaged:
            log.error("job %s cannot be read and has failed; its error names the column", job)
        reply = claim.reply()
        self._db.timings.claims.add(len(reply.jobs))
        return reply

    async def apply(self, transitions: Sequence[Transition]) -> Applied:
        write = partial(apply, transitions=transitions)
        urgency = Urgency.SOON if len(transitions) < _MANY else Urgency.NORMAL
        applied = await self._db.write(write, urgency)
        self._db.timings.finishes.add(len(transitions))
        self._db.subscribers.wake()
        return applied

    async def outlook(self, queues: Sequence[str]) -> Outlook:
        return self._db.read(partial(_outlook, queues=queues, known=self._db.last_known))

    async def active(self, queues: Sequence[str]) -> bool:
        return self._db.read(
            lambda connection, now: any(
                value_of(connection, _ACTIVE, (queue, now)) for queue in queues
            )
        )

    async def report(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        rows = [
            (claim.seq, claim.number, float(done.fraction), note_text(done))
            for claim, done in progress
        ]
        await self._db.write(lambda connection, _: connection.executemany(_REPORT, rows).close())

    async def settled(self, ids: Sequence[JobId]) -> Sequence[Settled]:
        rows = self._db.read(lambda connection, _: rows_by_id(connection, _SETTLED, ids))
        return [answer for job in ids if (answer := _settled(job, rows.get(job))) is not None]

    async def cancel(self, ids: Sequence[JobId]) -> Sequence[CancelAnswer]:
        answers = await self._db.write(lambda connection, now: _cancel(connection, ids, now))
        self._db.subscribers.wake()
        return answers


def _outlook(
    connection: apsw.Connection, now: int, *, queues: Sequence[str], known: int
) -> Outlook:
    """``known``: the newest schema version whose jobs this code may claim."""
    at = instant_of(now)
    if any(_claimable(connection, queue, now) for queue in queues):
        return Outlook(at, claimable=True)
    if connection.execute("PRAGMA user_version").get > known:
        return Outlook(at, claimable=True)  # for the claim to refuse
    if connection.execute(_IS_UNSETTLED, (now,)).get:
        return Outlook(at, claimable=True)  # for the claim to settle
    found = [connection.execute(_OUTLOOK, (queue, now)).get for queue in queues]
    next_at = min((us for us in found if us is not None), default=None)
    # Blocked jobs are never due. A call less per look.
    if next_at is None or next_at == NEVER:
        return Outlook(at)
    return Outlook(at, next_at=instant_of(next_at))


def _claimable(connection: apsw.Connection, queue: str, now: int) -> bool:
    found = connection.execute(_CLAIMABLE, (queue, now)).fetchall()
    if not found:
        cools = connection.execute(_RESTS, (queue, now)).get is not None
        return cools and set_back_by(connection, now) > 0
    ((anything, alone),) = found
    if not anything and connection.execute(_NEXT_TIMED, (queue,)).get:
        anything = set_back_by(connection, now) > 0
    return bool(anything) or (bool(alone) and _solo_claimable(connection, queue, now))


def _solo_claimable(connection: apsw.Connection, queue: str, now: int) -> bool:
    """Return whether a claim has something to do with the solo jobs of a queue. Read-only."""
    gates = SqliteBudgets(connection, now)
    line = OrderedRows(connection, SOLO_AFTER, queue, chunk=2)
    for _, _, _, expires_at, limits in line.first(SOLO_CANDIDATES):
        uses = () if limits is None else limits_of(limits)
        expired = expires_at is not None and expires_at <= now
        if expired or not uses or gates.shut(uses) is None:
            return True
    return line.head() is not None  # further than a claim looks: perhaps


def _settled(job: JobId, row: Row | None) -> Settled | None:
    if row is None:
        return Settled(job, None)
    _, state, result, kind, text, reason = row
    if STATES[state] not in TERMINAL:
        return None
    return Settled(job, STATES[state], result, kind or "", text or "", reason)


def _cancel(connection: apsw.Connection, ids: Sequence[JobId], now: int) -> list[CancelAnswer]:
    rows = rows_by_id(connection, _BY_IDS, ids)
    answers: list[CancelAnswer] = []
    waiting: list[int] = []
    running: list[tuple[int]] = []
    for job in ids:
        row = rows.get(job)
        if row is None:
            answers.append(CancelAnswer.UNKNOWN)
            continue
        seq, state = row[1], row[2]
        if state == WAITING and seq not in waiting:
            waiting.append(seq)
            answers.append(CancelAnswer.CANCELLED)
        elif state == RUNNING:
            running.append((seq,))
            answers.append(CancelAnswer.REQUESTED)
        else:
            answers.append(CancelAnswer.TOO_LATE)
    connection.executemany(_REQUEST_CANCEL, running)
    lanes = LaneChanges(connection)
    if waiting:
        end_waiting(connection, waiting, lanes, state=State.CANCELLED, reason=None, now=now)
    lanes.settle()
    return answers
