"""Flows on Redis that others were added to: settling them takes no more work."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis import Redis

from tests.storage.redis.key_checker import disorder
from windlass._core.flows.flow import FlowState
from windlass._core.job.transition import fail, succeed
from windlass._storage.protocol.flows import AddAnswer
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import Plan, act, agree, run_all, start, state
from windlass.testing.conformance.steps import OOPS, claim, end


@pytest.fixture
async def storage(redis_prefix: tuple[str, str], clock: VirtualClock) -> AsyncIterator[Storage]:
    url, prefix = redis_prefix
    opened = await open_redis(url, clock=clock, prefix=prefix)
    yield opened
    await opened.close()


def a_fan(many: int) -> Plan:
    plan = Plan()
    plan.part("first")
    for number in range(many):
        plan.part(f"part {number}", after=["first"])
    return plan


def a_pair() -> Plan:
    plan = Plan()
    plan.part("x")
    plan.part("y", after=["x"])
    plan.callback("told")
    return plan


def processor_time(server: Redis) -> float:
    used = server.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


async def test_a_flow_that_was_added_to_is_settled_with_as_much_work_as_any(
    storage: Storage, server: Redis
) -> None:
    spent = []
    for grown in (False, True):
        plan = a_fan(1_500)
        await start(storage, plan)
        if grown:
            assert await storage.flows.add(plan.id, a_pair().flow) is AddAnswer.ADDED
        before = processor_time(server)
        await act(storage, plan, "cancel")
        spent.append(processor_time(server) - before)
        assert (await state(storage, plan)).state is FlowState.CANCELLED
    drawn, grown_time = spent
    assert grown_time < 3 * drawn + 0.1


async def test_a_retry_reaches_all_members_of_many_added_flows(
    storage: Storage, server: Redis, key: str
) -> None:
    plan, many = Plan(), 400
    plan.part("root", many)
    await start(storage, plan)
    roots = await claim(storage, many)
    await end(
        storage,
        *(succeed(job, by="w1", result=None, flows=(a_pair().flow,)) for job in roots),
    )
    assert await storage.flows.add(plan.id, a_pair().flow) is AddAnswer.ADDED
    added = await claim(storage, 10)
    await end(storage, *(fail(job, by="w1", error=OOPS) for job in added))
    await act(storage, plan, "cancel")
    assert (await state(storage, plan)).state is FlowState.CANCELLED
    await act(storage, plan, "retry")
    assert disorder(server, key) == []
    ran = await run_all(storage)
    assert (ran.count("x"), ran.count("y")) == (many + 1, many + 1)
    assert (await state(storage, plan)).state is FlowState.SUCCEEDED
    assert await agree(storage)
