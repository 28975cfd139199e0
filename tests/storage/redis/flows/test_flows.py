"""Flows on Redis: their keys, damaged members, other versions, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import cast

import pytest
from redis import Redis

from tests.storage.redis.key_checker import disorder
from windlass._core.flows.flow import FlowState
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass._storage.shared.job_ids import known_id
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import (
    Plan,
    act,
    members,
    part,
    run,
    run_all,
    settle,
    start,
    state,
)
from windlass.testing.conformance.steps import DAY, HOUR, a_job, add, claim, end


@pytest.fixture
async def storage(redis_prefix: tuple[str, str], clock: VirtualClock) -> AsyncIterator[Storage]:
    url, prefix = redis_prefix
    opened = await open_redis(url, clock=clock, prefix=prefix)
    yield opened
    await opened.close()


def a_chain(first: int = 1) -> Plan:
    plan = Plan()
    plan.part("a", first)
    plan.part("b", 2, after=["a"])
    plan.callback("good")
    return plan


async def test_keys_hang_together_from_the_start_to_the_deletion(
    storage: Storage, clock: VirtualClock, server: Redis, key: str
) -> None:
    plan = a_chain()
    await start(storage, plan)
    assert disorder(server, key) == []
    await run(storage, "a")
    assert disorder(server, key) == []
    await settle(storage)
    await act(storage, plan, "retry")
    assert disorder(server, key) == []
    assert await run_all(storage) == ["a", "b", "b", "good"]
    clock.advance(DAY)
    assert await storage.flows.prune(state=FlowState.SUCCEEDED, older_than=HOUR, limit=3) == 3
    assert await storage.flows.graph(plan.id) is None  # though one of its jobs is left
    assert await storage.flows.prune(state=FlowState.SUCCEEDED, older_than=HOUR, limit=9) == 1
    assert disorder(server, key) == []
    left = {name.removeprefix(key.encode()) for name in server.scan_iter(match=key + "*")}
    assert not {name for name in left if name.startswith((b"part", b"plan", b"feed", b"settle"))}


async def test_a_member_whose_record_cannot_be_read_is_a_failure_of_its_part(
    storage: Storage, server: Redis, key: str
) -> None:
    plan = a_chain(2)
    await start(storage, plan)
    (broken, _) = plan.jobs["a"]
    record = server.hget(key + "jobs", known_id(broken.id))
    assert isinstance(record, bytes)
    server.hset(key + "jobs", known_id(broken.id), record[:57] + b"\xff\xff" + record[59:])
    assert await run_all(storage) == ["a"]
    assert (await part(storage, plan, "a")).failed == 1
    assert (await state(storage, plan)).state is FlowState.FAILED
    gone, _ = await members(storage, plan, "a")
    assert (gone.state, gone.error_kind) == (State.FAILED, "Damaged")
    assert not (await storage.flows.recount()).wrong


def _part(server: Redis, key: str, number: int) -> bytes:
    """Return the stored name of a part of the only flow."""
    names = cast("list[bytes]", server.hkeys(key + "parts"))
    (name,) = [name for name in names if name.endswith(number.to_bytes(4))]
    return name


async def test_wrong_counts_are_found_and_put_right(
    storage: Storage, server: Redis, key: str
) -> None:
    plan = a_chain()
    await start(storage, plan)
    (job,) = await claim(storage)
    place = _part(server, key, 0)
    counts = server.hget(key + "parts", place)
    await end(storage, succeed(job, by="w1", result=None))
    server.hset(key + "parts", place, counts)
    found = await storage.flows.recount(repair=True)
    assert len(found.wrong) == 2
    assert "succeeded is 0, and 1 jobs are" in found.wrong[0]
    assert not (await storage.flows.recount()).wrong
    assert await run_all(storage) == ["b", "b", "good"]


async def test_a_part_whose_count_of_blocked_jobs_is_too_high_keeps_no_claim_busy(
    storage: Storage, server: Redis, key: str
) -> None:
    plan = a_chain()
    await start(storage, plan)
    place = _part(server, key, 1)
    counts = server.hget(key + "parts", place)
    assert isinstance(counts, bytes)
    assert counts[12:16] == b"\0\0\0\2"
    server.hset(key + "parts", place, counts[:12] + b"\0\0\0\3" + counts[16:])
    assert await run_all(storage) == ["a", "b", "b", "good"]
    await storage.flows.recount(repair=True)
    assert disorder(server, key) == []


async def test_the_first_flow_refuses_processes_that_know_no_flows(
    storage: Storage, server: Redis, key: str
) -> None:
    await add(storage, a_job())
    assert server.get(key + "finishes") is None
    await start(storage, a_chain())
    assert server.get(key + "finishes") == b"4"


async def test_plain_jobs_are_pruned_from_behind_members(
    storage: Storage, clock: VirtualClock
) -> None:
    await start(storage, a_chain(3))
    await run_all(storage)
    await add(storage, a_job(task="plain"))
    await run(storage)
    clock.advance(DAY)
    pruned = await storage.maintenance.prune(state=State.SUCCEEDED, older_than=HOUR, limit=1)
    assert pruned == 1
    found = await storage.admin.find(JobFilter(states=[State.SUCCEEDED]), limit=50)
    assert "plain" not in {job.task for job in found}
    assert len(found) == 6


async def test_blocked_members_are_found_and_counted_as_scheduled(storage: Storage) -> None:
    await start(storage, a_chain())
    (counts,) = await storage.admin.counts()
    assert (counts.ready, counts.scheduled) == (1, 3)
    found = await storage.admin.find(JobFilter(states=[State.WAITING]), limit=50)
    assert len(found) == 4


async def test_idle_workers_look_while_parts_are_to_be_settled(storage: Storage) -> None:
    plan = Plan()
    plan.part("first")
    plan.part("rows", 150, after=["first"])
    await start(storage, plan)
    await run(storage, "first")
    assert (await part(storage, plan, "rows")).blocked == 50  # an end settles 100
    assert (await storage.jobs.outlook(["default"])).claimable
    assert await claim(storage) == []
    assert (await part(storage, plan, "rows")).blocked == 0


async def test_an_expiring_flow_is_what_an_idle_worker_waits_for(
    storage: Storage, clock: VirtualClock
) -> None:
    plan = Plan(expires=timedelta(hours=1))
    plan.part("a", delay=timedelta(days=1))
    await start(storage, plan)
    outlook = await storage.jobs.outlook(["default"])
    assert (outlook.claimable, outlook.next_at) == (False, clock.now() + HOUR)


async def test_an_expired_flow_places_no_more_members(
    storage: Storage, clock: VirtualClock
) -> None:
    plan = Plan(expires=HOUR)
    plan.part("first")
    plan.part("rows", 101, after=["first"])
    await start(storage, plan)
    await run(storage)
    assert (await part(storage, plan, "rows")).blocked == 1  # an end settles 100
    clock.advance(HOUR)
    await settle(storage)
    rows = await part(storage, plan, "rows")
    assert (rows.cancelled, rows.stopped) == (100, 1)
