"""The yardstick for few slots: the bare loops again, finishing and claiming in one transaction.

The tables, statements and tasks of `bare`, `bare_postgres` and `bare_redis`, with batches of any
size. A turn stores the ends of the last batch and claims the next one: one transaction on SQLite,
one statement on PostgreSQL, one script on Redis. No system can do less per batch.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import apsw
import asyncpg
import msgspec
from redis.asyncio import Redis

from benchmarks.yardsticks import bare, bare_postgres, bare_redis
from benchmarks.yardsticks.bare import WORKER, Payload

__all__ = ["on_postgres", "on_redis", "on_sqlite"]

_POSTGRES = f"""WITH ended AS ({bare_postgres.FINISH} RETURNING 1)
{bare_postgres.CLAIM.replace("$1", "$4").replace("$2", "$5")}"""
_REDIS = f"""
local worker, batch, named = ARGV[1], ARGV[2], {{unpack(ARGV, 3)}}
local function finish(ARGV) {bare_redis.FINISH} end
local function claim(ARGV) {bare_redis.CLAIM} end
if #named > 0 then finish({{worker, unpack(named)}}) end
return claim({{worker, batch}})
"""
_decode = msgspec.json.Decoder(Payload).decode
_encode = msgspec.json.Encoder().encode


async def _noop(payload: Payload) -> None:
    """Do nothing."""


async def _run(payload: bytes) -> None:
    async with asyncio.timeout(30):
        await _noop(_decode(payload))


async def _run_all(payloads: list[bytes]) -> None:
    for task in [asyncio.create_task(_run(payload)) for payload in payloads]:
        await task


def _turn(connection: apsw.Connection, ended: dict[int, int], batch: int) -> list[Any]:
    now = time.time_ns() // 1000
    connection.execute("BEGIN IMMEDIATE")
    if ended:
        connection.execute(bare.FINISH, (now, _encode(ended).decode(), WORKER))
    claimed = connection.execute(bare.CLAIM, (WORKER, now, batch)).fetchall()
    connection.execute("COMMIT")
    return claimed


async def on_sqlite(jobs: int, batch: int) -> float:
    """Jobs per second, on the event loop's own thread."""
    with bare.filled(jobs, "full") as connection:
        began = time.perf_counter()
        claimed = _turn(connection, {}, batch)
        while claimed:
            await _run_all([payload for _, _, payload in claimed])
            claimed = _turn(connection, {job: number for job, number, _ in claimed}, batch)
        return jobs / (time.perf_counter() - began)


async def on_postgres(url: str, jobs: int, batch: int) -> float:
    """Jobs per second through one connection, in an empty database."""
    connection = await asyncpg.connect(url)
    await bare_postgres.fill(connection, jobs)
    turn = await connection.prepare(_POSTGRES)
    began = time.perf_counter()
    claimed = await turn.fetch([], [], WORKER, WORKER, batch)
    while claimed:
        await _run_all([payload for _, _, payload in claimed])
        ids, numbers = [row[0] for row in claimed], [row[1] for row in claimed]
        claimed = await turn.fetch(ids, numbers, WORKER, WORKER, batch)
    seconds = time.perf_counter() - began
    await connection.close()
    return jobs / seconds


async def on_redis(url: str, jobs: int, batch: int) -> float:
    """Jobs per second through one connection, in an empty database."""
    connection = Redis.from_url(url)
    await bare_redis.fill(connection, jobs)
    turn = connection.register_script(_REDIS)
    began = time.perf_counter()
    claimed = await turn(bare_redis.KEYS, [WORKER, batch])
    while claimed:
        await _run_all(claimed[2::3])
        named = [part for pair in zip(claimed[::3], claimed[1::3], strict=True) for part in pair]
        claimed = await turn(bare_redis.KEYS, [WORKER, batch, *named])
    seconds = time.perf_counter() - began
    await connection.aclose()
    return jobs / seconds
