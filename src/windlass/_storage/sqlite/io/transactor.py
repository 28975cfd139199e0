"""Runs ops on a connection, without a thread: groups of writes, one transaction each, and reads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import apsw

from windlass._core.values.instants import to_us
from windlass._storage.shared.errors import caused_by
from windlass._storage.sqlite.io.connection import (
    PAGES,
    ConnectionSource,
    disconnect,
    lock_pause,
    translate,
)
from windlass._storage.sqlite.io.guards import ReadGuard
from windlass._storage.timings import Durations
from windlass._system.forks import FORK_GUARD
from windlass._system.seams import SYSTEM_CLOCK, Clock, monotonic, sleep
from windlass.errors import StorageError, StoreBusy, WindlassError

__all__ = ["FailedOp", "Op", "ReadConnections", "Reader", "Transactor", "closed_error"]

T = TypeVar("T")

# An op reads and writes through the connection it is given, at the instant it is given, and
# returns a value. It must finish every cursor it opens and must not begin, commit or roll back: the
# transaction is shared.
Op = Callable[[apsw.Connection, int], Any]


class FailedOp:
    """In the place of an op's value: why it has none. Nothing of it was stored."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException = error


class Transactor:
    """Runs groups of ops, each group in one transaction and each op separately.

    Blocking, and used by one thread at a time. The connection is opened when first needed and again
    after an I/O error: after a failed sync the state of the old one is unknown.
    """

    def __init__(self, source: ConnectionSource, clock: Clock = SYSTEM_CLOCK) -> None:
        """``clock`` says which instant an op sees: it is read when the op begins."""
        self.source = source
        self.clock = clock
        self.connection: apsw.Connection | None = None
        self.waiting_since: float | None = None  # while another process holds the write lock
        self._suspect = False
        self._asked_at = 0  # pages in the write-ahead file at the last start of a checkpoint

    def run(self, ops: Iterable[Op], *, patience: float = 30.0) -> list[Any]:
        """Run ``ops`` in one transaction; the answer holds a value or a `FailedOp` for each taken.

        An op is taken from ``ops`` only once the write lock is held, so one that is still waiting
        can be withdrawn until the last moment. Raises when the transaction could not begin: then
        none was taken. StoreBusy says that the lock was not free within ``patience`` seconds.
        """
        began = monotonic()
        if self.waiting_since is None:
            self.waiting_since = began
        while True:
            try:
                with self.source.turn:
                    return self._transact(ops)
            except (apsw.BusyError, apsw.LockedError) as error:
                # The turn was given back, and this thread is outside of the fork guard: neither
                # the other processes nor a fork wait for it.
                if monotonic() >= began + patience:
                    raise self._translated(error) from error
            except apsw.Error as error:
                self.waiting_since = None
                self.discard()
                raise self._translated(error) from error
            except BaseException as error:
                if not isinstance(error, StoreBusy):
                    self.waiting_since = None  # does not wait for other processes
                raise
            sleep(lock_pause())

    def run_now(self, op: Op) -> Any:
        """Run one op in a transaction and return its value or a `FailedOp`. StoreBusy: another
        process is writing. Nothing is waited for.
        """
        if not self.source.turn.enter_now():
            raise StoreBusy(f"{self.source.path} is being written by another process.")
        try:
            (result,) = self._transact([op])
        except (apsw.BusyError, apsw.LockedError) as error:
            raise self._translated(error) from error
        except apsw.Error as error:
            self.discard()
            raise self._translated(error) from error
        finally:
            self.source.turn.__exit__(None, None, None)
        return result

    def _transact(self, ops: Iterable[Op]) -> list[Any]:
        """Try once."""
        if self.connection is None:
            self.connection = self.source.open()
        connection = self.connection
        with FORK_GUARD:
            connection.execute("BEGIN IMMEDIATE")
            self.waiting_since = None
            try:
                return self._commit(connection, self._take(connection, ops))
            finally:
                try:
                    if connection.in_transaction:  # nothing was to be kept, or it cannot be
                        connection.execute("ROLLBACK")
                except apsw.Error:
                    self._suspect = True
                if self._suspect:
                    self.discard()

    def _take(self, connection: apsw.Connection, ops: Iterable[Op]) -> list[Any]:
        """Run op by op. The first needs no savepoint: if it fails, there is nothing to spare."""
        results: list[Any] = []
        for op in ops:
            if results:
                if not self._take_apart(connection, op, results):
                    break
                continue
            try:
                results.append(op(connection, to_us(self.clock.now())))
            except BaseException as error:  # noqa: BLE001 -- it is the submitter's, who will get it
                results.append(self._failed(error))
                break
        return results

    def _take_apart(self, connection: apsw.Connection, op: Op, results: list[Any]) -> bool:
        """Run a further op such that nothing of it stays if it fails; False: the group is lost."""
        lost = False
        try:
            connection.execute("SAVEPOINT op")
            try:
                result = op(connection, to_us(self.clock.now()))
            except BaseException as error:  # noqa: BLE001 -- it is the submitter's, who will get it
                result = self._failed(error)
            if type(result) is not FailedOp:
                connection.execute("RELEASE op")
            elif connection.in_transaction:
                connection.execute("ROLLBACK TO op")
                connection.execute("RELEASE op")
            else:
                # Some errors (a full disk, failing I/O) make SQLite drop the whole transaction,
                # and with it what the neighbours had done.
                lost = True
        except apsw.Error as error:
            # The state of the savepoint is unknown: nothing of the group is stored.
            self._suspect = lost = True
            result = FailedOp(self._translated(error))
        if lost:
            results[:] = [FailedOp(_twin(result.error)) for _ in results]
        results.append(result)
        return not lost

    def _failed(self, error: BaseException) -> FailedOp:
        if not isinstance(error, apsw.Error):
            return FailedOp(error)
        self._suspect |= isinstance(error, apsw.IOError)
        return FailedOp(self._translated(error))

    def _translated(self, error: apsw.Error) -> WindlassError:
        checkpoints = self.source.checkpoints
        if isinstance(error, apsw.FullError) and checkpoints is not None:
            # Other checkpoints follow a commit, and on a full disk no commit succeeds. Once this
            # one has moved everything, the write-ahead file starts anew and needs no more room.
            checkpoints.start()
        return caused_by(translate(error, self.source.path), error)

    def _commit(self, connection: apsw.Connection, results: list[Any]) -> list[Any]:
        """Commit, unless there is nothing to keep."""
        if all(type(result) is FailedOp for result in results):
            return results
        try:
            if self.source.guard is not None:
                self.source.guard.check()
            connection.execute("COMMIT")
        except StorageError as error:
            return [FailedOp(_twin(error)) for _ in results]
        except apsw.Error as error:
            self._suspect = True
            return [FailedOp(self._translated(error)) for _ in results]
        checkpoints = self.source.checkpoints
        if checkpoints is not None:
            with contextlib.suppress(apsw.Error):  # the commit itself is done
                stored, moved = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
                if stored < self._asked_at:  # the file began anew
                    self._asked_at = 0
                # A reader may keep pages from being moved for hours. A start at every commit would
                # then cost a thread and a connection each time, and move nothing.
                if stored - moved >= PAGES and stored - self._asked_at >= PAGES:
                    self._asked_at = stored
                    checkpoints.start()
        return results

    def discard(self) -> None:
        """Give the connection up; the next transaction opens a fresh one."""
        connection, self.connection = self.connection, None
        self._suspect = False
        if connection is not None:
            # Closing moves the write-ahead file into the database, which may fail for the very
            # reason the connection is given up. The next process that opens the file does it then.
            with contextlib.suppress(apsw.Error):
                disconnect(connection)

    def close(self) -> None:
        """Close the connection and the lock file."""
        self.discard()
        self.source.close()


def _twin(error: BaseException) -> StorageError:
    """Return the same error for another submitter: one object raised in many tasks mixes their
    traces.
    """
    kind = type(error) if isinstance(error, StorageError) else StorageError
    return caused_by(kind(str(error)), error)


class ReadConnections(Protocol):
    """Where connections for reading come from."""

    boot: str
    guard: ReadGuard | None

    def open_reader(self) -> apsw.Connection: ...

    def close_reader(self, reader: apsw.Connection) -> None: ...


class Reader:
    """A connection for reading, opened at the first read, and again after an error."""

    def __init__(
        self, readers: ReadConnections, path: str, clock: Clock, timings: Durations | None = None
    ) -> None:
        """Make a reader. ``timings`` counts how long reads take."""
        self._readers, self._path, self._clock, self._timings = readers, path, clock, timings
        self._connection: apsw.Connection | None = None
        self._closed = False

    def read(self, op: Callable[[apsw.Connection, int], T]) -> T:
        """Run ``op``, which must exhaust its cursors."""
        if self._closed:
            raise closed_error(self._path)
        began, failed = monotonic(), True
        try:
            if self._readers.guard is not None:
                self._readers.guard.check()
            if self._connection is None:
                self._connection = self._readers.open_reader()
            with FORK_GUARD:
                answer = op(self._connection, to_us(self._clock.now()))
            failed = False
        except apsw.Error as error:
            self._let_go()  # a fresh connection may do better
            raise translate(error, self._path) from error
        finally:
            if self._timings is not None:
                self._timings.add(monotonic() - began, failed=failed)
        return answer

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._readers.close_reader(connection)

    def close(self) -> None:
        """Read nothing any more."""
        self._closed = True
        self._let_go()


def closed_error(path: str) -> StorageError:
    """Make the error for a storage that was closed."""
    return StorageError(f"{path} was closed; open the storage again to use it.")
