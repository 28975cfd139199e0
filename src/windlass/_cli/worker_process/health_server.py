"""The few pages that a probe or a scraper asks for, over HTTP/1.1.

One small GET per connection, an answer, and the end of it: no bodies, no keeping alive, no files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from http import HTTPStatus

import msgspec

from windlass._cli.addresses import is_address, name_in
from windlass.errors import ConfigError

__all__ = ["HealthServer", "HttpResponse", "Page"]

log = logging.getLogger("windlass")

_LARGEST = 8192
"""Bytes of a request, all headers included."""
_HEAD_WITHIN = 1.0
"""Seconds for the request: a client that sends a byte now and then is not waited for."""
_PATIENCE = 5.0
"""Seconds for the answer."""
_BACKLOG = 64
"""Connections that an event loop accepts in one go."""
_MOST = 4 * _BACKLOG
"""Connections at once. Well above the usual number, so that the request of a probe is
read in time.
"""


class HttpResponse(msgspec.Struct, frozen=True):
    """One response."""

    code: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"

    def written(self) -> bytes:
        """Return the bytes of the response."""
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


Page = Callable[[str], Awaitable[HttpResponse]]
"""Gives an answer, from what the client says it accepts."""


def _refusal(code: HTTPStatus) -> HttpResponse:
    return HttpResponse(code, f"{code.phrase.lower()}\n".encode())


class HealthServer:
    """Answers on one event loop, for as long as it is open."""

    def __init__(self, pages: Mapping[str, Page], hosts: Collection[str] | None = None) -> None:
        """``pages`` by their path. ``hosts``: the names it answers to beside IP addresses; None:
        to every name.
        """
        self._pages = pages
        self._hosts = None if hosts is None else {host.lower() for host in hosts}
        self._servers: list[asyncio.Server] = []
        self._asking: dict[asyncio.Task[None], None] = {}
        """Connections whose request has not come yet, the oldest first."""
        self._answering: dict[asyncio.Task[None], None] = {}

    async def open(self, host: str, port: int) -> None:
        """Listen there, too. ConfigError when that is not possible."""
        try:
            server = await asyncio.start_server(
                self._accepted, host, port, limit=_LARGEST, backlog=_BACKLOG
            )
        except OSError as error:
            message = f"cannot listen on {host}, port {port}: {error.strerror or error}"
            raise ConfigError(message) from error
        self._servers.append(server)

    async def close(self) -> None:
        """Stop listening; what is being answered is cut short."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        talks = [*self._asking, *self._answering]
        for talk in talks:
            talk.cancel()
        if talks:
            await asyncio.wait(talks)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._asking) + len(self._answering) >= _MOST:
            # Not the newest: clients that send half a request each would keep all others out.
            oldest = next(iter(self._asking or self._answering))
            self._ended(oldest)
            oldest.cancel()
        talk = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._asking[talk] = None
        talk.add_done_callback(self._ended)

    def _ended(self, talk: asyncio.Task[None]) -> None:
        self._asking.pop(talk, None)
        self._answering.pop(talk, None)

    def _asked(self, talk: asyncio.Task[None] | None) -> None:
        """Its request is here."""
        if talk in self._asking:
            del self._asking[talk]
            self._answering[talk] = None

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # A client that goes away or is slow gets no answer.
            with suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
                async with asyncio.timeout(_HEAD_WITHIN):
                    head = await _head(reader)
                self._asked(asyncio.current_task())
                async with asyncio.timeout(_PATIENCE):
                    answer = await self._answer(head)
                    writer.transport.set_write_buffer_limits(0)  # drained: all of it is sent
                    writer.write(answer.written())
                    await writer.drain()
                writer.close()
                return
            writer.transport.abort()  # close() would wait for a client that reads nothing
        except BaseException:
            writer.transport.abort()
            raise

    async def _answer(self, head: bytes | None) -> HttpResponse:
        if head is None:
            return _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _refusal(HTTPStatus.BAD_REQUEST)
        if not self._is_for_us(_header(lines, "host")):
            return HttpResponse(HTTPStatus.MISDIRECTED_REQUEST, _OTHER_NAME)
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

    def _is_for_us(self, host: str) -> bool:
        """Return whether this names us. A browser that was led here by the name of another site
        sends that name, and the site's scripts would read the answer. An address cannot be led
        elsewhere.
        """
        if self._hosts is None or not host:
            return True
        name = name_in(host)
        return name in self._hosts or is_address(name)


_OTHER_NAME = b"not answered under this name; ask by address, or start with --health-name NAME\n"


async def _head(reader: asyncio.StreamReader) -> bytes | None:
    """Return the request, up to the end of its headers; None: it is too large."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return None


def _header(lines: list[str], wanted: str) -> str:
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == wanted:
            return value.strip()
    return ""
