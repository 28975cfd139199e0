"""arq on Redis.

At least once: a job stays in the queue until it has succeeded or failed. One whose worker was
killed runs again when its timeout is over, 300 s by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import uvloop
from arq import create_pool
from arq.connections import RedisSettings

from benchmarks.peers import probe
from benchmarks.peers.protocol import Call, Command, Load, chunks

# Its command line takes the loop of the current policy.
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

_AT_ONCE = 50
"""Concurrent calls, each on its own connection."""


async def noop(ctx: Any, recipient: str, subject: str, template_name: str, user: int) -> None:  # noqa: ARG001
    probe.ran(user)


async def nap(ctx: Any, seconds: float, number: int) -> None:  # noqa: ARG001
    probe.ran(number)
    await asyncio.sleep(seconds)


async def pick_up(ctx: Any, asked_at: float) -> None:  # noqa: ARG001
    probe.ran(asked_at)


class WorkerSettings:
    """The settings that the command ``arq`` reads."""

    functions: ClassVar[list[Any]] = [noop, nap, pick_up]
    redis_settings = RedisSettings.from_dsn(probe.url())
    # Reference, `max_jobs`: "maximum number of jobs to run at a time".
    max_jobs = probe.slots()
    log_results = False


LOGGING = {"version": 1, "loggers": {"arq": {"level": "WARNING"}}}


class Client:
    """Implements `benchmarks.peers.protocol.Client`."""

    async def open(self) -> None:
        self._pool = await create_pool(WorkerSettings.redis_settings)

    async def enqueue(self, call: Call) -> None:
        await self._pool.enqueue_job(call.task, **call.arguments)

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        # There is no call that stores many at once.
        for portion in chunks(calls, _AT_ONCE):
            await asyncio.gather(*map(self.enqueue, portion))

    async def is_drained(self) -> bool:
        return not await self._pool.zcard("arq:queue")

    async def close(self) -> None:
        await self._pool.aclose()


def worker(load: Load, number: int) -> Command:  # noqa: ARG001 -- workers have no names
    words = ["arq", f"{__name__}.WorkerSettings", "--custom-log-dict", f"{__name__}.LOGGING"]
    return Command(words, slots=200 if load == "noops" else 100)
