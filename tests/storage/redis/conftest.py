"""A storage whose keys are checked when a test has ended, and the server behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from redis import Redis

from tests.storage.redis.key_checker import disorder
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass.testing import VirtualClock


@pytest.fixture
def server(redis_prefix: tuple[str, str]) -> Iterator[Redis]:
    """The bare server, for looking behind the storage."""
    with Redis.from_url(redis_prefix[0]) as connected:
        yield connected


@pytest.fixture
def key(redis_prefix: tuple[str, str]) -> str:
    """The text that every key starts with."""
    return f"{{{redis_prefix[1]}}}:"


@pytest.fixture
async def storage(
    redis_prefix: tuple[str, str], clock: VirtualClock, server: Redis, key: str
) -> AsyncIterator[Storage]:
    """An empty storage. After any test, its keys agree with each other."""
    url, prefix = redis_prefix
    opened = await open_redis(url, clock=clock, prefix=prefix)
    yield opened
    await opened.close()
    assert disorder(server, key) == []
