"""A storage behind a wire that can be cut, and what may be said about it afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from tests.servers.proxy import Loss, Match, Proxy
from tests.servers.wire_protocols import PostgresWire, RedisWire
from windlass._storage.postgres import open_postgres
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass._system.seams import SYSTEM_CLOCK, Clock
from windlass.testing._clock import VirtualClock

_YEARS = timedelta(days=9999)
POSTGRES, REDIS = "postgres", "redis"
SERVERS = (POSTGRES, REDIS)


Step = Callable[[Storage], Awaitable[object]]


class Home(NamedTuple):
    """Where jobs live: a server, and a schema or a prefix there."""

    backend: str
    url: str
    name: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2].partition("/")[0])

    def through(self, proxy: Proxy) -> Home:
        """The same place, by another way."""
        return self._replace(url=self.url.replace(f":{self.port}", f":{proxy.port}"))

    def proxy(self) -> Proxy:
        return Proxy(self.port, PostgresWire if self.backend == POSTGRES else RedisWire)

    async def open(self, clock: Clock = SYSTEM_CLOCK) -> Storage:
        if self.backend == POSTGRES:
            return await open_postgres(self.url, clock=clock, schema=self.name)
        return await open_redis(self.url, clock=clock, prefix=self.name)

    def operations(self) -> Match:
        """Requests that carry out an operation of the storage, and nothing else."""
        if self.backend == REDIS:
            return lambda request: request.startswith("FCALL")
        return lambda request: f'"{self.name}".' in request and "notify" not in request.lower()


class Rig:
    """The storage under test behind its wire, and a way around it."""

    def __init__(self, home: Home, proxy: Proxy, clock: VirtualClock) -> None:
        self.home, self.proxy, self.clock = home, proxy, clock
        self._opened: list[Storage] = []

    async def behind(self) -> Storage:
        """The storage as somebody far away sees it."""
        return await self._keep(self.home.through(self.proxy))

    async def beside(self) -> Storage:
        """The same jobs, by a way that nobody cuts."""
        return await self._keep(self.home)

    async def teach(self, *steps: Step) -> None:
        """Let the server learn the scripts of these steps, by other jobs: a script that it does
        not know is refused, and a refusal that is lost is no loss.
        """
        if self.home.backend == REDIS:
            storage = await self._keep(self.home._replace(name=f"{self.home.name}-else"))
            for step in steps:
                await step(storage)

    async def _keep(self, home: Home) -> Storage:
        opened = await home.open(self.clock)
        self._opened.append(opened)
        return opened

    def lose_next(self, at: int = 1) -> Loss:
        """The next operation is carried out, and its answer is lost; or the one after it."""
        return self.proxy.lose_answer(self.home.operations(), at=at)

    async def close(self) -> None:
        for storage in self._opened:
            await storage.close()


@asynccontextmanager
async def rigged(home: Home, clock: VirtualClock) -> AsyncIterator[Rig]:
    with home.proxy() as proxy:
        rig = Rig(home, proxy, clock)
        try:
            yield rig
        finally:
            await rig.close()


async def everything(storage: Storage, now: datetime) -> dict[str, object]:
    """All that can be asked of a storage; seq is its own affair."""
    jobs = await storage.admin.find(JobFilter(), limit=1000)
    replace: Callable[..., object] = msgspec.structs.replace
    return {
        "jobs": [replace(job, seq=0) for job in jobs],
        "histories": [list(await storage.admin.history(job.id)) for job in jobs],
        "workers": [(w.start.id, w.state, w.running) for w in await storage.workers.workers()],
        "rollups": list(await storage.admin.rollups(now - _YEARS, now + _YEARS)),
        "gauges": list(await storage.admin.gauges(now - _YEARS, now + _YEARS)),
        "counts": list(await storage.admin.counts()),
        "queues": list(await storage.queues.queues()),
        "records": [(r.note, r.at, r.count) for r in await storage.orders.audits(limit=10)],
        "lines": [
            (chunk.claim.number, chunk.number, list(chunk.lines))
            for job in jobs
            for chunk in await storage.journal.logs(job.id)
        ],
        "limits": list(await storage.limits.specs()),
        "used": [
            (state.name, state.key, state.running)
            for spec in await storage.limits.specs()
            for state in await storage.limits.states(spec.name)
            if state.running
        ],
    }
