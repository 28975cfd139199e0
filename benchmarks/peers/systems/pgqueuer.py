"""pgqueuer on PostgreSQL.

At least once: a job whose worker was killed runs again after the heartbeat timeout, 30 s by
default. A job that raises is deleted unless its entrypoint says otherwise.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from benchmarks.peers import probe
from benchmarks.peers.protocol import Call, Command, Load


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    """Make what ``pgq run`` runs, as getting-started/quickstart shows it."""
    # guides/performance-tuning: "a single connection for `QueueManager`".
    connection = await asyncpg.connect(probe.url())
    pgq = PgQueuer(AsyncpgDriver(connection))

    @pgq.entrypoint("noop")
    async def noop(job: Any) -> None:
        probe.ran(json.loads(job.payload)["user"])

    @pgq.entrypoint("nap")
    async def nap(job: Any) -> None:
        arguments = json.loads(job.payload)
        probe.ran(arguments["number"])
        await asyncio.sleep(arguments["seconds"])

    @pgq.entrypoint("pick_up")
    async def pick_up(job: Any) -> None:
        probe.ran(json.loads(job.payload)["asked_at"])

    yield pgq
    await connection.close()


class Client:
    """Implements `benchmarks.peers.protocol.Client`."""

    async def open(self) -> None:
        # guides/performance-tuning: "Use `AsyncpgPoolDriver` for producers".
        self._pool = await asyncpg.create_pool(probe.url())
        self._queries = Queries(AsyncpgPoolDriver(self._pool))
        await self._queries.install()
        # The same page: "Run `pgq autovac` after installation".
        await self._queries.optimize_autovacuum()

    async def enqueue(self, call: Call) -> None:
        await self._queries.enqueue(call.task, json.dumps(call.arguments).encode())

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        await self._queries.enqueue(
            [call.task for call in calls],
            [json.dumps(call.arguments).encode() for call in calls],
            [0] * len(calls),
        )

    async def is_drained(self) -> bool:
        # A finished job is moved to the log.
        return await self._pool.fetchval("SELECT 1 FROM pgqueuer LIMIT 1") is None

    async def close(self) -> None:
        await self._pool.close()


def worker(load: Load, number: int) -> Command:  # noqa: ARG001 -- workers name themselves
    # guides/performance-tuning: larger batches for short jobs; twice as many tasks as a batch, at
    # least.
    batch, tasks = (200, 400) if load == "noops" else (50, 100)
    words = ["pgq", "run", f"{__name__}:main", "--batch-size", str(batch)]
    return Command([*words, "--max-concurrent-tasks", str(tasks)], tasks)
