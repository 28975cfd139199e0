"""Changes between the moment a function reads a job and the moment it locks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from windlass._core.job.job import LimitUse
from windlass._core.job.transition import release, succeed
from windlass._core.job.unique import OnConflict, UniqueKey
from windlass._storage.postgres import open_postgres
from windlass._storage.postgres.storage import PostgresStorage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    SECOND,
    a_job,
    a_worker,
    add,
    at_most,
    claim,
    end,
    ids,
    limited,
    started,
)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def storage(
    clean_schema: tuple[str, str], clock: VirtualClock
) -> AsyncIterator[PostgresStorage]:
    url, schema = clean_schema
    opened = await open_postgres(url, clock=clock, schema=schema)
    await opened.workers.register(a_worker("w1"))
    yield opened
    await opened.close()


def keyed(limit: str, **more: Any) -> Any:
    unique = UniqueKey("k", on_conflict=OnConflict.REPLACE)
    return a_job(unique=unique, limits=(LimitUse(limit),), **more)


async def test_an_expired_job_whose_row_is_locked_keeps_no_other_waiting(
    storage: PostgresStorage, outside: asyncpg.Connection[Any], clock: VirtualClock
) -> None:
    await at_most(storage, one=1, two=5)
    running = await started(storage, limited("one"))
    await add(storage, keyed("one", expires=SECOND))
    assert await claim(storage, 5) == []
    await end(storage, succeed(running, by="w1", result=None))
    async with outside.transaction():
        await outside.execute("SELECT FROM jobs WHERE key = 'k' FOR UPDATE")
        clock.advance(2 * SECOND)
        others = await add(storage, a_job(), limited("two"))
        assert sorted(ids(await claim(storage, 10))) == sorted(others)


async def test_the_limits_of_a_claim_that_does_not_hold_are_not_locked(
    storage: PostgresStorage, outside: asyncpg.Connection[Any]
) -> None:
    await at_most(storage, a=5, b=1)
    kept = await started(storage, limited("a"))
    lost = await started(storage, keyed("a"))
    await end(storage, release(lost, by="w1", started=False))
    (replaced,) = await storage.jobs.insert([keyed("b")])
    assert replaced.replaced
    async with outside.transaction():
        await outside.execute("SELECT lock_limits('{b}')")
        ends = [succeed(job, by="w1", result=None) for job in (kept, lost)]
        async with asyncio.timeout(30):
            await storage.jobs.apply(ends)
