"""Where jobs live while something is measured: a file, or a private server from a wheel.

Servers are started for one run, on a port of their own, and end with it. PostgreSQL syncs every
commit; Valkey, which speaks Redis, appends to a file that is synced every second.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import apsw

from benchmarks.child import processor_seconds
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

if TYPE_CHECKING:
    import psycopg
    import redis

__all__ = ["BACKENDS", "Backend", "Counters", "Place", "open_place"]

Backend = Literal["sqlite", "postgres", "redis"]
BACKENDS: tuple[Backend, ...] = ("sqlite", "postgres", "redis")


Counters = Callable[[], dict[str, float]]
"""Returns the seconds that a server has spent so far, by function or command."""


class Place(Protocol):
    """A backend to measure on."""

    backend: Backend
    version: str

    def scratch(self) -> AbstractContextManager[str]:
        """Return the URL of an empty storage; gone afterwards."""
        ...

    def settle(self, url: str) -> None:
        """Write out what was stored, so that nobody else pays for it."""
        ...

    def processor_seconds(self) -> float:
        """Return the processor time that its server has used so far."""
        ...

    def counters(self, url: str) -> Counters:
        """Let the server count the seconds of its functions or commands; called before anything
        connects.
        """
        ...


class _Files:
    backend: Backend = "sqlite"
    version = f"SQLite {apsw.sqlite_lib_version()}"

    @contextmanager
    def scratch(self) -> Iterator[str]:
        """TMPDIR chooses the disk."""
        with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
            yield f"sqlite:///{Path(folder) / 'jobs.db'}"

    def settle(self, url: str) -> None:
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()
        # Files may be built without syncs: the first one that is measured would pay for them all.
        os.sync()

    def processor_seconds(self) -> float:
        return 0.0

    def counters(self, url: str) -> Counters:  # noqa: ARG002
        return dict


class _Postgres:
    backend: Backend = "postgres"

    def __init__(self, server: PostgresServer) -> None:
        self._server, self._numbers = server, count(1)
        with _to_postgres(server.url) as connection:
            major, minor = divmod(connection.info.server_version, 10_000)
            session = Path(f"/proc/{connection.info.backend_pid}/stat").read_text(encoding="ascii")
            self._pid = int(session.rpartition(")")[2].split()[1])  # the parent of all sessions
        self.version = f"PostgreSQL {major}.{minor}, fsync on"

    @contextmanager
    def scratch(self) -> Iterator[str]:
        name = f"bench{next(self._numbers)}"
        self._order(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            yield self._server.url_of(name)
        finally:
            self._order(f"DROP DATABASE {name} WITH (FORCE)")

    def settle(self, url: str) -> None:  # noqa: ARG002 -- of the whole server
        self._order("CHECKPOINT")

    def processor_seconds(self) -> float:
        return processor_seconds(self._pid, with_children=True)

    def counters(self, url: str) -> Counters:
        name = url.rpartition("/")[2].partition("?")[0]
        self._order(f"ALTER DATABASE {name} SET track_functions = 'all'")

        def read() -> dict[str, float]:
            with _to_postgres(url) as connection:
                rows = connection.execute(
                    "SELECT funcname, sum(self_time) / 1000 FROM pg_stat_user_functions GROUP BY 1"
                )
                return {name: float(seconds) for name, seconds in rows}

        return read

    def _order(self, order: str) -> None:
        with _to_postgres(self._server.url) as connection:
            connection.execute(order.encode())


class _Redis:
    backend: Backend = "redis"

    def __init__(self, server: ValkeyServer) -> None:
        self._server = server
        self._free = list(range(16))
        with _to_redis(server.url) as connection:
            found = connection.info("server")
        self._pid = int(found["process_id"])
        version = found.get("valkey_version", found["redis_version"])
        self.version = f"Valkey {version}, appendfsync everysec"

    @contextmanager
    def scratch(self) -> Iterator[str]:
        number = self._free.pop()
        url = f"{self._server.url}/{number}"
        try:
            yield url
        finally:
            with _to_redis(url) as connection:
                connection.flushdb()
            self._free.append(number)

    def settle(self, url: str) -> None:
        """Do nothing: it writes as it goes."""

    def processor_seconds(self) -> float:
        return processor_seconds(self._pid, with_children=True)

    def counters(self, url: str) -> Counters:
        def read() -> dict[str, float]:
            with _to_redis(url) as connection:
                found = connection.info("commandstats")
            return {
                name.removeprefix("cmdstat_"): counted["usec"] / 1e6
                for name, counted in found.items()
            }

        return read


# Every process that is measured imports this module: only those that use a driver pay for it.


def _to_postgres(url: str) -> psycopg.Connection[Any]:
    import psycopg  # noqa: PLC0415

    return psycopg.connect(url, autocommit=True)


def _to_redis(url: str) -> redis.Redis:
    import redis  # noqa: PLC0415

    return redis.Redis.from_url(url)


@contextmanager
def open_place(backend: Backend) -> Iterator[Place]:
    """Open a place to measure ``backend`` on, as long as the block lasts."""
    if backend == "sqlite":
        yield _Files()
    elif backend == "postgres":
        postgres = PostgresServer(durable=True, shared_buffers="256MB", max_wal_size="4GB")
        try:
            yield _Postgres(postgres)
        finally:
            postgres.close()
    else:
        valkey = ValkeyServer()
        try:
            yield _Redis(valkey)
        finally:
            valkey.close()
