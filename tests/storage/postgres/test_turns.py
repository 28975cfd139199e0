"""A worker's ends and its next claim: one transaction where no lock is needed, two elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from windlass._core.job.job import ClaimedJob
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import succeed
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.postgres import PostgresStorage, open_postgres
from windlass._storage.protocol.jobs import Applied, ClaimReply, Verdict, Want
from windlass.errors import InvalidArgument
from windlass.testing.conformance.steps import (
    a_job,
    add,
    at_most,
    enlist,
    ids,
    limited,
    look,
    started,
)

QUEUE = "default"


@pytest.fixture
async def storage(clean_database: str) -> AsyncIterator[PostgresStorage]:
    opened = await open_postgres(clean_database)
    yield opened
    await opened.close()


@pytest.fixture
async def outside(clean_database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(clean_database)
    yield connection
    await connection.close()


async def turn(storage: PostgresStorage, *ended: ClaimedJob) -> tuple[Applied, ClaimReply]:
    """End these and claim one more, asked for at once."""
    applied, reply = await asyncio.gather(
        storage.jobs.apply([succeed(job, by="w1", result=b"1") for job in ended]),
        storage.jobs.claim("w1", [Want(QUEUE, 1)], total=1),
    )
    return applied, reply


async def transaction_of(outside: asyncpg.Connection, job: ClaimedJob) -> object:
    """Return the transaction that wrote the job last."""
    text = "SELECT xmin::text FROM windlass.jobs WHERE seq = $1"
    return await outside.fetchval(text, job.claim.seq)


async def test_ends_and_the_next_claim_share_a_transaction(
    storage: PostgresStorage, outside: asyncpg.Connection
) -> None:
    first = await started(storage)
    (second,) = await add(storage, a_job())
    applied, reply = await turn(storage, first)
    assert [answer.verb for answer in applied.answers] == [Verb.SUCCEED]
    assert ids(reply.jobs) == [second]
    assert applied.at <= reply.at
    assert await transaction_of(outside, first) == await transaction_of(outside, reply.jobs[0])


async def test_a_refused_end_does_not_keep_the_claim_from_its_job(
    storage: PostgresStorage,
) -> None:
    first = await started(storage)
    await turn(storage, first)
    (second,) = await add(storage, a_job())
    late = succeed(first, by="another", result=b"1")
    applied, reply = await asyncio.gather(
        storage.jobs.apply([late]), storage.jobs.claim("w1", [Want(QUEUE, 1)], total=1)
    )
    assert [answer.verdict for answer in applied.answers] == [Verdict.REFUSED]
    assert ids(reply.jobs) == [second]


@pytest.mark.parametrize("lock", ["lanes", "queues"])
async def test_the_locks_of_both_halves_are_taken_together(
    storage: PostgresStorage, outside: asyncpg.Connection, lock: str
) -> None:
    if lock == "queues":
        await storage.queues.change(QUEUE, QueueSettings(max_running=1), old=QueueSettings())
        first = await started(storage)
        (second,) = await add(storage, a_job())
    else:
        await at_most(storage, one=1)
        first = await started(storage, limited("one"))
        (second,) = await add(storage, limited("one"))
    applied, reply = await turn(storage, first)
    assert [answer.verb for answer in applied.answers] == [Verb.SUCCEED]
    # The end came first, so its unit is free.
    assert ids(reply.jobs) == [second]
    assert await transaction_of(outside, first) == await transaction_of(outside, reply.jobs[0])


async def test_an_end_that_forgives_a_cool_down_goes_apart_from_the_claim(
    storage: PostgresStorage, outside: asyncpg.Connection
) -> None:
    first = await started(storage)
    (second,) = await add(storage, a_job())
    await outside.execute(
        "INSERT INTO windlass.queues (name, cool_until, cool_downs)"
        " VALUES ($1, now() - interval '1 hour', 1)",
        QUEUE,
    )
    applied, reply = await turn(storage, first)
    assert [answer.verb for answer in applied.answers] == [Verb.SUCCEED]
    assert ids(reply.jobs) == [second]
    assert await transaction_of(outside, first) != await transaction_of(outside, reply.jobs[0])
    forgiven = "SELECT cool_downs FROM windlass.queues WHERE name = $1"
    assert await outside.fetchval(forgiven, QUEUE) == 0


async def test_an_end_that_the_server_refuses_fails_alone(
    storage: PostgresStorage, outside: asyncpg.Connection
) -> None:
    await outside.execute(
        """CREATE FUNCTION public.no_ends() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'no ends here'; END $$;
           CREATE TRIGGER no_ends BEFORE UPDATE ON windlass.jobs FOR EACH ROW
           WHEN (NEW.state = 2) EXECUTE FUNCTION public.no_ends()"""
    )
    first = await started(storage)
    (second,) = await add(storage, a_job())
    end, reply = await asyncio.gather(
        storage.jobs.apply([succeed(first, by="w1", result=b"1")]),
        storage.jobs.claim("w1", [Want(QUEUE, 1)], total=1),
        return_exceptions=True,
    )
    await outside.execute("DROP FUNCTION public.no_ends CASCADE")
    assert isinstance(end, InvalidArgument)
    assert isinstance(reply, ClaimReply)
    assert ids(reply.jobs) == [second]
    assert (await look(storage, first)).state is State.RUNNING


async def test_a_claim_whose_caller_is_cancelled_takes_no_job_and_no_outcome_with_it(
    storage: PostgresStorage,
) -> None:
    first = await started(storage)
    (second,) = await add(storage, a_job())
    claiming = asyncio.create_task(storage.jobs.claim("w1", [Want(QUEUE, 1)], total=1))
    ending = asyncio.create_task(storage.jobs.apply([succeed(first, by="w1", result=b"1")]))
    await asyncio.sleep(0)
    claiming.cancel()
    applied = await ending
    assert [answer.verb for answer in applied.answers] == [Verb.SUCCEED]
    (waiting,) = await storage.admin.get([second])
    assert waiting is not None
    assert waiting.state is State.WAITING


async def test_an_outcome_is_stored_though_its_caller_is_cancelled(
    storage: PostgresStorage,
) -> None:
    first = await started(storage)
    (second,) = await add(storage, a_job())
    ending = asyncio.create_task(storage.jobs.apply([succeed(first, by="w1", result=b"1")]))
    claiming = asyncio.create_task(storage.jobs.claim("w1", [Want(QUEUE, 1)], total=1))
    await asyncio.sleep(0)
    ending.cancel()
    assert ids((await claiming).jobs) == [second]
    assert (await look(storage, first)).state is State.SUCCEEDED


async def test_turns_beside_cancelled_limited_jobs_never_deadlock(clean_database: str) -> None:
    stores = [await open_postgres(clean_database) for _ in range(3)]
    one, other, people = stores
    await at_most(one, two=2)
    await enlist(one, "w2")
    many = 60
    named = await add(one, *(limited("two") if n % 3 == 0 else a_job() for n in range(many)))

    async def work(storage: PostgresStorage, name: str) -> None:
        held: list[ClaimedJob] = []
        idle = 0
        while idle < 5:
            ends = [succeed(job, by=name, result=b"1") for job in held]
            asked = storage.jobs.claim(name, [Want(QUEUE, 3)], total=3)
            if ends:
                _, reply = await asyncio.gather(storage.jobs.apply(ends), asked)
            else:
                reply = await asked
            held = list(reply.jobs)
            idle = 0 if held else idle + 1

    async def cancel() -> None:
        for start in range(0, many, 5):
            await people.jobs.cancel(named[start : start + 5])

    before = await deadlocks(clean_database)
    async with asyncio.timeout(60):
        await asyncio.gather(work(one, "w1"), work(other, "w2"), cancel())
    assert await deadlocks(clean_database) == before
    found = await one.admin.get(named)
    assert {job.state for job in found if job is not None} <= {State.SUCCEEDED, State.CANCELLED}
    for storage in stores:
        await storage.close()


async def deadlocks(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        text = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        return int(await connection.fetchval(text))
    finally:
        await connection.close()


async def test_a_second_claim_does_not_wait_for_the_first_one_to_be_sent(
    storage: PostgresStorage,
) -> None:
    await enlist(storage, "w1", "w2")
    named = await add(storage, a_job(), a_job())
    replies = await asyncio.gather(
        storage.jobs.claim("w1", [Want(QUEUE, 1)], total=1),
        storage.jobs.claim("w2", [Want(QUEUE, 1)], total=1),
    )
    assert sorted(job.claim.job for reply in replies for job in reply.jobs) == sorted(named)
    assert await claim_none(storage)


async def claim_none(storage: PostgresStorage) -> bool:
    reply = await storage.jobs.claim("w1", [Want(QUEUE, 1)], total=1)
    return not reply.jobs


async def test_a_large_claim_does_not_wait_for_outcomes_that_are_being_stored(
    storage: PostgresStorage, outside: asyncpg.Connection
) -> None:
    first = await started(storage)
    (second,) = await add(storage, a_job())
    transaction = outside.transaction()
    await transaction.start()
    await outside.execute("SELECT FROM windlass.jobs WHERE seq = $1 FOR UPDATE", first.claim.seq)
    storing = asyncio.create_task(storage.jobs.apply([succeed(first, by="w1", result=b"1")]))
    reply = await storage.jobs.claim("w1", [Want(QUEUE, 100)], total=100)
    assert ids(reply.jobs) == [second]
    assert not storing.done()
    await transaction.rollback()
    applied = await storing
    assert [answer.verb for answer in applied.answers] == [Verb.SUCCEED]
