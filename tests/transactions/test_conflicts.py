"""Unique jobs that replace their holder, or may not meet it, and what follows, on their lines."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import msgspec
import pytest

from tests.transactions.drivers import DRIVERS, SOME, Open, Theirs
from windlass._core.job.job import FollowUp, LimitUse, NewJob
from windlass._core.job.transition import Transition, fail, succeed, throttle
from windlass._core.job.unique import OnConflict, UniqueKey
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec
from windlass._storage.postgres import open_postgres
from windlass._storage.postgres.storage import PostgresStorage
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.transactions import ClaimEnd
from windlass.errors import KeyBusy, KeyConflict
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    MINUTE,
    OOPS,
    SECOND,
    a_job,
    add,
    claim,
    claim_one,
    end,
    enlist,
    limited,
    look,
    started,
    total,
)

AFTER = FollowUp(task="apologise", queue="mail")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def storage(postgres_url: str, clock: VirtualClock) -> AsyncIterator[PostgresStorage]:
    opened = await open_postgres(postgres_url, clock=clock)
    yield opened
    await opened.close()


def keyed(what: OnConflict, payload: bytes = b"{}", **asked: object) -> NewJob:
    return a_job(unique=UniqueKey("k", on_conflict=what), payload=payload, **asked)


async def insert(storage: PostgresStorage, theirs: Theirs, *jobs: NewJob) -> Sequence[Inserted]:
    store = storage.transactions
    call = store.insert_sync if theirs.blocks else store.insert
    answers: Sequence[Inserted] = await theirs._do(call, theirs.connection, jobs)
    return answers


async def finish(storage: PostgresStorage, theirs: Theirs, transition: Transition) -> None:
    store = storage.transactions
    call = store.finish_sync if theirs.blocks else store.finish
    await theirs._do(functools.partial(call, theirs.connection, transition))


async def test_a_waiting_holder_takes_over_what_is_asked_for_when_they_commit(
    storage: PostgresStorage, driver: Open, postgres_url: str
) -> None:
    first = keyed(OnConflict.REUSE, b"1")
    await add(storage, first)
    async with driver(postgres_url, None) as theirs:
        (answer,) = await insert(
            storage, theirs, keyed(OnConflict.REPLACE, b"2", delay=MINUTE, principal="ada")
        )
        assert (answer.id, answer.created, answer.replaced) == (first.id, False, True)
        assert (await look(storage, first)).payload == b"1"
        await theirs.commit()
    job = await look(storage, first)
    assert (job.payload, job.principal) == (b"2", "ada")
    assert job.due == await storage.now() + MINUTE
    assert await total(storage) == 1


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_nothing_is_replaced_when_they_roll_back(
    storage: PostgresStorage, driver: Open, postgres_url: str
) -> None:
    first = keyed(OnConflict.REUSE, b"1")
    await add(storage, first)
    async with driver(postgres_url, None) as theirs:
        await insert(storage, theirs, keyed(OnConflict.REPLACE, b"2"))
        await theirs.rollback()
    assert (await look(storage, first)).payload == b"1"


async def test_a_key_that_must_not_be_held_says_who_holds_it(
    storage: PostgresStorage, driver: Open, postgres_url: str
) -> None:
    first = keyed(OnConflict.REUSE)
    await add(storage, first)
    async with driver(postgres_url, None) as theirs:
        with pytest.raises(KeyConflict) as caught:
            await insert(storage, theirs, a_job(), keyed(OnConflict.RAISE))
        await theirs.rollback()
    assert (caught.value.key, caught.value.holder) == ("k", first.id)
    assert await total(storage) == 1


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_jobs_of_one_call_replace_each_other(
    storage: PostgresStorage, driver: Open, postgres_url: str
) -> None:
    first, second = keyed(OnConflict.REPLACE, b"1"), keyed(OnConflict.REPLACE_ARGUMENTS, b"2")
    async with driver(postgres_url, None) as theirs:
        one, two = await insert(storage, theirs, first, second)
        await theirs.commit()
    assert (one.created, two.id, two.created, two.replaced) == (True, first.id, False, True)
    assert (await look(storage, first)).payload == b"2"


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_a_job_that_somebody_else_is_replacing_is_busy(
    storage: PostgresStorage, driver: Open, postgres_url: str
) -> None:
    await add(storage, keyed(OnConflict.REUSE))
    async with (
        DRIVERS["psycopg_async"](postgres_url, None) as stranger,
        driver(postgres_url, None) as theirs,
    ):
        await insert(storage, stranger, keyed(OnConflict.REPLACE, b"1"))
        with pytest.raises(KeyBusy):
            await insert(storage, theirs, keyed(OnConflict.REPLACE, b"2"))
        await theirs.rollback()
        await stranger.commit()


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_what_follows_a_failure_is_stored_with_the_job(
    storage: PostgresStorage, driver: Open, postgres_url: str
) -> None:
    new = a_job(on_failure=AFTER)
    async with driver(postgres_url, None) as theirs:
        await insert(storage, theirs, new)
        await theirs.commit()
    assert (await look(storage, new)).on_failure == AFTER
    await enlist(storage)
    assert (await claim_one(storage)).on_failure == AFTER


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_a_success_in_their_transaction_is_followed_in_it(
    storage: PostgresStorage, driver: Open, postgres_url: str
) -> None:
    running, then = await started(storage), a_job()
    done = msgspec.structs.replace(succeed(running, by="w1", result=None), then=(then,))
    async with driver(postgres_url, None) as theirs:
        await finish(storage, theirs, done)
        assert await claim(storage, 5) == []
        await theirs.commit()
    assert (await claim_one(storage)).claim.job == then.id


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_a_success_in_their_transaction_closes_breakers_and_forgives(
    storage: PostgresStorage, driver: Open, postgres_url: str, clock: VirtualClock
) -> None:
    breaker = Breaker(failures=1, cool_down=SECOND)
    await storage.limits.define([LimitSpec(name="shop", breaker=breaker)])
    failed = await started(storage, limited("shop"))
    await end(storage, fail(failed, by="w1", error=OOPS))
    hit = await started(storage)
    await end(storage, throttle(hit, by="w1", delay=timedelta(days=1), cools=(SECOND,)))
    await storage.queues.warm("default")
    hit = await started(storage)
    await end(storage, throttle(hit, by="w1", delay=SECOND, cools=(SECOND,)))
    clock.advance(10 * MINUTE)
    await storage.jobs.cancel([hit.claim.job])
    trial = await started(storage, limited("shop"))
    done = succeed(trial, by="w1", result=None)
    async with driver(postgres_url, None) as theirs:
        await finish(storage, theirs, done)
        await theirs.commit()
    assert (await storage.transactions.ended(done)).what is ClaimEnd.STORED
    assert await storage.queues.queues() == []
    (state,) = await storage.limits.states("shop")
    assert state.breaker is not None
    assert state.breaker.failures == 0
    await add(storage, *(a_job(limits=(LimitUse("shop"),)) for _ in range(3)))
    assert len(await claim(storage, 5)) == 3


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_a_coalesced_enqueue_is_counted_with_their_commit_and_delays_no_other_producer(
    storage: PostgresStorage, driver: Open, postgres_url: str, clock: VirtualClock
) -> None:
    await add(storage, keyed(OnConflict.REUSE))

    async def counted() -> int:
        rollups = await storage.admin.rollups(clock.now() - MINUTE, clock.now() + MINUTE)
        return sum(one.counts["coalesce"] for one in rollups)

    async with driver(postgres_url, None) as theirs:
        await insert(storage, theirs, keyed(OnConflict.REUSE))
        # Their transaction is open, and its count is not another producer's to wait for.
        await storage.jobs.insert([keyed(OnConflict.REUSE)])
        assert await counted() == 1
        await theirs.rollback()
    assert await counted() == 1
    async with driver(postgres_url, None) as theirs:
        for _ in range(2):
            await insert(storage, theirs, keyed(OnConflict.REUSE))
        await theirs.commit()
    assert await counted() == 3
