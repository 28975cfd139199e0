"""One group transaction at a time on one connection: what the writers run, without any thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apsw

from windlass._storage.sqlite.io.connection import (
    ConnectionSource,
    disconnect,
    retry_while_locked,
    translate,
)
from windlass._system.forks import FORK_GUARD
from windlass._system.seams import monotonic
from windlass.errors import StorageError, StoreBusy

__all__ = ["FailedOp", "Op", "Transactor"]

# An op reads and writes through the connection it is given and returns a value. It must finish
# every cursor it opens and must not begin, commit or roll back: the transaction is shared.
Op = Callable[[apsw.Connection], Any]


class FailedOp:
    """In the place of an op's value: why it has none. Nothing of it was stored."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException = error


class Transactor:
    """Runs groups of ops, each group in one transaction and each op on its own.

    Blocking, and used by one thread at a time. The connection is opened when first needed and
    again after an I/O error: after a failed sync nobody knows what the old one believes.
    """

    def __init__(self, source: ConnectionSource) -> None:
        self.source = source
        self.connection: apsw.Connection | None = None
        self.waiting_since: float | None = None  # while somebody else holds the write lock
        self._suspect = False

    def run(self, ops: Iterable[Op], *, patience: float = 30.0) -> list[Any]:
        """Run ``ops`` in one transaction; the answer holds a value or a `FailedOp` for each taken.

        An op is taken from ``ops`` only once the write lock is held, so one that is still waiting
        can be withdrawn until the last moment. Raises when the transaction could not begin: then
        none was taken. StoreBusy says that the lock was not free within ``patience`` seconds.
        """
        if self.waiting_since is None:
            self.waiting_since = monotonic()
        try:
            return retry_while_locked(lambda: self._run(ops), patience)
        except apsw.Error as error:
            if not isinstance(error, apsw.BusyError | apsw.LockedError):
                self.waiting_since = None
                self.discard()
            raise self._translated(error) from error
        except BaseException as error:
            if not isinstance(error, StoreBusy):
                self.waiting_since = None  # nobody is waited for
            raise

    def _run(self, ops: Iterable[Op]) -> list[Any]:
        """One try. Whoever finds the lock taken gives its turn back before it tries again, and
        is outside of the gate meanwhile: neither the other processes nor a fork wait for it.
        """
        with self.source.turn:
            if self.connection is None:
                self.connection = self.source.open()
            connection = self.connection
            with FORK_GUARD:
                connection.execute("BEGIN IMMEDIATE")
                self.waiting_since = None
                try:
                    return self._finish(connection, self._take(connection, iter(ops)))
                finally:
                    self._roll_back(connection)
                    if self._suspect:
                        self.discard()

    def _take(self, connection: apsw.Connection, ops: Iterator[Op]) -> list[Any]:
        """Run op by op. The first needs no savepoint: if it fails, there is nothing to spare."""
        first = next(ops, None)
        if first is None:
            return []
        results = [self._attempt(connection, first)]
        if isinstance(results[0], FailedOp):
            return results
        for op in ops:
            try:
                result = self._take_apart(connection, op)
            except apsw.Error as error:
                # Nobody knows what became of the savepoint: nothing of the group is stored.
                self._suspect = True
                result = FailedOp(self._translated(error))
                return [FailedOp(_twin(result.error)) for _ in results] + [result]
            if isinstance(result, FailedOp) and not connection.in_transaction:
                # Some errors (a full disk, failing I/O) make SQLite drop the whole transaction,
                # and with it what the neighbours had done.
                return [FailedOp(_twin(result.error)) for _ in results] + [result]
            results.append(result)
        return results

    def _take_apart(self, connection: apsw.Connection, op: Op) -> Any:
        """Run one op such that nothing of it stays if it fails."""
        connection.execute("SAVEPOINT op")
        result = self._attempt(connection, op)
        if not isinstance(result, FailedOp):
            connection.execute("RELEASE op")
        elif connection.in_transaction:
            connection.execute("ROLLBACK TO op")
            connection.execute("RELEASE op")
        return result

    def _attempt(self, connection: apsw.Connection, op: Op) -> Any:
        try:
            return op(connection)
        except apsw.Error as error:
            self._suspect |= isinstance(error, apsw.IOError)
            return FailedOp(self._translated(error))
        except BaseException as error:  # noqa: BLE001 -- it is the submitter's, who will get it
            return FailedOp(error)

    def _translated(self, error: apsw.Error) -> StorageError:
        translated = translate(error, self.source.path)
        translated.__cause__ = error
        return translated

    def _finish(self, connection: apsw.Connection, results: list[Any]) -> list[Any]:
        """Commit, unless there is nothing to keep. What is not committed is rolled back by run."""
        if all(type(result) is FailedOp for result in results):
            return results
        try:
            self.source.check()
            connection.execute("COMMIT")
        except StorageError as error:
            return [FailedOp(_twin(error)) for _ in results]
        except apsw.Error as error:
            self._suspect = True
            return [FailedOp(self._translated(error)) for _ in results]
        return results

    def _roll_back(self, connection: apsw.Connection) -> None:
        """End the transaction, whatever it takes; a connection that cannot is given up."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            self._suspect = True

    def discard(self) -> None:
        """Give the connection up; the next transaction opens a fresh one."""
        connection, self.connection = self.connection, None
        self._suspect = False
        if connection is not None:
            # Closing moves the write-ahead file into the database, which may fail for the very
            # reason the connection is given up. Whoever opens the file next does it then.
            with contextlib.suppress(apsw.Error):
                disconnect(connection)

    def close(self) -> None:
        """Close the connection and the lock file."""
        self.discard()
        self.source.close()


def _twin(error: BaseException) -> StorageError:
    """The same error for another submitter: one object raised in many tasks mixes their traces."""
    kind = type(error) if isinstance(error, StorageError) else StorageError
    twin = kind(str(error))
    twin.__cause__ = error
    return twin
