"""What a child of the zygote can be. Each role is told what to do and answers with an exit code."""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from tests.crash.harness import backends, points
from tests.crash.harness.shop import Shop, from_environment
from tests.crash.harness.sqlite_store import SqliteStore
from windlass._app.parts import parts_of
from windlass._cli.main import main
from windlass._core.job.job import JobId
from windlass._tasks.task import Call
from windlass.errors import StorageError, StorageUnavailable

UNKNOWN = "jobs of unknown fate"


def worker(
    arguments: Sequence[str] = (),
    point: str | None = None,
    signal: str = "SIGKILL",
    *,
    uvloop: bool = True,
) -> int:
    """``windlass worker``, as a user starts it; at ``point`` it sends itself ``signal``."""
    if not uvloop:
        _without_uvloop()
    if point is not None:
        points.arm(backends.from_environment(os.environ).backend, point, signal)
    return main(["worker", "tests.crash.harness.served:app", *arguments])


def _without_uvloop() -> None:
    sys.modules["uvloop"] = cast("ModuleType", None)  # an import of it fails from now on


def embedded(*, uvloop: bool = True) -> int:
    """A program of the user's own with a worker in it, until something ends its event loop."""
    shop = from_environment()

    async def program() -> None:
        async with shop.app, shop.app.worker():
            await asyncio.Event().wait()

    if not uvloop:
        _without_uvloop()
        asyncio.run(program())
    else:
        importlib.import_module("uvloop").run(program())
    return 0


def producer(
    *,
    known: str,
    seed: int,
    backlog: int = 0,
    point: str | None = None,
    count: int | None = None,
) -> int:
    """Enqueue, note what was acknowledged, and keep ``backlog`` jobs waiting; without end.

    What was not acknowledged is printed: it may be there, and nobody knows it.
    """
    if point is not None:
        points.arm(backends.from_environment(os.environ).backend, point, "SIGKILL")
    asyncio.run(_produce(from_environment(), Path(known), random.Random(seed), backlog, count))
    return 0


async def _produce(
    shop: Shop, known: Path, draw: random.Random, backlog: int, count: int | None
) -> None:
    file = os.open(known, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    latest: deque[str] = deque(maxlen=50)
    store = backends.from_environment(os.environ).store()
    made = 0
    async with shop.app as app:
        while count is None or made < count:
            missing = backlog - store.ready() if backlog else 1
            if missing <= 0:
                await asyncio.sleep(0.005)
            while missing > 0:
                calls = [_some_call(shop, draw) for _ in range(draw.choice((1, 1, 1, 5)))]
                try:
                    jobs = [job.id for job in await app.enqueue_many(calls) if job.created]
                except StorageUnavailable:
                    print(f"{len(calls)} {UNKNOWN}")  # noqa: T201
                    continue
                os.write(file, "".join(f"{job}\n" for job in jobs).encode())
                missing -= len(calls)
                made += len(jobs)
                latest += jobs
            if backlog and latest and draw.random() < 0.3:
                await parts_of(app).producer.cancel(JobId(draw.choice(latest)))


def _some_call(shop: Shop, draw: random.Random) -> Call[Any]:
    name = draw.choices(("work", "grind", "flaky"), (8, 1, 1))[0]
    key = f"key-{draw.randrange(5)}" if draw.random() < 0.1 else None
    return shop.call(name, draw.uniform(0.005, 0.06), key=key)


def planner(*, rows: int, point: str) -> int:
    """Start a flow, and die at the point."""
    points.arm(backends.from_environment(os.environ).backend, point, "SIGKILL")
    asyncio.run(_start_flow(from_environment(), rows))
    return 0


async def _start_flow(shop: Shop, rows: int) -> None:
    async with shop.app as app:
        await app.start(shop.flow(rows))


def patient_producer(*, known: str, waits: str, gate: str) -> int:
    """Enqueue one by one until somebody makes ``gate``, and note how long each one took."""
    asyncio.run(_enqueue_patiently(from_environment(), Path(known), Path(waits), Path(gate)))
    return 0


async def _enqueue_patiently(shop: Shop, known: Path, waits: Path, gate: Path) -> None:
    took: list[float] = []
    ids: list[str] = []
    async with shop.app as app:
        while not gate.exists():
            call = shop.call("noop")
            began = time.monotonic()
            job = await parts_of(app).producer.enqueue_call(call)
            took.append(time.monotonic() - began)
            ids.append(job.id)
            await asyncio.sleep(0.005)
    known.write_text("\n".join(ids), encoding="ascii")
    waits.write_text("\n".join(map(str, took)), encoding="ascii")


def look(*, path: str, sql: str, values: Sequence[object], answer: str) -> int:
    """Read the database from where it can be seen."""
    Path(answer).write_text(repr(SqliteStore(Path(path)).rows(sql, values)), encoding="utf-8")
    return 0


def enqueuer(*, known: str, task: str, arguments: Sequence[object], count: int, queue: str) -> int:
    """Enqueue one by one, note each that was acknowledged, and say how it ended."""
    try:
        shop = from_environment()
        call = shop.call(task, *arguments, queue=queue)
        asyncio.run(_enqueue(shop, Path(known), call, count))
    except StorageError as error:
        print(f"{type(error).__name__}: {error}")  # noqa: T201
    return 0


async def _enqueue(shop: Shop, known: Path, call: Call[Any], count: int) -> None:
    file = os.open(known, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    async with shop.app as app:
        for _ in range(count):
            job = await parts_of(app).producer.enqueue_call(call)
            os.write(file, f"{job.id}\n".encode())
    print("all enqueued")  # noqa: T201


def fill(*, path: str, blocks: int | None) -> int:
    """Take up room on a disk; without a number, to the last byte."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for _ in range(blocks or 0):
        os.write(file, b"x" * 4096)
    if blocks is None:
        for size in (4096, 1):
            with suppress(OSError):
                while os.write(file, b"x" * size):
                    pass
    return 0


def remove(*, path: str) -> int:
    """Give it back."""
    Path(path).unlink()
    return 0
