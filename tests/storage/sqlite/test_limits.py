"""What only the SQLite backend promises of flow control: what it costs, and that old files open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from windlass._core.job import transition
from windlass._core.job.job import AttemptError, LimitUse, NewJob
from windlass._core.job.state import State
from windlass._core.job.unique import OnConflict, UniqueKey
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.limits.queue_settings import QueueSettings
from windlass._core.values.instants import to_us
from windlass._storage.protocol.jobs import Want
from windlass._storage.shared import migrations as migrate
from windlass._storage.sqlite import SqliteStorage, open_sqlite
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import a_job, add, claim, enlist, limited

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
THEN = to_us(datetime(2029, 12, 31, tzinfo=UTC))
OOPS = AttemptError("ValueError", "no")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def storage(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[SqliteStorage]:
    storage = await open_sqlite(tmp_path / "jobs.db", clock=clock)
    await enlist(storage)
    yield storage
    await storage.close()


async def rows(storage: SqliteStorage, sql: str) -> list[Any]:
    return await storage._db.write(lambda connection, _: connection.execute(sql).fetchall())


async def steps_of(storage: SqliteStorage, op: Callable[[], Any]) -> int:
    """How many steps SQLite takes for an operation."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    def watch(connection: apsw.Connection, _: int) -> None:
        connection.set_progress_handler(count, 1)

    await storage._db.write(watch)
    await op()
    await storage._db.write(lambda connection, _: connection.set_progress_handler(None))
    return steps


# --- files of an earlier schema ---------------------------------------------------------------


def first_schema(file: Path) -> apsw.Connection:
    """A file as the first migration alone has made it."""
    connection = apsw.Connection(str(file))
    connection.pragma("journal_mode", "wal")
    migrations = migrate.find_migrations("windlass._storage.sqlite.migrations")[:1]
    migrate.apply_sqlite(connection, migrations, datetime(2029, 12, 31, tzinfo=UTC))
    return connection


async def test_a_file_of_the_first_schema_is_migrated_with_its_jobs(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    connection = first_schema(file)
    insert = (
        "INSERT INTO jobs (id, state, ready, queue, task, priority, due, max_attempts, budget,"
        " created_at, finished_at, limits, payload)"
        " VALUES (randomblob(16), ?, ?, ?, 't', 0, ?1, 5, 5, ?1, ?, ?, x'')"
    ).replace("?1", str(THEN))
    connection.execute(insert, (0, 1, "default", None, None))
    connection.execute(insert, (0, 0, "default", None, '[{"name":"rate","key":"","cost":1.0}]'))
    connection.execute(insert, (3, None, "short", THEN, None))
    connection.execute(insert, (3, None, "long", THEN, None))
    connection.execute("INSERT INTO queues VALUES ('held', 1)")
    old_spec = '{"name":"rate","rate":{"n":1,"per":"PT10S","burst":1},"concurrency":null}'
    connection.execute("INSERT INTO limits VALUES ('rate', ?)", (old_spec,))
    connection.execute("INSERT INTO gates VALUES ('rate', ?)", (THEN,))
    connection.close()

    storage = await open_sqlite(file, clock=VirtualClock())
    await enlist(storage)
    jobs = await claim(storage, 10)
    assert [(job.queue, job.on_failure) for job in jobs] == [("default", None)] * 2
    assert [record.queue for record in await storage.queues.queues()] == ["held"]
    apart = {"long": timedelta(days=365)}
    left = await storage.maintenance.prune(
        state=State.FAILED, older_than=HOUR, limit=10, apart=apart
    )
    assert left == 1
    (applied,) = (await storage.jobs.apply([transition.throttle(jobs[0], by="w1", delay=SECOND)]),)
    assert applied.answers[0].verb is not None
    (job,) = await storage.admin.get([jobs[0].claim.job])
    assert job is not None
    assert job.throttled == 1
    await storage.limits.define([LimitSpec(name="rate", rate=Rate(1, 10 * SECOND, 1))])
    await storage.close()


# --- what operations cost ---------------------------------------------------------------------


async def ended_jobs(storage: SqliteStorage, queue: str, count: int) -> None:
    await rows(
        storage,
        f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"  # noqa: S608 -- ours
        " INSERT INTO jobs (id, state, queue, task, priority, due, max_attempts, budget,"
        " created_at, finished_at, payload)"
        f" SELECT randomblob(16), 2, '{queue}', 't', 0, 0, 1, 1, 0, {THEN}, x'' FROM n",
    )


async def test_pruning_does_not_look_at_what_a_queue_keeps_longer(storage: SqliteStorage) -> None:
    async def prune() -> None:
        kept = {"long": timedelta(days=365)}
        await storage.maintenance.prune(
            state=State.SUCCEEDED, older_than=HOUR, limit=10, apart=kept
        )

    await ended_jobs(storage, "long", 100)
    await ended_jobs(storage, "short", 10)
    few = await steps_of(storage, prune)
    await ended_jobs(storage, "long", 20_000)
    await ended_jobs(storage, "short", 10)
    many = await steps_of(storage, prune)
    assert many <= few
    assert await rows(storage, "SELECT queue, count(*) FROM jobs GROUP BY 1") == [("long", 20_100)]


async def test_a_name_with_quotes_has_its_own_retention(storage: SqliteStorage) -> None:
    for queue in ('a"b\\c', "é", "plain"):
        await ended_jobs(storage, queue, 1)
    kept = {'a"b\\c': timedelta(days=365), "é": timedelta(days=365)}
    prune = storage.maintenance.prune
    assert await prune(state=State.SUCCEEDED, older_than=HOUR, limit=9, apart=kept) == 1
    assert await prune(state=State.SUCCEEDED, older_than=timedelta.max, limit=9) == 0
    assert await prune(state=State.SUCCEEDED, older_than=HOUR, limit=9) == 2


async def test_counting_what_runs_looks_at_no_row(storage: SqliteStorage) -> None:
    await storage.queues.change("default", QueueSettings(max_running=2), old=QueueSettings())
    await add(storage, *[a_job() for _ in range(5)])
    seen: list[str] = []

    def trace(_: apsw.Cursor, sql: str, __: object) -> bool:
        seen.append(sql)
        return True

    def watch(connection: apsw.Connection, _: int) -> None:
        connection.exec_trace = trace

    await storage._db.write(watch)
    assert len(await claim(storage, 10)) == 2
    (counted,) = [sql for sql in seen if "count(*)" in sql]
    plan = await storage._db.write(
        lambda connection, _: connection.execute(
            "EXPLAIN QUERY PLAN " + counted, (None,)
        ).fetchall()
    )
    assert [step[3] for step in plan] == ["SCAN jobs USING COVERING INDEX jobs_running"]


async def test_a_queue_nobody_says_anything_about_any_more_leaves_no_row(
    storage: SqliteStorage, clock: VirtualClock
) -> None:
    await storage.admin.pause("default")
    await storage.admin.resume("default")
    await storage.queues.change("default", QueueSettings(max_running=2), old=QueueSettings())
    await storage.queues.change("default", QueueSettings(), old=QueueSettings(max_running=2))
    await storage.queues.warm("default")
    assert not await rows(storage, "SELECT name FROM queues")

    await add(storage, a_job(), a_job())
    first, second = await claim(storage, 2)
    rest = transition.throttle(first, by="w1", delay=SECOND, cools=(SECOND,))
    await storage.jobs.apply([rest])
    assert await rows(storage, "SELECT name, cool_downs FROM queues") == [("default", 1)]
    clock.advance(121)
    await storage.jobs.apply([transition.succeed(second, by="w1", result=None)])
    assert not await rows(storage, "SELECT name FROM queues")


# --- lanes and breakers -----------------------------------------------------------------------


async def test_lanes_that_wait_for_a_breaker_stand_in_one_bay_however_many(
    storage: SqliteStorage, clock: VirtualClock
) -> None:
    breaker = Breaker(1, cool_down=10 * SECOND)
    specs = [LimitSpec(name="task", breaker=breaker), LimitSpec(name="key", concurrency=1)]
    await storage.limits.define(specs)
    await add(storage, *[limited("task", f"key:{n}") for n in range(300)])
    first, *others = await claim(storage, 5)
    await storage.jobs.apply([transition.fail(first, by="w1", error=OOPS)])

    reply = await storage.jobs.claim("w1", [Want("default", 5)], total=5)
    assert (len(reply.jobs), reply.next_at) == (0, clock.now() + 10 * SECOND)
    assert await rows(storage, "SELECT count(*), min(opens_at) > 0 FROM bays") == [(1, 1)]

    clock.advance(10)
    ends = [transition.release(job, by="w1", delay=HOUR) for job in others]
    await storage.jobs.apply(ends)
    (trial,) = await claim(storage, 5)
    assert await rows(storage, "SELECT count(*), min(opens_at) FROM bays") == [(1, None)]
    await storage.jobs.apply([transition.succeed(trial, by="w1", result=None)])
    assert len(await claim(storage, 5)) == 5


async def test_a_head_that_was_replaced_by_one_that_needs_less_is_asked_again(
    storage: SqliteStorage, clock: VirtualClock
) -> None:
    await storage.limits.define([LimitSpec(name="rate", rate=Rate(1, 10 * SECOND, 4))])

    def costing(cost: float) -> NewJob:
        unique = UniqueKey("k", on_conflict=OnConflict.REPLACE_ARGUMENTS)
        return a_job(limits=(LimitUse("rate", "", cost),), unique=unique)

    await add(storage, a_job(limits=(LimitUse("rate", "", 2.0),), priority=-1), costing(4.0))
    assert len(await claim(storage, 5)) == 1
    assert not await claim(storage, 5), "its lane waits for two tokens more"
    (answer,) = await storage.jobs.insert([costing(1.0)])
    assert answer.replaced
    assert len(await claim(storage, 5)) == 1


# --- what somebody else wrote -----------------------------------------------------------------


async def test_a_spec_that_cannot_be_read_is_replaced_by_the_next_definition(
    storage: SqliteStorage,
) -> None:
    await rows(storage, "INSERT INTO limits VALUES ('odd', '{')")
    spec = LimitSpec(name="odd", concurrency=1)
    await storage.limits.define([spec])
    assert await storage.limits.specs() == [spec]


async def test_settings_are_compared_as_settings_whatever_words_they_are_written_in(
    storage: SqliteStorage,
) -> None:
    text = msgspec.json.encode({"later": "unknown", "max_running": 3}).decode()
    await rows(storage, f"INSERT INTO queues (name, settings) VALUES ('default', '{text}')")  # noqa: S608 -- ours
    old, new = QueueSettings(max_running=3), QueueSettings(max_running=4)
    assert await storage.queues.change("default", new, old=old)
    assert await rows(storage, "SELECT max_running FROM queues") == [(4,)]


# --- many lanes at once -----------------------------------------------------------------------


async def test_work_on_many_lanes_prepares_no_statement_twice(storage: SqliteStorage) -> None:
    """A cache of statements that the writes of one claim empty makes the next one slow."""
    await storage.limits.define([LimitSpec(name="tenant", concurrency=2)])

    async def prepared() -> int:
        stats = await storage._db.write(lambda connection, _: connection.cache_stats())
        return int(stats["misses"])

    async def work() -> None:
        await add(storage, *(limited(f"tenant:{n}") for n in range(249)))
        jobs = await claim(storage, 249)
        assert len(jobs) == 249
        await storage.jobs.apply([transition.succeed(job, by="w1", result=None) for job in jobs])

    await work()
    before = await prepared()
    await work()
    assert await prepared() == before


async def test_a_lane_group_whose_head_was_deleted_by_hand_gives_its_other_jobs(
    storage: SqliteStorage,
) -> None:
    await storage.limits.define([LimitSpec(name="tenant", concurrency=9)])
    _, second, _, fourth = await add(storage, *(limited(f"tenant:{n}") for n in (1, 1, 2, 2)))
    await rows(storage, "DELETE FROM jobs WHERE seq IN (1, 3)")
    assert {job.claim.job for job in await claim(storage, 10)} == {second, fourth}
    assert await rows(storage, "SELECT (SELECT count(*) FROM lanes) + count(*) FROM bays") == [(0,)]
