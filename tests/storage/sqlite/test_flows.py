"""Flows on SQLite: wrong counts, older files, and what is not copied."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from windlass._core.job.state import State
from windlass._storage.shared import migrations as migrate
from windlass._storage.sqlite import SqliteStorage, open_sqlite
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import Plan, agree, finish, part, run_all, start
from windlass.testing.conformance.steps import HOUR, MINUTE, a_job, add, claim, enlist, look, total

MIGRATIONS = "windlass._storage.sqlite.migrations"
MAJOR = 100


@pytest.fixture
async def storage(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[SqliteStorage]:
    store = await open_sqlite(tmp_path / "jobs.db", clock=clock)
    yield store
    await store.close()


def two_parts() -> Plan:
    plan = Plan()
    plan.part("a", 2)
    plan.part("b", 2, after=["a"])
    return plan


async def damage(storage: SqliteStorage, sql: str) -> None:
    await storage._db.write(lambda connection, _: connection.execute(sql).fetchall())


async def test_wrong_counts_are_found_and_repaired(storage: SqliteStorage) -> None:
    plan = two_parts()
    await start(storage, plan)
    await damage(storage, "UPDATE parts SET open = 3, failed = 1 WHERE name = 'a'")
    found = await storage.flows.recount()
    assert list(found.wrong) == [
        f"flow {plan.id}, a: failed is 1, and 0 jobs are",
        f"flow {plan.id}, a: open is 3, and 2 jobs are",
    ]
    assert list((await storage.flows.recount(repair=True)).wrong) == list(found.wrong)
    assert await agree(storage)
    assert await run_all(storage) == ["a", "a", "b", "b"]


async def test_a_prune_does_not_pass_ended_members_each_time(
    storage: SqliteStorage, clock: VirtualClock
) -> None:
    async def prune() -> int:
        return await storage.maintenance.prune(state=State.SUCCEEDED, older_than=MINUTE, limit=100)

    async def steps() -> int:
        return await writing_steps(storage, prune)

    plan = Plan()
    plan.part("a", 1_000)
    plan.part("b", after=["a"])
    await start(storage, plan)
    await finish(storage, *await claim(storage, 1_000))
    clock.advance(HOUR)
    assert await steps() > 300  # once
    await add(storage, a_job())
    await finish(storage, *await claim(storage, 2))
    clock.advance(HOUR / 2)
    assert await steps() < 100
    assert await total(storage) == 1_001
    clock.advance(HOUR)
    assert await steps() > 300  # again


async def writing_steps(storage: SqliteStorage, op: Callable[[], Awaitable[object]]) -> int:
    """Return how many tens of steps the writer's connection takes."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    await storage._db.write(lambda connection, _: connection.set_progress_handler(count, 10))
    await op()
    await storage._db.write(lambda connection, _: connection.set_progress_handler(None))
    return steps


async def test_a_part_with_wrong_counts_does_not_stop_the_others(storage: SqliteStorage) -> None:
    wrong, right = two_parts(), two_parts()
    await start(storage, wrong)
    await start(storage, right)
    await damage(storage, "UPDATE parts SET blocked = 1, due = 1 WHERE flow = 1 AND name = 'a'")
    assert await run_all(storage) == ["a"] * 4 + ["b"] * 4
    assert not await agree(storage)


async def test_a_job_of_an_older_file_is_no_member(tmp_path: Path, clock: VirtualClock) -> None:
    path = tmp_path / "older.db"
    older = [one for one in migrate.find_migrations(MIGRATIONS) if one.version < MAJOR]
    connection = apsw.Connection(str(path))
    migrate.apply_sqlite(connection, older, clock.now())
    connection.execute(
        "INSERT INTO jobs (id, ready, queue, task, priority, due, max_attempts, budget, created_at,"
        " payload) VALUES (randomblob(16), 1, 'default', 'old', 0, 0, 5, 5, 0, x'')"
    )
    connection.close()
    storage = await open_sqlite(path, clock=clock)
    try:
        await enlist(storage)
        (job,) = await claim(storage)
        record = await look(storage, job)
        assert (job.task, job.flow, record.flow, record.blocked) == ("old", None, None, False)
        plan = two_parts()
        await start(storage, plan)
        assert (await part(storage, plan, "b")).blocked == 2
        assert (await look(storage, plan.jobs["b"][0])).state is State.WAITING
    finally:
        await storage.close()
