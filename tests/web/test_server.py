"""The server of ``windlass dashboard``, talked to by somebody who does not behave."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.web.fixtures import opened
from windlass._cli.dashboard import server as dashboard_server
from windlass._cli.dashboard.server import DashboardServer
from windlass._web.render.assets import Assets

HEAD = b"GET /queues HTTP/1.1\r\nhost: 127.0.0.1\r\n"


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """The port of a dashboard."""
    async with opened() as room:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            server = DashboardServer(room.dashboard, root_path="", proxies=())
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


CLOSE = b"host: 127.0.0.1\r\nconnection: close\r\n"
GET, POST = b"GET /queues HTTP/1.1\r\n" + CLOSE, b"POST /login HTTP/1.1\r\n" + CLOSE
FORM = b"name=x"
ODD: dict[str, tuple[bytes, int]] = {
    "in order": (POST + b"content-length: 6\r\n\r\n" + FORM, 401),
    "a large head": (GET + b"x-large: " + b"x" * 20_000 + b"\r\n\r\n", 431),
    "many heads": (GET + b"x-y: z\r\n" * 3_000 + b"\r\n", 431),
    "two ways to say how long": (
        POST + b"content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "two lengths": (POST + b"content-length: 6\r\ncontent-length: 5\r\n\r\n" + FORM, 400),
    "less than nothing": (POST + b"content-length: -1\r\n\r\n", 400),
    "no number": (POST + b"content-length: 6x\r\n\r\n" + FORM, 400),
    "no piece": (POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n\r\n", 400),
    "another encoding": (POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    "no version": (b"GET /queues\r\n\r\n", 400),
    "a space in a name": (GET + b"x y: 1\r\n\r\n", 400),
    "no name": (GET + b": 1\r\n\r\n", 400),
    "two hosts": (GET + b"host: evil.test\r\n\r\n", 400),
    "a line within a value": (GET + b"x: 1\rset-cookie: a=b\r\n\r\n", 400),
    "another protocol": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
}


async def test_invalid_http_is_refused_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as port:
        for what, (request, code) in ODD.items():
            answer = await told(port, request)
            assert answer.startswith(f"HTTP/1.1 {code} ".encode()), (what, answer[:80])
            assert answer.count(b"HTTP/1.1 ") == 1, what
    assert "Traceback" not in caplog.text  # whoever breaks a request off fills no log


async def half_sent(port: int, count: int, request: bytes) -> list[asyncio.StreamWriter]:
    strangers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        strangers.append(writer)
    return strangers


HALVES = {
    "a head": HEAD + b"x-long: ",
    "a form": b"POST /login HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 8000\r\n\r\nname=",
}


@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
async def test_half_sent_requests_block_no_other_client(
    half: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard_server, "CONNECTIONS", 32)
    async with serving() as port:
        strangers: list[asyncio.StreamWriter] = []
        for _ in range(3):
            strangers += await half_sent(port, 20, half)
            answer = await told(port, GET + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 401 ")
        for writer in strangers:
            writer.close()


async def test_unread_answers_block_no_other_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_server, "CONNECTIONS", 16)
    asset = Assets().name("vendor/uplot.min.js")
    request = f"GET /assets/{asset} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
    async with serving() as port:
        strangers: list[socket.socket] = []
        for _ in range(20):
            stranger = socket.socket()
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            stranger.setblocking(False)
            strangers.append(stranger)
            await asyncio.get_running_loop().sock_connect(stranger, ("127.0.0.1", port))
            await asyncio.get_running_loop().sock_sendall(stranger, request * 200)
        async with asyncio.timeout(30):  # what the system's buffers take in is answered first
            for _ in range(3):
                while not (await told(port, GET + b"\r\n")).startswith(b"HTTP/1.1 401 "):
                    continue
        for stranger in strangers:
            stranger.close()


async def test_log_in_takes_in_a_few_kilobytes_and_no_more() -> None:
    async with serving() as port:
        # All but the last byte of two megabytes, announced, and in pieces of no announced number.
        announced = POST + b"content-length: 2000000\r\n\r\n" + b"x" * 100_000
        answer = await told(port, announced)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 413 ")  # reset, or told before
        piece = b"2400\r\n" + b"x" * 0x2400 + b"\r\n"
        answer = await told(port, POST + b"transfer-encoding: chunked\r\n\r\n" + piece)
        assert answer.startswith(b"HTTP/1.1 413 ")


async def test_no_form_is_read_once_there_were_too_many_guesses() -> None:
    async with serving() as port:
        guess = POST + b"content-length: 6\r\n\r\n" + FORM
        for _ in range(10):
            assert (await told(port, guess)).startswith(b"HTTP/1.1 401 ")
        half = POST + b"content-length: 600\r\n\r\n" + FORM
        assert (await told(port, half)).startswith(b"HTTP/1.1 429 ")  # at once, and closed
