"""The rival on PostgreSQL: pgqueuer, configured as its own benchmark does it.

That tool (``tools/benchmark.py --strategy drain`` in its repository) runs uvloop and asyncpg, five
consumers in one process, each with a connection of its own, and batches of ten. Larger batches are
faster for it, so it is measured with its defaults and with our batch, and the best one counts.
Tables are the ones it installs by itself, which are logged and synced as ours are; the payload and
the handler are those of all the others.

    python -m benchmarks --backend postgres --only drain
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from typing import TYPE_CHECKING

import asyncpg
import msgspec

from benchmarks.yardsticks.bare import BATCH, INSERT_BATCH, Payload

__all__ = ["CONFIGURATIONS", "drain", "is_here"]

if TYPE_CHECKING:
    from pgqueuer.models import Job

CONFIGURATIONS = {"its defaults": (5, 10), "our batch": (5, BATCH), "one consumer": (1, BATCH)}
"""Consumers and batch size."""

_decode = msgspec.json.Decoder(Payload).decode
_encode = msgspec.json.Encoder().encode


def is_here() -> bool:
    """Whether it is installed: the benchmarks' dependencies name it, those of the tests do not."""
    return importlib.util.find_spec("pgqueuer") is not None


async def drain(url: str, jobs: int, consumers: int, batch: int) -> float:
    """Jobs per second, from before the consumers' start until the last handler was called.

    That is in its favour: storing the last ends and shutting down are not counted.
    """
    # Here, because it may be missing: see `is_here`.
    from pgqueuer import PgQueuer  # noqa: PLC0415
    from pgqueuer.db import AsyncpgDriver  # noqa: PLC0415
    from pgqueuer.queries import Queries  # noqa: PLC0415
    from pgqueuer.types import QueueExecutionMode  # noqa: PLC0415

    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for start in range(0, jobs, INSERT_BATCH):
        payloads: list[bytes | None] = [
            _encode(Payload(f"{number}@example.com", "Your order is on its way", "shipped", number))
            for number in range(start, min(start + INSERT_BATCH, jobs))
        ]
        await queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))
    await connection.execute("ANALYZE; CHECKPOINT")
    crew = [PgQueuer(AsyncpgDriver(await asyncpg.connect(url))) for _ in range(consumers)]
    done, last = 0, 0.0

    async def noop(job: Job) -> None:
        nonlocal done, last
        _decode(job.payload or b"")
        done, last = done + 1, time.perf_counter()

    for one in crew:
        one.entrypoint("noop")(noop)
    began = time.perf_counter()
    await asyncio.gather(
        *(one.run(batch_size=batch, mode=QueueExecutionMode.drain) for one in crew)
    )
    if done < jobs:
        raise AssertionError(f"{done} of {jobs} jobs were run")
    await connection.close()
    return jobs / (last - began)
