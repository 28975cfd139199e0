"""One server as seen from here: how to reach it, and whether it is away or another one."""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from typing import Any, NamedTuple

import asyncpg

from windlass._storage.postgres.io.errors import (
    ErrorMeaning,
    StatementTimeout,
    error_meaning_of,
    translate,
)
from windlass._storage.postgres.io.url import PostgresAddress, PostgresHost
from windlass._storage.shared.errors import copy_error
from windlass._system.seams import monotonic

__all__ = ["PostgresServer", "socket_of"]

log = logging.getLogger("windlass")

_CONNECT_SECONDS = 3.0
_IDENTITY = """
SELECT system_identifier::text,
       CASE WHEN NOT pg_is_in_recovery()
            THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END
  FROM pg_control_system()
"""
"""A copy of a server keeps the first; a promotion begins a new timeline, the second."""


_IS_READ_ONLY = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'"


class _ServerIdentity(NamedTuple):
    system: str
    timeline: str | None


class PostgresServer:
    """How to reach the database, and what was learnt about the way there.

    Shared by all links of a storage, also by the heartbeat's on its own thread.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self.pooled = address.pooled
        self._favourite = 0
        self._down_since: float | None = None
        self._reached = False
        self._identity: _ServerIdentity | None = None
        self._read_only: BaseException | None = None
        """The error of a statement that the server refused because it takes no writes."""

    @property
    def is_away(self) -> bool:
        """Whether a connection was lost, and none was opened since."""
        return self._down_since is not None

    async def connect(self) -> asyncpg.Connection:
        """Open a connection; of several hosts, to one that takes writes."""
        connection = await self._find()
        try:
            await self._recognise(connection)
            await self._check_writes(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _check_writes(self, connection: asyncpg.Connection) -> None:
        """Raise while a server takes no writes that refused one. It accepts connections and reads,
        so a connection alone does not end the outage.
        """
        if self._read_only is not None:
            if await connection.fetchval(_IS_READ_ONLY):
                raise copy_error(self._read_only)
            self._read_only = None

    async def _recognise(self, connection: asyncpg.Connection) -> None:
        """Say so, once, when what answers is not the server, or not the history, of before."""
        try:
            found = _ServerIdentity(*await connection.fetchrow(_IDENTITY))
        except asyncpg.PostgresError as error:  # not allowed, or a service that has no such thing
            log.debug("which server answers at %s is not known: %s", self.address.shown, error)
            return
        if found.timeline is None:
            return
        before, self._identity = self._identity, found
        if before is None or before == found:
            return
        what = f"is another server than before (system identifier {found.system})"
        if before.system == found.system:
            what = (
                f"has begun a new timeline ({before.timeline} → {found.timeline}): a standby was "
                f"promoted, or a backup restored"
            )
        log.warning(
            "PostgreSQL at %s %s. Jobs and outcomes that were acknowledged last may be missing, "
            "and jobs may run again, unless every commit waited for that standby "
            "(synchronous_standby_names).",
            self.address.shown,
            what,
        )

    async def _find(self) -> asyncpg.Connection:
        if len(self.address.hosts) < 2:
            return await self._connect(None)
        failures: list[Exception] = []
        hosts = self.address.hosts
        for step in range(len(hosts)):
            index = (self._favourite + step) % len(hosts)
            try:
                connection = await self._connect(hosts[index])
            except Exception as error:  # noqa: BLE001 -- the next host may do better
                failures.append(error)
            else:
                self._favourite = index
                return connection
        # A standby says least about what is wrong: its primary does.
        failures.sort(key=lambda error: error_meaning_of(error) is ErrorMeaning.READ_ONLY)
        raise failures[0]

    async def _connect(self, host: PostgresHost | None) -> asyncpg.Connection:
        settings = {} if self.address.named else {"application_name": "windlass"}
        if self.pooled is False:
            # A pooler refuses settings that it does not know, so they wait until it is certain that
            # there is none. Limits are counted under READ COMMITTED, with any setting of the role.
            settings |= {"default_transaction_isolation": "read committed", "jit": "off"}
        choice: dict[str, Any] = {}
        if host is not None:
            choice = {"host": host.name, "port": host.port, "target_session_attrs": "read-write"}
        connection = await asyncpg.connect(
            self.address.dsn,
            timeout=self.address.connect_seconds or _CONNECT_SECONDS,
            statement_cache_size=0 if self.pooled is not False else 300,
            max_cached_statement_lifetime=0,
            max_cacheable_statement_size=0,
            server_settings=settings,
            **choice,
        )
        _keep_watch(connection)
        return connection

    def note_pooled(self, *, pooled: bool | None) -> None:
        """Remember whether a pooler is in between."""
        self.pooled = pooled

    def suspects_pooler(self, error: BaseException) -> bool:
        """Return whether a login failed because of our settings: a pooler refuses those that it
        does not know.
        """
        refused = getattr(error, "sqlstate", None) == "08P01"
        if not refused or self.pooled is not False:
            return False
        self.pooled = True
        return True

    def note_lost(self, error: BaseException) -> None:
        """Log an outage once, for any number of connections. Before the first answer, the caller
        that opens the storage reports it.
        """
        if isinstance(error, StatementTimeout):
            return  # the server is there, and the caller hears of it
        if error_meaning_of(error) is ErrorMeaning.READ_ONLY:
            self._read_only = error
        if self._reached and self._down_since is None:
            self._down_since = monotonic()
            log.warning("%s", translate(error, self.address.shown))

    def note_reached(self) -> None:
        self._reached = True
        since, self._down_since = self._down_since, None
        if since is not None:
            log.warning(
                "PostgreSQL at %s is back after %.1f s.", self.address.shown, monotonic() - since
            )


def socket_of(connection: asyncpg.Connection) -> socket.socket | None:
    """Return the socket that a connection uses."""
    transport = getattr(connection, "_transport", None)
    found: socket.socket | None = transport and transport.get_extra_info("socket")
    return found


def _keep_watch(connection: asyncpg.Connection) -> None:
    """Let the kernel notice a dead peer: a server that lost its power says nothing any more."""
    found = socket_of(connection)
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    options = [("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)]
    with suppress(OSError):  # a kernel that does not know one of them
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in [*options, ("TCP_USER_TIMEOUT", 15_000)]:
            if hasattr(socket, name):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
