"""Limits under eight sessions at once, while connections are killed and numbers change.

Each session enqueues, claims, ends, cancels and edits jobs under limits that partly overlap. At the
end everything is counted again from the rows: running jobs against each limit, lanes against their
jobs, lane groups against their lanes. Then every job that was stored must have been run.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import asyncpg
import pytest

from windlass._core.job.job import ClaimedJob, JobId, LimitUse, NewJob
from windlass._core.job.transition import retry, succeed
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.postgres import open_postgres
from windlass._storage.postgres.storage import PostgresStorage
from windlass._storage.protocol.jobs import Want
from windlass.errors import StorageUnavailable, WindlassError
from windlass.testing.conformance.steps import OOPS, a_job, a_worker

SESSIONS = 8
SECONDS = 90.0 if os.environ.get("WINDLASS_TEST_WHOLE") else 8.0
QUEUES = ("a", "b", "c")
FIXED, MOST = 3, 6
FREE = 1_000_000


def specs(changing: int) -> list[LimitSpec]:
    return [
        LimitSpec(name="fixed", concurrency=FIXED),
        LimitSpec(name="tenant", concurrency=2),
        LimitSpec(name="changing", concurrency=changing),
        LimitSpec(name="meter", rate=Rate(FREE, per=timedelta(seconds=1), burst=FREE)),
        LimitSpec(name="shop", breaker=Breaker(failures=FREE)),
    ]


@pytest.fixture
async def stores(clean_schema: tuple[str, str]) -> AsyncIterator[list[PostgresStorage]]:
    url, schema = clean_schema
    opened = [await open_postgres(url, schema=schema) for _ in range(SESSIONS)]
    for number, store in enumerate(opened):
        await store.workers.register(a_worker(f"w{number}", lease=timedelta(hours=1)))
    await opened[0].limits.define(specs(MOST))
    yield opened
    for store in opened:
        await store.close()


@pytest.fixture
async def observer(
    stores: list[PostgresStorage], clean_schema: tuple[str, str]
) -> AsyncIterator[asyncpg.Connection[Any]]:
    assert stores
    url, schema = clean_schema
    connection = await asyncpg.connect(url, server_settings={"search_path": schema})
    yield connection
    await connection.close()


# --- the load -----------------------------------------------------------------------------------


def some_job(chance: random.Random) -> NewJob:
    uses = {
        "fixed": LimitUse("fixed"),
        "tenant": LimitUse("tenant", str(chance.randrange(20))),
        "changing": LimitUse("changing"),
        "meter": LimitUse("meter", cost=float(chance.randint(1, 3))),
        "shop": LimitUse("shop"),
    }
    names = chance.sample(sorted(uses), chance.choice((0, 1, 1, 2, 2, 3)))
    return a_job(
        queue=chance.choice(QUEUES),
        limits=tuple(uses[name] for name in names),
        priority=chance.randrange(3),
        delay=timedelta(milliseconds=chance.randrange(300)) if chance.random() < 0.3 else None,
        max_attempts=FREE,
    )


async def work(
    store: PostgresStorage, worker: str, chance: random.Random, stored: set[JobId], until: float
) -> None:
    """Enqueue, claim, end, cancel and promote. A killed call may have been carried out."""
    loop = asyncio.get_running_loop()
    held: Sequence[ClaimedJob] = ()
    while loop.time() < until:
        jobs = [some_job(chance) for _ in range(chance.randrange(1, 12))]
        with suppress(StorageUnavailable):
            await store.jobs.insert(jobs)
            stored.update(job.id for job in jobs)
        ends = [
            retry(job, by=worker, delay=timedelta(0), error=OOPS)
            if chance.random() < 0.1
            else succeed(job, by=worker, result=None)
            for job in held
        ]
        wants = [Want(queue, 8) for queue in chance.sample(QUEUES, chance.randrange(1, 4))]
        # At once, as a worker asks for them: in one transaction, unless an end is no success.
        claimed, applied = await asyncio.gather(
            store.jobs.claim(worker, wants, total=8),
            store.jobs.apply(ends),
            return_exceptions=True,
        )
        for reply in (claimed, applied):
            if isinstance(reply, BaseException) and not isinstance(reply, StorageUnavailable):
                raise reply
        held = () if isinstance(claimed, BaseException) else claimed.jobs
        if chance.random() < 0.3:
            with suppress(StorageUnavailable):
                await store.jobs.cancel([job.id for job in jobs[:2]])
        if chance.random() < 0.1:
            with suppress(StorageUnavailable):
                await store.maintenance.promote(50)


async def change_limits(store: PostgresStorage, chance: random.Random, until: float) -> None:
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        with suppress(WindlassError):
            await store.limits.define(specs(chance.randint(1, MOST)))
            await store.limits.reset("meter")
        await asyncio.sleep(0.05)


async def kill(observer: asyncpg.Connection[Any], schema: str, until: float) -> int:
    """End one of the stores' connections, time and again; how often."""
    loop, killed = asyncio.get_running_loop(), 0
    while loop.time() < until:
        killed += await observer.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity"
            " WHERE query LIKE '%' || $1 || '%' AND application_name = 'windlass'"
            " ORDER BY random() LIMIT 1) AS one",
            schema,
        )
        await asyncio.sleep(0.2)
    return killed


# --- what is counted ----------------------------------------------------------------------------

EXCEEDED = """
SELECT g, count(*) FROM jobs j, unnest(j.gates) AS g
 WHERE j.state = 1 GROUP BY g
HAVING count(*) > CASE split_part(g, ':', 1)
                  WHEN 'fixed' THEN $1::bigint WHEN 'tenant' THEN 2 WHEN 'changing' THEN $2 END
"""
# A running job that holds less than it needs, and a hold that frees nothing when its job ends.
UNHELD = """
SELECT j.seq FROM jobs j, unnest(j.gates) AS g
 WHERE j.state = 1 AND NOT EXISTS (
           SELECT 1 FROM holds h
            WHERE h.gate = g AND h.seq = j.seq AND h.claim_number = j.claim_number)
"""
LANES_ASTRAY = """
SELECT l.id FROM lanes l
  LEFT JOIN LATERAL (SELECT j.priority, j.due, j.seq FROM jobs j WHERE j.lane = l.id
                      ORDER BY j.priority, j.due, j.seq LIMIT 1) AS h ON true
 WHERE (h.priority, h.due, h.seq) IS DISTINCT FROM (l.head_priority, l.head_due, l.head_seq)
UNION ALL
SELECT j.lane FROM jobs j
 WHERE j.lane IS NOT NULL AND NOT EXISTS (SELECT 1 FROM lanes l WHERE l.id = j.lane)
UNION ALL
SELECT coalesce(l.id, d.lane) FROM lanes l
  FULL JOIN lane_digests d ON d.lane = l.id AND (d.queue, d.digest) = (l.queue, l.digest)
 WHERE l.id IS NULL OR d.lane IS NULL
"""
BAYS_ASTRAY = """
SELECT b.id FROM bays b
  LEFT JOIN LATERAL (SELECT l.head_priority, l.head_due, l.head_seq FROM lanes l WHERE l.bay = b.id
                      ORDER BY 1, 2, 3 LIMIT 1) AS h ON true
 WHERE (h.head_priority, h.head_due, h.head_seq)
       IS DISTINCT FROM (b.head_priority, b.head_due, b.head_seq)
UNION ALL
SELECT l.bay FROM lanes l
 WHERE l.bay IS NOT NULL AND NOT EXISTS (SELECT 1 FROM bays b WHERE b.id = l.bay)
"""
# A lane group that waits for a unit, though one is free.
FORGOTTEN = """
SELECT b.gate FROM bays b JOIN limits l ON l.name = split_part(b.gate, ':', 1)
 WHERE b.opens_at IS NULL AND l.concurrency > (
           SELECT count(*) FROM jobs j WHERE j.state = 1 AND b.gate = ANY (j.gates))
"""
UNKNOWN_LIMITS = """
SELECT j.queue, g FROM jobs j, unnest(j.gates) AS g
 WHERE j.lane IS NOT NULL AND NOT EXISTS (
           SELECT 1 FROM lane_limits n WHERE n.queue = j.queue AND n.name = split_part(g, ':', 1))
"""
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


async def watch(observer: asyncpg.Connection[Any], until: float) -> None:
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        assert await observer.fetch(EXCEEDED, FIXED, MOST) == []
        await asyncio.sleep(0.02)


async def recount(observer: asyncpg.Connection[Any]) -> None:
    """Count again after the load. A finish whose connection was killed is stored whole or not."""
    assert await observer.fetch(EXCEEDED, FIXED, MOST) == []
    for question in (UNHELD, LANES_ASTRAY, BAYS_ASTRAY, FORGOTTEN, UNKNOWN_LIMITS):
        assert await observer.fetch(question) == [], question


async def drain(stores: list[PostgresStorage]) -> None:
    """Run all that is left. Claims whose answer was lost are given back by their workers first."""
    for number, store in enumerate(stores):
        await store.workers.leave(f"w{number}", [])
    store = stores[0]
    await store.workers.register(a_worker("last"))
    empty = 0
    while empty < 3:
        reply = await store.jobs.claim("last", [Want(queue, 50) for queue in QUEUES], total=100)
        await store.jobs.apply([succeed(job, by="last", result=None) for job in reply.jobs])
        empty = 0 if reply.jobs else empty + 1
        if empty:
            await asyncio.sleep(0.3)  # jobs that are due later, no longer than this


async def test_eight_sessions_under_kills_and_changes_exceed_and_forget_nothing(
    stores: list[PostgresStorage],
    observer: asyncpg.Connection[Any],
    clean_schema: tuple[str, str],
) -> None:
    before = await observer.fetchval(DEADLOCKS)
    until = asyncio.get_running_loop().time() + SECONDS
    stored: set[JobId] = set()
    seeds = count(20_261_117)
    killer = await asyncpg.connect(clean_schema[0])
    try:
        killing = asyncio.create_task(kill(killer, clean_schema[1], until))
        await asyncio.gather(
            *(
                work(store, f"w{number}", random.Random(next(seeds)), stored, until)
                for number, store in enumerate(stores)
            ),
            change_limits(stores[0], random.Random(next(seeds)), until),
            watch(observer, until),
        )
        killed = await killing
    finally:
        await killer.close()
    await recount(observer)
    await drain(stores)
    await recount(observer)
    left = await observer.fetch("SELECT id, state, ready, gates FROM jobs WHERE state < 2")
    lanes = await observer.fetchval("SELECT (SELECT count(*) FROM lanes) + count(*) FROM bays")
    assert (left, lanes) == ([], 0)
    kept = await observer.fetchval("SELECT count(*) FROM jobs WHERE id = ANY ($1)", list(stored))
    assert kept == len(stored)
    assert killed > SECONDS
    assert await observer.fetchval(DEADLOCKS) == before
