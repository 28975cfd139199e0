"""Connections that belong to the user: which driver's they are, and how to run a statement there.

No driver is imported for it. A connection is recognised by the names of its classes. It only runs
one statement with one text in and one text out, which every driver returns alike, with any row
types and codecs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec

from windlass._core.values.names import shown
from windlass.errors import InvalidArgument

__all__ = [
    "ACCEPTED",
    "Driver",
    "Statement",
    "call_on_commit",
    "driver_of",
    "run_statement",
    "run_statement_sync",
]


class Statement:
    """One statement with one parameter, as each driver wants it written."""

    def __init__(self, text: str) -> None:
        """``text`` has its parameter as ``$1``."""
        self.dollar = text
        self.percent: str = text.replace("$1", "%s")
        self.named: str = text.replace("$1", ":request")


class Driver(msgspec.Struct, frozen=True):
    """One kind of connection."""

    title: str
    blocks: bool
    """Its calls block: for `enqueue_sync` and `finish_sync`."""
    run: Callable[[Any, Statement, str], Any]
    """The single text of the answer, or an awaitable of it."""
    session: Callable[[Any], Any] | None = None
    """From the connection to the SQLAlchemy session that can say when it has committed."""
    other: str = ""
    """The name of the library's other kind of connection."""


async def _asyncpg(connection: Any, statement: Statement, request: str) -> Any:
    return await connection.fetchval(statement.dollar, request)


def _tuples(_: object) -> Callable[[Any], tuple[Any, ...]]:
    """Return a row factory of ours: the connection's may make anything of a row."""
    return tuple


def _psycopg(connection: Any, statement: Statement, request: str) -> Any:
    with connection.cursor(row_factory=_tuples) as cursor:
        cursor.execute(statement.percent, (request,))
        (answer,) = cursor.fetchone()
        return answer


async def _psycopg_async(connection: Any, statement: Statement, request: str) -> Any:
    async with connection.cursor(row_factory=_tuples) as cursor:
        await cursor.execute(statement.percent, (request,))
        (answer,) = await cursor.fetchone()
        return answer


def _text(statement: Statement) -> Any:
    """Import SQLAlchemy's ``text``. A caller with such a connection has imported it."""
    return sys.modules["sqlalchemy"].text(statement.named)


def _sqlalchemy(connection: Any, statement: Statement, request: str) -> Any:
    return connection.execute(_text(statement), {"request": request}).scalar_one()


async def _sqlalchemy_async(connection: Any, statement: Statement, request: str) -> Any:
    return (await connection.execute(_text(statement), {"request": request})).scalar_one()


def _itself(connection: Any) -> Any:
    return connection


def _sync_session(connection: Any) -> Any:
    return connection.sync_session


def _scoped(connection: Any) -> Any:
    return connection()


def _scoped_sync_session(connection: Any) -> Any:
    return connection().sync_session


_ASYNCPG = Driver("asyncpg Connection", blocks=False, run=_asyncpg)
_DRIVERS = {
    ("asyncpg", "Connection"): _ASYNCPG,
    ("asyncpg", "PoolConnectionProxy"): _ASYNCPG,
    ("psycopg", "Connection"): Driver(
        "psycopg Connection", blocks=True, run=_psycopg, other="a psycopg AsyncConnection"
    ),
    ("psycopg", "AsyncConnection"): Driver(
        "psycopg AsyncConnection", blocks=False, run=_psycopg_async, other="a psycopg Connection"
    ),
    ("sqlalchemy", "Connection"): Driver(
        "SQLAlchemy Connection", blocks=True, run=_sqlalchemy, other="an AsyncConnection"
    ),
    ("sqlalchemy", "Session"): Driver(
        "SQLAlchemy Session",
        blocks=True,
        run=_sqlalchemy,
        session=_itself,
        other="an AsyncSession",
    ),
    ("sqlalchemy", "scoped_session"): Driver(
        "SQLAlchemy scoped_session",
        blocks=True,
        run=_sqlalchemy,
        session=_scoped,
        other="an AsyncSession",
    ),
    ("sqlalchemy", "AsyncConnection"): Driver(
        "SQLAlchemy AsyncConnection", blocks=False, run=_sqlalchemy_async, other="a Connection"
    ),
    ("sqlalchemy", "AsyncSession"): Driver(
        "SQLAlchemy AsyncSession",
        blocks=False,
        run=_sqlalchemy_async,
        session=_sync_session,
        other="a Session",
    ),
    ("sqlalchemy", "async_scoped_session"): Driver(
        "SQLAlchemy async_scoped_session",
        blocks=False,
        run=_sqlalchemy_async,
        session=_scoped_sync_session,
        other="a Session",
    ),
}
ACCEPTED = (
    "an asyncpg Connection, a psycopg 3 Connection or AsyncConnection, or a SQLAlchemy 2 "
    "Connection, Session, AsyncConnection or AsyncSession"
)
_NEARLY = {
    ("asyncpg", "Pool"): "It is a pool: take a connection from it (`async with pool.acquire()`).",
    ("psycopg_pool", "ConnectionPool"): "It is a pool: `with pool.connection() as connection`.",
    ("psycopg_pool", "AsyncConnectionPool"): (
        "It is a pool: `async with pool.connection() as connection`."
    ),
    ("psycopg", "Cursor"): "It is a cursor: give its connection.",
    ("psycopg", "AsyncCursor"): "It is a cursor: give its connection.",
    ("psycopg2", "connection"): "It is of psycopg 2; move to psycopg 3, or use SQLAlchemy over it.",
    ("sqlalchemy", "Engine"): "It is an engine: take a connection (`with engine.begin()`).",
    ("sqlalchemy", "AsyncEngine"): (
        "It is an engine: take a connection (`async with engine.begin()`)."
    ),
    ("sqlalchemy", "sessionmaker"): "It makes sessions: call it, and give the session.",
    ("sqlalchemy", "async_sessionmaker"): "It makes sessions: call it, and give the session.",
}


def driver_of(connection: object) -> Driver:
    """Return the driver of a connection; anything else is refused with what is accepted."""
    nearly = ""
    for kind in type(connection).__mro__:
        names = kind.__module__.partition(".")[0], kind.__name__
        driver = _DRIVERS.get(names)
        if driver is not None:
            return driver
        nearly = nearly or _NEARLY.get(names, "")
    message = f"connection= takes {ACCEPTED}; got {shown(connection)}. {nearly}".rstrip()
    raise InvalidArgument(message)


async def run_statement(
    connection: Any, statement: Statement, request: str, *, doing: str
) -> str | None:
    """Run a statement on a connection that is awaited."""
    driver = driver_of(connection)
    if driver.blocks:
        message = (
            f"connection= is a {driver.title}, whose calls block, and `await ...{doing}` is for "
            f"those that are awaited: call {_blocking(doing)}(...) instead, or give "
            f"{driver.other}."
        )
        raise InvalidArgument(message)
    answer: str | None = await driver.run(connection, statement, request)
    return answer


def run_statement_sync(
    connection: Any, statement: Statement, request: str, *, doing: str
) -> str | None:
    """Run a statement on a connection that blocks."""
    driver = driver_of(connection)
    if not driver.blocks:
        other = f", or give {driver.other}" if driver.other else ""
        message = (
            f"connection= is an {driver.title}, whose calls are awaited, and {_blocking(doing)} is "
            f"for those that block: use `await ...{doing}(...)` instead{other}."
        )
        raise InvalidArgument(message.replace("is an psycopg", "is a psycopg"))
    answer: str | None = driver.run(connection, statement, request)
    return answer


def _blocking(doing: str) -> str:
    """Return the call for connections that block."""
    return "app.blocking.start" if doing == "start" else f"{doing}_sync"


_HOOK = "windlass.hook"


class _CommitHook:
    """Listens to one session for as long as that lives; there is nothing to hear mostly."""

    def __init__(self, session: Any) -> None:
        self.callback: Callable[[], None] | None = None
        self._committed = False
        # Never removed: a listener cannot be taken away while it is being called.
        event = sys.modules["sqlalchemy"].event
        event.listen(session, "after_commit", self._after_commit)
        event.listen(session, "after_transaction_end", self._after_end)

    def _after_commit(self, _: object) -> None:
        self._committed = True  # or a savepoint was released: then one hint is given for nothing

    def _after_end(self, _: object, transaction: Any) -> None:
        if transaction.parent is not None:
            return
        callback, committed = self.callback, self._committed
        self.callback, self._committed = None, False
        if callback is not None and committed:
            callback()


def call_on_commit(connection: Any, callback: Callable[[], None]) -> bool:
    """Call ``callback`` once after the commit of the transaction that is open now.

    Only SQLAlchemy's sessions say when that is: its Core connections tell before they commit, and
    the drivers do not tell at all.
    """
    find = driver_of(connection).session
    if find is None:
        return False
    session = find(connection)
    hook = session.info.get(_HOOK)
    if hook is None:
        hook = session.info[_HOOK] = _CommitHook(session)
    hook.callback = callback
    return True
