"""The yardsticks for bulk inserts on PostgreSQL: raw ones of the same rows, and pgqueuer's.

The rows go into the table that Windlass has made, with its indexes, and an id that is stored
already is left out. One way sends two arrays and unnests them. The other copies into a temporary
table and inserts from there, in one transaction. Arguments are made beforehand.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from benchmarks.yardsticks import pgqueuer
from windlass._system.seams import new_job_ids

__all__ = ["Batch", "copy", "make_batches", "open_pgqueuer", "unnest"]

Batch = tuple[Sequence[uuid.UUID], Sequence[bytes]]
Insert = Callable[[Batch], Awaitable[object]]

_INTO = """INSERT INTO windlass.jobs (id, ready, priority, due, created_at, max_attempts, budget,
  queue, task, payload)
SELECT id, 1, 0, now(), now(), 5, 5, 'bare', 'noop', payload"""
_UNNEST = f"""{_INTO} FROM unnest($1::uuid[], $2::bytea[]) AS new (id, payload)
ON CONFLICT (id) DO NOTHING"""
_COPIED = f"{_INTO} FROM staged ON CONFLICT (id) DO NOTHING"
_STAGED = "CREATE TEMPORARY TABLE staged (id uuid, payload bytea) ON COMMIT DELETE ROWS"


def make_batches(count: int, size: int) -> list[Batch]:
    """Make rows as large as those of the app."""
    return [
        (
            [uuid.UUID(job) for job in new_job_ids(size)],
            [
                b'["%d@example.com","Your order is on its way","shipped",%d]' % (number, number)
                for number in range(size)
            ],
        )
        for _ in range(count)
    ]


async def unnest(url: str) -> Insert:
    """Insert from arrays."""
    connection: Any = await asyncpg.connect(url)
    return lambda batch: connection.fetch(_UNNEST, *batch)


async def copy(url: str) -> Insert:
    """Insert from a table that was copied into."""
    connection: Any = await asyncpg.connect(url)
    await connection.execute(_STAGED)

    async def insert(batch: Batch) -> None:
        async with connection.transaction():
            await connection.copy_records_to_table("staged", records=zip(*batch, strict=True))
            await connection.execute(_COPIED)

    return insert


async def open_pgqueuer(url: str) -> Insert | None:
    """Enqueue as pgqueuer does it; None: it is not installed."""
    if not pgqueuer.is_here():
        return None
    from pgqueuer.db import AsyncpgDriver  # noqa: PLC0415
    from pgqueuer.queries import Queries  # noqa: PLC0415

    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    await queries.install()

    async def insert(batch: Batch) -> None:
        payloads: list[bytes | None] = list(batch[1])
        await queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))

    return insert
