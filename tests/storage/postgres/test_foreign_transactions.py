"""Somebody else's transaction stays open: whose business that is, and whose it must not be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import asyncpg
import msgspec
import pytest

from windlass._core.job.job import NewJob
from windlass._core.job.state import State
from windlass._core.job.transition import release, succeed
from windlass._core.job.unique import OnConflict, UniqueKey, Window
from windlass._storage.postgres import PostgresStorage, open_postgres
from windlass._storage.protocol.jobs import CancelAnswer, Inserted, Verdict
from windlass._storage.protocol.schedules import Written
from windlass._storage.protocol.workers import WorkerState
from windlass.errors import KeyBusy, StoreBusy
from windlass.testing.conformance.schedules.schedules import a_write, written
from windlass.testing.conformance.steps import (
    a_job,
    add,
    at_most,
    claim,
    claim_one,
    keyed,
    limited,
    look,
    started,
    succeeded,
    total,
)

SOON = 2.0
"""Seconds that nobody who waits for a stranger would keep to."""
MOMENT = timedelta(milliseconds=1)


@pytest.fixture
async def storage(clean_schema: tuple[str, str]) -> AsyncIterator[PostgresStorage]:
    url, schema = clean_schema
    opened = await open_postgres(url, schema=schema)
    yield opened
    await opened.close()


@pytest.fixture
async def other(clean_schema: tuple[str, str]) -> AsyncIterator[PostgresStorage]:
    """The same in another process, as far as anybody can tell."""
    url, schema = clean_schema
    opened = await open_postgres(url, schema=schema)
    yield opened
    await opened.close()


@pytest.fixture
async def theirs(clean_schema: tuple[str, str]) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the user's, in a transaction that stays open."""
    connection = await asyncpg.connect(clean_schema[0])
    transaction = connection.transaction()
    await transaction.start()
    yield connection
    await transaction.rollback()
    await connection.close()


def for_a_moment(key: str) -> NewJob:
    return a_job(unique=UniqueKey(key, Window.FOR_A_TIME, MOMENT))


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await true():  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.01)


async def somebody_waits(connection: asyncpg.Connection, schema: str) -> None:
    """Until a statement of ours waits for a lock."""

    async def waits() -> bool:
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        count: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND pid <> pg_backend_pid() AND position($1 IN query) > 0",
            schema,
        )
        return count > 0

    await until(waits)


async def test_a_call_that_waits_for_a_key_delays_no_limited_job(
    clean_schema: tuple[str, str],
    storage: PostgresStorage,
    other: PostgresStorage,
    theirs: asyncpg.Connection,
) -> None:
    await at_most(storage, mail=1)
    await storage.transactions.insert(theirs, [keyed("order:1")])
    both = msgspec.structs.replace(limited("mail"), unique=keyed("order:1").unique)
    waiting = asyncio.create_task(other.jobs.insert([both]))
    await somebody_waits(theirs, clean_schema[1])
    async with asyncio.timeout(SOON):
        await add(storage, limited("mail"))
        await succeeded(storage, await claim_one(storage))
    assert not waiting.done()
    with pytest.raises(KeyBusy):
        await waiting


@pytest.mark.parametrize("what", list(OnConflict))
async def test_a_call_that_waits_for_its_own_key_learns_that_it_is_stored(
    clean_schema: tuple[str, str],
    storage: PostgresStorage,
    theirs: asyncpg.Connection,
    what: OnConflict,
) -> None:
    job = a_job(unique=UniqueKey("order:1", on_conflict=what))
    await storage.transactions.insert(theirs, [job])
    waiting = asyncio.create_task(storage.jobs.insert([job]))
    await somebody_waits(theirs, clean_schema[1])
    await theirs.execute("COMMIT; BEGIN")
    assert list(await waiting) == [Inserted(job.id, created=True, repeated=True)]
    assert await total(storage) == 1


async def test_a_job_with_a_key_and_limits_takes_its_turn(storage: PostgresStorage) -> None:
    await at_most(storage, mail=1)
    (first,) = await add(storage, limited("mail"))
    both = msgspec.structs.replace(limited("mail"), unique=keyed("order:1").unique)
    (second,) = await add(storage, both)
    (third,) = await add(storage, limited("mail"))
    for expected in (first, second, third):
        (running,) = await claim(storage, 5)
        assert running.claim.job == expected
        await succeeded(storage, running)


async def test_a_key_taken_in_an_open_transaction_blocks_neither_finish_nor_pruning(
    storage: PostgresStorage, theirs: asyncpg.Connection
) -> None:
    await at_most(storage)
    running, ended = for_a_moment("running"), for_a_moment("ended")
    await add(storage, running, ended)
    by_id = {job.claim.job: job for job in await claim(storage, 2)}
    await succeeded(storage, by_id[ended.id])
    stored = await look(storage, running)

    async def is_over() -> bool:
        return await storage.now() > stored.created_at + MOMENT

    await until(is_over)
    (one, two) = await storage.transactions.insert(
        theirs, [for_a_moment("running"), for_a_moment("ended")]
    )
    assert one.created
    assert two.created
    finish = succeed(by_id[running.id], by="w1", result=None)
    async with asyncio.timeout(SOON):
        await storage.jobs.apply([msgspec.structs.replace(finish, keep=False)])
        pruned = await storage.maintenance.prune(
            state=State.SUCCEEDED, older_than=timedelta(0), limit=10
        )
    assert pruned == 1


async def test_an_expired_holder_is_discarded_in_the_users_transaction_and_blocks_no_one(
    storage: PostgresStorage, theirs: asyncpg.Connection
) -> None:
    await at_most(storage, db=1)
    busy = await started(storage, limited("db"))
    late = msgspec.structs.replace(limited("db", expires=MOMENT), unique=UniqueKey("k"))
    await add(storage, late)
    (behind,) = await add(storage, limited("db"))
    until_late = (await look(storage, late)).expires_at

    async def is_late() -> bool:
        return until_late is not None and await storage.now() >= until_late

    await until(is_late)
    new = keyed("k")
    (answer,) = await storage.transactions.insert(theirs, [new])
    assert answer.created
    async with asyncio.timeout(SOON):
        await succeeded(storage, busy)
        assert (await claim_one(storage)).claim.job == behind
    with pytest.raises(KeyBusy):
        await storage.jobs.insert([keyed("k")])
    await theirs.execute("ROLLBACK; BEGIN")
    (last,) = await add(storage, keyed("k"))
    assert (await look(storage, late)).reason == "expired"
    assert (await claim_one(storage)).claim.job == last


async def test_a_worker_leaves_though_a_handler_s_transaction_is_open(
    storage: PostgresStorage, theirs: asyncpg.Connection
) -> None:
    await at_most(storage, mail=5)
    open_one = await started(storage, limited("mail"))
    told, untold = await started(storage), await started(storage, limited("mail"))
    await storage.transactions.finish(theirs, succeed(open_one, by="w1", result=None))
    async with asyncio.timeout(SOON):
        left = await storage.workers.leave(
            "w1", [release(open_one, by="w1"), release(told, by="w1")]
        )
    assert [answer.verdict for answer in left.answers] == [Verdict.UNKNOWN, Verdict.APPLIED]
    states = [(await look(storage, job.claim.job)).state for job in (open_one, told, untold)]
    assert states == [State.RUNNING, State.WAITING, State.WAITING]
    (worker,) = await storage.workers.workers()
    assert worker.state is WorkerState.GONE
    assert await storage.workers.orphans(10) == []


async def test_a_cancel_that_waits_keeps_no_limited_job_waiting(
    clean_schema: tuple[str, str],
    storage: PostgresStorage,
    other: PostgresStorage,
    theirs: asyncpg.Connection,
) -> None:
    await at_most(storage, mail=2)
    running = await started(storage, limited("mail"))
    await storage.transactions.finish(theirs, succeed(running, by="w1", result=None))
    cancelling = asyncio.create_task(other.jobs.cancel([running.claim.job]))
    await somebody_waits(theirs, clean_schema[1])
    async with asyncio.timeout(SOON):
        await add(storage, limited("mail"))
        await succeeded(storage, await claim_one(storage))
    assert not cancelling.done()
    with pytest.raises(StoreBusy):
        await cancelling


async def test_limited_jobs_are_cancelled_wherever_they_are(storage: PostgresStorage) -> None:
    await at_most(storage, mail=1)
    running = await started(storage, limited("mail"))
    (waiting,) = await add(storage, limited("mail"))
    asked = [running.claim.job, waiting]
    assert await storage.jobs.cancel(asked) == [CancelAnswer.REQUESTED, CancelAnswer.CANCELLED]
    assert await claim(storage, 5) == []


async def test_instants_beyond_the_calendar_are_stored_alike_in_the_users_transaction(
    storage: PostgresStorage, theirs: asyncpg.Connection
) -> None:
    ages = {"delay": timedelta.max, "timeout": timedelta.max, "expires": timedelta.max}
    first = datetime.min.replace(tzinfo=UTC)
    jobs = [a_job(**ages), a_job(at=first), a_job(at=datetime.max.replace(tzinfo=UTC))]
    await add(storage, *jobs)
    twins = [msgspec.structs.replace(job, id=a_job().id) for job in jobs]
    await storage.transactions.insert(theirs, twins)
    asked = "SELECT due, timeout, expires_at FROM {}.jobs WHERE id = ANY ($1) ORDER BY seq"
    schema = storage.describe().partition("schema ")[2].partition(",")[0]
    found = [
        await theirs.fetch(asked.format(schema), [job.id for job in these])
        for these in (jobs, twins)
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 3


async def test_a_key_in_an_open_transaction_stops_no_other_schedule(
    storage: PostgresStorage, theirs: asyncpg.Connection
) -> None:
    await storage.transactions.insert(theirs, [keyed("order:1")])
    job = keyed("order:1")
    writes = [a_write("first", jobs=(job,)), a_write("second", jobs=(a_job(),))]
    assert await written(storage, *writes) == [Written.STALE, Written.WRITTEN]
    with pytest.raises(StoreBusy):
        await written(storage, writes[0])
    assert [row.name for row in await storage.schedules.rows()] == ["second"]
    await theirs.execute("ROLLBACK; BEGIN")
    assert await written(storage, *writes) == [Written.WRITTEN] * 2
    assert (await look(storage, job)).key_held
    assert await total(storage) == 2


async def test_a_follow_up_waits_a_bounded_time_for_a_key_in_an_open_transaction(
    storage: PostgresStorage, theirs: asyncpg.Connection
) -> None:
    running, then = await started(storage), keyed("order:1")
    await storage.transactions.insert(theirs, [keyed("order:1")])
    transition = msgspec.structs.replace(succeed(running, by="w1", result=None), then=(then,))
    async with asyncio.timeout(20):
        with pytest.raises(StoreBusy):
            await storage.jobs.apply([transition])
    assert (await look(storage, running)).state is State.RUNNING
    await theirs.execute("ROLLBACK; BEGIN")
    (answer,) = (await storage.jobs.apply([transition])).answers
    assert answer.verdict is Verdict.APPLIED
    assert (await look(storage, then)).key_held
