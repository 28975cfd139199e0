"""A wire between a client and a server that can be cut, on purpose and at a chosen point.

It runs on a thread and an event loop of its own, so that it goes on whatever the test does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tests.servers.wire_protocols import Wire

_CHUNK = 65536
PATIENCE = 30.0

Match = Callable[[str], bool]


class Loss:
    """An answer that is to be lost: it happens once, to the first request that matches."""

    def __init__(self, match: Match, at: int) -> None:
        self._match = match
        self._left = at
        self._happened = threading.Event()
        self.request = ""

    def concerns(self, request: str) -> bool:
        """Whether this is the one."""
        if self._left > 0 and self._match(request):
            self._left -= 1
            if not self._left:
                self.request = request
                return True
        return False

    def happen(self) -> None:
        self._happened.set()

    @property
    def happened(self) -> bool:
        """Executed, and its answer never arrived."""
        return self._happened.is_set()

    def wait(self) -> None:
        assert self._happened.wait(PATIENCE), "nothing was lost"


class Proxy:
    """Passes everything on until it is told otherwise. Every method may be called by anybody."""

    def __init__(self, port: int, wire: Callable[[], Wire]) -> None:
        self._target = port
        self._wire = wire
        self._loop = asyncio.new_event_loop()
        self._connections: set[_Connection] = set()
        self._losses: list[Loss] = []
        self._open = asyncio.Event()
        self._open.set()
        self._refusing = False
        self._cut_after: tuple[str, int] | None = None
        self.delay = 0.0
        """Seconds that every piece takes, in both directions."""
        self.requests: list[str] = []
        """What was asked so far, on all connections."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._call(self._listen())
        self.port = int(self._server.sockets[0].getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cut everything and listen no more."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    # --- what can be done to the wire ---

    def cut(self) -> None:
        """End every connection now."""
        self._call(self._cut())

    def refuse(self, *, on: bool = True) -> None:
        """Let nobody in any more, as a server that is down; who is in stays."""
        self._refusing = on

    def black_hole(self) -> None:
        """Nothing arrives any more, and nobody is told: connections stay open and silent."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def heal(self) -> None:
        """Everything passes again; what was under way arrives late."""
        self._refusing = False
        self._loop.call_soon_threadsafe(self._open.set)

    def lose_answer(self, match: Match = bool, *, at: int = 1) -> Loss:
        """Forward the request that matches, swallow its answer, then cut that connection.

        ``at``: not the first that matches but the second, the third …
        """
        loss = Loss(match, at)
        self._losses.append(loss)
        return loss

    def cut_after(self, count: int, *, of: str) -> None:
        """Cut one connection in the midst: after so many bytes "asked", or "answered"."""
        self._cut_after = (of, count)

    def silence(self, match: Match) -> int:
        """Let nothing more come from the server on connections where such a request was made.

        They stay open: half of each is dead. The answer is how many there are.
        """
        found = [each for each in list(self._connections) if any(map(match, each.requests))]
        for connection in found:
            connection.silent = True
        return len(found)

    @property
    def connections(self) -> int:
        return len(self._connections)

    # --- on its own loop ---

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _close(self) -> None:
        self._server.close()
        await self._cut()

    async def _cut(self) -> None:
        cut = list(self._connections)  # whoever comes meanwhile is let in
        for connection in cut:
            connection.abort()
        for connection in cut:
            await connection.gone.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(self, (reader, writer), there, self._wire())
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def pass_on(self) -> None:
        """Wait as long as the wire says."""
        if self.delay:
            await asyncio.sleep(self.delay)
        await self._open.wait()

    def to_lose(self, request: str) -> Loss | None:
        """The loss that this request is meant for."""
        for loss in self._losses:
            if loss.concerns(request):
                self._losses.remove(loss)
                return loss
        return None

    def to_cut(self, direction: str, size: int) -> int | None:
        """How much of this piece still passes before the cut; None: all, and no cut."""
        if self._cut_after is None or self._cut_after[0] != direction:
            return None
        left = self._cut_after[1]
        if size < left:
            self._cut_after = (direction, left - size)
            return None
        self._cut_after = None
        return left


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Connection:
    """Two pumps, one each way; when one ends, so does the other."""

    def __init__(self, proxy: Proxy, client: Ends, server: Ends, wire: Wire) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._wire = wire
        self._asked = 0
        self._answered = 0
        self._losing: list[Loss] = []
        self._last_lost = 0
        self._aborted = asyncio.Event()
        self.gone = asyncio.Event()
        self.requests: set[str] = set()
        self.silent = False

    async def run(self) -> None:
        works = (self._pump_in(), self._pump_out(), self._aborted.wait())
        pumps = [asyncio.ensure_future(work) for work in works]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.gone.set()

    def abort(self) -> None:
        """Both ends at once, without goodbye; also in a black hole."""
        self._aborted.set()
        for _, writer in (self._client, self._server):
            writer.transport.abort()

    async def _pump_in(self) -> None:
        with suppress(OSError):
            while heard := await self._client[0].read(_CHUNK):
                await self._proxy.pass_on()
                for request in self._wire.asked(heard):
                    self._asked += 1
                    self.requests.add(request)
                    self._proxy.requests.append(request)
                    loss = self._proxy.to_lose(request)
                    if loss is not None:
                        # Requests that came together are lost together.
                        self._losing.append(loss)
                        self._last_lost = self._asked
                if not await self._forward(heard, self._server[1], "asked"):
                    return

    async def _pump_out(self) -> None:
        with suppress(OSError):
            while heard := await self._server[0].read(_CHUNK):
                await self._proxy.pass_on()
                self._answered += self._wire.answered(heard)
                if self._losing:
                    if self._answered >= self._last_lost:
                        self.abort()
                        for loss in self._losing:
                            loss.happen()
                        return
                elif self.silent:
                    continue
                elif not await self._forward(heard, self._client[1], "answered"):
                    return

    async def _forward(self, heard: bytes, writer: asyncio.StreamWriter, direction: str) -> bool:
        left = self._proxy.to_cut(direction, len(heard))
        writer.write(heard if left is None else heard[:left])
        await writer.drain()
        return left is None
