"""Taskiq with Redis streams, the broker of taskiq-redis that acknowledges.

At least once: a job whose worker was killed runs again after the idle timeout, ten minutes by
default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from redis.asyncio import Redis
from taskiq_redis import RedisStreamBroker

from benchmarks.peers import probe
from benchmarks.peers.protocol import Call, Command, Load, chunks

_AT_ONCE = 50
"""Concurrent calls, each on its own connection."""

broker = RedisStreamBroker(
    url=probe.url(),
    # Its docstring: without it, a worker that is killed can keep the lock of recovery for ever.
    unacknowledged_lock_timeout=60.0,
)


@broker.task(task_name="noop")
async def noop(recipient: str, subject: str, template_name: str, user: int) -> None:  # noqa: ARG001
    probe.ran(user)


@broker.task(task_name="nap")
async def nap(seconds: float, number: int) -> None:
    probe.ran(number)
    await asyncio.sleep(seconds)


@broker.task(task_name="pick_up")
async def pick_up(asked_at: float) -> None:
    probe.ran(asked_at)


_TASKS = {"noop": noop, "nap": nap, "pick_up": pick_up}


class Client:
    """Implements `benchmarks.peers.protocol.Client`."""

    async def open(self) -> None:
        await broker.startup()
        self._redis = Redis.from_url(probe.url())

    async def enqueue(self, call: Call) -> None:
        await _TASKS[call.task].kiq(**call.arguments)

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        # There is no call that stores many at once.
        for portion in chunks(calls, _AT_ONCE):
            await asyncio.gather(*map(self.enqueue, portion))

    async def is_drained(self) -> bool:
        (found,) = await self._redis.xinfo_groups("taskiq")
        return not found["pending"] and not found["lag"]

    async def close(self) -> None:
        await broker.shutdown()
        await self._redis.aclose()


def worker(load: Load, number: int) -> Command:  # noqa: ARG001 -- workers name themselves
    slots = 200 if load == "noops" else 100
    words = ["taskiq", "worker", f"{__name__}:broker", "--workers", "1", "--log-level", "WARNING"]
    # guide/cli: --max-prefetch is "useful for systems with high message rates". It acknowledges
    # after the run by default; uvloop is taken when it is installed.
    return Command([*words, "--max-async-tasks", str(slots), "--max-prefetch", str(slots)], slots)
