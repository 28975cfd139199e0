"""State shared by all stores of one storage: connections, the clock, the schema, the
subscribers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Literal

from windlass._storage.postgres.io.connection import (
    RETRY_SECONDS,
    PostgresConnection,
    PostgresServer,
    Row,
)
from windlass._storage.postgres.io.direct import PostgresDirectConnection
from windlass._storage.postgres.io.notify import Notifier
from windlass._storage.postgres.io.presence import NOTIFY, NOTIFY_WAITING, PresenceKeys
from windlass._storage.shared.subscribers import QueueNames, Subscribers, topics_of
from windlass._storage.timings import Timings
from windlass._system.seams import SYSTEM_CLOCK, Clock, monotonic
from windlass.errors import ConfigError

__all__ = ["PostgresDatabase", "PostgresDurability", "channel_of", "in_schema", "quoted_schema"]

PostgresDurability = Literal["full", "normal"]

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")
_PLACE = re.compile(r"\bwindlass\.(?=[a-z_])")


def quoted_schema(name: str) -> str:
    """Return the schema as an identifier: the one thing that is ever put into a statement."""
    if not _SCHEMA.fullmatch(name) or name.startswith(("pg_", "information_schema")):
        raise ConfigError(
            f"The schema {name!r} cannot be used: lower-case letters, digits and '_', starting "
            f"with a letter, at most 51 of them, and none of PostgreSQL's own (pg_...)."
        )
    return f'"{name}"'


def channel_of(schema: str) -> str:
    """Return the channel that hints go through. Channels are the database's, so it names the
    schema.
    """
    return f"windlass_{schema}"


@lru_cache(maxsize=1024)
def in_schema(text: str, schema: str) -> str:
    """Return a statement with the quoted schema in place of the word ``windlass`` before a dot."""
    return _PLACE.sub(f"{schema}.", text)


class PostgresDatabase:
    """One storage's way to the server."""

    def __init__(
        self,
        server: PostgresServer,
        *,
        schema: str,
        clock: Clock,
        durability: PostgresDurability,
        known: int,
        timings: Timings,
    ) -> None:
        """``known``: the newest schema version that this code knows."""
        self.timings: Timings = timings
        self.server: PostgresServer = server
        self.clock: Clock = clock
        self.durability = durability
        self.known = known
        self.schema: str = quoted_schema(schema)
        self.channel: str = channel_of(schema)
        self.work: PostgresConnection = PostgresConnection(server)
        self.side: PostgresConnection = PostgresConnection(server)
        self.claims: PostgresConnection = PostgresConnection(server)
        """For large claims: the server stores outcomes at the same time."""
        self._direct = PostgresDirectConnection(server)
        self._loop = asyncio.get_running_loop()
        self.subscribers: Subscribers = Subscribers()
        self.presence: PresenceKeys = PresenceKeys(self.channel)
        self._notifier = Notifier(self._notify)
        self._notify_through: PostgresConnection | None = None

    @property
    def durable(self) -> bool:
        """Whether what is answered must be on disk."""
        return self.durability == "full"

    def instant(self) -> datetime | None:
        """Return the test instant; None: the server's own clock."""
        return None if self.clock is SYSTEM_CLOCK else self.clock.now()

    def sql(self, text: str) -> str:
        """Return a statement with the schema in place of the word ``windlass`` before a dot."""
        return in_schema(text, self.schema)

    async def fetch(
        self,
        sql: str,
        *args: object,
        reads: bool = False,
        again: bool = True,
        at_most: float | None = None,
    ) -> list[Row]:
        """Run one statement, in its own transaction, on the work connection.

        ``reads``: it changes nothing. ``again``: it may be repeated when its answer was lost.
        ``at_most``: seconds that the caller waits.
        """
        work = self.work.fetch(sql, *args, again=again, at_most=at_most)
        return await self.timings.measure(work, reads=reads)

    async def fetch_aside(
        self,
        sql: str,
        *args: object,
        reads: bool = False,
        again: bool = True,
        at_most: float | None = None,
    ) -> list[Row]:
        """Do the same on the side connection: keyed flushes, chores, what people ask."""
        work = self.side.fetch(sql, *args, again=again, at_most=at_most)
        return await self.timings.measure(work, reads=reads)

    async def fetch_claims(self, sql: str, *args: object) -> list[Row]:
        """Do the same on the connection for large claims."""
        return await self.timings.measure(self.claims.fetch(sql, *args), reads=False)

    async def fetch_told(
        self, sql: str, *args: object, at_most: float | None = None, aside: bool = False
    ) -> tuple[list[Row], bool]:
        """Return the same on either connection, and whether an earlier try may have been carried
        out.
        """
        link = self.side if aside else self.work
        work = link.fetch_told(sql, *args, at_most=at_most)
        return await self.timings.measure(work, reads=False)

    def fetch_here(self, sql: str, *args: object) -> list[Row] | None:
        """Run one statement on this thread, which has no event loop. None: it was not carried out,
        or its answer was lost.
        """
        began = monotonic()
        rows = self._direct.fetch(sql, *args, within=RETRY_SECONDS)
        if rows is not None:
            self.timings.writes.add(monotonic() - began)
        return rows

    def wake_from_thread(self, queues: QueueNames) -> None:
        """Wake subscribers after a commit on another thread than theirs."""
        with suppress(RuntimeError):  # the loop has ended: workers find the jobs by polling
            self._loop.call_soon_threadsafe(self.wake, queues)

    def wake(self, queues: QueueNames = None) -> None:
        """Wake subscribers after a commit: here at once, elsewhere by a hint."""
        self.subscribers.wake(queues, topics_of(queues))
        self._notifier.wake(queues)

    def pass_on(self, jobs: Mapping[str, int], full: int) -> None:
        """Leave a hint to the workers elsewhere: the one of session ``full`` has no room."""
        self._notifier.pass_on(jobs, full)

    def notify_through(self, link: PostgresConnection | None) -> None:
        """Send hints through the listener's connection, which has nothing else to do; None: through
        the work connection.
        """
        self._notify_through = link

    async def _notify(self, text: str, *, ends: bool) -> None:
        link = self._notify_through or self.work
        if ends:
            await link.fetch(NOTIFY_WAITING, self.channel, text, *self.presence.ends)
        else:
            await link.fetch(NOTIFY, self.channel, text)

    @property
    def sender(self) -> str:
        """Return the mark of our own hints: they need not wake this process."""
        return self._notifier.sender

    async def close(self) -> None:
        """Send the hints that wait, finish what is under way, let go of the connections."""
        await self.work.finish()  # inserts whose callers were cancelled have hints, too
        await self._notifier.close()
        for connection in (self.work, self.side, self.claims, self._direct):
            await connection.close()
