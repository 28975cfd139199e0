"""The server of ``windlass dashboard``, talked to by somebody who does not behave."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.web.rooms import opened
from windlass.cli import dashboard_server
from windlass.cli.dashboard_server import Server

HEAD = b"GET /queues HTTP/1.1\r\nhost: 127.0.0.1\r\n"


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """The port of a dashboard."""
    async with opened() as room:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            server = Server(room.dashboard, root_path="", proxies=())
            task = asyncio.create_task(server.serve(sockets=[listening]))
            yield listening.getsockname()[1]
            server.should_exit = True
            await task


async def told(port: int, *pieces: bytes, pause: float = 0.0) -> bytes:
    """What comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        answer = asyncio.create_task(reader.read())
        for piece in pieces:
            if answer.done():
                break
            writer.write(piece)
            await asyncio.sleep(pause)
        async with asyncio.timeout(20):
            return await answer
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def second_of(port: int) -> bytes:
    """What follows the answer to the first request, if only a part of the second is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(HEAD + b"\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 401")
        (size,) = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
        await reader.readexactly(int(size.partition(b":")[2]))
        writer.write(HEAD)
        return await reader.read()
    finally:
        writer.close()


async def test_a_request_whose_head_does_not_come_keeps_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dashboard_server, "HEAD_WITHIN", 1.0)
    async with serving() as port:
        async with asyncio.timeout(30):
            silent, half, slow, second = await asyncio.gather(
                told(port),
                told(port, HEAD + b"x-long: "),
                told(port, HEAD, *[b"x"] * 1000, pause=0.02),
                second_of(port),
            )
        assert (silent, half, slow, second) == (b"", b"", b"", b"")


async def test_what_is_no_http_or_two_things_at_once_is_refused() -> None:
    post = b"POST /login HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
    both = b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    async with serving() as port:
        for request in (
            HEAD + b"x-large: " + b"x" * 20_000 + b"\r\n\r\n",
            post + both,
            post + b"content-length: 4\r\ncontent-length: 5\r\n\r\nname=",
            post + b"content-length: -1\r\n\r\n",
            post + b"transfer-encoding: chunked\r\n\r\nzz\r\n\r\n",
            b"GET /queues\r\n\r\n",
            HEAD + b"x y: 1\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        ):
            answer = await told(port, request)
            assert b" 200 " not in answer[:20], request[:80]
            assert b" 303 " not in answer[:20], request[:80]
            assert answer.count(b"HTTP/1.1 ") <= 1, request[:80]
