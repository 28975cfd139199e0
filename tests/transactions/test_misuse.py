"""What cannot work is refused before anything is written, and the message says what can."""

from __future__ import annotations

from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy

from tests.transactions.drivers import DRIVERS
from windlass import Context, Windlass
from windlass._core.job.state import State
from windlass._storage.postgres.transactions.transactions import UserTransactions
from windlass.errors import ConfigError, InvalidArgument, JobFailed, SchemaMissing
from windlass.testing import drain, isolated

BLOCKING = {
    "psycopg_connection": "psycopg AsyncConnection",
    "alchemy_connection": "AsyncConnection",
    "alchemy_session": "AsyncSession",
    "alchemy_scoped": "AsyncSession",
}
AWAITED = {
    "asyncpg_connection": "asyncpg Connection",
    "asyncpg_from_a_pool": "asyncpg Connection",
    "psycopg_async": "psycopg Connection",
    "alchemy_async_connection": "a Connection",
    "alchemy_async_session": "a Session",
}


def plain(app: Windlass) -> Any:
    @app.task(name="plain")
    async def work() -> str:
        return "done"

    return work


@pytest.mark.parametrize("name", BLOCKING)
async def test_a_connection_that_blocks_is_not_awaited(
    app: Windlass, postgres_url: str, name: str
) -> None:
    work = plain(app)
    async with DRIVERS[name](postgres_url, None) as theirs:
        with pytest.raises(InvalidArgument, match=r"call enqueue_sync\(") as caught:
            await work.options(connection=theirs.connection).enqueue()
        assert BLOCKING[name] in str(caught.value)
        with pytest.raises(InvalidArgument, match=r"call enqueue_sync\("):
            await app.enqueue_many([work.call()], connection=theirs.connection)


@pytest.mark.parametrize("name", AWAITED)
async def test_a_connection_that_is_awaited_does_not_block(
    app: Windlass, postgres_url: str, name: str
) -> None:
    work = plain(app)
    async with DRIVERS[name](postgres_url, None) as theirs:
        with pytest.raises(InvalidArgument, match=r"use `await \.\.\.enqueue\(") as caught:
            work.options(connection=theirs.connection).enqueue_sync()
        assert AWAITED[name] in str(caught.value)
        with pytest.raises(InvalidArgument, match=r"use `await \.\.\.enqueue\("):
            app.blocking.enqueue_many([work.call()], connection=theirs.connection)


async def test_anything_else_is_refused_with_what_is_accepted(
    app: Windlass, postgres_url: str
) -> None:
    work = plain(app)
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql", "postgresql+psycopg", 1))
    line = psycopg.connect(postgres_url)
    wrong: list[tuple[Any, str]] = [
        (postgres_url, "asyncpg Connection, a psycopg 3 Connection"),
        (engine, r"with engine\.begin\(\)"),
        (line.cursor(), "give its connection"),
        (object(), "SQLAlchemy 2 Connection, Session, AsyncConnection or AsyncSession; got"),
    ]
    for connection, text in wrong:
        with pytest.raises(InvalidArgument, match=text):
            await work.options(connection=connection).enqueue()
        with pytest.raises(InvalidArgument, match=text):
            work.options(connection=connection).enqueue_sync()
    async with asyncpg.create_pool(postgres_url, min_size=0) as pool:
        with pytest.raises(InvalidArgument, match=r"pool\.acquire\(\)"):
            await work.options(connection=pool).enqueue()
    line.close()


def test_the_user_s_own_subclass_is_recognised(empty_database: str) -> None:
    class Traced(psycopg.Connection[Any]):
        pass

    with Traced.connect(empty_database) as line, pytest.raises(SchemaMissing):
        UserTransactions("windlass").insert_sync(line, [])


async def test_without_the_tables_the_message_says_how_to_make_them(empty_database: str) -> None:
    app = Windlass(empty_database)
    work = plain(app)
    with psycopg.connect(empty_database) as line:
        with pytest.raises(SchemaMissing, match="windlass db migrate"):
            work.options(connection=line).enqueue_sync()
        line.rollback()
        async with app:
            job = work.options(connection=line).enqueue_sync()
            line.commit()
            assert (await job.refresh()).task == "plain"


async def test_an_awaited_connection_opens_the_app_first(empty_database: str) -> None:
    app = Windlass(empty_database)
    connection = await asyncpg.connect(empty_database)
    try:
        job = await plain(app).options(connection=connection).enqueue()
        assert (await job.refresh()).task == "plain"
    finally:
        await connection.close()
        await app.close()


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{folder}/jobs.db"])
async def test_other_backends_say_why_they_cannot(
    url: str, postgres_url: str, tmp_path: Any
) -> None:
    app = Windlass(url.format(folder=tmp_path))
    caught: list[BaseException] = []

    @app.task(name="work", max_attempts=1)
    async def work(ctx: Context) -> None:
        try:
            ctx.finish_sync(connection=line)
        except ConfigError as error:
            caught.append(error)
        await ctx.finish(connection=line)

    with psycopg.connect(postgres_url) as line:
        async with app:
            with pytest.raises(ConfigError, match="stores a job in your PostgreSQL transaction"):
                work.options(connection=line).enqueue_sync()
            with pytest.raises(ConfigError, match=r"Use postgresql://"):
                await app.enqueue_many([work.call()], connection=line)
            job = await work.enqueue()
            async with app.worker():
                with pytest.raises(JobFailed, match="safe to repeat"):
                    await job.result(timeout=20)
    assert "Use postgresql:// for jobs" in str(caught[0])


async def test_a_batch_has_one_connection_and_one_way_of_waking(
    app: Windlass, postgres_url: str
) -> None:
    work = plain(app)
    with psycopg.connect(postgres_url) as line, psycopg.connect(postgres_url) as other:
        with pytest.raises(InvalidArgument, match="give it once"):
            await app.enqueue_many([work.options(connection=line).call()])
        with pytest.raises(InvalidArgument, match="give it once"):
            app.blocking.enqueue_many([work.options(connection=line).call()], connection=other)
        same = [work.options(connection=line).call(), work.call()]
        assert len(app.blocking.enqueue_many(same, connection=line)) == 2
    with pytest.raises(InvalidArgument, match="wake= belongs to connection="):
        work.options(wake="commit")
    with pytest.raises(InvalidArgument, match="wake= belongs to connection="):
        await app.enqueue_many([], wake="commit")
    with pytest.raises(InvalidArgument, match="wake must be 'commit'"):
        work.options(connection=line, wake="now")


async def test_an_isolated_app_stores_it_in_memory_and_needs_no_connection(
    postgres_url: str,
) -> None:
    app = Windlass(postgres_url)
    anything: Any = object()

    @app.task(name="loop")
    async def on_the_loop(ctx: Context) -> str:
        return await ctx.finish("done", connection=anything)

    @app.task(name="thread")
    def on_a_thread(ctx: Context) -> str:
        ctx.finish_sync("done", connection=anything)
        return "not this"

    @app.task(name="quiet", store_result=False)
    async def stores_no_result(ctx: Context) -> None:
        await ctx.finish(object(), connection=anything)

    with isolated(app):
        first = await on_the_loop.options(connection=anything).enqueue()
        (second,) = await app.enqueue_many([on_a_thread.call()], connection=anything)
        third = await stores_no_result.enqueue()
        await drain(app)
        assert [await first.result(), await second.result()] == ["done", "done"]
        record = await third.refresh()
        assert (record.state, record.result) == (State.SUCCEEDED, None)


async def test_follow_up_work_remembers_its_parent(app: Windlass, postgres_url: str) -> None:
    work = plain(app)

    @app.task(name="first")
    async def first(ctx: Context) -> list[str]:
        async with DRIVERS["asyncpg_connection"](postgres_url, None) as theirs:
            bound = work.options(connection=theirs.connection)
            ids = [(await ctx.enqueue(bound.call())).id, (await bound.enqueue()).id]
            await ctx.finish(ids, connection=theirs.connection)
            await theirs.commit()
        return ids

    job = await first.enqueue()
    async with app.worker():
        for follower in await job.result(timeout=20):
            assert (await app.admin.jobs.get(follower)).parent == job.id
