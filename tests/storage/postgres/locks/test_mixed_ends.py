"""Ends of claims beside operators' actions on the same jobs: all lock rows in the order of seq.

The first tests hold one row, let an operation wait for it, and look at which others it has by then.
The last one lets eight sessions act on the same few jobs, and counts the deadlocks.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
from msgspec.structs import replace

from windlass._core.job.job import ClaimedJob, JobId, NewJob, Progress
from windlass._core.job.transition import Transition, fail, retry, succeed
from windlass._storage.postgres import PostgresStorage, open_postgres
from windlass._storage.protocol.actions import Cancel, Discard, Requeue
from windlass._storage.protocol.jobs import Verdict, Want
from windlass._system.seams import monotonic
from windlass.errors import StoreBusy
from windlass.testing.conformance.steps import OOPS, a_job, a_note, a_worker, add, claim, keyed

NOW = timedelta(0)
SESSIONS = 8
SECONDS = 2.0
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))"

Jobs = Sequence[ClaimedJob]
Act = Callable[[PostgresStorage, Jobs], Awaitable[object]]


@pytest.fixture
async def storage(clean_schema: tuple[str, str]) -> AsyncIterator[PostgresStorage]:
    url, schema = clean_schema
    opened = await open_postgres(url, schema=schema)
    await opened.workers.register(a_worker("w1"))
    yield opened
    await opened.close()


def good(job: ClaimedJob, **asked: Any) -> Transition:
    return replace(succeed(job, by="w1", result=None), **asked)


async def plain(storage: PostgresStorage, jobs: Jobs) -> None:
    await storage.jobs.apply([good(job) for job in jobs])


async def unkept(storage: PostgresStorage, jobs: Jobs) -> None:
    await storage.jobs.apply([good(job, keep=False) for job in jobs])


async def with_results(storage: PostgresStorage, jobs: Jobs) -> None:
    await storage.jobs.apply([good(job, result=str(n).encode()) for n, job in enumerate(jobs)])


async def with_a_retry(storage: PostgresStorage, jobs: Jobs) -> None:
    first, *others = jobs
    again = retry(first, by="w1", error=OOPS, delay=NOW)
    await storage.jobs.apply([again, *(good(job) for job in others)])


async def with_a_follower(storage: PostgresStorage, jobs: Jobs) -> None:
    first, *others = jobs
    await storage.jobs.apply([good(first, then=(a_job(),)), *(good(job) for job in others)])


async def report_backwards(storage: PostgresStorage, jobs: Jobs) -> None:
    await storage.jobs.report([(job.claim, Progress(0.5)) for job in reversed(jobs)])


@pytest.mark.parametrize(
    "act", [plain, unkept, with_results, with_a_retry, with_a_follower, report_backwards]
)
@pytest.mark.parametrize("first", [a_job(), keyed("k")], ids=["plain", "keyed"])
async def test_an_operation_that_waits_for_a_job_has_locked_none_behind_it(
    storage: PostgresStorage, outside: asyncpg.Connection[Any], act: Act, first: NewJob
) -> None:
    await add(storage, first, a_job(), a_job())
    jobs = sorted(await claim(storage, 3), key=lambda job: job.claim.seq)
    async with outside.transaction():
        await outside.execute("SELECT FROM jobs WHERE seq = $1 FOR UPDATE", jobs[0].claim.seq)
        acting = asyncio.ensure_future(act(storage, jobs))
        while not await outside.fetchval(BLOCKED, outside.get_server_pid()):
            assert not acting.done()
        await outside.execute(
            "SELECT FROM jobs WHERE seq = ANY ($1) FOR UPDATE NOWAIT",
            [job.claim.seq for job in jobs[1:]],
        )
    await acting


@pytest.mark.parametrize("keep", [True, False])
async def test_a_claim_that_does_not_hold_is_answered_without_waiting_for_its_job(
    storage: PostgresStorage, outside: asyncpg.Connection[Any], *, keep: bool
) -> None:
    await add(storage, a_job(), a_job())
    lost, held = await claim(storage, 2)
    await storage.jobs.apply([retry(lost, by="w2", error=OOPS, delay=NOW)])
    async with outside.transaction():
        await outside.execute("SELECT FROM jobs WHERE seq = $1 FOR UPDATE", lost.claim.seq)
        applied = await storage.jobs.apply([good(lost, keep=keep), good(held, keep=keep)])
    verdicts = [answer.verdict for answer in applied.answers]
    assert verdicts == [Verdict.REFUSED, Verdict.APPLIED]


class Session:
    """One process among others."""

    def __init__(self, storage: PostgresStorage, seed: int, jobs: deque[JobId]) -> None:
        self.storage, self.name, self.jobs = storage, f"w{seed}", jobs
        self.chance = random.Random(seed)

    async def run(self, until: float) -> None:
        await self.storage.workers.register(a_worker(self.name))
        while monotonic() < until:
            try:
                await self.step()
            except StoreBusy:
                continue  # a key is under decision for too long

    async def step(self) -> None:
        dice = self.chance.random()
        if dice < 0.2:
            jobs = [self.job() for _ in range(self.chance.randint(1, 10))]
            self.jobs.extend(job.id for job in jobs)
            await self.storage.jobs.insert(jobs)
        elif dice < 0.7:
            wants = [Want("default", 20)]
            reply = await self.storage.jobs.claim(self.name, wants, total=20)
            if reply.jobs:
                await self.storage.jobs.apply([self.end(job) for job in reply.jobs])
        elif self.jobs:
            named = self.chance.choices(self.jobs, k=8)
            order = self.chance.choice((Requeue(), Cancel(), Discard("no")))
            await self.storage.orders.order(order, named, a_note())

    def job(self) -> NewJob:
        task = f"t{self.chance.randrange(3)}"
        if self.chance.random() < 0.3:
            return keyed(f"k{self.chance.randrange(5)}", task=task)
        return a_job(task=task)

    def end(self, job: ClaimedJob) -> Transition:
        dice = self.chance.random()
        if dice < 0.2:
            return fail(job, by=self.name, error=OOPS)
        if dice < 0.3:
            return retry(job, by=self.name, error=OOPS, delay=NOW)
        then = (self.job(),) if dice > 0.95 else ()
        return replace(succeed(job, by=self.name, result=None), then=then, keep=dice > 0.4)


async def test_mixed_ends_beside_actions_never_deadlock(postgres_url: str) -> None:
    storages = [await open_postgres(postgres_url) for _ in range(SESSIONS)]
    jobs = deque[JobId](maxlen=100)  # they act on the same few
    sessions = [Session(storage, seed, jobs) for seed, storage in enumerate(storages)]
    until = monotonic() + SECONDS
    await asyncio.gather(*(session.run(until) for session in sessions))
    for storage in storages:
        await storage.close()
    with psycopg.connect(postgres_url) as line:
        (deadlocks,) = line.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone() or (None,)
    assert deadlocks == 0
