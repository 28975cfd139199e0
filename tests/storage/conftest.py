"""The only list of backends: every conformance test runs on each of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.storage.newer_schema import downgraded, upgraded
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.postgres import open_postgres
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass._storage.sqlite import open_sqlite
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance import storage as wakeups

if TYPE_CHECKING:
    from tests.servers.fresh import FreshPostgres

Open = Callable[[], Awaitable[Storage]]

# Four processes and two servers share the processors: a hint may be late, and is none the worse.
wakeups.PATIENCE = 30.0

_AGAIN = ("test_pgbouncer.py", "test_cluster.py", "test_eval.py")
_SHARE = 12


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The same backends once more, behind something else: of what they all passed already, a fixed
    twelfth is run again and something of every suite, unless WINDLASS_TEST_WHOLE asks for all.
    """
    if os.environ.get("WINDLASS_TEST_WHOLE"):
        return
    suites: dict[object, list[pytest.Item]] = {}
    for item in items:
        if item.path.name in _AGAIN:
            suites.setdefault(item.parent, []).append(item)
    left: set[pytest.Item] = set()
    for tests in suites.values():
        tests.sort(key=_lot)
        left.update(item for item in tests[1:] if _lot(item) % _SHARE)
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def _lot(item: pytest.Item) -> int:
    return zlib.crc32(item.name.encode())


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def open_memory(clock: VirtualClock) -> Open:
    database = MemoryDatabase(clock)

    async def opened() -> Storage:
        return MemoryStorage(database)

    return opened


@pytest.fixture(scope="session")
def made_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with its tables: to copy them takes a tenth of the time that making them takes."""
    made = tmp_path_factory.mktemp("made") / "jobs.db"

    async def make() -> None:
        await (await open_sqlite(made)).close()

    with ThreadPoolExecutor(1) as elsewhere:  # this thread's loop is running already
        elsewhere.submit(asyncio.run, make()).result()
    return made


@pytest.fixture
def open_file(made_file: Path, tmp_path: Path, clock: VirtualClock) -> Open:
    file = shutil.copy(made_file, tmp_path / "jobs.db")

    async def opened() -> Storage:
        return await open_sqlite(file, clock=clock)

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


@pytest.fixture
async def upgrade(storage: Storage) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Makes the store one of the next major version, as a newer Windlass does."""
    yield partial(upgraded, storage)
    await downgraded(storage)


@pytest.fixture
def other_schema(fresh_postgres: FreshPostgres) -> Iterator[tuple[str, str]]:
    """A second schema for a test that needs two."""
    schema = fresh_postgres.take_schema()
    yield fresh_postgres.home, schema
    fresh_postgres.give_back_schema(schema)


@pytest.fixture
def open_other_memory(clock: VirtualClock) -> Open:
    async def opened() -> Storage:
        return MemoryStorage(MemoryDatabase(clock))

    return opened


@pytest.fixture
def open_other_file(tmp_path: Path, clock: VirtualClock) -> Open:
    async def opened() -> Storage:
        return await open_sqlite(tmp_path / "elsewhere.db", clock=clock)

    return opened


@pytest.fixture
def open_other_schema(other_schema: tuple[str, str], clock: VirtualClock) -> Open:
    url, schema = other_schema

    async def opened() -> Storage:
        return await open_postgres(url, clock=clock, schema=schema)

    return opened


@pytest.fixture
def open_other_prefix(redis_prefix: tuple[str, str], clock: VirtualClock) -> Open:
    url, prefix = redis_prefix

    async def opened() -> Storage:
        return await open_redis(url, clock=clock, prefix=f"{prefix}-elsewhere")

    return opened


@pytest.fixture
async def elsewhere(request: pytest.FixtureRequest, storage: Storage) -> AsyncIterator[Storage]:
    """Another empty storage of the same kind."""
    kind = request.node.callspec.params["storage"]
    opener = OPENERS[kind].replace("open_", "open_other_")
    opened: Storage = await request.getfixturevalue(opener)()
    yield opened
    await opened.close()
