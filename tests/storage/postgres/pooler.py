"""A pool in transaction mode, as PgBouncer has it: no session outlives a statement.

After every transaction the next server connection in turn is used, so whatever was left on a
session is missed at once. Who listens here hears nothing. Settings at login are refused.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

_KNOWN = {"user", "database", "client_encoding", "application_name", "datestyle", "timezone"}
_NO_STARTUP = {80877103, 80877104}  # TLS and GSS are not offered
Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _packed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


async def _told(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


class Pooler:
    """Between any number of clients and a few connections to one database."""

    def __init__(self, url: str, *, size: int = 3) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._host, self._port = parts.hostname, parts.port or 5432
        self._user, self._database = parts.username or "", parts.path[1:]
        self._size = size
        self._greeting = b""
        self._free: deque[Line] = deque()
        self._available = asyncio.Semaphore(size)
        self._clients: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        for _ in range(self._size):
            self._free.append(await self._login())
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"postgresql://{self._user}@127.0.0.1:{port}/{self._database}"
        return self

    async def __aexit__(self, *_how: object) -> None:
        self._server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        for _, writer in self._free:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _login(self) -> Line:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        words = ("user", self._user, "database", self._database, "client_encoding", "UTF8", "")
        body = struct.pack("!i", 196608) + b"".join(word.encode() + b"\0" for word in words)
        writer.write(struct.pack("!i", len(body) + 4) + body)
        kind, self._greeting = b"", b""
        while kind != b"Z":
            kind, packet = await _told(reader)
            if kind == b"S":
                self._greeting += packet
        return reader, writer

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await self._greet(reader, writer):
                await self._pass_on(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has gone
        finally:
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        while True:
            size, code = struct.unpack("!ii", await reader.readexactly(8))
            body = await reader.readexactly(size - 8)
            if code not in _NO_STARTUP:
                break
            writer.write(b"N")
        words = [word.decode() for word in body.split(b"\0")]
        strange = set(words[::2]) - _KNOWN - {""}
        if strange or code != 196608:
            said = f"SFATAL\0C08P01\0Munsupported startup parameter: {strange}\0\0"
            writer.write(_packed(b"E", said.encode()))
            return False
        writer.write(_packed(b"R", struct.pack("!i", 0)) + self._greeting)
        writer.write(_packed(b"K", struct.pack("!ii", 1, 1)) + _packed(b"Z", b"I"))
        return True

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server: Line | None = None
        answering: asyncio.Task[bytes] | None = None
        asked = b""
        try:
            while True:
                kind, packet = await _told(reader)
                if kind == b"X":
                    return
                asked += packet
                if kind not in (b"S", b"Q", b"H"):
                    continue
                if server is None:
                    await self._available.acquire()
                    server = self._free.popleft()
                server[1].write(asked)
                asked = b""
                if answering is None:
                    answering = asyncio.create_task(_answer(server, writer))
                if kind == b"H":  # answered as far as it goes; the rest of it follows
                    continue
                state = await answering
                answering = None
                if state == b"I":
                    self._give_back(server)
                    server = None
        finally:
            if server is not None:
                await self._clean(server, answering)

    async def _clean(self, server: Line, answering: asyncio.Task[bytes] | None) -> None:
        """Somebody went in the middle of a transaction."""
        if answering is not None:
            answering.cancel()
            await asyncio.wait([answering])
        server[1].close()
        self._give_back(await self._login())

    def _give_back(self, server: Line) -> None:
        self._free.append(server)
        self._available.release()


async def _answer(server: Line, writer: asyncio.StreamWriter) -> bytes:
    """Pass answers on until the server is ready again; then whether a transaction is open."""
    while True:
        kind, packet = await _told(server[0])
        writer.write(packet)
        if kind == b"Z":
            return packet[-1:]
