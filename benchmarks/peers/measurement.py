"""The steps that every system takes, each on an empty store with new processes.

- **store**: jobs enqueued one after the other, then a thousand per call; **drain**: one worker
  process is started and runs them all.
- **two**: the same backlog, drained by two worker processes.
- **sleep**: jobs that sleep 10 ms, run by one worker with 100 slots, or as many as it can have.
- **wait**: a worker without work: its memory; then single jobs, from before the call that enqueues
  to the first line of the handler.

A drain is timed from the first handler's start to the moment when the system has accounted for the
last job. Workers start with the backlog in place; the start of the interpreter is not counted.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from benchmarks.child import Child, child, interpreter
from benchmarks.peers.catalogue import Entry
from benchmarks.peers.client import serve
from benchmarks.peers.protocol import Command, Load
from benchmarks.peers.sizes import PeerSizes
from benchmarks.peers.workers import Crew, Failed, started
from benchmarks.place import Place

__all__ = ["STEPS", "Samples", "Subject"]

_START_PATIENCE = 30.0
"""Seconds that a worker may take from its start to its first job."""
_LOOK, _STILL = 0.005, 2.0
_IDLE_SECONDS = 1.0
_WARM_UP = 3
"""Latencies that are not counted: connections open and caches fill."""


class Samples(msgspec.Struct):
    """The samples of one system, over all rounds."""

    versions: dict[str, str] = {}
    slots: dict[Load, int] = {}
    single: list[float] = []
    bulk: list[float] = []
    drain: list[float] = []
    drain_two: list[float] = []
    sleeps: list[float] = []
    latency: list[float] = []
    memory: list[float] = []
    error: str = ""


class Subject:
    """An entry with what it takes to measure it."""

    def __init__(self, entry: Entry, python: Path, place: Place, sizes: PeerSizes) -> None:
        self.entry, self.samples = entry, Samples()
        self._python, self._place, self._sizes = python, place, sizes

    async def store_and_drain(self) -> None:
        """Measure single and bulk enqueues, and the drain by one process."""
        async with self._client() as (client, url):
            singles = await self._ask(client, singles=self._sizes.singles)
            bulk = await self._ask(client, noops=self._sizes.jobs)
            jobs = 1 + singles[0] + bulk[0]  # with the one that was not timed
            drained = await self._drain(client, url, jobs=jobs)
        self.samples.single.append(_rate(*singles))
        self.samples.bulk.append(_rate(*bulk))
        self.samples.drain.append(drained)

    async def drain_by_two(self) -> None:
        """Measure the drain by two processes."""
        async with self._client() as (client, url):
            jobs, _ = await self._ask(client, noops=self._sizes.jobs)
            self.samples.drain_two.append(await self._drain(client, url, jobs=jobs, processes=2))

    async def sleep(self) -> None:
        """Measure jobs that sleep."""
        async with self._client() as (client, url):
            jobs, _ = await self._ask(client, naps=self._sizes.naps)
            self.samples.sleeps.append(await self._drain(client, url, jobs=jobs, load="naps"))

    async def wait(self) -> None:
        """Measure an idle worker's memory, and how soon it starts a job."""
        async with self._client() as (client, url):
            with self._workers(await self._commands(client, "noops", 1), url) as crew:
                await self._pick_up(client, crew, patience=_START_PATIENCE)
                await asyncio.sleep(_IDLE_SECONDS)
                self.samples.memory.append(crew.megabytes())
                deadline = time.monotonic() + self._sizes.seconds
                while len(crew.runs) < _WARM_UP + self._sizes.latencies:
                    await asyncio.sleep(random.uniform(0.005, 0.015))  # in step with nothing
                    await self._pick_up(client, crew, patience=_START_PATIENCE)
                    if time.monotonic() > deadline and len(crew.runs) > _WARM_UP:
                        break
                runs = crew.runs.read()[_WARM_UP:]
        self.samples.latency += [(at - asked_at) * 1000 for asked_at, at in runs]

    # --- parts of a step ----------------------------------------------------------------------

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[tuple[Child, str]]:
        """Give an empty store, and a process that stores jobs there."""
        packages = list(self.entry.packages)
        with self._place.scratch() as url, interpreter(self._python):
            async with child(serve, module=self.entry.system, packages=packages, url=url) as client:
                self.samples.versions = await client.hear()
                yield client, url

    async def _ask(self, client: Child, **request: int) -> tuple[int, float]:
        jobs, seconds = await client.ask({**request, "seconds": self._sizes.seconds})
        return jobs, seconds

    async def _commands(self, client: Child, load: Load, processes: int) -> list[Command]:
        answers = [
            await client.ask({"worker": number, "load": load}) for number in range(processes)
        ]
        commands = [Command(*answer) for answer in answers]
        self.samples.slots[load] = commands[0].slots
        return commands

    @contextmanager
    def _workers(self, commands: list[Command], url: str) -> Iterator[Crew]:
        # In memory where possible: the records must not be in the way of a store's syncs.
        memory = Path("/dev/shm")  # noqa: S108 -- a new folder is made inside
        where = memory if memory.is_dir() else None
        with (
            tempfile.TemporaryDirectory(prefix="windlass-peers-", dir=where) as folder,
            started(self._python, commands, url, Path(folder)) as crew,
        ):
            yield crew

    async def _drain(
        self, client: Child, url: str, *, jobs: int, processes: int = 1, load: Load = "noops"
    ) -> float:
        """Return jobs per second."""
        _settle(self._place, url)
        with self._workers(await self._commands(client, load, processes), url) as crew:
            runs = crew.runs
            if not await crew.until(lambda: len(runs) > 0, _START_PATIENCE):
                raise Failed(f"no job was run within {_START_PATIENCE:.0f} s: {crew.last_words}")
            began = runs.read()[0][1]
            if not await self._all_ran(client, crew, jobs, began):
                return _rate(len(runs), time.monotonic() - began)
            while True:
                now = time.monotonic()
                if await client.ask("drained"):
                    break
                if now - began > self._sizes.seconds + _START_PATIENCE:
                    raise Failed(f"all {jobs} jobs were run, but some are not accounted for")
                await asyncio.sleep(_LOOK)
            different = len({number for number, _ in runs.read()})
        if different != jobs:
            raise Failed(f"{different} different jobs were run of {jobs} that were stored")
        return _rate(jobs, now - began)

    async def _all_ran(self, client: Child, crew: Crew, jobs: int, began: float) -> bool:
        """Wait until all jobs were run; say whether that was within the time of a step."""
        runs, seen = crew.runs, 0
        while (left := began + self._sizes.seconds - time.monotonic()) > 0:
            if await crew.until(lambda: len(runs) >= jobs, min(left, _STILL)):
                return True
            # The store is asked only while nothing moves: a drain is not disturbed.
            if len(runs) == seen and left > _STILL and await client.ask("drained"):
                raise Failed(f"{seen} runs of {jobs} jobs that were stored, and none is left")
            seen = len(runs)
        return False

    async def _pick_up(self, client: Child, crew: Crew, *, patience: float) -> None:
        seen = len(crew.runs)
        await client.ask("pick up")
        if not await crew.until(lambda: len(crew.runs) > seen, patience):
            raise Failed(f"a job was not run within {patience:.0f} s: {crew.last_words}")


STEPS: dict[str, Callable[[Subject], Awaitable[None]]] = {
    "store, drain": Subject.store_and_drain,
    "two": Subject.drain_by_two,
    "sleep": Subject.sleep,
    "wait": Subject.wait,
}


def _rate(jobs: int, seconds: float) -> float:
    return jobs / seconds


def _settle(place: Place, url: str) -> None:
    """Write out what was stored; on PostgreSQL also gather statistics, as autovacuum would."""
    if place.backend == "postgres":
        import psycopg  # noqa: PLC0415 -- only where it is needed, see `benchmarks.place`

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ANALYZE")
    place.settle(url)
