"""A job on the user's connection is there exactly when they commit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.transactions.drivers import DRIVERS, SOME, Open
from windlass import Job, Task, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.job import LimitUse, NewJob
from windlass._core.job.state import State
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.workers import WorkerStart
from windlass._system.seams import new_job_id
from windlass.errors import IdConflict, JobNotFound, KeyBusy, LimitUnknown


@pytest.fixture
def greet(app: Windlass) -> Task[..., str]:
    @app.task(name="greet")
    async def greet(name: str, times: int = 1) -> str:
        return f"hello {name}" * times

    return greet


def orders(url: str) -> list[str]:
    with psycopg.connect(url) as line:
        return [name for (name,) in line.execute("SELECT name FROM orders ORDER BY name")]


async def is_there(job: Job[Any]) -> bool:
    try:
        await job.refresh()
    except JobNotFound:
        return False
    return True


async def test_it_is_there_when_they_commit_and_not_before(
    app: Windlass, greet: Task[..., str], driver: Open, postgres_url: str
) -> None:
    async with driver(postgres_url, None) as theirs:
        await theirs.write("one")
        job = await theirs.enqueue(greet.options(connection=theirs.connection), "ada")
        assert job.created
        assert not await is_there(job)
        await theirs.commit()
        assert await is_there(job)
    assert orders(postgres_url) == ["one"]
    async with app.worker():
        assert await job.result(timeout=20) == "hello ada"


async def test_it_is_gone_when_they_roll_back(
    app: Windlass, greet: Task[..., str], driver: Open, postgres_url: str
) -> None:
    async with driver(postgres_url, None) as theirs:
        await theirs.write("one")
        job = await theirs.enqueue(greet.options(connection=theirs.connection), "ada")
        await theirs.rollback()
        assert not await is_there(job)
    assert orders(postgres_url) == []
    assert await app.admin.queues.counts() == []


async def test_many_are_all_there_or_none(
    app: Windlass, greet: Task[..., str], driver: Open, postgres_url: str
) -> None:
    calls = [greet.call(f"nr {number}") for number in range(2000)]
    async with driver(postgres_url, None) as theirs:
        gone = await theirs.enqueue_many(app, calls)
        await theirs.rollback()
    async with driver(postgres_url, None) as theirs:
        jobs = await theirs.enqueue_many(app, calls)
        await theirs.commit()
    assert len(jobs) == len({job.id for job in jobs}) == 2000
    stored = await app.admin.jobs.get(jobs[1999].id)
    assert stored is not None
    assert stored.payload == calls[1999].payload
    (counts,) = await app.admin.queues.counts()
    assert counts.ready == 2000
    assert not await is_there(gone[0])


async def test_no_calls_are_no_jobs(app: Windlass, driver: Open, postgres_url: str) -> None:
    async with driver(postgres_url, None) as theirs:
        assert await theirs.enqueue_many(app, []) == []
        await theirs.commit()


async def test_a_held_key_names_its_holder(
    app: Windlass, greet: Task[..., str], driver: Open, postgres_url: str
) -> None:
    first = await greet.options(key="k").enqueue("ada")
    async with driver(postgres_url, None) as theirs:
        bound = greet.options(key="k", connection=theirs.connection)
        again = await theirs.enqueue(bound, "bob")
        assert (again.id, again.created) == (first.id, False)
        other = greet.options(key="new", connection=theirs.connection)
        mine = await theirs.enqueue(other, "cid")
        same = await theirs.enqueue(other, "dan")
        assert mine.created
        assert (same.id, same.created) == (mine.id, False)
        await theirs.commit()
    late = await greet.options(key="new").enqueue("eve")
    assert (late.id, late.created) == (mine.id, False)


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_a_key_that_an_open_transaction_decides_about_is_busy(
    app: Windlass, greet: Task[..., str], driver: Open, postgres_url: str
) -> None:
    async with (
        DRIVERS["psycopg_async"](postgres_url, None) as stranger,
        driver(postgres_url, None) as theirs,
    ):
        await stranger.enqueue(greet.options(key="k", connection=stranger.connection), "ada")
        bound = greet.options(key="k", connection=theirs.connection)
        with pytest.raises(KeyBusy, match="Another open transaction"):
            await theirs.enqueue(bound, "bob")
        await theirs.rollback()
        await stranger.rollback()


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_a_failure_in_a_savepoint_leaves_the_rest_of_the_transaction(
    app: Windlass, greet: Task[..., str], driver: Open, postgres_url: str
) -> None:
    async with (
        DRIVERS["asyncpg_connection"](postgres_url, None) as stranger,
        driver(postgres_url, None) as theirs,
    ):
        await stranger.enqueue(greet.options(key="k", connection=stranger.connection), "ada")
        await theirs.write("one")
        await theirs.run("SAVEPOINT here")
        with pytest.raises(KeyBusy):
            await theirs.enqueue(greet.options(key="k", connection=theirs.connection), "bob")
        await theirs.run("ROLLBACK TO SAVEPOINT here")
        job = await theirs.enqueue(greet.options(connection=theirs.connection), "cid")
        await theirs.commit()
        await stranger.rollback()
    assert orders(postgres_url) == ["one"]
    assert await is_there(job)


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_stricter_isolation_works(
    app: Windlass, greet: Task[..., str], driver: Open, postgres_url: str, isolation: str
) -> None:
    held = await greet.options(key="held").enqueue("ada")
    async with driver(postgres_url, isolation) as theirs:
        await theirs.write("one")
        plain = await theirs.enqueue(greet.options(connection=theirs.connection), "ada")
        keyed = greet.options(key="free", connection=theirs.connection)
        first = await theirs.enqueue(keyed, "bob")
        again = await theirs.enqueue(keyed, "bob")
        taken = await theirs.enqueue(greet.options(key="held", connection=theirs.connection), "cid")
        await theirs.commit()
    assert again.id == first.id
    assert taken.id == held.id
    assert await is_there(plain)
    async with app.worker():
        assert await first.result(timeout=20) == "hello bob"


async def test_everything_a_call_can_ask_for_is_stored(
    app: Windlass, greet: Task[..., str], driver: Open, postgres_url: str
) -> None:
    at = datetime(2031, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    asked: dict[str, Any] = {
        "priority": -7,
        "queue": "mail",
        "max_attempts": 9,
        "timeout": timedelta(seconds=12),
        "tags": ["a", "b ü \\ \" '"],
        "tenant": "zoë",
        "principal": "p",
        "correlation_id": "c",
        "key": "k",
        "unique_for": 60,
    }
    direct = await greet.options(at=at, **{**asked, "key": "other"}).enqueue("ünï \0 \u2028 '\\")
    async with driver(postgres_url, None) as theirs:
        bound = greet.options(at=at, connection=theirs.connection, **asked)
        job = await theirs.enqueue(bound, "ünï \0 \u2028 '\\")
        await theirs.commit()
    one, two = await direct.refresh(), await job.refresh()
    for name in one.__struct_fields__:
        if name not in {"id", "seq", "created_at", "key"}:
            assert getattr(one, name) == getattr(two, name), name


async def test_their_session_is_left_as_it_was(
    app: Windlass, greet: Task[..., str], postgres_url: str
) -> None:
    names = ("lock_timeout", "search_path", "synchronous_commit", "enable_seqscan")
    with psycopg.connect(postgres_url) as line:
        line.execute("SET LOCAL synchronous_commit = off")
        line.execute("SET LOCAL lock_timeout = '7s'")

        def settings() -> list[object]:
            return [line.execute(f"SHOW {name}").fetchone() for name in names]

        before = settings()
        greet.options(connection=line, key="k").enqueue_sync("ada")
        assert settings() == before
        line.rollback()


async def test_outside_a_transaction_it_is_stored_at_once(
    app: Windlass, greet: Task[..., str], postgres_url: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as line:
        job = greet.options(connection=line).enqueue_sync("ada")
        assert await is_there(job)


async def test_a_job_with_limits_waits_for_no_lock_and_runs_when_its_limit_lets_it(
    app: Windlass, postgres_url: str
) -> None:
    storage = await parts_of(app).storage()
    assert storage.transactions is not None
    await storage.limits.define([LimitSpec(name="one", concurrency=1)])
    await storage.workers.register(
        WorkerStart(
            id="w",
            host="h",
            pid=1,
            version="1",
            queues=["default"],
            slots=1,
            lease=timedelta(seconds=30),
        )
    )

    def new(name: str) -> NewJob:
        return NewJob(id=new_job_id(), task="t", limits=(LimitUse(name),))

    async with (
        DRIVERS["asyncpg_connection"](postgres_url, None) as theirs,
        DRIVERS["psycopg_async"](postgres_url, None) as others,
    ):
        first, second, ours = new("one"), new("one"), new("one")
        await storage.transactions.insert(theirs.connection, [first])
        # Theirs is open: nobody waits for it, neither another user nor the store itself.
        await storage.transactions.insert(others.connection, [second])
        await storage.jobs.insert([ours])
        await theirs.commit()
        await others.commit()
    reply = await storage.jobs.claim("w", [Want("default", 10)], total=10)
    assert [job.claim.job for job in reply.jobs] == [first.id]
    assert not (await storage.jobs.claim("w", [Want("default", 10)], total=10)).jobs

    async with DRIVERS["asyncpg_connection"](postgres_url, None) as theirs:
        with pytest.raises(LimitUnknown, match="'two'"):
            await storage.transactions.insert(theirs.connection, [new("two")])
        await theirs.rollback()


async def test_a_repeated_insert_is_the_first_one(app: Windlass, postgres_url: str) -> None:
    storage = await parts_of(app).storage()
    assert storage.transactions is not None
    job = NewJob(id=new_job_id(), task="t")
    async with DRIVERS["asyncpg_connection"](postgres_url, None) as theirs:
        for _ in range(2):
            (answer,) = await storage.transactions.insert(theirs.connection, [job])
            assert (answer.id, answer.created) == (job.id, True)
        await theirs.commit()
    stored = await app.admin.jobs.get(job.id)
    assert stored is not None
    assert stored.state is State.WAITING


async def test_a_call_with_an_id_is_one_job_in_whatever_transaction(
    app: Windlass, greet: Task[..., str], driver: Open, postgres_url: str
) -> None:
    job_id = new_job_id()
    for _ in range(2):
        async with driver(postgres_url, None) as theirs:
            bound = greet.options(connection=theirs.connection, id=job_id)
            assert (await theirs.enqueue(bound, "ada")).id == job_id
            await theirs.commit()
    assert len(await app.admin.jobs.find()) == 1
    async with driver(postgres_url, None) as theirs:
        bound = greet.options(connection=theirs.connection, id=job_id)
        with pytest.raises(IdConflict) as caught:
            await theirs.enqueue(bound, "bob")
        assert caught.value.ids == (job_id,)
