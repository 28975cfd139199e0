"""Random flows on each backend and on the reference."""

from __future__ import annotations

import os

import pytest
from redis import Redis

from tests.servers.fresh import new_name
from tests.storage.comparison.test_backends import RANDOM
from tests.storage.redis.flows.flow_worlds import FlowWorld
from tests.storage.redis.key_checker import disorder
from windlass._storage.redis import open_redis
from windlass.testing._clock import VirtualClock

_WORLDS = 6


@pytest.mark.slow
async def test_flows_on_redis_and_on_the_reference_agree(redis_url: str) -> None:
    with Redis.from_url(redis_url) as server:
        for seed in range(_WORLDS * max(1, int(os.environ.get(RANDOM, "0")))):
            clock = VirtualClock()
            prefix = new_name()
            storage = await open_redis(redis_url, clock=clock, prefix=prefix)
            await FlowWorld(seed, clock, storage).run(60)
            await storage.close()
            assert disorder(server, f"{{{prefix}}}:") == []
