"""Members of flows that are ended in a transaction of the user's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from windlass._core.flows.flow import FlowState
from windlass._core.job.transition import succeed
from windlass._storage.postgres import PostgresStorage, open_postgres
from windlass._storage.protocol.actions import ActionResult, Requeue
from windlass._storage.protocol.transactions import ClaimEnd
from windlass.testing.conformance.flows.steps import (
    Plan,
    act,
    agree,
    finish,
    part,
    run_all,
    settle,
    start,
    state,
    tasks,
)
from windlass.testing.conformance.steps import a_job, claim, obeyed


@pytest.fixture
async def storage(clean_schema: tuple[str, str]) -> AsyncIterator[PostgresStorage]:
    url, schema = clean_schema
    opened = await open_postgres(url, schema=schema)
    yield opened
    await opened.close()


@pytest.fixture
async def theirs(clean_schema: tuple[str, str]) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(clean_schema[0])
    yield connection
    await connection.close()


def a_pair() -> Plan:
    plan = Plan()
    plan.part("a", 2)
    plan.part("b", after=["a"])
    return plan


async def test_a_member_counts_with_the_users_commit(
    storage: PostgresStorage, theirs: asyncpg.Connection
) -> None:
    plan = a_pair()
    await start(storage, plan)
    first, second = await claim(storage, 2)
    ending = succeed(first, by="w1", result=None)
    async with theirs.transaction():
        await storage.transactions.finish(theirs, ending)
        # The part is free for others while that transaction is open.
        await asyncio.wait_for(finish(storage, second), 2)
        assert await claim(storage) == []
    assert (await storage.transactions.ended(ending)).what is ClaimEnd.STORED
    assert (await part(storage, plan, "a")).succeeded == 2
    assert tasks(await claim(storage)) == ["b"]
    assert await agree(storage)


async def test_the_next_claim_counts_what_a_worker_did_not_live_to_count(
    storage: PostgresStorage, theirs: asyncpg.Connection
) -> None:
    plan = a_pair()
    await start(storage, plan)
    for job in await claim(storage, 2):
        async with theirs.transaction():
            await storage.transactions.finish(theirs, succeed(job, by="w1", result=None))
    assert await agree(storage)
    assert tasks(await claim(storage)) == ["b"]
    assert (await part(storage, plan, "a")).open == 0


async def test_a_transaction_that_is_rolled_back_counts_nothing(
    storage: PostgresStorage, theirs: asyncpg.Connection
) -> None:
    plan = a_pair()
    await start(storage, plan)
    first, second = await claim(storage, 2)
    transaction = theirs.transaction()
    await transaction.start()
    await storage.transactions.finish(theirs, succeed(first, by="w1", result=None))
    await transaction.rollback()
    await finish(storage, second)
    assert await claim(storage) == []
    assert (await part(storage, plan, "a")).open == 1
    assert await agree(storage)


async def test_jobs_added_in_the_users_transaction_are_waited_for(
    storage: PostgresStorage, theirs: asyncpg.Connection
) -> None:
    plan = a_pair()
    await start(storage, plan)
    first, second = await claim(storage, 2)
    await finish(storage, second)
    rows = tuple(a_job(task="row") for _ in range(2))
    async with theirs.transaction(), theirs.transaction():  # the inner one is a savepoint
        ending = succeed(first, by="w1", result=None, then=rows)
        await storage.transactions.finish(theirs, ending)
    assert await agree(storage)
    assert await run_all(storage) == ["row", "row", "b"]
    assert (await part(storage, plan, "a")).total == 4
    assert (await state(storage, plan)).state is FlowState.SUCCEEDED
    assert await agree(storage)


async def test_a_cancelled_flow_stops_what_was_added_in_the_users_transaction(
    storage: PostgresStorage, theirs: asyncpg.Connection
) -> None:
    plan = a_pair()
    await start(storage, plan)
    first, second = await claim(storage, 2)
    await finish(storage, second)
    async with theirs.transaction():
        ending = succeed(first, by="w1", result=None, then=(a_job(task="row"),))
        await storage.transactions.finish(theirs, ending)
        await act(storage, plan, "cancel")
    assert await run_all(storage) == []
    await settle(storage)
    flow = await state(storage, plan)
    assert (flow.state, flow.open, flow.stopped) == (FlowState.CANCELLED, 0, 2)
    assert await agree(storage)


async def test_an_end_that_was_only_noted_is_counted_before_its_requeue(
    storage: PostgresStorage, theirs: asyncpg.Connection
) -> None:
    plan = Plan()
    (job,) = plan.part("a")
    plan.part("b", after=["a"])
    await start(storage, plan)
    (running,) = await claim(storage)
    async with theirs.transaction():
        await storage.transactions.finish(theirs, succeed(running, by="w1", result=None))
    assert await obeyed(storage, Requeue(), job.id) == [ActionResult.WRONG_STATE]
    assert await run_all(storage) == ["b"]
