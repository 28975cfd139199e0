"""The yardstick for warm latency: one process hands a message over to another, which waits for it.

SQLite: a commit of one row by a thread, as in `benchmarks.yardsticks.lone`, then a byte through a
Unix socket. Redis: a push and a blocking pop. PostgreSQL: a job of pgqueuer with its defaults. The
clock starts before the message is stored, and is read by the first line that has it.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from redis.asyncio import Redis

from benchmarks.child import answer, requests
from benchmarks.yardsticks.lone import bare_inserts

__all__ = ["give", "name_of", "take"]

_INSTANT = struct.Struct("d")
_LIST = "{bare}:list"


def name_of(url: str) -> str:
    """Name the yardstick for this place."""
    if url.startswith("sqlite"):
        return "commit and wake-up"
    return "pgqueuer" if url.startswith("postgres") else "push and blocking pop"


async def give(url: str) -> None:
    """Hand one message over whenever asked."""
    opened = {"sqlite": _give_by_sqlite, "postgres": _give_by_pgqueuer, "redis": _give_by_redis}
    send = await opened[_kind(url)](url)
    answer("ready")
    async for _ in requests():
        await send(time.monotonic())
        answer("done")


async def take(url: str) -> None:
    """Wait for messages; answer every request with the seconds that each took."""
    seconds: list[float] = []

    def taken(message: bytes) -> None:
        seconds.append(time.monotonic() - _INSTANT.unpack(message)[0])

    way = {"sqlite": _take_by_sqlite, "postgres": _take_by_pgqueuer, "redis": _take_by_redis}
    ready = asyncio.Event()
    taking = asyncio.create_task(way[_kind(url)](url, taken, ready))
    await ready.wait()
    answer("ready")
    async for _ in requests():
        answer(seconds)
    taking.cancel()


def _kind(url: str) -> str:
    return "redis" if url.startswith("redis") else url.partition("://")[0].removesuffix("ql")


Send = Callable[[float], Awaitable[Any]]
Taken = Callable[[bytes], None]


def _socket(url: str) -> str:
    return url.removeprefix("sqlite:///") + ".socket"


async def _give_by_sqlite(url: str) -> Send:
    inserts = bare_inserts(url)
    _, writer = await asyncio.open_unix_connection(_socket(url))

    async def send(instant: float) -> None:
        await inserts.insert()
        writer.write(_INSTANT.pack(instant))

    return send


async def _take_by_sqlite(url: str, taken: Taken, ready: asyncio.Event) -> None:
    async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while message := await reader.read(_INSTANT.size):
            taken(message)

    server = await asyncio.start_unix_server(listen, _socket(url))
    ready.set()
    await server.serve_forever()


async def _give_by_redis(url: str) -> Send:
    connection = Redis.from_url(url)
    return lambda instant: connection.lpush(_LIST, _INSTANT.pack(instant))


async def _take_by_redis(url: str, taken: Taken, ready: asyncio.Event) -> None:
    connection = Redis.from_url(url)
    await connection.ping()
    ready.set()
    while True:
        found: Any = await connection.brpop([_LIST], timeout=0)
        taken(found[1])


# pgqueuer may be missing: see `benchmarks.yardsticks.pgqueuer`.


async def _give_by_pgqueuer(url: str) -> Send:
    from pgqueuer.db import AsyncpgDriver  # noqa: PLC0415
    from pgqueuer.queries import Queries  # noqa: PLC0415

    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    return lambda instant: queries.enqueue("pick_up", _INSTANT.pack(instant))


async def _take_by_pgqueuer(url: str, taken: Taken, ready: asyncio.Event) -> None:
    from pgqueuer import PgQueuer  # noqa: PLC0415
    from pgqueuer.db import AsyncpgDriver  # noqa: PLC0415
    from pgqueuer.queries import Queries  # noqa: PLC0415

    await Queries(AsyncpgDriver(await asyncpg.connect(url))).install()
    consumer = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    async def pick_up(job: Any) -> None:
        taken(job.payload)

    consumer.entrypoint("pick_up")(pick_up)
    ready.set()
    await consumer.run()
