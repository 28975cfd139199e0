"""The yardstick for single calls: the insert of one row, and nothing else.

The same row goes into the same table with the same indexes and durability, through the same driver.
On Redis one transaction writes the keys of one plain job. ``insert`` is awaited: on SQLite a thread
commits, because no commit may run on an event loop. ``insert_now`` runs on the calling thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import uuid
from contextlib import suppress
from typing import Any, Protocol

import apsw
import asyncpg
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

__all__ = ["BareInserts", "bare_inserts"]

_PAYLOAD = b'["1@example.com","Your order is on its way","shipped",1]'
_SQLITE = """INSERT INTO jobs (id, queue, task, ready, priority, due, max_attempts, budget,
  created_at, payload) VALUES (?, 'bare', 'noop', 1, 0, ?, 5, 5, ?, ?)
ON CONFLICT (id) DO NOTHING"""
_POSTGRES = """INSERT INTO windlass.jobs (id, ready, priority, due, created_at, max_attempts,
  budget, queue, task, payload)
VALUES ($1, 1, 0, clock_timestamp(), clock_timestamp(), 5, 5, 'bare', 'noop', $2)
ON CONFLICT (id) DO NOTHING"""


class BareInserts(Protocol):
    """Inserts of one row."""

    async def insert(self) -> None: ...

    def insert_now(self) -> None: ...

    async def close(self) -> None: ...


class _Sqlite:
    def __init__(self, url: str) -> None:
        self._path = url.removeprefix("sqlite:///")
        self._asked: queue.SimpleQueue[asyncio.Future[None] | None] = queue.SimpleQueue()
        self._here: apsw.Connection | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _open(self) -> apsw.Connection:
        connection = apsw.Connection(self._path)
        connection.set_busy_timeout(5000)
        connection.execute("PRAGMA synchronous = full")
        return connection

    def _serve(self) -> None:
        connection = self._open()
        while (asked := self._asked.get()) is not None:
            self._store(connection)
            asked.get_loop().call_soon_threadsafe(asked.set_result, None)
        connection.close()

    def _store(self, connection: apsw.Connection) -> None:
        now = time.time_ns() // 1000
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_SQLITE, (uuid.uuid4().bytes, now, now, _PAYLOAD))
        connection.execute("COMMIT")

    async def insert(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.put(future)
        await future

    def insert_now(self) -> None:
        self._here = self._here or self._open()
        self._store(self._here)

    async def close(self) -> None:
        self._asked.put(None)
        self._thread.join()
        if self._here is not None:
            self._here.close()


class _Postgres:
    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._connection: Any = None
        self._other: Any = None

    async def insert(self) -> None:
        if self._connection is None:
            self._connection = await asyncpg.connect(self._url)
        await self._connection.fetch(_POSTGRES, uuid.uuid4(), _PAYLOAD)

    def insert_now(self) -> None:
        if self._other is None:
            self._other = self._loop.run_until_complete(asyncpg.connect(self._url))
        self._loop.run_until_complete(self._other.fetch(_POSTGRES, uuid.uuid4(), _PAYLOAD))

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
        if self._other is not None:
            self._other.terminate()
        self._loop.close()


class _Redis:
    def __init__(self, url: str) -> None:
        self._connection, self._here, self._last = AsyncRedis.from_url(url), Redis.from_url(url), 0

    def _fill(self, batch: Any) -> Any:
        self._last += 1
        job = uuid.uuid4().bytes
        batch.hset("{bare}:jobs", job, _PAYLOAD + job)
        batch.zadd("{bare}:all", {job: self._last})
        batch.zadd("{bare}:ready:bare", {job: 0})
        batch.publish("{bare}:wake", "bare")
        return batch

    async def insert(self) -> None:
        async with self._connection.pipeline(transaction=True) as batch:
            await self._fill(batch).execute()

    def insert_now(self) -> None:
        with self._here.pipeline(transaction=True) as batch:
            self._fill(batch).execute()

    async def close(self) -> None:
        with suppress(RuntimeError):
            await self._connection.aclose()
        self._here.close()


def bare_inserts(url: str) -> BareInserts:
    """Return the inserts for a place whose tables Windlass has made."""
    if url.startswith("sqlite"):
        return _Sqlite(url)
    return _Postgres(url) if url.startswith("postgres") else _Redis(url)
