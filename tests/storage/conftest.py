"""The only list of backends: every conformance test runs on each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from windlass.storage.memory import MemoryDatabase, MemoryStorage
from windlass.storage.postgres import open_postgres
from windlass.storage.protocol import Storage
from windlass.storage.redis import open_redis
from windlass.storage.sqlite import open_sqlite
from windlass.testing.clock import VirtualClock

Open = Callable[[], Awaitable[Storage]]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def open_memory(clock: VirtualClock) -> Open:
    database = MemoryDatabase(clock)

    async def opened() -> Storage:
        return MemoryStorage(database)

    return opened


@pytest.fixture
def open_file(tmp_path: Path, clock: VirtualClock) -> Open:
    async def opened() -> Storage:
        return await open_sqlite(tmp_path / "jobs.db", clock=clock)

    return opened


@pytest.fixture
def open_schema(clean_schema: tuple[str, str], clock: VirtualClock) -> Open:
    url, schema = clean_schema

    async def opened() -> Storage:
        return await open_postgres(url, clock=clock, schema=schema)

    return opened


@pytest.fixture
def open_prefix(redis_prefix: tuple[str, str], clock: VirtualClock) -> Open:
    url, prefix = redis_prefix

    async def opened() -> Storage:
        return await open_redis(url, clock=clock, prefix=prefix)

    return opened


OPENERS = {
    "memory": "open_memory",
    "sqlite": "open_file",
    "postgres": "open_schema",
    "redis": "open_prefix",
}


@pytest.fixture(params=list(OPENERS))
async def storage(request: pytest.FixtureRequest) -> AsyncIterator[Storage]:
    """An empty storage of each kind."""
    opened = await request.getfixturevalue(OPENERS[request.param])()
    yield opened
    await opened.close()
