"""The calls that wait on a user's connection, and how each driver reports the end of a transaction.

SQLAlchemy reports it. asyncpg reports its statements. A psycopg connection receives its own
notification after a commit only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from windlass._core.flows.flow import NewFlow
from windlass._core.job.job import NewJob
from windlass._storage.postgres.transactions.user_connections import Driver, Statement

__all__ = [
    "LISTEN",
    "NOTIFY",
    "PENDING",
    "AsyncpgLedger",
    "DeferredCalls",
    "Ledger",
    "PsycopgLedger",
    "entered_batch",
    "ledger_kind",
]

LISTEN = "LISTEN windlass_testing"
NOTIFY = Statement("""
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
PENDING = Statement("SELECT concat(current_setting('windlass.testing', true), CAST($1 AS text))")
"""The names of the batches in the open transaction."""
_TOUCH = Statement("SELECT CAST($1 AS text)")
"""Begins the transaction that the driver begins with the first statement, and fails if an enqueue
would.
"""
_SAYS = re.compile(
    r"\s*(?:(?P<commit>commit|end)\b|(?P<back>rollback|abort)\b(?:\s+(?:work|transaction)\b)?"
    r"(?:\s+to(?:\s+savepoint)?\s+(?P<to>[^\s;]+))?|savepoint\s+(?P<mark>[^\s;]+))",
    re.IGNORECASE,
)


class DeferredCalls(msgspec.Struct, eq=False):
    """Calls that wait for the end of their transaction."""

    name: str
    jobs: Sequence[NewJob] = ()
    flow: NewFlow | None = None
    within: object = None
    """The transaction or savepoint of a session that they belong to."""

    def belong_to(self, transaction: object) -> None:
        """Assign the calls to this transaction or savepoint."""
        self.within = transaction


_Store = Callable[[DeferredCalls], None]


class Ledger:
    """The calls that wait on one connection, in order, and where its savepoints were set."""

    statement = _TOUCH

    def __init__(self, connection: Any, store: _Store) -> None:
        self.connection = connection  # kept: its id is the ledger's
        self.batches: list[DeferredCalls] = []
        self._store = store
        self._marks: dict[str, int] = {}

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open. If not, each statement is one."""
        return True

    def entered(self, batch: DeferredCalls) -> None:
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


class AsyncpgLedger(Ledger):
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


class PsycopgLedger(Ledger):
    """Listens to its own notifications. They arrive after a commit, for batches that were not
    undone.
    """

    statement = NOTIFY

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


class _Core(Ledger):
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


class _SqlAlchemySession(Ledger):
    """A session of SQLAlchemy. Its savepoints are nested transactions."""

    def __init__(self, session: Any, store: _Store) -> None:
        super().__init__(session, store)
        self._committed: list[object] = []
        listen = sys.modules["sqlalchemy"].event.listen
        listen(session, "after_commit", lambda of: self._committed.append(_innermost(of)))
        listen(session, "after_transaction_end", self._ended)

    def entered(self, batch: DeferredCalls) -> None:
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


@contextmanager
def entered_batch(ledger: Ledger, batch: DeferredCalls) -> Iterator[DeferredCalls]:
    """Enter a batch while its statement runs."""
    ledger.batches.append(batch)  # first: without a transaction the answer shows its end
    try:
        yield batch
    except BaseException:
        ledger.batches.remove(batch)
        raise
    ledger.entered(batch)


def ledger_kind(driver: Driver) -> type[Ledger]:
    """Return the ledger for connections of a driver."""
    if driver.session is not None:
        return _SqlAlchemySession
    kinds = {"asyncpg": AsyncpgLedger, "psycopg": PsycopgLedger, "SQLAlchemy": _Core}
    return kinds[driver.title.partition(" ")[0]]
