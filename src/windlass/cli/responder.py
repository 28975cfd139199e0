"""The few pages that a probe or a scraper asks for, over HTTP/1.1.

One small GET per connection, an answer, and the end of it: no bodies, no keeping alive, no files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus

import msgspec

from windlass.errors import ConfigError

__all__ = ["Answer", "Page", "Responder"]

log = logging.getLogger("windlass")

_LARGEST = 8192
"""Bytes of a request, all headers included."""
_PATIENCE = 5.0
"""Seconds for a whole exchange: somebody who sends a byte now and then is not waited for."""
_MOST = 32
"""Connections at once. Probes come one by one."""


class Answer(msgspec.Struct, frozen=True):
    """One response."""

    code: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"

    def written(self) -> bytes:
        """As it goes over the line."""
        head = [
            f"HTTP/1.1 {self.code.value} {self.code.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        if self.code is HTTPStatus.METHOD_NOT_ALLOWED:
            head.append("Allow: GET")
        return "\r\n".join([*head, "", ""]).encode("latin-1") + self.body


Page = Callable[[str], Awaitable[Answer]]
"""Gives an answer, from what the client says it accepts."""


def _refusal(code: HTTPStatus) -> Answer:
    return Answer(code, f"{code.phrase.lower()}\n".encode())


class Responder:
    """Answers on one event loop, for as long as it is open."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        """``pages`` by their path."""
        self._pages = pages
        self._servers: list[asyncio.Server] = []
        self._talks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> None:
        """Listen there, too. ConfigError when that is not possible."""
        try:
            server = await asyncio.start_server(self._accepted, host, port, limit=_LARGEST)
        except OSError as error:
            message = f"cannot listen on {host}, port {port}: {error.strerror or error}"
            raise ConfigError(message) from error
        self._servers.append(server)

    async def close(self) -> None:
        """Stop listening; what is being answered is cut short."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for talk in list(self._talks):
            talk.cancel()
        if self._talks:
            await asyncio.wait(self._talks)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._talks) >= _MOST:
            writer.close()
            return
        talk = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Whoever goes away or dawdles gets no answer.
            with suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
                async with asyncio.timeout(_PATIENCE):
                    answer = await self._answer(reader)
                    writer.write(answer.written())
                    await writer.drain()
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> Answer:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _refusal(HTTPStatus.BAD_REQUEST)
        method, path, _ = words
        page = self._pages.get(path.partition("?")[0])
        if page is None:
            return _refusal(HTTPStatus.NOT_FOUND)
        if method != "GET":
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return await page(_header(lines, "accept"))
        except Exception:
            log.exception("the page %s could not be made", path)
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)


def _header(lines: list[str], wanted: str) -> str:
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == wanted:
            return value.strip()
    return ""
