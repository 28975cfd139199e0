"""SAQ on Redis or PostgreSQL.

At least once for jobs that ask for retries, as these do. A job whose worker was killed runs again
when a sweep finds it past its timeout, 10 s by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import uvloop
from saq import Queue

from benchmarks.peers import probe
from benchmarks.peers.protocol import Call, Command, Load, chunks

# Its command line takes a new loop of the current policy.
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

_AT_ONCE = 20
"""As many concurrent calls as the queue lets through, see `max_concurrent_ops`."""
_RETRIES = 3
"""Page task, `retries`. With its default of one, a swept job is given up."""

queue = Queue.from_url(probe.url())


async def noop(
    ctx: Any,  # noqa: ARG001
    *,
    recipient: str,  # noqa: ARG001
    subject: str,  # noqa: ARG001
    template_name: str,  # noqa: ARG001
    user: int,
) -> None:
    probe.ran(user)


async def nap(ctx: Any, *, seconds: float, number: int) -> None:  # noqa: ARG001
    probe.ran(number)
    await asyncio.sleep(seconds)


async def pick_up(ctx: Any, *, asked_at: float) -> None:  # noqa: ARG001
    probe.ran(asked_at)


# Page worker: `concurrency`, "number of jobs to process concurrently".
settings = {"queue": queue, "functions": [noop, nap, pick_up], "concurrency": probe.slots()}


class Client:
    """Implements `benchmarks.peers.protocol.Client`."""

    async def open(self) -> None:
        await queue.connect()

    async def enqueue(self, call: Call) -> None:
        await queue.enqueue(call.task, retries=_RETRIES, **call.arguments)

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        # There is no call that stores many at once.
        for portion in chunks(calls, _AT_ONCE):
            await asyncio.gather(*map(self.enqueue, portion))

    async def is_drained(self) -> bool:
        return not await queue.count("incomplete")

    async def close(self) -> None:
        await queue.disconnect()


def worker(load: Load, number: int) -> Command:  # noqa: ARG001 -- workers name themselves
    # Its default is 10; of 10, 50 and 200, 50 were the fastest.
    slots = 50 if load == "noops" else 100
    return Command(["saq", f"{__name__}.settings"], slots)
