"""What a child of the zygote can be. Each role is told what to do and answers with an exit code."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path

from tests.crash import points
from tests.crash.shop import Shop, from_environment
from windlass.cli.main import main
from windlass.task import Call


def worker(arguments: Sequence[str] = (), point: str | None = None, signal: str = "SIGKILL") -> int:
    """``windlass worker``, as a user starts it; at ``point`` it sends itself ``signal``."""
    if point is not None:
        points.arm(point, signal)
    return main(["worker", "tests.crash.served:app", *arguments])


def producer(
    *,
    known: str,
    seed: int,
    backlog: int = 0,
    point: str | None = None,
    count: int | None = None,
) -> int:
    """Enqueue, note what was acknowledged, and keep ``backlog`` jobs waiting; without end."""
    if point is not None:
        points.arm(point, "SIGKILL")
    asyncio.run(_produce(from_environment(), Path(known), random.Random(seed), backlog, count))
    return 0


async def _produce(
    shop: Shop, known: Path, draw: random.Random, backlog: int, count: int | None
) -> None:
    file = os.open(known, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    made = 0
    async with shop.app as app:
        while count is None or made < count:
            while backlog and await _waiting(shop) >= backlog:  # noqa: ASYNC110 -- others empty it
                await asyncio.sleep(0.005)
            calls = [_some_call(shop, draw) for _ in range(draw.choice((1, 1, 1, 5)))]
            jobs = await app.enqueue_many(calls)
            made += len(jobs)
            os.write(file, "".join(f"{job.id}\n" for job in jobs).encode())


async def _waiting(shop: Shop) -> int:
    return sum(count.ready for count in await shop.app.admin.counts())


def _some_call(shop: Shop, draw: random.Random) -> Call:
    name = draw.choices(("work", "grind", "flaky"), (8, 1, 1))[0]
    return shop.call(name, draw.uniform(0.003, 0.04))
