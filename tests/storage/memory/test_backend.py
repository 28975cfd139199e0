"""What the memory backend alone promises: one database, seen from several event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from windlass import Windlass
from windlass._core.job.job import JobId
from windlass._core.job.state import Shown, State
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStart
from windlass.testing._clock import VirtualClock
from windlass.testing._enqueued import all_jobs
from windlass.testing.conformance.steps import (
    a_job,
    add,
    claim,
    enlist,
    every,
    ids,
    keyed,
    started,
)

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
    async with asyncio.timeout(30):
        await called.wait()


async def test_many_changes_are_one_call() -> None:
    storage = MemoryStorage(MemoryDatabase())
    calls: list[None] = []
    storage.wakeups.subscribe(lambda: calls.append(None))
    for _ in range(100):
        await add(storage, a_job())
    await asyncio.sleep(0)
    assert calls == [None]


async def test_a_subscriber_whose_loop_has_closed_causes_no_error() -> None:
    database = MemoryDatabase()

    async def subscribe() -> None:
        MemoryStorage(database).wakeups.subscribe(lambda: None)

    await elsewhere(subscribe())
    await add(MemoryStorage(database), a_job())


async def test_no_subscriber_is_called_after_closing() -> None:
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


class Shortsighted(MemoryAdmin):
    """Looks at few jobs in one call."""

    look = 4
    look_for_text = 2


def shortsighted(clock: VirtualClock) -> MemoryStorage:
    storage = MemoryStorage(MemoryDatabase(clock))
    storage.admin.__class__ = Shortsighted
    return storage


async def test_a_new_app_has_no_jobs_of_an_earlier_app() -> None:
    for _ in range(2):
        async with Windlass("memory://") as app:

            @app.task(name="work")
            async def work() -> None: ...

            assert await app.admin.queues.counts() == []
            await work.enqueue()
            await work.options(delay=60).enqueue()


async def test_a_bounded_read_says_how_far_it_came_and_the_next_continues_there() -> None:
    clock = VirtualClock()
    storage, start = shortsighted(clock), clock.now()
    jobs: list[JobId] = []
    for number in range(10):
        jobs += await add(storage, a_job(queue="rare" if number == 0 else "many"))
        clock.advance(60)
    page = await storage.admin.find(JobFilter(queue="rare"), limit=5)
    assert (list(page), page.reached) == ([], start + timedelta(minutes=6))
    assert page.next is not None
    assert await every(storage, JobFilter(queue="rare")) == jobs[:1]
    assert [job.id for job in await all_jobs(storage.admin, JobFilter(queue="rare"))] == jobs[:1]
    assert await every(storage, JobFilter(queue="many"), limit=3) == jobs[:0:-1]
    assert await every(storage, JobFilter(text="{}"), limit=3) == jobs[::-1]


async def test_a_page_that_is_full_has_not_given_up() -> None:
    storage = shortsighted(VirtualClock())
    await add(storage, *(a_job() for _ in range(4)))
    page = await storage.admin.find(JobFilter(), limit=2)
    assert (len(page), page.reached) == (2, None)


async def test_jobs_of_a_rare_state_are_found_at_once_however_old_they_are() -> None:
    storage = shortsighted(VirtualClock())
    running = await started(storage, keyed("k"))
    await add(storage, *(a_job() for _ in range(10)))
    for wanted in (
        JobFilter(states=[State.RUNNING]),
        JobFilter(shown=[Shown.RUNNING]),
        JobFilter(worker="w1"),
        JobFilter(key="k"),
    ):
        page = await storage.admin.find(wanted, limit=1)
        assert [job.id for job in page] == [running.claim.job], wanted
