"""The rival on PostgreSQL: pgqueuer, configured as its own benchmark does it, and faster.

That tool (``tools/benchmark.py --strategy drain`` in its repository) runs uvloop and asyncpg, five
consumers in one process, each with a connection of its own, and batches of ten. Larger batches are
faster for it: its guide on performance advises them for short jobs, with at least twice as many
tasks. So it is measured with its defaults, with our batch and as its guide says. The best counts.
Tables are the ones it installs by itself, which are logged and synced as ours are; the payload and
the handler are those of all the others.

    python -m benchmarks --backend postgres --only drain
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec

from benchmarks.child import answer, child, requests, run
from benchmarks.yardsticks.bare import BATCH, INSERT_BATCH, Payload

__all__ = ["CONFIGURATIONS", "Configuration", "fill", "is_here", "rate", "work"]

if TYPE_CHECKING:
    from pgqueuer.models import Job


class Configuration(msgspec.Struct, frozen=True):
    """How one process is set up."""

    consumers: int
    batch: int
    tasks: int | None = None
    """The most that one consumer runs at once; None: no bound."""


CONFIGURATIONS = {
    "its defaults": Configuration(5, 10),
    "our batch": Configuration(5, BATCH),
    "one consumer": Configuration(1, BATCH),
    "one consumer, 400 tasks": Configuration(1, BATCH, 2 * BATCH),
}

_decode = msgspec.json.Decoder(Payload).decode
_encode = msgspec.json.Encoder().encode


def is_here() -> bool:
    """Whether it is installed: the benchmarks' dependencies name it, those of the tests do not."""
    return importlib.util.find_spec("pgqueuer") is not None


async def rate(url: str, jobs: int, configuration: Configuration, processes: int = 1) -> float:
    """Jobs per second, from before the consumers' start until the last handler was called.

    That is in its favour: storing the last ends and shutting down are not counted.
    """
    await run(fill, url=url, jobs=jobs)
    async with AsyncExitStack() as stack:
        crew = [
            await stack.enter_async_context(
                child(work, url=url, configuration=msgspec.to_builtins(configuration))
            )
            for _ in range(processes)
        ]
        for process in crew:
            await process.hear()
        spans = await asyncio.gather(*(process.ask("start") for process in crew))
    done = sum(count for _, _, count in spans)
    if done < jobs:
        raise AssertionError(f"{done} of {jobs} jobs were run")
    return jobs / float(max(last for _, last, _ in spans) - min(began for began, _, _ in spans))


# --- in processes of their own ----------------------------------------------------------------


async def fill(url: str, jobs: int) -> str:
    """Store jobs in an empty database."""
    # Here, because it may be missing: see `is_here`.
    from pgqueuer.db import AsyncpgDriver  # noqa: PLC0415
    from pgqueuer.queries import Queries  # noqa: PLC0415

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
    await connection.close()
    return "filled"


async def work(url: str, configuration: dict[str, Any]) -> None:
    """Run all jobs when asked; answer with the instants of the start and of the last handler's
    call, on the machine's monotonic clock, and the number of calls.
    """
    from pgqueuer import PgQueuer  # noqa: PLC0415
    from pgqueuer.db import AsyncpgDriver  # noqa: PLC0415
    from pgqueuer.types import QueueExecutionMode  # noqa: PLC0415

    asked = msgspec.convert(configuration, Configuration)
    crew = [PgQueuer(AsyncpgDriver(await asyncpg.connect(url))) for _ in range(asked.consumers)]
    done, last = 0, 0.0

    async def noop(job: Job) -> None:
        nonlocal done, last
        _decode(job.payload or b"")
        done, last = done + 1, time.monotonic()

    for one in crew:
        one.entrypoint("noop")(noop)
    answer("ready")
    await anext(requests())
    began = last = time.monotonic()
    await asyncio.gather(
        *(
            one.run(
                batch_size=asked.batch,
                max_concurrent_tasks=asked.tasks,
                mode=QueueExecutionMode.drain,
            )
            for one in crew
        )
    )
    answer((began, last, done))
