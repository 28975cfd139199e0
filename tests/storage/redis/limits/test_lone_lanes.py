"""Lane groups with one lane, which have no list of lanes on Redis; and those that an older Windlass
has listed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.storage.redis.key_checker import disorder
from windlass._core.job.job import LimitUse, NewJob
from windlass._core.job.transition import succeed
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import a_job, add, claim, end, enlist, ids

pytestmark = pytest.mark.timeout(120)

LONE = 255


def a_tenants_job(tenant: int, *more: str) -> NewJob:
    uses = (LimitUse("own", str(tenant)), *(LimitUse(name) for name in more))
    return NewJob(id=a_job().id, task="t", limits=uses)


async def limits(storage: Storage) -> None:
    await storage.limits.define(
        [LimitSpec(name="own", concurrency=1), LimitSpec(name="wide", concurrency=100)]
    )
    await enlist(storage)


def lists(server: Any, key: str) -> int:
    """How many lane groups have a list of their lanes."""
    return len(list(server.scan_iter(key + "bay:*")))


def to_layout_four(server: Any, key: str) -> None:
    """Make of a store what the layout before would have made."""
    for bay, text in server.hgetall(key + "bays").items():
        if text[8] == LONE:
            lane = text[9:]
            head = server.hget(key + "lanes", lane)[:42]
            server.zadd(key.encode() + b"bay:" + bay, {head[8:] + lane: 0.0})
            server.hset(key + "bays", bay, text[:8] + head)
    server.delete(key + "finishes")
    server.set(key + "epoch", b"4-" + server.get(key + "epoch").partition(b"-")[2])


async def test_lane_groups_of_an_older_store_are_served_in_order_and_lose_their_lists(
    storage: Storage, redis_prefix: tuple[str, str], clock: VirtualClock, server: Any, key: str
) -> None:
    await limits(storage)
    made = await add(storage, *(a_tenants_job(number % 4) for number in range(12)))
    (first,) = await claim(storage)
    to_layout_four(server, key)
    assert lists(server, key) == 4
    newer = await open_redis(redis_prefix[0], clock=clock, prefix=redis_prefix[1])
    assert disorder(server, key) == []
    others = await claim(newer, 99)
    assert ids(others) == list(made[1:4])
    assert disorder(server, key) == []
    assert lists(server, key) == 1  # nothing has changed in the lane whose unit is taken
    await end(newer, *(succeed(job, by="w1", result=None) for job in (first, *others)))
    assert ids(await claim(newer, 99)) == list(made[4:8])
    assert lists(server, key) == 0
    assert disorder(server, key) == []
    await newer.close()


async def test_a_group_has_a_list_only_while_several_lanes_stand_there(
    storage: Storage, server: Any, key: str
) -> None:
    await limits(storage)
    alone = await add(storage, a_tenants_job(1), a_tenants_job(1))
    assert lists(server, key) == 0
    beside = await add(storage, a_tenants_job(1, "wide"))
    assert lists(server, key) == 1
    assert disorder(server, key) == []
    done = []
    for lists_left in (1, 0, 0):
        (job,) = await claim(storage, 99)  # one at a time, of either lane
        done.append(job.claim.job)
        assert lists(server, key) == lists_left
        assert disorder(server, key) == []
        await end(storage, succeed(job, by="w1", result=None))
    assert done == [*alone, *beside]
    assert disorder(server, key) == []


async def test_lanes_that_a_shared_rate_refuses_form_one_group_and_are_served_when_it_opens(
    storage: Storage, clock: VirtualClock, server: Any, key: str
) -> None:
    await limits(storage)
    await storage.limits.define(
        [LimitSpec(name="rate", rate=Rate(2, timedelta(seconds=1), burst=2))]
    )
    made = await add(storage, *(a_tenants_job(number, "rate") for number in range(6)))
    for first in (0, 2, 4):
        assert ids(await claim(storage, 99)) == list(made[first : first + 2])
        assert disorder(server, key) == []
        assert server.zcard(key + "timed:default") == (1 if first < 4 else 0)
        assert await claim(storage, 99) == []
        clock.advance(1)
    assert lists(server, key) == 0


async def test_one_claim_moves_lanes_to_a_new_group_in_both_ways_and_forgets_none(
    storage: Storage, server: Any, key: str
) -> None:
    await limits(storage)
    await storage.limits.define([LimitSpec(name="few", concurrency=1)])
    fresh = [a_tenants_job(number, "few") for number in range(4)]
    expires = replace(a_tenants_job(4, "few"), expires=timedelta(hours=1))  # is read as a whole
    made = await add(storage, *fresh, expires)
    (first,) = await claim(storage, 99)
    assert lists(server, key) == 1
    assert disorder(server, key) == []
    await end(storage, succeed(first, by="w1", result=None))
    await storage.limits.define([LimitSpec(name="few", concurrency=9)])
    assert ids(await claim(storage, 99)) == list(made[1:])


async def test_the_first_limited_job_shuts_out_processes_of_older_layouts(
    storage: Storage, server: Any, key: str
) -> None:
    await limits(storage)
    await add(storage, a_job())
    assert server.get(key + "finishes") is None
    await add(storage, a_tenants_job(1))
    assert server.get(key + "finishes") == b"5"


async def test_a_claim_calls_four_commands_for_each_lane_and_no_more(
    storage: Storage, server: Any, key: str
) -> None:
    await limits(storage)
    for _ in range(3):
        await add(storage, *(a_tenants_job(number) for number in range(150)))
    with server.monitor() as monitor:
        assert len(await claim(storage, 100)) == 100
        server.echo("the end")
        calls = []
        for event in monitor.listen():
            if event["command"].endswith("the end"):
                break
            if event["client_type"] == "lua" and key in event["command"]:
                calls.append(event["command"])
    assert len(calls) <= 4 * 100 + 50, len(calls)
