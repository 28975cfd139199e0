"""After their commit workers are woken, where the connection can say when that was."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from tests.transactions.drivers import DRIVERS, SESSIONS, Open
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._storage.postgres import PostgresStorage

LONG = 3600
"""A poll that nobody waits for: only a hint explains a quick answer."""


def prepared(url: str) -> tuple[Windlass, Any]:
    app = Windlass(url, poll=LONG)

    @app.task(name="work")
    async def work() -> str:
        return "done"

    return app, work


async def hint(app: Windlass) -> asyncio.Event:
    """Set by the next hint from anywhere."""
    storage, heard = await parts_of(app).storage(), asyncio.Event()
    assert isinstance(storage, PostgresStorage)
    storage.wakeups.subscribe(heard.set)
    await storage.wakeups.listening()
    await heard.wait()  # one is given for whatever was said before
    heard.clear()
    return heard


@pytest.mark.parametrize("driver", SESSIONS, indirect=True)
async def test_a_session_wakes_after_its_commit_and_not_before(
    postgres_url: str, driver: Open
) -> None:
    here, work = prepared(postgres_url)
    async with here:
        heard = await hint(here)
        async with driver(postgres_url, None) as theirs:
            bound = work.options(connection=theirs.connection)
            await theirs.enqueue(bound)
            await theirs.rollback()
            await theirs.enqueue(bound)
            await theirs.run("SELECT 1")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(heard.wait(), 0.3)
            await theirs.commit()
            await asyncio.wait_for(heard.wait(), 10)
            heard.clear()
            await theirs.run("SELECT 1")
            await theirs.commit()  # nothing of ours in it
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(heard.wait(), 0.3)
            await theirs.enqueue(bound)
            await theirs.commit()
            await asyncio.wait_for(heard.wait(), 10)


async def test_a_savepoint_in_the_session_is_no_obstacle(postgres_url: str) -> None:
    here, work = prepared(postgres_url)
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql", "postgresql+psycopg", 1))
    async with here:
        heard = await hint(here)
        with Session(engine) as session:
            with session.begin_nested():
                work.options(connection=session).enqueue_sync()
            session.commit()
        await asyncio.wait_for(heard.wait(), 10)
    engine.dispose()


@pytest.mark.parametrize("driver", list(DRIVERS), indirect=True)
async def test_a_notification_in_their_own_transaction_wakes_with_any_driver(
    postgres_url: str, driver: Open
) -> None:
    here, work = prepared(postgres_url)
    async with here:
        heard = await hint(here)
        async with driver(postgres_url, None) as theirs:
            await theirs.enqueue(work.options(connection=theirs.connection, wake="commit"))
            assert not heard.is_set()
            await theirs.commit()
            await asyncio.wait_for(heard.wait(), 10)


async def test_a_program_that_has_nothing_open_wakes_workers_elsewhere(postgres_url: str) -> None:
    """A web process with sessions and nothing else: what sends the hint opens in the background."""
    worker, _ = prepared(postgres_url)
    web, work = prepared(postgres_url)
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql", "postgresql+psycopg", 1))

    def request() -> Any:
        with Session(engine) as session, session.begin():
            return work.options(connection=session).enqueue_sync()

    async with worker, worker.worker():
        job = await asyncio.to_thread(request)
        assert await worker.job(job.id).result(timeout=20) == "done"
    await asyncio.to_thread(web.blocking.close)
    engine.dispose()


async def test_without_a_hint_the_poll_finds_it(postgres_url: str) -> None:
    app = Windlass(postgres_url, poll=0.05)

    @app.task(name="work")
    async def work() -> str:
        return "done"

    async with app, app.worker():
        with psycopg.connect(postgres_url) as line:
            job = work.options(connection=line).enqueue_sync()
        assert await job.result(timeout=20) == "done"
