"""Every accepted kind of connection behind one face: begin, write, commit, roll back."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from windlass import Job
from windlass._tasks.task import BoundTask, Call


class Theirs:
    """A connection of a user's, with a transaction open on it; their table is ``orders``."""

    def __init__(self, connection: Any, *, blocks: bool, isolation: str | None = None) -> None:
        self.connection = connection
        self.blocks = blocks
        self.isolation = isolation

    async def run(self, sql: str) -> None:
        raise NotImplementedError

    async def commit(self) -> None:
        await self._do(self.connection.commit)

    async def rollback(self) -> None:
        await self._do(self.connection.rollback)

    async def write(self, name: str) -> None:
        await self.run(f"INSERT INTO orders VALUES ('{name}')")  # noqa: S608 -- a test's own words

    async def _do(self, call: Callable[..., Any], *args: Any) -> Any:
        if self.blocks:
            return await asyncio.to_thread(call, *args)
        return await call(*args)

    async def enqueue(self, task: BoundTask[..., Any], *args: Any) -> Job[Any]:
        job: Job[Any] = await self._do(task.enqueue_sync if self.blocks else task.enqueue, *args)
        return job

    async def enqueue_many(self, app: Any, calls: list[Call[Any]]) -> list[Job[Any]]:
        many = app.blocking.enqueue_many if self.blocks else app.enqueue_many
        jobs = await self._do(functools.partial(many, connection=self.connection), calls)
        found: list[Job[Any]] = jobs
        return found


class _Asyncpg(Theirs):
    transaction: Any

    async def begin(self) -> None:
        self.transaction = self.connection.transaction(isolation=self.isolation)
        await self.transaction.start()

    async def run(self, sql: str) -> None:
        await self.connection.execute(sql)

    async def commit(self) -> None:
        await self.transaction.commit()

    async def rollback(self) -> None:
        await self.transaction.rollback()


class _Psycopg(Theirs):
    async def run(self, sql: str) -> None:
        await self._do(self.connection.execute, sql)


class _Alchemy(Theirs):
    async def run(self, sql: str) -> None:
        await self._do(self.connection.execute, text(sql))


def _level(isolation: str | None) -> str | None:
    return None if isolation is None else isolation.replace("_", " ").upper()


@asynccontextmanager
async def asyncpg_connection(url: str, isolation: str | None) -> AsyncIterator[Theirs]:
    connection = await asyncpg.connect(url)
    try:
        theirs = _Asyncpg(connection, blocks=False, isolation=isolation)
        await theirs.begin()
        yield theirs
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_from_a_pool(url: str, isolation: str | None) -> AsyncIterator[Theirs]:
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
    ):
        theirs = _Asyncpg(connection, blocks=False, isolation=isolation)
        await theirs.begin()
        yield theirs


@asynccontextmanager
async def psycopg_connection(url: str, isolation: str | None) -> AsyncIterator[Theirs]:
    # Rows of their own kind: nothing of ours may rest on what a row is.
    connection = await asyncio.to_thread(psycopg.connect, url, row_factory=dict_row)
    if isolation is not None:
        connection.isolation_level = psycopg.IsolationLevel[isolation.upper()]
    try:
        yield _Psycopg(connection, blocks=True)
    finally:
        await asyncio.to_thread(connection.close)


@asynccontextmanager
async def psycopg_async(url: str, isolation: str | None) -> AsyncIterator[Theirs]:
    connection = await psycopg.AsyncConnection.connect(url, row_factory=dict_row)
    if isolation is not None:
        await connection.set_isolation_level(psycopg.IsolationLevel[isolation.upper()])
    try:
        yield _Psycopg(connection, blocks=False)
    finally:
        await connection.close()


def _engine(url: str, isolation: str | None) -> sqlalchemy.Engine:
    options = {} if isolation is None else {"isolation_level": _level(isolation)}
    address = url.replace("postgresql://", "postgresql+psycopg://")
    return sqlalchemy.create_engine(address, poolclass=NullPool, **options)


@asynccontextmanager
async def alchemy_connection(url: str, isolation: str | None) -> AsyncIterator[Theirs]:
    with _engine(url, isolation).connect() as connection:
        yield _Alchemy(connection, blocks=True)


@asynccontextmanager
async def alchemy_session(url: str, isolation: str | None) -> AsyncIterator[Theirs]:
    with Session(_engine(url, isolation)) as session:
        yield _Alchemy(session, blocks=True)


class _Scoped(_Alchemy):
    async def _do(self, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)  # a scoped session is another one on another thread


@asynccontextmanager
async def alchemy_scoped(url: str, isolation: str | None) -> AsyncIterator[Theirs]:
    session = scoped_session(sessionmaker(_engine(url, isolation)))
    try:
        yield _Scoped(session, blocks=True)
    finally:
        session.remove()


@asynccontextmanager
async def _async_engine(url: str, driver: str, isolation: str | None) -> AsyncIterator[Any]:
    options = {} if isolation is None else {"isolation_level": _level(isolation)}
    address = url.replace("postgresql://", f"postgresql+{driver}://")
    engine = create_async_engine(address, poolclass=NullPool, **options)
    try:
        yield engine
    finally:
        await engine.dispose()


@asynccontextmanager
async def alchemy_async_connection(url: str, isolation: str | None) -> AsyncIterator[Theirs]:
    async with (
        _async_engine(url, "asyncpg", isolation) as engine,
        engine.connect() as connection,
    ):
        yield _Alchemy(connection, blocks=False)


@asynccontextmanager
async def alchemy_async_session(url: str, isolation: str | None) -> AsyncIterator[Theirs]:
    async with _async_engine(url, "asyncpg", isolation) as engine, AsyncSession(engine) as session:
        yield _Alchemy(session, blocks=False)


@asynccontextmanager
async def alchemy_async_session_psycopg(url: str, isolation: str | None) -> AsyncIterator[Theirs]:
    async with _async_engine(url, "psycopg", isolation) as engine, AsyncSession(engine) as session:
        yield _Alchemy(session, blocks=False)


Open = Callable[[str, str | None], AbstractAsyncContextManager[Theirs]]
DRIVERS: dict[str, Open] = {
    opener.__name__: opener
    for opener in (
        asyncpg_connection,
        asyncpg_from_a_pool,
        psycopg_connection,
        psycopg_async,
        alchemy_connection,
        alchemy_session,
        alchemy_scoped,
        alchemy_async_connection,
        alchemy_async_session,
        alchemy_async_session_psycopg,
    )
}
SESSIONS = ("alchemy_session", "alchemy_scoped", "alchemy_async_session")
SOME = ("asyncpg_connection", "psycopg_connection", "alchemy_async_session")
"""For what takes long and rests on the server alone: each library once."""
