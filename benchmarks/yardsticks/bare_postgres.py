"""The yardstick on PostgreSQL: `benchmarks.yardsticks.bare` again, on one connection of asyncpg's.

The same table, the same batch, the same tasks, and nothing of Windlass: claim 200 past locked rows,
run one asyncio task per job, store their ends fenced by worker and claim number, repeat. The plans
are the good ones: claims by ``= ANY (ARRAY (…))``, finishes by the primary key, because the planner
is left no other way. ``state + 0`` keeps it from the running index, which is full of dead entries.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from benchmarks.yardsticks.bare import BATCH, INSERT_BATCH, WORKER, Payload

__all__ = ["claim_and_finish", "drain"]

SCHEMA = """CREATE TABLE jobs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, uid uuid NOT NULL UNIQUE,
  queue text NOT NULL, name text NOT NULL, state smallint NOT NULL, priority smallint NOT NULL,
  due timestamptz NOT NULL, payload bytea NOT NULL, key text, attempt integer NOT NULL DEFAULT 0,
  max_attempts integer NOT NULL, claim_number integer NOT NULL DEFAULT 0, timeout bigint,
  created_at timestamptz NOT NULL, started_at timestamptz, finished_at timestamptz, worker text,
  result bytea, error text, tags text, parent uuid, trace text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX jobs_ready ON jobs (queue, priority, due, id) WHERE state = 0;
CREATE INDEX jobs_running ON jobs (worker, id) WHERE state = 2;
CREATE INDEX jobs_finished ON jobs (finished_at, id) WHERE state >= 3;
CREATE UNIQUE INDEX jobs_key ON jobs (key) WHERE key IS NOT NULL AND state < 3;"""
PLANS = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
INSERT = """INSERT INTO jobs (uid, queue, name, state, priority, due, payload, max_attempts,
  created_at)
SELECT uid, 'default', 'noop', 0, 0, now(), payload, 5, now()
  FROM unnest($1::uuid[], $2::bytea[]) AS new (uid, payload)"""
CLAIM = """UPDATE jobs SET state = 2, worker = $1, started_at = clock_timestamp(),
  attempt = attempt + 1, claim_number = claim_number + 1
WHERE id = ANY (ARRAY (SELECT id FROM jobs WHERE state = 0 AND queue = 'default'
                       ORDER BY priority, due, id LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING id, claim_number, payload"""
FINISH = """UPDATE jobs SET state = 3, finished_at = clock_timestamp()
FROM unnest($1::bigint[], $2::integer[]) AS done (id, claim_number)
WHERE jobs.id = done.id AND jobs.claim_number = done.claim_number AND jobs.worker = $3
  AND jobs.state + 0 = 2"""

_decode = msgspec.json.Decoder(Payload).decode
_encode = msgspec.json.Encoder().encode


async def fill(connection: Any, jobs: int) -> None:
    await connection.execute(SCHEMA)
    for start in range(0, jobs, INSERT_BATCH):
        numbers = range(start, min(start + INSERT_BATCH, jobs))
        payloads = [
            _encode(Payload(f"{number}@example.com", "Your order is on its way", "shipped", number))
            for number in numbers
        ]
        await connection.execute(INSERT, [UUID(int=number) for number in numbers], payloads)
    await connection.execute("ANALYZE jobs")
    await connection.execute("CHECKPOINT")
    await connection.execute(PLANS)


async def _noop(payload: Payload) -> None:
    """Do nothing."""


async def _run(payload: bytes) -> None:
    async with asyncio.timeout(30):
        await _noop(_decode(payload))


async def _loop(url: str, jobs: int, *, running: bool) -> float:
    connection = await asyncpg.connect(url)
    await fill(connection, jobs)
    claim, finish = await connection.prepare(CLAIM), await connection.prepare(FINISH)
    began = time.perf_counter()
    while claimed := await claim.fetch(WORKER, BATCH):
        if running:
            for task in [asyncio.create_task(_run(payload)) for _, _, payload in claimed]:
                await task
        await finish.fetch([row[0] for row in claimed], [row[1] for row in claimed], WORKER)
    seconds = time.perf_counter() - began
    done = "SELECT count(*) FROM jobs WHERE state = 3 AND claim_number = 1"
    if await connection.fetchval(done) != jobs:
        raise AssertionError("jobs were left behind")
    await connection.close()
    return jobs / seconds


async def drain(url: str, jobs: int) -> float:
    """Jobs per second through the whole bare loop, in an empty database."""
    return await _loop(url, jobs, running=True)


async def claim_and_finish(url: str, jobs: int) -> float:
    """Jobs per second through the same two statements, running nothing in between."""
    return await _loop(url, jobs, running=False)
