"""What all stores of one storage share: the writer, a reader, the clock, the subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

import apsw

from windlass._core.values.instants import span_us, to_us
from windlass._storage.shared.migrations import major_of, refuse_newer
from windlass._storage.shared.reader_thread import run_on_reader_thread
from windlass._storage.shared.subscribers import QueueNames, Subscribers
from windlass._storage.sqlite.io.connection import translate
from windlass._system.forks import FORK_GUARD
from windlass._system.seams import Clock
from windlass.errors import StorageError

__all__ = ["ReadConnections", "SqliteDatabase", "WriterProtocol"]

T = TypeVar("T")


class WriterProtocol(Protocol):
    """The writer on its thread, or its stand-in for the simulation."""

    def submit(self, op: Callable[[apsw.Connection], T]) -> asyncio.Future[T]: ...

    def submit_first(self, op: Callable[[apsw.Connection], T]) -> asyncio.Future[T]: ...

    def submit_soon(self, op: Callable[[apsw.Connection], T]) -> asyncio.Future[T]: ...

    async def close(self) -> None: ...


class ReadConnections(Protocol):
    """Where connections for reading come from."""

    boot: str

    def check(self) -> None: ...

    def open_reader(self) -> apsw.Connection: ...

    def close_reader(self, reader: apsw.Connection) -> None: ...


class _ReadConnection:
    """A connection for reading, opened at the first read, and again after an error."""

    def __init__(self, readers: ReadConnections, path: str) -> None:
        self._readers, self._path = readers, path
        self._connection: apsw.Connection | None = None

    def run(self, op: Callable[[apsw.Connection], T]) -> T:
        self._readers.check()
        try:
            if self._connection is None:
                self._connection = self._readers.open_reader()
            with FORK_GUARD:
                return op(self._connection)
        except apsw.Error as error:
            self.close()  # a fresh one may do better
            raise translate(error, self._path) from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._readers.close_reader(connection)


class SqliteDatabase:
    """Runs operations. Each sees one instant, read after its transaction has begun.

    What workers read, they read on the event loop: a look into an index takes microseconds, a
    thread would cost more. What people ask may take long, and runs aside, on another connection.
    Reads see everything that was committed before they began.
    """

    def __init__(
        self,
        writer: WriterProtocol,
        readers: ReadConnections,
        clock: Clock,
        *,
        path: str,
        known: int,
        threads: bool = True,
    ) -> None:
        """``known``: the newest schema version that this code knows. ``threads``: whether what
        people ask runs on a thread; not in the simulation.
        """
        self._writer, self._path = writer, path
        self._near = _ReadConnection(readers, path)
        self._far = _ReadConnection(readers, path) if threads else None
        self._known = known
        self.clock: Clock = clock
        self.boot: str = readers.boot
        self._closed = False
        self.subscribers: Subscribers = Subscribers()

    def now(self) -> int:
        return to_us(self.clock.now())

    def since_boot(self) -> int:
        return span_us(self.clock.boot())

    def write(self, op: Callable[[apsw.Connection, int], T]) -> asyncio.Future[T]:
        """Run ``op`` with a connection and the instant, in a write transaction."""
        return self._writer.submit(lambda connection: op(connection, self.now()))

    def write_first(self, op: Callable[[apsw.Connection, int], T]) -> asyncio.Future[T]:
        """Ahead of everything else: for what keeps a worker alive."""
        return self._writer.submit_first(lambda connection: op(connection, self.now()))

    def write_soon(self, op: Callable[[apsw.Connection, int], T]) -> asyncio.Future[T]:
        """Ahead of what can wait, and committed at once: for what free slots are waiting for."""
        return self._writer.submit_soon(lambda connection: op(connection, self.now()))

    def read(self, op: Callable[[apsw.Connection, int], T]) -> T:
        """Run ``op``, which must exhaust its cursors, on the reader."""
        self._refuse_closed()
        return self._near.run(lambda connection: op(connection, self.now()))

    async def ask(self, op: Callable[[apsw.Connection, int], T]) -> T:
        """Run ``op`` off the event loop, on one snapshot: for what people ask. It must exhaust
        its cursors.
        """
        self._refuse_closed()
        far = self._far
        if far is None:
            return self._near.run(lambda connection: self._together(op, connection))
        return await run_on_reader_thread(
            lambda: far.run(lambda connection: self._together(op, connection))
        )

    def _together(self, op: Callable[[apsw.Connection, int], T], connection: apsw.Connection) -> T:
        with connection:
            answer = op(connection, self.now())
        return answer  # noqa: RET504 -- inside the block the checker takes it for swallowed

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StorageError(f"{self._path} was closed; open the storage again to use it.")

    def newer(self, connection: apsw.Connection) -> int | None:
        """The stored schema version, if this code does not know its major; part of an op."""
        stored = int(connection.execute("PRAGMA user_version").get or 0)
        return stored if major_of(stored) > major_of(self._known) else None

    def refuse_newer(self, connection: apsw.Connection) -> None:
        """Raise `SchemaTooNew` in an op that only code of the stored version may run."""
        stored = self.newer(connection)
        if stored is not None:
            refuse_newer(stored, self._known, self._path)

    def wake(self, queues: QueueNames = None) -> None:
        """Something changed that others on this loop may wait for."""
        self.subscribers.wake(queues)

    async def close(self) -> None:
        """Write what waits, then let go of all connections."""
        self._closed = True
        await self._writer.close()
        self._near.close()
        if self._far is not None:
            await run_on_reader_thread(self._far.close)  # behind what is being read
