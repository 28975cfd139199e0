"""The process that stores the jobs of one system, in that system's environment.

It answers requests, as `benchmarks.child` describes. All clients run on uvloop where their
environment has it, as their workers do.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import time
from collections.abc import Callable
from itertools import count

from benchmarks.child import answer, requests
from benchmarks.peers import probe
from benchmarks.peers.protocol import Call, Client, chunks, nap, noop, pick_up

__all__ = ["serve"]

CHUNK = 1_000
"""Jobs per call of ``enqueue_many``."""

_numbers = count()


async def serve(module: str, packages: list[str], url: str) -> None:
    """Store jobs of the system in ``module`` as asked, until there are no more requests."""
    os.environ[probe.URL] = url
    system = importlib.import_module(module)
    client: Client = system.Client()
    await client.open()
    answer({name: importlib.metadata.version(name) for name in packages})
    async for request in requests():
        match request:
            case {"singles": jobs, "seconds": limit}:
                answer(await _singles(client, jobs, limit))
            case {"noops": jobs, "seconds": limit}:
                answer(await _bulk(client, noop, jobs, limit))
            case {"naps": jobs, "seconds": limit}:
                answer(await _bulk(client, nap, jobs, limit))
            case {"worker": number, "load": load}:
                answer(system.worker(load, number))
            case "pick up":
                await client.enqueue(pick_up(time.monotonic()))
                answer("done")
            case "drained":
                answer(await client.is_drained())
    await client.close()


async def _singles(client: Client, jobs: int, limit: float) -> tuple[int, float]:
    """Store jobs one after the other; the first one, which opens connections, is not timed."""
    await client.enqueue(noop(next(_numbers)))
    began, done = time.perf_counter(), 0
    while done < jobs and time.perf_counter() - began < limit:
        await client.enqueue(noop(next(_numbers)))
        done += 1
    return done, time.perf_counter() - began


async def _bulk(
    client: Client, make: Callable[[int], Call], jobs: int, limit: float
) -> tuple[int, float]:
    """Store jobs a thousand at a time, until all are stored or the time is up."""
    calls = [make(next(_numbers)) for _ in range(jobs)]
    began, done = time.perf_counter(), 0
    for portion in chunks(calls, CHUNK):
        await client.enqueue_many(portion)
        done += len(portion)
        if time.perf_counter() - began > limit:
            break
    return done, time.perf_counter() - began
