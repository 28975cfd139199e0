"""A test on an isolated app sees the jobs that production would: those that were committed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from tests.transactions.drivers import DRIVERS, Theirs
from windlass import Windlass
from windlass._core.job.state import State
from windlass._tasks.task import Task
from windlass.errors import ConfigError, InvalidArgument, KeyConflict
from windlass.testing import drain, enqueued, enqueued_sync, inline, isolated


def mail_of(app: Windlass) -> Task[..., None]:
    @app.task(name="mail")
    async def mail(to: str) -> None: ...

    return mail


async def there(app: Windlass) -> list[str]:
    return [one.arguments["to"] for one in await enqueued(app)]


@pytest.mark.parametrize("name", DRIVERS)
async def test_jobs_are_there_after_a_commit_and_gone_after_a_rollback(
    name: str, postgres_url: str
) -> None:
    app = Windlass(postgres_url)
    mail, heard = mail_of(app), list[object]()
    app.on_transition(heard.append)
    with isolated(app):
        async with DRIVERS[name](postgres_url, None) as theirs:
            bound = mail.options(connection=theirs.connection)
            assert (await theirs.enqueue(bound, "kept")).created
            await theirs.enqueue_many(app, [mail.call("also")])
            assert await there(app) == []
            await theirs.commit()
            assert await there(app) == ["kept", "also"]
            if hasattr(theirs, "begin"):
                await theirs.begin()
            await theirs.enqueue(bound, "dropped")
            await theirs.rollback()
            assert await there(app) == ["kept", "also"]
        assert heard == []
        assert (await drain(app)).succeeded == 2


async def savepoints(theirs: Theirs, app: Windlass, mail: Task[..., None]) -> list[str]:
    bound = mail.options(connection=theirs.connection)
    await theirs.run("SAVEPOINT one")
    await theirs.enqueue(bound, "first")
    await theirs.run("SAVEPOINT two")
    await theirs.enqueue(bound, "second")
    await theirs.run("ROLLBACK TO SAVEPOINT two")
    await theirs.enqueue(bound, "third")
    await theirs.run("RELEASE SAVEPOINT one")
    await theirs.commit()
    return await there(app)


@pytest.mark.parametrize("name", ["asyncpg_connection", "psycopg_connection", "psycopg_async"])
async def test_jobs_of_a_savepoint_go_with_it(name: str, postgres_url: str) -> None:
    app = Windlass(postgres_url)
    with isolated(app):
        async with DRIVERS[name](postgres_url, None) as theirs:
            assert await savepoints(theirs, app, mail_of(app)) == ["first", "third"]


@pytest.mark.parametrize("name", ["asyncpg_connection", "psycopg_connection", "psycopg_async"])
async def test_a_unique_job_that_was_rolled_back_holds_no_key(name: str, postgres_url: str) -> None:
    app = Windlass(postgres_url)
    mail = mail_of(app)
    with isolated(app):
        async with DRIVERS[name](postgres_url, None) as theirs:
            bound = mail.options(connection=theirs.connection, key="one")
            await theirs.run("SAVEPOINT here")
            assert (await theirs.enqueue(bound, "first")).created
            await theirs.run("ROLLBACK TO SAVEPOINT here")
            assert (await theirs.enqueue(bound, "second")).created
            assert not (await theirs.enqueue(bound, "third")).created
            await theirs.rollback()
            if hasattr(theirs, "begin"):
                await theirs.begin()
            await theirs.run("SELECT 1")
            assert (await theirs.enqueue(bound, "fourth")).created
            await theirs.commit()
            assert await there(app) == ["fourth"]


def nested(line: Any, app: Windlass, mail: Task[..., None]) -> list[str]:
    """Of a session or a connection of SQLAlchemy, on which a transaction is open."""
    bound = mail.options(connection=line)
    bound.enqueue_sync("first")
    with line.begin_nested():
        bound.enqueue_sync("second")
        with line.begin_nested() as inner:
            bound.enqueue_sync("third")
            inner.rollback()
    with line.begin_nested() as outer:
        with line.begin_nested():
            bound.enqueue_sync("fourth")
        outer.rollback()
    line.commit()
    return [one.arguments["to"] for one in enqueued_sync(app)]


def test_jobs_of_nested_transactions_go_with_them() -> None:
    app = Windlass("postgresql://nowhere.invalid/shop")
    mail = mail_of(app)
    engine = sqlalchemy.create_engine("sqlite://")  # theirs, in a test: any database will do
    for line in (Session(engine), engine.connect()):
        with isolated(app), line:
            assert nested(line, app, mail) == ["first", "second"]
            mail.options(connection=line).enqueue_sync("never committed")
        with isolated(app):
            assert enqueued_sync(app) == []
    with isolated(app):
        with Session(engine) as session:
            mail.options(connection=session).enqueue_sync("closed")
        assert enqueued_sync(app) == []
        with suppress(ZeroDivisionError), Session(engine) as session, session.begin():
            mail.options(connection=session).enqueue_sync("raised")
            raise ZeroDivisionError
        assert enqueued_sync(app) == []
    engine.dispose()
    app.blocking.close()


async def test_without_a_transaction_each_call_is_stored_at_once(postgres_url: str) -> None:
    app = Windlass(postgres_url)
    mail = mail_of(app)
    with isolated(app):
        connection = await asyncpg.connect(postgres_url)
        await mail.options(connection=connection).enqueue("asyncpg")
        await connection.close()
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as line:
            await mail.options(connection=line).enqueue("psycopg")
        assert await there(app) == ["asyncpg", "psycopg"]


async def test_a_commit_of_a_transaction_that_failed_is_a_rollback(postgres_url: str) -> None:
    app = Windlass(postgres_url)
    mail = mail_of(app)
    with isolated(app):
        for name in ("asyncpg_connection", "psycopg_async"):
            async with DRIVERS[name](postgres_url, None) as theirs:
                await theirs.enqueue(mail.options(connection=theirs.connection), "x")
                with pytest.raises((asyncpg.PostgresError, psycopg.Error)):
                    await theirs.run("SELECT 1 / 0")
                await theirs.commit()
        assert await there(app) == []


async def test_keys_and_ids_are_answered_as_they_will_be(postgres_url: str) -> None:
    app = Windlass(postgres_url)
    mail = mail_of(app)
    with isolated(app):
        held = await mail.options(key="held").enqueue("here")
        async with DRIVERS["psycopg_async"](postgres_url, None) as theirs:
            line = theirs.connection
            answer = await mail.options(key="held", connection=line).enqueue("there")
            assert (answer.id, answer.created) == (held.id, False)
            first = await mail.options(key="new", connection=line).enqueue("there")
            again = await mail.options(key="new", connection=line).enqueue("again")
            assert (again.id, again.created) == (first.id, False)
            with pytest.raises(KeyConflict):
                await mail.options(key="new", on_conflict="raise", connection=line).enqueue("no")
            await theirs.commit()
        assert await there(app) == ["here", "there"]


async def test_what_production_refuses_is_refused(postgres_url: str) -> None:
    app = Windlass(postgres_url)
    mail = mail_of(app)
    engine: Any = sqlalchemy.create_engine("sqlite://")
    with isolated(app), pytest.raises(InvalidArgument, match="It is an engine"):
        await mail.options(connection=engine).enqueue("x")
    other = Windlass("sqlite:///jobs.db")
    with isolated(other), pytest.raises(ConfigError, match="enqueue after your commit"):
        await mail_of(other).options(connection=engine.connect()).enqueue("x")


async def test_inline_jobs_do_not_wait_for_a_transaction(postgres_url: str) -> None:
    app = Windlass(postgres_url)
    mail = mail_of(app)
    with isolated(app):
        async with DRIVERS["asyncpg_connection"](postgres_url, None) as theirs:
            with inline(app):
                job = await mail.options(connection=theirs.connection).enqueue("x")
                assert (await job.refresh()).state is State.SUCCEEDED
            await mail.options(connection=theirs.connection).enqueue("y")
        assert await there(app) == []
