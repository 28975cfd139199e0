"""Jobs of an isolated app in the user's own transactions: stored in memory once these commit.

The user's transaction is real, so it decides. SQLAlchemy reports the end of a transaction. asyncpg
reports its statements. A psycopg connection receives its own notification after a commit only.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import msgspec

from windlass._core.job.job import NewJob
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.memory.io.rows import due_of
from windlass._storage.postgres.transactions.user_connections import (
    Driver,
    Statement,
    driver_of,
    run_statement,
    run_statement_sync,
)
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.transactions import UserConnection
from windlass._storage.shared.subscribers import changed_queues
from windlass.errors import InvalidArgument, WindlassError

__all__ = ["IsolatedTransactions"]

log = logging.getLogger("windlass")

_LISTEN = "LISTEN windlass_testing"
_NOTIFY = Statement("""
    SELECT concat(
        pg_notify('windlass_testing', given.name),
        set_config(
            'windlass.testing',
            concat(current_setting('windlass.testing', true), given.name, ','),
            true
        )
    )
    FROM (SELECT CAST($1 AS text) AS name) AS given
""")
"""Notes the batch in a setting of the transaction too. A rollback undoes that, and a rollback to a
savepoint undoes it as far.
"""
_PENDING = Statement("SELECT concat(current_setting('windlass.testing', true), CAST($1 AS text))")
"""The names of the batches in the open transaction."""
_TOUCH = Statement("SELECT CAST($1 AS text)")
"""Begins the transaction that the driver begins with the first statement, and fails if an enqueue
would.
"""
_LIBRARIES = frozenset({"asyncpg", "psycopg", "psycopg2", "psycopg_pool", "sqlalchemy"})
_SAYS = re.compile(
    r"\s*(?:(?P<commit>commit|end)\b|(?P<back>rollback|abort)\b(?:\s+(?:work|transaction)\b)?"
    r"(?:\s+to(?:\s+savepoint)?\s+(?P<to>[^\s;]+))?|savepoint\s+(?P<mark>[^\s;]+))",
    re.IGNORECASE,
)


class _DeferredCalls(msgspec.Struct, eq=False):
    """Calls that wait for the end of their transaction."""

    name: str
    jobs: Sequence[NewJob]
    within: object = None
    """The transaction or savepoint of a session that they belong to."""

    def belong_to(self, transaction: object) -> None:
        """Assign the calls to this transaction or savepoint."""
        self.within = transaction


_Store = Callable[[_DeferredCalls], None]


class _Ledger:
    """The calls that wait on one connection, in order, and where its savepoints were set."""

    statement = _TOUCH

    def __init__(self, connection: Any, store: _Store) -> None:
        self.connection = connection  # kept: its id is the ledger's
        self.batches: list[_DeferredCalls] = []
        self._store = store
        self._marks: dict[str, int] = {}

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open. If not, each statement is one."""
        return True

    def entered(self, batch: _DeferredCalls) -> None:
        """Note that the statement was run."""
        if not self.is_open:
            self.batches.remove(batch)
            self._store(batch)

    def heard(self, said: str) -> None:
        """Follow a statement that may set a savepoint, or end a transaction."""
        found = _SAYS.match(said)
        if found is None:
            return
        if found["mark"]:
            self._marks[found["mark"]] = len(self.batches)
        elif found["back"]:
            self.roll_back(found["to"])
        else:
            self.commit()

    def roll_back(self, to: str | None = None) -> None:
        """Drop the calls since the savepoint. A savepoint that was not seen is older than all
        waiting calls.
        """
        del self.batches[0 if to is None else self._marks.get(to, 0) :]
        if to is None:
            self._marks.clear()

    def commit(self) -> None:
        batches, self.batches = self.batches, []
        self._marks.clear()
        for batch in batches:
            self._store(batch)


class _Asyncpg(_Ledger):
    """Sees every statement, one turn of the event loop after it."""

    def __init__(self, connection: Any, store: _Store) -> None:
        super().__init__(connection, store)
        self._failed = False
        connection.add_query_logger(self._logged)

    @property
    def is_open(self) -> bool:
        return bool(self.connection.is_in_transaction())

    def _logged(self, record: Any) -> None:
        if record.exception is None:
            self.heard(record.query)
        else:
            self._failed = True

    def roll_back(self, to: str | None = None) -> None:
        super().roll_back(to)
        self._failed = False

    def commit(self) -> None:
        if self._failed:  # after an error a commit is a rollback
            self.roll_back()
        super().commit()


class _Psycopg(_Ledger):
    """Listens to its own notifications. They arrive after a commit, for batches that were not
    undone.
    """

    statement = _NOTIFY

    def __init__(self, connection: Any, store: _Store) -> None:
        super().__init__(connection, store)
        connection.add_notify_handler(self._notified)

    def _notified(self, notice: Any) -> None:
        for batch in [one for one in self.batches if one.name == notice.payload]:
            self.batches.remove(batch)
            self._store(batch)

    def keep(self, pending: str | None) -> None:
        """Drop the batches that were rolled back: not named here, and not committed."""
        names = (pending or "").split(",")
        self.batches = [batch for batch in self.batches if batch.name in names]


class _Core(_Ledger):
    """A connection of SQLAlchemy, which reports the end of a transaction just before it."""

    def __init__(self, connection: Any, store: _Store) -> None:
        super().__init__(connection, store)
        listen = sys.modules["sqlalchemy"].event.listen
        self._own = getattr(connection, "sync_connection", connection)
        listen(self._own, "commit", lambda _: self.commit())
        listen(self._own, "rollback", lambda _: self.roll_back())
        # The statement has the name of a savepoint, the event does not.
        listen(self._own, "after_cursor_execute", lambda _, __, said, *___: self.heard(said))

    @property
    def is_open(self) -> bool:
        return bool(self._own.get_execution_options().get("isolation_level") != "AUTOCOMMIT")


class _SqlAlchemySession(_Ledger):
    """A session of SQLAlchemy. Its savepoints are nested transactions."""

    def __init__(self, session: Any, store: _Store) -> None:
        super().__init__(session, store)
        self._committed: list[object] = []
        listen = sys.modules["sqlalchemy"].event.listen
        listen(session, "after_commit", lambda of: self._committed.append(_innermost(of)))
        listen(session, "after_transaction_end", self._ended)

    def entered(self, batch: _DeferredCalls) -> None:
        batch.belong_to(_innermost(self.connection))

    def _ended(self, _: object, transaction: Any) -> None:
        if transaction not in self._committed:  # rolled back, or closed, which is the same
            self.batches = [batch for batch in self.batches if batch.within is not transaction]
            return
        self._committed.remove(transaction)
        if transaction.parent is None:
            self.commit()
        for batch in self.batches:
            if batch.within is transaction:
                batch.belong_to(_around(transaction))


def _innermost(session: Any) -> Any:
    """Return the innermost savepoint or transaction that is open on a session."""
    return session.get_nested_transaction() or session.get_transaction()


def _around(transaction: Any) -> Any:
    """Return the transaction around a savepoint, past those that a flush opens for itself."""
    found = transaction.parent
    while found.parent is not None and not found.nested:
        found = found.parent
    return found


class IsolatedTransactions:
    """A `UserInsertStore` over memory. With a stand-in instead of a connection it stores at
    once.
    """

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database
        self._jobs = MemoryStorage(database).jobs
        self._ledgers: dict[int, _Ledger] = {}

    def waits(self) -> bool:
        """Tell whether a commit or rollback may have happened that was not seen yet."""
        return any(isinstance(one, _Asyncpg) and one.batches for one in self._ledgers.values())

    async def insert(
        self, connection: UserConnection, jobs: Sequence[NewJob], *, notify: bool = False
    ) -> Sequence[Inserted]:
        del notify  # workers on this memory are woken in any case
        ledger = self._ledger(connection)
        if ledger is None or not jobs:
            return self._insert(jobs)
        if isinstance(ledger, _Asyncpg):
            await asyncio.sleep(0)  # a savepoint may have been set just now
        if isinstance(ledger, _Psycopg) and ledger.batches:
            ledger.keep(await run_statement(connection, _PENDING, "", doing="enqueue"))
        with self._entering(ledger, jobs) as (batch, answers):
            if ledger.statement is _NOTIFY and not driver_of(connection).blocks:
                await connection.execute(_LISTEN)
            await run_statement(connection, ledger.statement, batch.name, doing="enqueue")
        return answers

    def insert_sync(
        self, connection: UserConnection, jobs: Sequence[NewJob], *, notify: bool = False
    ) -> Sequence[Inserted]:
        del notify
        ledger = self._ledger(connection)
        if ledger is None or not jobs:
            return self._insert(jobs)
        if isinstance(ledger, _Psycopg) and ledger.batches:
            ledger.keep(run_statement_sync(connection, _PENDING, "", doing="enqueue"))
        with self._entering(ledger, jobs) as (batch, answers):
            if ledger.statement is _NOTIFY and driver_of(connection).blocks:
                connection.execute(_LISTEN)
            run_statement_sync(connection, ledger.statement, batch.name, doing="enqueue")
        return answers

    def on_commit(self, connection: UserConnection, callback: Callable[[], None]) -> bool:
        """Do nothing: jobs that are stored at a commit wake workers by themselves."""
        del connection, callback
        return True

    @contextmanager
    def _entering(
        self, ledger: _Ledger, jobs: Sequence[NewJob]
    ) -> Iterator[tuple[_DeferredCalls, Sequence[Inserted]]]:
        answers = self._tried(ledger, jobs)
        now = self._db.clock.now()
        kept = [
            msgspec.structs.replace(job, at=due_of(job, now), delay=None)
            for job, answer in zip(jobs, answers, strict=True)
            if answer.created or answer.replaced
        ]
        batch = _DeferredCalls(jobs[0].id, kept)
        ledger.batches.append(batch)  # first: without a transaction the answer shows its end
        try:
            yield batch, answers
        except BaseException:
            ledger.batches.remove(batch)
            raise
        ledger.entered(batch)

    def _tried(self, ledger: _Ledger, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
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

    def _store(self, batch: _DeferredCalls) -> None:
        try:
            self._insert(batch.jobs)
        except WindlassError as error:  # a commit has no caller to raise it to
            log.warning("jobs of a transaction that was committed are not stored: %s", error)

    def _ledger(self, connection: UserConnection) -> _Ledger | None:
        driver = _driver_of(connection)
        if driver is None:
            return None
        own: Any = connection if driver.session is None else driver.session(connection)
        ledger = self._ledgers.get(id(own))
        if ledger is None:
            ledger = self._ledgers[id(own)] = _kind_of(driver)(own, self._store)
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


def _kind_of(driver: Driver) -> type[_Ledger]:
    if driver.session is not None:
        return _SqlAlchemySession
    kinds = {"asyncpg": _Asyncpg, "psycopg": _Psycopg, "SQLAlchemy": _Core}
    return kinds[driver.title.partition(" ")[0]]
