"""What the simulation has found, as small as it gets: it must not come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from windlass._core.job.job import JobId, NewJob
from windlass._core.job.transition import succeed
from windlass._observe.bus import Bus
from windlass._settings.settings import Settings, WorkerSettings
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.protocol.jobs import Verdict, Want
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStart
from windlass._storage.sqlite import open_sqlite
from windlass._system.seams import Seams
from windlass._tasks.task import TaskRegistry
from windlass._worker.finish.decisions import Decisions
from windlass._worker.liveness.reaper import Reaper
from windlass._worker.liveness.store_contact import StoreContact
from windlass._worker.registration import Registration
from windlass.testing._clock import VirtualClock

LEASE = timedelta(seconds=30)
WANT = [Want("default", 10)]
JOB = NewJob(id=JobId("a" * 32), task="t")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def storage(
    request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock
) -> AsyncIterator[Storage]:
    opened: Storage
    if request.param == "memory":
        opened = MemoryStorage(MemoryDatabase(clock))
    else:
        opened = await open_sqlite(tmp_path / "jobs.db", clock=clock)
    yield opened
    await opened.close()


async def enlist(storage: Storage, worker: str) -> None:
    start = WorkerStart(
        id=worker, host="h", pid=1, version="0", queues=["default"], slots=1, lease=LEASE
    )
    await storage.workers.register(start)


async def test_a_heartbeat_after_the_check_keeps_its_worker_alive(
    storage: Storage, clock: VirtualClock
) -> None:
    await enlist(storage, "slow")
    await enlist(storage, "dead")
    clock.advance(LEASE + timedelta(seconds=1))
    overdue = await storage.workers.overdue()
    await storage.workers.beat("slow")

    assert list(await storage.workers.bury_overdue(overdue)) == ["dead"]
    assert list(await storage.workers.bury_overdue(["slow", "dead", "nobody"])) == []


async def test_a_finish_does_not_reach_a_job_that_took_its_deleted_job_s_id(
    storage: Storage,
) -> None:
    """Kept for no time at all, a job that succeeded leaves its id to a repeated insert."""
    await enlist(storage, "w1")
    await storage.jobs.insert([JOB])
    (first,) = (await storage.jobs.claim("w1", WANT, total=1)).jobs
    finish = succeed(first, by="w1", result=b"1", keep=False)
    await storage.jobs.apply([finish])

    await storage.jobs.insert([JOB])
    (second,) = (await storage.jobs.claim("w1", WANT, total=1)).jobs
    assert second.claim.number == first.claim.number
    (answer,) = (await storage.jobs.apply([finish])).answers

    assert answer.verdict is Verdict.UNKNOWN
    (stored,) = await storage.admin.get([JOB.id])
    assert stored is not None
    assert stored.state == "running"


class SlowToAnswer:
    """A worker store whose answer about the overdue takes as long as an outage."""

    def __init__(self, storage: Storage, wait: VirtualClock, outage: timedelta) -> None:
        self._workers, self._wait, self._outage = storage.workers, wait, outage
        self.buried: list[str] = []

    async def overdue(self) -> list[str]:
        self._wait.advance(self._outage)
        return list(await self._workers.overdue())

    async def bury_overdue(self, workers: list[str]) -> list[str]:
        self.buried += workers
        return workers

    def __getattr__(self, name: str) -> object:
        return getattr(self._workers, name)


async def test_a_reaper_whose_question_outlasted_an_outage_judges_nobody(
    clock: VirtualClock,
) -> None:
    storage = MemoryStorage(MemoryDatabase(clock))
    await enlist(storage, "well")
    settings = Settings(url="memory://")
    identity = Registration(storage, settings, WorkerSettings(), Seams(), TaskRegistry())
    await identity.register()
    presence = StoreContact(
        beat=settings.heartbeat, lease=LEASE, clock=lambda: clock.boot().total_seconds()
    )
    for _ in range(7):  # the store was there for a whole lease
        presence.reached()
        await storage.workers.beat("well")
        clock.advance(settings.heartbeat)
    presence.reached()
    assert presence.may_judge

    slow = SlowToAnswer(storage, clock, outage=LEASE * 2)
    storage.workers = slow  # type: ignore[assignment]
    decisions = Decisions(TaskRegistry(), settings, storage.queues, Seams())
    reaper = Reaper(storage, identity, presence, decisions=decisions, bus=Bus())
    await reaper.step()

    assert slow.buried == []
