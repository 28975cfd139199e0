"""A bounded storage in memory: full, it lets enqueue wait or refuses; ended jobs are capped."""

from __future__ import annotations

import asyncio
import json

import pytest

from windlass import Every, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass.errors import ConfigError, StorageFull
from windlass.testing import drain


def a_shop(options: str) -> Windlass:
    app = Windlass(f"memory://?{options}")

    @app.task(name="work", max_attempts=1)
    async def work(number: int) -> int:
        if number < 0:
            raise ValueError(number)
        return number

    return app


async def stored(app: Windlass, state: State | None = None) -> list[int]:
    """The arguments of stored jobs, in the order of enqueueing."""
    states = None if state is None else (state,)
    found = await app.admin.jobs.find(JobFilter(states=states), limit=1000)
    return [json.loads(job.payload)["number"] for job in reversed(found)]


# --- a full storage ------------------------------------------------------------------------------


async def test_enqueue_waits_until_a_job_has_ended() -> None:
    async with a_shop("max_jobs=2") as app:
        work = app.tasks["work"]
        for number in range(2):
            await work.enqueue(number)
        third = asyncio.create_task(work.enqueue(2))
        fourth = asyncio.create_task(work.enqueue(3))
        await asyncio.wait([third, fourth], timeout=0.05)
        assert not third.done()
        assert not fourth.done()
        async with app.worker(), asyncio.timeout(10):
            assert await (await third).result() == 2
            assert await (await fourth).result() == 3


async def test_many_producers_at_once_fill_it_and_the_rest_wait() -> None:
    async with a_shop("max_jobs=10") as app:
        calls = [asyncio.create_task(app.tasks["work"].enqueue(n)) for n in range(100)]
        await asyncio.wait(calls, timeout=0.1)
        assert sum(call.done() for call in calls) == len(await stored(app)) == 10
        async with app.worker(), asyncio.timeout(30):
            jobs = await asyncio.gather(*calls)
            assert sorted([await job.result() for job in jobs]) == list(range(100))


async def test_a_cancelled_call_that_waited_stores_nothing() -> None:
    async with a_shop("max_jobs=1") as app:
        work = app.tasks["work"]
        first = await work.enqueue(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await work.enqueue(1)
        await first.cancel()
        await work.enqueue(2)
        assert await stored(app, State.WAITING) == [2]


async def test_a_refusal_says_what_to_do_and_stores_nothing() -> None:
    async with a_shop("max_jobs=3&full=refuse") as app:
        work = app.tasks["work"]
        await work.enqueue(0)
        with pytest.raises(StorageFull, match=r"max_jobs=3 leaves no room for 3 more.*full=wait"):
            await app.enqueue_many([work.call(number) for number in range(1, 4)])
        assert await stored(app) == [0]
        await app.enqueue_many([work.call(number) for number in range(1, 3)])
        with pytest.raises(StorageFull):
            await work.enqueue(3)


async def test_a_call_that_can_never_fit_is_refused_at_once() -> None:
    async with a_shop("max_jobs=3") as app, asyncio.timeout(10):
        with pytest.raises(StorageFull, match="Enqueue fewer at once, or raise max_jobs"):
            await app.enqueue_many([app.tasks["work"].call(number) for number in range(4)])


async def test_a_call_that_fits_is_stored_beside_one_that_does_not() -> None:
    async with a_shop("max_jobs=3&full=refuse") as app:
        work = app.tasks["work"]
        many = app.enqueue_many([work.call(number) for number in range(4)])
        refused, job = await asyncio.gather(many, work.enqueue(9), return_exceptions=True)
        assert isinstance(refused, StorageFull)
        assert not isinstance(job, BaseException)
        assert await stored(app) == [9]


async def test_a_job_that_is_there_already_needs_no_room() -> None:
    async with a_shop("max_jobs=1&full=refuse") as app:
        unique = app.tasks["work"].options(key="only")
        first = await unique.enqueue(0)
        again = await unique.enqueue(0)
        assert (again.id, again.created) == (first.id, False)


async def test_blocking_code_is_refused_too() -> None:
    app = a_shop("max_jobs=1&full=refuse")
    work = app.tasks["work"]

    def produce() -> None:
        work.enqueue_sync(0)
        with pytest.raises(StorageFull):
            work.enqueue_sync(1)
        app.blocking.close()

    await asyncio.to_thread(produce)


async def test_schedules_and_retries_find_room_in_a_full_storage() -> None:
    app = a_shop("max_jobs=1&full=refuse")
    ran = asyncio.Event()

    @app.schedule(Every(0.05))
    @app.task(name="tick")
    async def tick() -> None:
        ran.set()

    async with app:
        await app.tasks["work"].options(delay=3600).enqueue(0)
        async with app.worker(), asyncio.timeout(10):
            await ran.wait()


# --- ended jobs ----------------------------------------------------------------------------------


async def test_the_oldest_ended_jobs_go_first_and_active_ones_never() -> None:
    async with a_shop("max_ended=3") as app:
        work = app.tasks["work"]
        later = await work.options(delay=3600).enqueue(99)
        for number in (1, -2, 3, 4, -5):
            await work.enqueue(number)
            await drain(app)
        assert sorted(await stored(app)) == [-5, 3, 4, 99]
        assert (await later.refresh()).state is State.WAITING


async def test_a_requeued_job_is_active_again_and_stays() -> None:
    async with a_shop("max_ended=1") as app:
        work = app.tasks["work"]
        failed = await work.enqueue(-1)
        await drain(app)
        await app.admin.jobs.requeue(failed.id)
        await (await work.enqueue(1)).cancel()
        await (await work.enqueue(2)).cancel()
        assert await stored(app) == [-1, 2]


# --- the URL -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("max_job=3", r"no option 'max_job', there are .*Did you mean 'max_jobs'"),
        ("max_jobs=0", "max_jobs of memory:// is a whole number from 1, got '0'"),
        ("max_jobs=many", "max_jobs of memory:// is a whole number from 1, got 'many'"),
        ("max_ended=-1", "max_ended of memory:// is a whole number from 1"),
        ("max_jobs=3&full=drop", "full of memory:// is wait or refuse, got 'drop'"),
        ("full=refuse", "full of memory:// needs a bound"),
        ("max_jobs=1&max_jobs=2", "names the option max_jobs twice"),
    ],
)
def test_a_wrong_option_is_refused_when_the_app_is_made(options: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Windlass(f"memory://?{options}")


async def test_without_options_there_is_no_bound() -> None:
    async with a_shop("") as app:
        work = app.tasks["work"]
        await app.enqueue_many([work.call(number) for number in range(3000)])
        storage = await parts_of(app).storage()
        assert (await storage.health())["jobs"] == 3000
