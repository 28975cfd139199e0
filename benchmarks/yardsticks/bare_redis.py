"""The yardstick on Redis: `benchmarks.yardsticks.bare` again, with two scripts on one connection.

A sorted set of what is ready, a hash of payloads, a hash of claim numbers, a hash of who runs what
under which number, a sorted set of what has finished. Claim 200 by one script, run one asyncio task
per job, store their ends fenced by worker and claim number by another, repeat. Every command in a
script takes the whole batch, which is what makes Redis fast.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
from redis.asyncio import Redis

from benchmarks.yardsticks.bare import BATCH, INSERT_BATCH, WORKER, Payload

__all__ = ["claim_and_finish", "drain"]

KEYS = ("{bare}:ready", "{bare}:payloads", "{bare}:numbers", "{bare}:running", "{bare}:finished")
CLAIM = """
local popped = redis.call('ZPOPMIN', KEYS[1], ARGV[2])
if #popped == 0 then return {} end
local ids = {}
for i = 1, #popped, 2 do ids[#ids + 1] = popped[i] end
local payloads = redis.call('HMGET', KEYS[2], unpack(ids))
local before = redis.call('HMGET', KEYS[3], unpack(ids))
local numbers, running, answer = {}, {}, {}
for i, id in ipairs(ids) do
  local number = (tonumber(before[i]) or 0) + 1
  numbers[2 * i - 1], numbers[2 * i] = id, number
  running[2 * i - 1], running[2 * i] = id, ARGV[1] .. ':' .. number
  answer[3 * i - 2], answer[3 * i - 1], answer[3 * i] = id, number, payloads[i]
end
redis.call('HSET', KEYS[3], unpack(numbers))
redis.call('HSET', KEYS[4], unpack(running))
return answer
"""
FINISH = """
local ids = {}
for i = 2, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local now = redis.call('TIME')
local score = now[1] * 1000000 + now[2]
local holders = redis.call('HMGET', KEYS[4], unpack(ids))
local ended, finished = {}, {}
for i, id in ipairs(ids) do
  if holders[i] == ARGV[1] .. ':' .. ARGV[2 * i + 1] then
    ended[#ended + 1] = id
    finished[#finished + 1], finished[#finished + 2] = score, id
  end
end
if #ended == 0 then return 0 end
redis.call('HDEL', KEYS[4], unpack(ended))
redis.call('ZADD', KEYS[5], unpack(finished))
return #ended
"""

_decode = msgspec.json.Decoder(Payload).decode
_encode = msgspec.json.Encoder().encode


async def fill(connection: Any, jobs: int) -> None:
    for start in range(0, jobs, INSERT_BATCH):
        numbers = range(start, min(start + INSERT_BATCH, jobs))
        payloads = {
            f"{number:032x}": _encode(
                Payload(f"{number}@example.com", "Your order is on its way", "shipped", number)
            )
            for number in numbers
        }
        async with connection.pipeline(transaction=True) as batch:
            batch.hset(KEYS[1], mapping=payloads)
            batch.zadd(KEYS[0], {f"{number:032x}": number for number in numbers})
            await batch.execute()


async def _noop(payload: Payload) -> None:
    """Do nothing."""


async def _run(payload: bytes) -> None:
    async with asyncio.timeout(30):
        await _noop(_decode(payload))


async def _loop(url: str, jobs: int, *, running: bool) -> float:
    connection = Redis.from_url(url)
    await fill(connection, jobs)
    claim, finish = connection.register_script(CLAIM), connection.register_script(FINISH)
    began = time.perf_counter()
    while claimed := await claim(KEYS, [WORKER, BATCH]):
        if running:
            for task in [asyncio.create_task(_run(payload)) for payload in claimed[2::3]]:
                await task
        named = [part for pair in zip(claimed[::3], claimed[1::3], strict=True) for part in pair]
        await finish(KEYS, [WORKER, *named])
    seconds = time.perf_counter() - began
    if await connection.zcard(KEYS[4]) != jobs:
        raise AssertionError("jobs were left behind")
    await connection.aclose()
    return jobs / seconds


async def drain(url: str, jobs: int) -> float:
    """Jobs per second through the whole bare loop, in an empty database."""
    return await _loop(url, jobs, running=True)


async def claim_and_finish(url: str, jobs: int) -> float:
    """Jobs per second through the same two scripts, running nothing in between."""
    return await _loop(url, jobs, running=False)
