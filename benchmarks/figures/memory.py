"""Memory: what a worker process holds after its start, and after very many jobs.

Resident memory as the kernel counts it. The worker starts on an empty file and is read after a
second of idleness. Then another process stores jobs in portions and every portion is drained
before the next; the growth is from the end of the first portion, when every buffer has its size,
to the end of the last.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from benchmarks.child import child
from benchmarks.figure import Figure, Target
from benchmarks.figures.drain import SLOTS
from benchmarks.stage import Stage
from benchmarks.worker import App, fill, make_calls, serve, store

__all__ = ["measure"]

PORTIONS = 10


async def measure(stage: Stage) -> list[Figure]:
    """After the start, and the growth."""
    sizes, place, listener = stage
    portion = sizes.memory_jobs // PORTIONS
    with place.scratch() as url:
        await fill(place, url, lambda _: ())
        app = App(url)
        async with app.windlass, child(serve, url=url, slots=SLOTS) as worker:
            await worker.hear()
            await worker.ask("start")
            await asyncio.sleep(1.0)
            at_start = _megabytes(worker.pid)
            readings = []
            # One portion more: the first one only brings everything to its size.
            for number in range(1, PORTIONS + 2):
                listener.step(f"portion {number} of {PORTIONS + 1}")
                await store(app.windlass, make_calls(app.noop, portion))
                await worker.ask({"finished": number * portion})
                readings.append(_megabytes(worker.pid))
    return [
        Figure(
            name="memory",
            title="a worker's memory after its start",
            measured=at_start,
            unit="MB",
            target=Target("under", 60.0),
            note="resident",
        ),
        Figure(
            name="memory_growth",
            title=f"growth over {portion * PORTIONS:,} jobs",
            measured=readings[-1] - readings[0],
            unit="MB",
            target=Target("under", 5.0),
            note=f"after {portion:,} jobs {readings[0]:.1f} MB, at the end {readings[-1]:.1f} MB, "
            f"at most {max(readings):.1f} MB",
        ),
    ]


def _megabytes(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"^VmRSS:\s+(\d+) kB", text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the kernel does not say how much memory process {pid} uses")
    return int(found[1]) * 1024 / 1e6
