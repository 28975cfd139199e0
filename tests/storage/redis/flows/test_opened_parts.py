"""Claims that start jobs of a large opened part where they are, without a place in the line."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from redis import Redis

from tests.storage.redis.key_checker import disorder
from windlass._core.job.job import JobId
from windlass._core.job.transition import fail
from windlass._storage.protocol.actions import Cancel
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import (
    Plan,
    act,
    agree,
    finish,
    part,
    run_all,
    start,
    tasks,
)
from windlass.testing.conformance.steps import (
    MINUTE,
    OOPS,
    a_job,
    add,
    claim,
    end,
    obeyed,
    requeue,
)

ROWS = 700
"""More than a claim settles at once."""


@pytest.fixture
async def storage(redis_prefix: tuple[str, str], clock: VirtualClock) -> AsyncIterator[Storage]:
    url, prefix = redis_prefix
    opened = await open_redis(url, clock=clock, prefix=prefix)
    yield opened
    await opened.close()


async def opened(storage: Storage, clock: VirtualClock) -> Plan:
    """Return a flow whose rows may start; some of them are in the line."""
    plan = Plan()
    plan.part("first")
    plan.part("rows", ROWS, after=["first"])
    plan.part("sum", after=["rows"])
    await start(storage, plan)
    clock.advance(MINUTE)
    (job,) = await claim(storage)
    await finish(storage, job)
    assert (await part(storage, plan, "rows")).blocked > 0
    return plan


def ids_of(plan: Plan) -> list[JobId]:
    return [job.id for job in plan.jobs["rows"]]


async def test_claims_start_them_in_their_order_and_once(
    storage: Storage, clock: VirtualClock, server: Redis, key: str
) -> None:
    plan = await opened(storage, clock)
    await add(storage, a_job(task="later"))
    ran: list[JobId] = []
    while len(ran) < ROWS:
        jobs = await claim(storage, min(70, ROWS - len(ran)))
        assert disorder(server, key) == []
        assert await agree(storage)
        ran += [job.claim.job for job in jobs]
        await finish(storage, *jobs)
    assert ran == ids_of(plan)
    assert tasks(await claim(storage, 5)) == ["sum", "later"]
    assert disorder(server, key) == []


async def test_claims_write_no_place_for_them(
    storage: Storage, clock: VirtualClock, server: Redis, key: str
) -> None:
    plan = await opened(storage, clock)
    in_line = server.zcard(f"{key}ready:default")
    await claim(storage, in_line)
    assert len(await claim(storage, 100)) == 100
    assert server.exists(f"{key}ready:default") == 0
    assert (await part(storage, plan, "rows")).blocked == ROWS - in_line - 100
    assert server.llen(f"{key}work:default") > 0  # others are to look, too


async def test_jobs_of_another_priority_keep_their_turn(
    storage: Storage, clock: VirtualClock, server: Redis, key: str
) -> None:
    plan = await opened(storage, clock)
    urgent = [a_job(task="urgent", priority=-1) for _ in range(30)]
    await add(storage, *urgent, *(a_job(task="idle", priority=1) for _ in range(30)))
    claimed = await claim(storage, 180)
    assert tasks(claimed) == ["urgent"] * 30 + ["rows"] * 150
    assert [job.claim.job for job in claimed[30:]] == ids_of(plan)[:150]
    assert disorder(server, key) == []
    await finish(storage, *claimed)
    ran = await run_all(storage)
    assert ran[: ROWS - 150] == ["rows"] * (ROWS - 150)
    assert sorted(ran[ROWS - 150 :]) == ["idle"] * 30 + ["sum"]


async def test_jobs_that_waited_before_the_flow_go_first(
    storage: Storage, clock: VirtualClock
) -> None:
    await add(storage, *(a_job(task="old", queue="default") for _ in range(120)))
    clock.advance(MINUTE)
    plan = Plan()
    plan.part("first", queue="other")
    plan.part("rows", ROWS, after=["first"])
    await start(storage, plan)
    (job,) = await claim(storage, queue="other")
    await finish(storage, job)
    assert tasks(await claim(storage, 100)) == ["old"] * 100
    assert tasks(await claim(storage, 100)) == ["old"] * 20 + ["rows"] * 80


async def test_rows_of_several_priorities_are_placed_first(
    storage: Storage, clock: VirtualClock, server: Redis, key: str
) -> None:
    plan = Plan()
    plan.part("first")
    rows = plan.part("rows", ROWS, after=["first"])
    plan.jobs["rows"] = [
        msgspec.structs.replace(row, priority=at % 2) for at, row in enumerate(rows)
    ]
    await start(storage, plan)
    (job,) = await claim(storage)
    await finish(storage, job)
    claimed = await claim(storage, 50)
    assert [job.claim.job for job in claimed] == ids_of(plan)[:100:2]
    await finish(storage, *claimed)
    assert await run_all(storage) == ["rows"] * (ROWS - 50)
    assert disorder(server, key) == []


async def test_one_that_was_cancelled_before_does_not_start(
    storage: Storage, clock: VirtualClock, server: Redis, key: str
) -> None:
    plan = await opened(storage, clock)
    await obeyed(storage, Cancel(), ids_of(plan)[150])
    claimed = await claim(storage, 200)
    assert [job.claim.job for job in claimed] == [*ids_of(plan)[:150], *ids_of(plan)[151:201]]
    assert disorder(server, key) == []
    assert await agree(storage)


async def test_a_cancelled_flow_starts_no_more_of_them(
    storage: Storage, clock: VirtualClock, server: Redis, key: str
) -> None:
    plan = await opened(storage, clock)
    running = await claim(storage, 150)
    await act(storage, plan, "cancel")
    assert await claim(storage, 100) == []
    await finish(storage, *running)
    rows = await part(storage, plan, "rows")
    assert (rows.succeeded, rows.open, rows.blocked) == (150, 0, 0)
    assert disorder(server, key) == []
    assert await agree(storage)


async def test_one_that_fails_is_retried_and_requeued_like_others(
    storage: Storage, clock: VirtualClock, server: Redis, key: str
) -> None:
    plan = await opened(storage, clock)
    running = await claim(storage, 150)
    last = running[-1]
    await end(storage, fail(last, by="w1", error=OOPS))
    assert (await part(storage, plan, "rows")).failed == 1
    assert disorder(server, key) == []
    await requeue(storage, last.claim.job)
    assert disorder(server, key) == []
    await finish(storage, *running[:-1])
    assert await run_all(storage) == ["rows"] * (ROWS - 149) + ["sum"]
    assert await agree(storage)


async def test_the_last_jobs_of_a_sealed_flow_start_in_the_order_of_its_start(
    storage: Storage, clock: VirtualClock, server: Redis, key: str
) -> None:
    plan = Plan(sealed=True)
    rows = plan.part("rows", 300)
    plan.jobs = {"rows": rows[:40]}
    await start(storage, plan)
    clock.advance(MINUTE)
    await add(storage, a_job(task="later"))
    clock.advance(MINUTE)
    assert await storage.flows.extend(plan.id, [(0, row) for row in rows[40:]], last=True)
    assert (await part(storage, plan, "rows")).blocked == 40  # the others were stored ready
    assert disorder(server, key) == []
    claimed = await claim(storage, 301)
    assert [job.claim.job for job in claimed[:300]] == [row.id for row in rows]
    assert tasks(claimed[300:]) == ["later"]
    assert disorder(server, key) == []
