"""Every conformance test with scripts by EVAL, as on servers without functions."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.servers.fresh import new_name
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance import ALL, TELLING


@pytest.fixture
async def storage(redis_prefix: tuple[str, str], clock: VirtualClock) -> AsyncIterator[Storage]:
    url, prefix = redis_prefix
    opened = await open_redis(f"{url}?functions=off", clock=clock, prefix=prefix)
    yield opened
    await opened.close()


@pytest.fixture
async def elsewhere(redis_prefix: tuple[str, str], clock: VirtualClock) -> AsyncIterator[Storage]:
    url, _ = redis_prefix
    opened = await open_redis(f"{url}?functions=off", clock=clock, prefix=new_name())
    yield opened
    await opened.close()


for suite in (*ALL, *TELLING):
    name = f"Test{suite.__name__}ByEval"
    globals()[name] = type(name, (suite,), {})
