"""What the memory backend alone promises: one database, seen from several event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from windlass.core.job import JobId
from windlass.storage.memory import MemoryDatabase, MemoryStorage
from windlass.storage.protocol import Storage, WorkerStart
from windlass.testing.conformance.steps import a_job, add, claim, enlist, ids

T = TypeVar("T")


async def elsewhere(work: Coroutine[Any, Any, T]) -> T:
    """Run on another thread with an event loop of its own."""
    return await asyncio.to_thread(asyncio.run, work)


async def test_a_job_stored_on_one_loop_is_claimed_on_another() -> None:
    database = MemoryDatabase()
    here = MemoryStorage(database)
    await enlist(here)
    wanted = await elsewhere(add(MemoryStorage(database), a_job()))
    assert ids(await claim(here)) == wanted


async def test_a_change_on_another_loop_wakes_subscribers_here() -> None:
    database = MemoryDatabase()
    called = asyncio.Event()
    MemoryStorage(database).wakeups.subscribe(called.set)
    await elsewhere(add(MemoryStorage(database), a_job()))
    async with asyncio.timeout(5):
        await called.wait()


async def test_many_changes_are_one_call() -> None:
    storage = MemoryStorage(MemoryDatabase())
    calls: list[None] = []
    storage.wakeups.subscribe(lambda: calls.append(None))
    for _ in range(100):
        await add(storage, a_job())
    await asyncio.sleep(0)
    assert calls == [None]


async def test_a_subscriber_whose_loop_has_closed_troubles_nobody() -> None:
    database = MemoryDatabase()

    async def subscribe() -> None:
        MemoryStorage(database).wakeups.subscribe(lambda: None)

    await elsewhere(subscribe())
    await add(MemoryStorage(database), a_job())


async def test_nobody_is_called_after_closing() -> None:
    database = MemoryDatabase()
    calls: list[None] = []
    storage = MemoryStorage(database)
    storage.wakeups.subscribe(lambda: calls.append(None))
    await storage.close()
    await add(MemoryStorage(database), a_job())
    await asyncio.sleep(0)
    assert calls == []


async def test_claims_from_several_threads_never_share_a_job() -> None:
    database = MemoryDatabase()
    workers = [f"w{number}" for number in range(4)]
    await enlist(MemoryStorage(database), *workers)
    wanted = await add(MemoryStorage(database), *(a_job() for _ in range(400)))

    async def drain(worker: str) -> list[JobId]:
        storage = MemoryStorage(database)
        taken: list[JobId] = []
        while jobs := await claim(storage, 3, worker=worker):
            taken += ids(jobs)
        return taken

    drains = await asyncio.gather(*(elsewhere(drain(worker)) for worker in workers))
    assert sorted(job for taken in drains for job in taken) == sorted(wanted)


async def test_it_says_that_it_keeps_nothing_and_proves_nothing() -> None:
    storage: Storage = MemoryStorage(MemoryDatabase())
    assert not storage.shared
    assert storage.describe() == "memory (nothing survives the process)"
    assert storage.hold_worker_lock("w1") == ("", 0, 0)
    await enlist(storage)
    (record,) = await storage.workers.workers()
    start: WorkerStart = record.start
    assert not storage.prove_dead(start)
