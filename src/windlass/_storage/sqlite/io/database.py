"""State shared by all stores of one storage: the writer, a reader, the clock, the subscribers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NoReturn, Protocol, TypeVar

import apsw

from windlass._core.values.instants import span_us
from windlass._storage.shared.migrations import last_of_major, refuse_newer
from windlass._storage.shared.reader_thread import run_on_reader_thread
from windlass._storage.shared.subscribers import QueueNames, Subscribers
from windlass._storage.sqlite.io.transactor import ReadConnections, Reader, closed_error
from windlass._storage.sqlite.io.writer import Submit
from windlass._storage.timings import Timings
from windlass._system.seams import Clock

__all__ = ["SqliteDatabase", "WriterProtocol"]

T = TypeVar("T")


class WriterProtocol(Protocol):
    """The writer on its thread, or its stand-in for the simulation."""

    @property
    def submit(self) -> Submit: ...

    def run_here(self, op: Callable[[apsw.Connection, int], T]) -> T | None: ...

    async def close(self) -> None: ...


class Read(Protocol):
    """How ops get to a reader."""

    def __call__(self, op: Callable[[apsw.Connection, int], T]) -> T:
        """Run ``op``, which must exhaust its cursors."""
        ...


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
        timings: Timings,
        threads: bool = True,
    ) -> None:
        """``known``: the newest schema version that this code knows. ``threads``: whether what
        people ask runs on a thread; not in the simulation.
        """
        self._writer, self._path = writer, path
        self.write: Submit = writer.submit
        self._near = Reader(readers, path, clock, timings.reads)
        self.read: Read = self._near.read
        self._far = Reader(readers, path, clock) if threads else None
        self._known = known
        self.last_known: int = last_of_major(known)
        """The newest schema version that this code may claim jobs of."""
        self.timings: Timings = timings
        self.clock: Clock = clock
        self.boot: str = readers.boot
        self._closed = False
        self.subscribers: Subscribers = Subscribers()
        self._loop = asyncio.get_running_loop()

    def since_boot(self) -> int:
        return span_us(self.clock.boot())

    def write_here(self, op: Callable[[apsw.Connection, int], T]) -> T | None:
        """Run ``op`` on this thread, which is not the event loop's; None: not now."""
        return self._writer.run_here(op)

    def wake_from_thread(self, queues: QueueNames) -> None:
        """Wake subscribers after a commit on another thread than theirs."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and they with it
            self._loop.call_soon_threadsafe(self.subscribers.wake, queues)

    async def ask(self, op: Callable[[apsw.Connection, int], T]) -> T:
        """Run ``op`` off the event loop, on one snapshot: for what people ask. It must exhaust
        its cursors.
        """
        if self._closed:
            raise closed_error(self._path)
        far = self._far

        def on_snapshot(connection: apsw.Connection, now: int) -> T:
            with connection:
                answer = op(connection, now)
            return answer  # noqa: RET504 -- inside the block the checker takes it for swallowed

        if far is None:
            return self.read(on_snapshot)
        work = run_on_reader_thread(lambda: far.read(on_snapshot))
        return await self.timings.measure(work, reads=True)

    def refuse_newer(self, connection: apsw.Connection) -> NoReturn:
        """Raise `SchemaTooNew` in an op that only code of the stored version may run."""
        refuse_newer(connection.execute("PRAGMA user_version").get, self._known, self._path)

    async def close(self) -> None:
        """Write what waits, then let go of all connections."""
        self._closed = True
        self._near.close()
        await self._writer.close()
        if self._far is not None:
            await run_on_reader_thread(self._far.close)  # behind what is being read
