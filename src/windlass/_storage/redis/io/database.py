"""State shared by all stores of one storage: two connections, the clock, the epoch, the
subscribers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from windlass._core.values.instants import to_us
from windlass._storage.redis.io.calls import ScriptCalls
from windlass._storage.redis.io.connection import LoopConnection
from windlass._storage.redis.io.dialer import Argument, Dialer
from windlass._storage.redis.io.direct import RedisDirectConnection
from windlass._storage.redis.io.scripts import Script, script
from windlass._storage.shared.subscribers import QueueNames, Subscribers, Topics
from windlass._storage.timings import Timings
from windlass._system.seams import SYSTEM_CLOCK, Clock, monotonic
from windlass.errors import StorageError

__all__ = ["Argument", "RedisDatabase"]

_OPEN = script("open")


class RedisDatabase:
    """Runs scripts. Each is atomic and sees one instant: the server's, or that of a test clock.

    Replies are bytes, integers, lists and None. Work and everything that people or chores ask for
    have a connection each, so that neither waits for the other.
    """

    def __init__(
        self,
        dialer: Dialer,
        calls: ScriptCalls,
        *,
        clock: Clock,
        prefix: str,
        epoch: bytes,
        timings: Timings,
        replicas: int = 0,
    ) -> None:
        """``replicas`` must confirm what was written before it counts."""
        self.timings: Timings = timings
        self.clock: Clock = clock
        self.prefix: str = prefix
        self.subscribers: Subscribers = Subscribers()
        self._dialer, self._calls = dialer, calls
        self._epoch, self._replicas = epoch, replicas
        self._work = self.line()
        self.side: LoopConnection = self.line()
        self._direct = None if replicas else RedisDirectConnection(dialer, calls)
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def line(self) -> LoopConnection:
        """Return a further connection, opened at its first use, on the loop of that use."""
        fence = (self.prefix + "fence", self._replicas) if self._replicas else None
        return LoopConnection(self._dialer, self._calls, fence=fence)

    def instant(self) -> int | str:
        """Return the test instant in microseconds, or "" where the server's clock counts."""
        return "" if self.clock is SYSTEM_CLOCK else to_us(self.clock.now())

    async def run(self, script: Script, *args: Argument, again: bool = True) -> Any:
        """Run a script on the connection for work, with ``args`` as its ARGV.

        ``again``: repeat it for some seconds when the connection is lost, which every operation
        of the contract allows. Cancelling the caller does not cancel what was sent.
        """
        return await self.run_on(self._work, script, *args, again=again)

    async def run_aside(self, script: Script, *args: Argument, again: bool = True) -> Any:
        """Run the same on the side connection: admin and maintenance."""
        return await self.run_on(self.side, script, *args, again=again)

    async def run_told(self, script: Script, *args: Argument, aside: bool = False) -> Any:
        """Run the same, on either connection, answered with a pair: see `LoopConnection.run`."""
        line = self.side if aside else self._work
        return await self.run_on(line, script, *args, tells=True)

    async def run_on(
        self,
        line: LoopConnection,
        script: Script,
        *args: Argument,
        again: bool = True,
        tells: bool = False,
    ) -> Any:
        """Run the same on a separate connection."""
        if self._closed:
            raise StorageError(
                f"{self._dialer.place} was closed; open the storage again to use it."
            )
        arguments = self._arguments(args)
        work = line.run(script, arguments, again=again, tells=tells)
        return await self.timings.measure(work, reads=not script.writes)

    def run_here(self, script: Script, *args: Argument) -> Any:
        """Run a script that writes on this thread, which has no event loop. None: it was not
        carried out, or its answer was lost.
        """
        if self._direct is None:  # replicas confirm on the other connection only
            return None
        began = monotonic()
        answer = self._direct.run(script, self._arguments(args))
        if answer is not None:
            self.timings.writes.add(monotonic() - began)
        return answer

    def _arguments(self, args: tuple[Argument, ...]) -> tuple[Argument, ...]:
        return (self.prefix, *args, self._epoch, self.instant())

    async def confirm(self) -> None:
        """Check that scripts may run here, and that the wanted number of replicas confirms.

        Migrates, in chunks, the data that an older Windlass has left under other keys.
        """
        while await self.run_aside(_OPEN):
            pass

    def wake(self, queues: QueueNames = None, topics: Topics = ()) -> None:
        """Wake subscribers on this loop."""
        self.subscribers.wake(queues, topics)

    def wake_from_thread(self, queues: QueueNames) -> None:
        """Wake subscribers on their loop, after a call on another thread."""
        if self.subscribers:
            with suppress(RuntimeError):  # the loop has ended, and they with it
                self._loop.call_soon_threadsafe(self.subscribers.wake, queues)

    async def close(self) -> None:
        """Finish what was asked and let go of both connections."""
        if self._closed:
            return
        self._closed = True
        await self._work.close()
        await self.side.close()
        if self._direct is not None:
            self._direct.close()
