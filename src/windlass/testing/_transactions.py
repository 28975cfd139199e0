"""Jobs of an isolated app in the user's own transactions: stored in memory once these commit.

The user's transaction is real, so it decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import msgspec

from windlass._core.flows.flow import NewFlow
from windlass._core.job.job import NewJob
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.memory.io.rows import due_of
from windlass._storage.postgres.transactions.user_connections import (
    Driver,
    driver_of,
    run_statement,
    run_statement_sync,
)
from windlass._storage.protocol.flows import StartedFlow
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.transactions import UserConnection
from windlass._storage.shared.subscribers import changed_queues
from windlass.errors import InvalidArgument, WindlassError
from windlass.testing._ledgers import (
    LISTEN,
    NOTIFY,
    PENDING,
    AsyncpgLedger,
    DeferredCalls,
    Ledger,
    PsycopgLedger,
    entered_batch,
    ledger_kind,
)

__all__ = ["IsolatedTransactions"]

log = logging.getLogger("windlass")

_LIBRARIES = frozenset({"asyncpg", "psycopg", "psycopg2", "psycopg_pool", "sqlalchemy"})


class IsolatedTransactions:
    """A `UserInsertStore` over memory. With a stand-in instead of a connection it stores at
    once.
    """

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database
        store = MemoryStorage(database)
        self._jobs, self._flows = store.jobs, store.flows
        self._ledgers: dict[int, Ledger] = {}

    def waits(self) -> bool:
        """Tell whether a commit or rollback may have happened that was not seen yet."""
        return any(isinstance(one, AsyncpgLedger) and one.batches for one in self._ledgers.values())

    async def insert(
        self, connection: UserConnection, jobs: Sequence[NewJob], *, notify: bool = False
    ) -> Sequence[Inserted]:
        del notify  # workers on this memory are woken in any case
        ledger = self._ledger(connection)
        if ledger is None or not jobs:
            return self._insert(jobs)
        if isinstance(ledger, AsyncpgLedger):
            await asyncio.sleep(0)  # a savepoint may have been set just now
        if isinstance(ledger, PsycopgLedger) and ledger.batches:
            ledger.keep(await run_statement(connection, PENDING, "", doing="enqueue"))
        with self._entering(ledger, jobs) as (batch, answers):
            if ledger.statement is NOTIFY and not driver_of(connection).blocks:
                await connection.execute(LISTEN)
            await run_statement(connection, ledger.statement, batch.name, doing="enqueue")
        return answers

    def insert_sync(
        self, connection: UserConnection, jobs: Sequence[NewJob], *, notify: bool = False
    ) -> Sequence[Inserted]:
        del notify
        ledger = self._ledger(connection)
        if ledger is None or not jobs:
            return self._insert(jobs)
        if isinstance(ledger, PsycopgLedger) and ledger.batches:
            ledger.keep(run_statement_sync(connection, PENDING, "", doing="enqueue"))
        with self._entering(ledger, jobs) as (batch, answers):
            if ledger.statement is NOTIFY and driver_of(connection).blocks:
                connection.execute(LISTEN)
            run_statement_sync(connection, ledger.statement, batch.name, doing="enqueue")
        return answers

    async def start(
        self, connection: UserConnection, flow: NewFlow, *, notify: bool = False
    ) -> StartedFlow:
        del notify
        ledger = self._ledger(connection)
        answer = self._start_now(ledger, flow)
        if answer is not None or ledger is None:
            return answer or StartedFlow(flow.id, created=True)
        if isinstance(ledger, AsyncpgLedger):
            await asyncio.sleep(0)
        if isinstance(ledger, PsycopgLedger) and ledger.batches:
            ledger.keep(await run_statement(connection, PENDING, "", doing="start"))
        with entered_batch(ledger, DeferredCalls(flow.id, flow=flow)) as batch:
            if ledger.statement is NOTIFY and not driver_of(connection).blocks:
                await connection.execute(LISTEN)
            await run_statement(connection, ledger.statement, batch.name, doing="start")
        return StartedFlow(flow.id, created=True)

    def start_sync(
        self, connection: UserConnection, flow: NewFlow, *, notify: bool = False
    ) -> StartedFlow:
        del notify
        ledger = self._ledger(connection)
        answer = self._start_now(ledger, flow)
        if answer is not None or ledger is None:
            return answer or StartedFlow(flow.id, created=True)
        if isinstance(ledger, PsycopgLedger) and ledger.batches:
            ledger.keep(run_statement_sync(connection, PENDING, "", doing="start"))
        with entered_batch(ledger, DeferredCalls(flow.id, flow=flow)) as batch:
            if ledger.statement is NOTIFY and driver_of(connection).blocks:
                connection.execute(LISTEN)
            run_statement_sync(connection, ledger.statement, batch.name, doing="start")
        return StartedFlow(flow.id, created=True)

    def _start_now(self, ledger: Ledger | None, flow: NewFlow) -> StartedFlow | None:
        """Start a flow if no transaction is to be waited for, or it would not be stored."""
        if ledger is None:
            (answer,) = self._flows.start_all([flow])
            return answer
        return self._flows.preview(flow)

    def on_commit(self, connection: UserConnection, callback: Callable[[], None]) -> bool:
        """Do nothing: jobs that are stored at a commit wake workers by themselves."""
        del connection, callback
        return True

    @contextmanager
    def _entering(
        self, ledger: Ledger, jobs: Sequence[NewJob]
    ) -> Iterator[tuple[DeferredCalls, Sequence[Inserted]]]:
        answers = self._tried(ledger, jobs)
        now = self._db.clock.now()
        kept = [
            msgspec.structs.replace(job, at=due_of(job, now), delay=None)
            for job, answer in zip(jobs, answers, strict=True)
            if answer.created or answer.replaced
        ]
        with entered_batch(ledger, DeferredCalls(jobs[0].id, kept)) as batch:
            yield batch, answers

    def _tried(self, ledger: Ledger, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """Return the answers, tried on a copy of the jobs that these and the waiting ones may
        conflict with.
        """
        before = [job for batch in ledger.batches for job in batch.jobs]
        scratch = MemoryDatabase(clock=self._db.clock)
        with self._db.moment() as now:
            self._db.gates.require(jobs)
            for job in (*before, *jobs):
                held = None if job.unique is None else self._db.holder(job.unique.key, now)
                for row in (self._db.by_id.get(job.id), held):
                    if row is not None and row.asked.id not in scratch.by_id:
                        mine = copy(row)
                        scratch.rows[mine.seq] = scratch.by_id[mine.asked.id] = mine
                        if self._db.holds_key(row, now) and mine.asked.unique is not None:
                            scratch.keys[mine.asked.unique.key] = mine
        trying = MemoryStorage(scratch).jobs
        with scratch.moment() as now:
            trying.insert_all(_unlimited(before), now)
            return trying.insert_all(_unlimited(jobs), now)

    def _insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        with self._db.moment() as now:
            answers = self._jobs.insert_all(jobs, now)
        self._db.wake(changed_queues(jobs, answers))
        return answers

    def _store(self, batch: DeferredCalls) -> None:
        try:
            if batch.flow is None:
                self._insert(batch.jobs)
            else:
                self._flows.start_all([batch.flow])
        except WindlassError as error:  # a commit has no caller to raise it to
            log.warning("jobs of a transaction that was committed are not stored: %s", error)

    def _ledger(self, connection: UserConnection) -> Ledger | None:
        driver = _driver_of(connection)
        if driver is None:
            return None
        own: Any = connection if driver.session is None else driver.session(connection)
        ledger = self._ledgers.get(id(own))
        if ledger is None:
            ledger = self._ledgers[id(own)] = ledger_kind(driver)(own, self._store)
        return ledger


def _unlimited(jobs: Sequence[NewJob]) -> list[NewJob]:
    """Remove the limits: a trial on a copy needs none of them."""
    return [msgspec.structs.replace(job, limits=()) for job in jobs]


def _driver_of(connection: UserConnection) -> Driver | None:
    """Return the driver of a connection. None: a stand-in. A connection that `connection=` does not
    take is refused, as in production.
    """
    try:
        return driver_of(connection)
    except InvalidArgument:
        kinds: Sequence[type[Any]] = type(connection).__mro__
        if any(kind.__module__.partition(".")[0] in _LIBRARIES for kind in kinds):
            raise
        return None
