"""Flow control where only PostgreSQL has something to lose: many connections, and old schemas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from windlass._core.job.job import ClaimedJob, FollowUp, LimitUse
from windlass._core.job.state import State
from windlass._core.job.transition import fail, succeed, throttle
from windlass._core.job.unique import OnConflict, UniqueKey, Window
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.postgres import open_postgres
from windlass._storage.postgres.storage import PostgresStorage
from windlass._storage.protocol.jobs import Want
from windlass._storage.shared import migrations
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    OOPS,
    SECOND,
    a_job,
    a_worker,
    add,
    at_most,
    claim,
    claim_one,
    end,
    limited,
    look,
    started,
    succeeded,
)

MANY = 6
PLAIN = QueueSettings()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def stores(
    clean_schema: tuple[str, str], clock: VirtualClock
) -> AsyncIterator[list[PostgresStorage]]:
    """The same storage, opened by several processes: each has connections of its own."""
    url, schema = clean_schema
    opened = [await open_postgres(url, clock=clock, schema=schema) for _ in range(MANY)]
    for number, storage in enumerate(opened):
        await storage.workers.register(a_worker(f"w{number}"))
    yield opened
    for storage in opened:
        await storage.close()


@pytest.fixture
def storage(stores: list[PostgresStorage]) -> PostgresStorage:
    return stores[0]


@pytest.fixture
async def stranger(
    storage: PostgresStorage, clean_schema: tuple[str, str]
) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Somebody who looks at what the functions do, inside a transaction."""
    assert storage.shared
    url, schema = clean_schema
    connection = await asyncpg.connect(url, server_settings={"search_path": schema})
    yield connection
    await connection.close()


async def all_claim(
    stores: Sequence[PostgresStorage], limit: int, *queues: str
) -> list[ClaimedJob]:
    """Everybody asks at once, every other one for the queues in the opposite order."""
    wants = [Want(queue, limit) for queue in queues or ("default",)]
    replies = await asyncio.gather(
        *(
            storage.jobs.claim(f"w{number}", wants[:: 1 if number % 2 else -1], total=limit)
            for number, storage in enumerate(stores)
        )
    )
    return [job for reply in replies for job in reply.jobs]


async def all_end(stores: Sequence[PostgresStorage], jobs: Sequence[ClaimedJob]) -> None:
    await asyncio.gather(
        *(
            end(storage, *[succeed(job, by=job.worker, result=None) for job in jobs[number::MANY]])
            for number, storage in enumerate(stores)
        )
    )


# --- how many run -----------------------------------------------------------------------------


async def test_however_many_claim_at_once_no_more_run_than_the_queue_allows(
    stores: list[PostgresStorage], storage: PostgresStorage
) -> None:
    await storage.queues.change("default", QueueSettings(max_running=4), old=PLAIN)
    await add(storage, *(a_job() for _ in range(60)))
    for _ in range(15):
        jobs = await all_claim(stores, 3)
        assert len(jobs) == 4
        await all_end(stores, jobs)
    assert await all_claim(stores, 3) == []


async def test_claims_on_two_counted_queues_in_opposite_order_do_not_deadlock(
    stores: list[PostgresStorage], storage: PostgresStorage
) -> None:
    for queue in ("a", "b"):
        await storage.queues.change(queue, QueueSettings(max_running=2), old=PLAIN)
        await add(storage, *(a_job(queue=queue) for _ in range(40)))
    for _ in range(15):
        jobs = await all_claim(stores, 4, "a", "b")
        assert sorted(job.queue for job in jobs) == ["a", "a", "b", "b"]
        await all_end(stores, jobs)


async def test_a_number_that_is_given_while_others_claim_holds_for_the_next_claim(
    stores: list[PostgresStorage], storage: PostgresStorage
) -> None:
    await add(storage, *(a_job() for _ in range(60)))
    jobs, _ = await asyncio.gather(
        all_claim(stores, 1),
        storage.queues.change("default", QueueSettings(max_running=1), old=PLAIN),
    )
    assert await all_claim(stores, 1) == []
    await all_end(stores, jobs)
    assert len(await all_claim(stores, 3)) == 1


LOCKS = """
SELECT count(*) FILTER (WHERE locktype = 'advisory'),
       count(*) FILTER (WHERE relation = 'queues'::regclass AND mode LIKE '%Exclusive%')
  FROM pg_locks WHERE pid = pg_backend_pid()
"""


async def locks_of(stranger: asyncpg.Connection[Any], sql: str, *args: object) -> tuple[int, int]:
    """Advisory locks, and locks for writing on queues, that a call takes. It is not committed."""
    transaction = stranger.transaction()
    await transaction.start()
    await stranger.fetch(sql, *args)
    advisory, writing = await stranger.fetchrow(LOCKS)
    await transaction.rollback()
    return advisory, writing


CLAIM = "SELECT * FROM claim_jobs(NULL, 'w0', '{default}', '{1}', 1, false, 100)"


async def test_only_queues_with_a_number_are_locked_by_a_claim(
    storage: PostgresStorage, stranger: asyncpg.Connection[Any]
) -> None:
    await add(storage, a_job(), a_job())
    await storage.queues.change("other", QueueSettings(max_running=1), old=PLAIN)
    await storage.queues.change("default", QueueSettings(keep_failed=DAY), old=PLAIN)
    assert await locks_of(stranger, CLAIM) == (0, 0)
    counted = QueueSettings(max_running=9)
    await storage.queues.change("default", counted, old=QueueSettings(keep_failed=DAY))
    assert await locks_of(stranger, CLAIM) == (1, 0)


# --- cool-downs -------------------------------------------------------------------------------

SUCCEED = "SELECT * FROM apply_successes($1, true, $2, 1, 'w0', NULL)"


async def test_a_success_locks_and_writes_nothing_but_what_it_has_to_forgive(
    storage: PostgresStorage, stranger: asyncpg.Connection[Any], clock: VirtualClock
) -> None:
    jobs = [await started(storage, worker="w0") for _ in range(4)]
    seqs = [job.claim.seq for job in jobs]
    assert await locks_of(stranger, SUCCEED, clock.now(), seqs[:1]) == (0, 0)
    await end(storage, throttle(jobs[1], by="w0", delay=SECOND, cools=(SECOND,)))
    assert await locks_of(stranger, SUCCEED, clock.now(), seqs[2:3]) == (0, 0)
    clock.advance(SECOND + 2 * MINUTE)
    assert await locks_of(stranger, SUCCEED, clock.now(), seqs[2:3]) == (2, 1)
    await succeeded(storage, jobs[2])
    assert await storage.queues.queues() == []
    assert await locks_of(stranger, SUCCEED, clock.now(), seqs[3:4]) == (0, 0)


async def test_of_many_who_hit_one_limiter_at_once_one_sends_the_queue_to_rest(
    stores: list[PostgresStorage], storage: PostgresStorage, clock: VirtualClock
) -> None:
    for round_ in range(5):
        await add(storage, *(a_job() for _ in range(MANY)))
        jobs = await all_claim(stores, 1)
        answers = await asyncio.gather(
            *(
                end(store, throttle(job, by=job.worker, delay=HOUR, cools=(SECOND, MINUTE)))
                for store, job in zip(stores, jobs, strict=True)
            )
        )
        assert sum(answer.cooled for (answer,) in answers) == 1
        assert {answer.cool_until for (answer,) in answers} == {clock.now() + HOUR}
        (record,) = await storage.queues.queues()
        assert record.cool_downs == round_ + 1
        clock.advance(HOUR)
        await storage.jobs.cancel([job.claim.job for job in jobs])


# --- breakers ---------------------------------------------------------------------------------


async def test_of_many_who_try_an_open_breaker_at_once_one_gets_a_job(
    stores: list[PostgresStorage], storage: PostgresStorage, clock: VirtualClock
) -> None:
    breaker = Breaker(failures=1, cool_down=10, growth=1)
    await storage.limits.define([LimitSpec(name="shop", breaker=breaker)])
    await add(storage, *(limited("shop") for _ in range(20)))
    (job,) = await claim(storage, worker="w0")
    await end(storage, fail(job, by="w0", error=OOPS))
    for _ in range(8):
        assert await all_claim(stores, 2) == []
        clock.advance(10 * SECOND)
        (trial,) = await all_claim(stores, 2)
        assert await all_claim(stores, 2) == []
        await end(storage, fail(trial, by=trial.worker, error=OOPS))
    clock.advance(10 * SECOND)
    (trial,) = await all_claim(stores, 2)
    await succeeded(storage, trial)
    assert len(await all_claim(stores, 1)) == MANY


# --- all of it at once ------------------------------------------------------------------------


async def test_operations_on_queues_limits_and_keys_at_once_never_deadlock(
    stores: list[PostgresStorage],
    storage: PostgresStorage,
    stranger: asyncpg.Connection[Any],
    clock: VirtualClock,
) -> None:
    await storage.limits.define(
        [LimitSpec(name="one", concurrency=3), LimitSpec(name="shop", breaker=Breaker(failures=5))]
    )
    for queue in ("a", "b"):
        await storage.queues.change(queue, QueueSettings(max_running=5), old=PLAIN)

    async def work(number: int, store: PostgresStorage) -> None:
        worker = f"w{number}"
        for turn in range(12):
            queues = ("a", "b")[:: 1 if number % 2 else -1]
            jobs = [
                a_job(
                    queue=queues[key % 2],
                    unique=UniqueKey(
                        f"k{key}", Window.UNTIL_STARTED, on_conflict=OnConflict.REPLACE
                    ),
                    limits=((), (LimitUse("one"),), (LimitUse("shop"),))[(key + turn) % 3],
                )
                for key in range(8)[:: 1 if number % 2 else -1]
            ]
            await store.jobs.insert(jobs)
            reply = await store.jobs.claim(worker, [Want(q, 4) for q in queues], total=4)
            endings = [
                throttle(job, by=worker, delay=SECOND, cools=(SECOND,))
                if (place + turn + number) % 5 == 0
                else fail(job, by=worker, error=OOPS)
                if place % 2
                else succeed(job, by=worker, result=None)
                for place, job in enumerate(reply.jobs)
            ]
            await end(store, *endings)
            await store.jobs.cancel([job.id for job in jobs[:2]])
            await store.queues.warm("a")
            clock.advance(SECOND)

    async def deadlocks() -> int:
        # What a session has counted is told to others when it is idle: ours are, by now.
        found = await stranger.fetchval(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        return int(found)

    before = await deadlocks()
    await asyncio.gather(*(work(number, store) for number, store in enumerate(stores)))
    assert await deadlocks() == before


# --- locks of limits --------------------------------------------------------------------------


async def test_limits_without_a_common_job_do_not_wait_for_each_other(
    storage: PostgresStorage, stranger: asyncpg.Connection[Any]
) -> None:
    await at_most(storage, one=1, two=1)
    async with stranger.transaction():
        await stranger.execute("SELECT lock_limits('{one}')")
        async with asyncio.timeout(30):
            await add(storage, limited("two", queue="b"))
            (job,) = (await storage.jobs.claim("w0", [Want("b", 1)], total=1)).jobs
            await end(storage, succeed(job, by="w0", result=None))
        waiting = asyncio.create_task(add(storage, limited("one", queue="a")))
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert not done
    await waiting


async def test_a_lane_whose_limit_the_queue_does_not_know_yet_is_served_by_the_next_claim(
    storage: PostgresStorage, stranger: asyncpg.Connection[Any]
) -> None:
    """So it is if the lane is made between a claim's look and its locks."""
    await at_most(storage, one=1, two=1)
    await add(storage, limited("one"), limited("two"), a_job())
    await stranger.execute("DELETE FROM lane_limits WHERE name = 'two'")
    first = await storage.jobs.claim("w0", [Want("default", 9)], total=9)
    second = await storage.jobs.claim("w0", [Want("default", 9)], total=9)
    assert first.next_at == first.at
    assert len(first.jobs) + len(second.jobs) == 3
    assert len(first.jobs) < 3


# --- replacing in a transaction of the user's ---------------------------------------------------


def keyed(**asked: Any) -> Any:
    return a_job(unique=UniqueKey("k", on_conflict=OnConflict.REPLACE), **asked)


async def test_a_limited_job_that_is_being_replaced_stops_no_other(
    storage: PostgresStorage,
    stranger: asyncpg.Connection[Any],
    clock: VirtualClock,
) -> None:
    await storage.limits.define(
        [LimitSpec(name="one", concurrency=9), LimitSpec(name="two", concurrency=9)]
    )
    held = keyed(limits=(LimitUse("one"),))
    await add(storage, held, limited("one", priority=5), limited("two"))
    # Into their lanes, where a claim finds them.
    await storage.maintenance.promote(10)
    transaction = stranger.transaction()
    await transaction.start()
    new = keyed(payload=b"new", limits=(LimitUse("two"),))
    (answer,) = await storage.transactions.insert(stranger, [new])
    assert (answer.id, answer.created, answer.replaced) == (held.id, False, True)
    jobs = await claim(storage, 9, worker="w0")
    assert sorted(job.claim.job for job in jobs) != []
    assert held.id not in {job.claim.job for job in jobs}
    clock.advance(SECOND)
    jobs += await claim(storage, 9, worker="w0")
    assert len(jobs) == 2
    await transaction.commit()
    clock.advance(SECOND)
    (job,) = await claim(storage, 9, worker="w0")
    assert (job.claim.job, job.payload) == (held.id, b"new")
    assert (await look(storage, held)).limits == (LimitUse("two"),)


async def test_a_replacement_of_a_job_that_just_starts_is_not_lost(
    stores: list[PostgresStorage], storage: PostgresStorage
) -> None:
    """It met the holder, or it is a job of its own: it never vanishes."""
    rule = UniqueKey("k", Window.UNTIL_STARTED, on_conflict=OnConflict.REPLACE)
    last = b""
    for turn in range(40):
        last = b"%d" % turn
        await storage.jobs.insert([a_job(unique=rule, payload=last)])
        newer = last + b"+"
        jobs, _ = await asyncio.gather(
            claim(stores[1], 5, worker="w1"),
            storage.jobs.insert([a_job(unique=rule, payload=newer)]),
        )
        jobs += await claim(stores[1], 5, worker="w1")
        assert [job.payload for job in jobs][-1] == newer
        await all_end(stores, jobs)


# --- a schema of before -----------------------------------------------------------------------

# What was there before flow control, as far as it was called otherwise: names, and what they took.
BEFORE = """
CREATE FUNCTION insert_jobs(
    p_at timestamptz, p_durable boolean, p_place boolean, p_ids uuid[], p_queues text[],
    p_tasks text[], p_priorities integer[], p_dues timestamptz[], p_delays bigint[],
    p_max_attempts integer[], p_payloads bytea[], p_timeouts bigint[] DEFAULT NULL,
    p_expires bigint[] DEFAULT NULL, p_keys text[] DEFAULT NULL, p_windows text[] DEFAULT NULL,
    p_periods bigint[] DEFAULT NULL, p_limits text[] DEFAULT NULL, p_backoffs text[] DEFAULT NULL,
    p_tags text[] DEFAULT NULL, p_tenants text[] DEFAULT NULL, p_principals text[] DEFAULT NULL,
    p_correlation_ids text[] DEFAULT NULL, p_traces text[] DEFAULT NULL,
    p_parents text[] DEFAULT NULL
) RETURNS TABLE (place integer, holder text) LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE FUNCTION insert_keyed_jobs(
    text, timestamptz, boolean, uuid[], text[], text[], integer[], timestamptz[], bigint[],
    integer[], bytea[], bigint[], bigint[], text[], text[], bigint[], text[], text[], text[],
    text[], text[], text[], text[], text[]
) RETURNS TABLE (place integer, holder text) LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE FUNCTION settle_lane(bigint, text DEFAULT NULL, float8 DEFAULT NULL, bigint DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE FUNCTION define_limits(boolean, text[], text[], bigint[], bigint[], bigint[], bigint[])
RETURNS integer LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE FUNCTION limit_states(p_name text)
RETURNS TABLE (gate text, running bigint, spent_until bigint, parked bigint)
LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE FUNCTION apply_transition(
    timestamptz, bigint, integer, text, text, bigint, boolean, bytea, text, text, text, integer,
    boolean, boolean, text, boolean, OUT verdict text, OUT verb text, OUT opened text[],
    OUT place boolean
) LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE FUNCTION apply_transitions(
    timestamptz, boolean, bigint[], integer[], text[], text[], bytea[] DEFAULT NULL,
    boolean[] DEFAULT NULL, bigint[] DEFAULT NULL, boolean[] DEFAULT NULL, text[] DEFAULT NULL,
    text[] DEFAULT NULL, text[] DEFAULT NULL, integer[] DEFAULT NULL, boolean[] DEFAULT NULL,
    boolean[] DEFAULT NULL, text[] DEFAULT NULL, boolean DEFAULT false,
    OUT at timestamptz, OUT verdicts text[], OUT verbs text[]
) LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE FUNCTION leave_worker(
    timestamptz, boolean, text, bigint[], integer[], text[], text[], bytea[], boolean[], bigint[],
    boolean[], text[], text[], text[], integer[], boolean[], boolean[], text[],
    OUT at timestamptz, OUT verdicts text[], OUT verbs text[]
) LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE FUNCTION prune(p_at timestamptz, p_state smallint, p_older bigint, p_limit integer)
RETURNS integer LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE FUNCTION take_key(p_key text, p_seq bigint, p_until timestamptz, p_now timestamptz)
RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'an old function was called'; END $$;

INSERT INTO jobs (id, ready, priority, due, created_at, max_attempts, budget, queue, task, payload)
VALUES ('00000000-0000-7000-8000-000000000001', 1, 0, now(), now(), 5, 5, 'default', 'old', '{}');
INSERT INTO jobs (id, state, priority, due, created_at, started_at, attempt, claim_number,
                  max_attempts, budget, queue, task, worker, gates, costs, payload)
VALUES ('00000000-0000-7000-8000-000000000002', 1, 0, now(), now(), now(), 1, 1, 5, 5, 'default',
        'old', 'w1', '{api}', '{1}', '{}');
INSERT INTO jobs (id, state, priority, due, created_at, finished_at, max_attempts, budget, queue,
                  task, payload)
VALUES ('00000000-0000-7000-8000-000000000003', 3, 0, now(), now(), now() - interval '2 days', 5,
        5, 'default', 'old', '{}');
INSERT INTO jobs (id, ready, lane, priority, due, created_at, max_attempts, budget, queue, task,
                  gates, costs, payload)
VALUES ('00000000-0000-7000-8000-000000000004', 2, 1, 0, now(), now(), 5, 5, 'default', 'old',
        '{api}', '{1}', '{}');
INSERT INTO bays (queue, gate, cost, opens_at, head_priority, head_due, head_seq)
VALUES ('default', 'api', -1, NULL, 0, now(), 4);
INSERT INTO lanes (queue, digest, bay, head_priority, head_due, head_seq)
VALUES ('default', sha256(convert_to('{api}', 'UTF8')), 1, 0, now(), 4);
INSERT INTO holds (gate, seq, claim_number) VALUES ('api', 2, 1);
INSERT INTO gates (gate, spent_until) VALUES ('api', NULL);
INSERT INTO limits (name, spec, concurrency)
VALUES ('api', '{"name":"api","rate":null,"concurrency":1}', 1);
INSERT INTO queues (name, paused) VALUES ('resting', true);
"""
SIGNATURES = """
SELECT proname, count(*) FROM pg_proc WHERE pronamespace = $1::regnamespace
 GROUP BY proname HAVING count(*) > 1
"""


async def test_a_rate_of_decades_lets_a_large_claim_take_its_burst(
    storage: PostgresStorage,
) -> None:
    """What all of its jobs ask for together is more than a number holds."""
    rate = Rate(1, per=18_262 * DAY, burst=2)
    await storage.limits.define([LimitSpec(name="rare", rate=rate)])
    await add(storage, *(limited("rare") for _ in range(6_000)))
    assert len(await claim(storage, 6_000, worker="w0")) == 2


async def test_a_store_of_before_is_brought_up_to_date_with_its_jobs(
    postgres_schema: tuple[str, str],
) -> None:
    url, schema = postgres_schema
    tables = migrations.find_migrations("windlass._storage.postgres.migrations")[0]
    line = await asyncpg.connect(url)
    await line.execute(f'CREATE SCHEMA "{schema}"; SET search_path = "{schema}"')
    await line.execute(
        "CREATE TABLE schema_versions (version integer PRIMARY KEY, applied_at timestamptz)"
    )
    await line.execute("INSERT INTO schema_versions SELECT generate_series(1, 7)")
    await line.execute(tables.sql)
    await line.execute(BEFORE)

    storage = await open_postgres(url, schema=schema)
    assert await line.fetch(SIGNATURES, schema) == []
    await storage.workers.register(a_worker())
    await storage.limits.define([LimitSpec(name="api", concurrency=1)])
    old = await claim_one(storage)
    assert (old.task, old.on_failure) == ("old", None)
    (running,) = await storage.admin.get(["00000000000070008000000000000002"])  # type: ignore[list-item]
    assert running is not None
    assert (running.state, running.throttled) == (State.RUNNING, 0)
    follow = FollowUp(task="after")
    await add(storage, limited("api", on_failure=follow))
    lanes = await line.fetch("SELECT lane, count(*) FROM jobs WHERE lane IS NOT NULL GROUP BY lane")
    assert [tuple(row) for row in lanes] == [(1, 2)]  # the new one waits behind the old one
    assert await claim(storage, 5) == []
    await end(storage, fail(old, by="w1", error=OOPS))
    (record,) = await storage.queues.queues()
    assert (record.queue, record.paused) == ("resting", True)
    pruned = {"state": State.FAILED, "older_than": timedelta(days=9), "limit": 10}
    assert await storage.maintenance.prune(**pruned, apart={"default": DAY}) == 1  # type: ignore[arg-type]
    await storage.close()
    again = await open_postgres(url, schema=schema)
    assert await again.now() > datetime(2020, 1, 1, tzinfo=UTC)
    await again.close()
    await line.close()
