"""``inline``: a job has ended when the call that enqueued it returns."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from windlass import Backoff, Context, GiveUp, Limit, Rate, Snooze, Windlass
from windlass._core.job.state import State
from windlass.errors import JobFailed
from windlass.testing import NeverEmpty, TooDeep, VirtualClock, drain, enqueued, inline, isolated


async def test_a_job_has_run_when_enqueue_returns(app: Windlass, file: Path) -> None:
    ran: list[str] = []

    @app.task
    async def work(name: str) -> str:
        ran.append(name)
        return name.upper()

    with inline(app):
        job = await work.enqueue("ada")
        assert ran == ["ada"]
        assert await job.result() == "ADA"
    assert not file.exists()


def test_without_an_event_loop(app: Windlass) -> None:
    ran: list[str] = []

    @app.task
    def work(name: str) -> str:
        ran.append(name)
        return name

    with inline(app):
        job = work.enqueue_sync("ada")
        assert ran == ["ada"]
        assert app.blocking.result(job) == "ada"
        app.blocking.enqueue_many([work.call("one"), work.call("two")])
        assert ran == ["ada", "one", "two"]


async def test_many_at_once(app: Windlass) -> None:
    @app.task
    async def square(number: int) -> int:
        return number * number

    with inline(app):
        jobs = await app.enqueue_many([square.call(n) for n in range(5)])
        assert [await job.result() for job in jobs] == [0, 1, 4, 9, 16]


async def test_delay_instant_and_queue_do_not_matter(app: Windlass) -> None:
    ran: list[str] = []

    @app.task
    async def work(ctx: Context) -> None:
        ran.append(ctx.queue)

    with isolated(app) as clock, inline(app):
        await work.options(delay=timedelta(days=1), queue="far-away").enqueue()
        await work.options(at=clock.now() + timedelta(days=400)).enqueue()
    assert ran == ["far-away", "default"]


async def test_a_failure_surfaces_where_the_job_was_enqueued(app: Windlass) -> None:
    @app.task
    async def bad() -> None:
        raise GiveUp("no such customer")

    with inline(app):
        with pytest.raises(JobFailed) as caught:
            await bad.enqueue()
        assert caught.value.text == "no such customer"
        assert 'raise GiveUp("no such customer")' in "".join(caught.value.__notes__)


def test_a_failure_surfaces_from_the_blocking_call_too(app: Windlass) -> None:
    @app.task(max_attempts=1)
    def bad() -> None:
        raise ValueError("no such customer")

    with inline(app), pytest.raises(JobFailed, match="ValueError: no such customer"):
        bad.enqueue_sync()


async def test_a_failure_can_be_kept_for_the_result(app: Windlass) -> None:
    @app.task(max_attempts=1)
    async def bad() -> None:
        raise ValueError("no such customer")

    with inline(app, errors="keep"):
        job = await bad.enqueue()
        with pytest.raises(JobFailed, match="no such customer"):
            await job.result()


async def test_attempts_follow_one_another_without_waiting(app: Windlass) -> None:
    @app.task(backoff=Backoff.fixed(3600))
    async def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    with inline(app):
        assert await (await flaky.enqueue()).result() == 3


async def test_all_of_a_batch_run_before_a_failure_of_one_surfaces(app: Windlass) -> None:
    ran: list[int] = []

    @app.task(max_attempts=1)
    async def work(number: int) -> None:
        ran.append(number)
        if number == 1:
            raise ValueError("one")

    with inline(app), pytest.raises(JobFailed, match="one"):
        await app.enqueue_many([work.call(n) for n in range(3)])
    assert ran == [0, 1, 2]


async def test_jobs_enqueued_by_a_job_have_ended_too(app: Windlass) -> None:
    order: list[str] = []

    @app.task
    async def child(name: str) -> str:
        order.append(name)
        return name

    @app.task
    async def parent(ctx: Context) -> str:
        order.append("parent starts")
        direct = await child.enqueue("child")
        await ctx.enqueue(child.call("by the context"))
        order.append("parent ends")
        return await direct.result()

    with inline(app):
        assert await (await parent.enqueue()).result() == "child"
    assert order == ["parent starts", "child", "by the context", "parent ends"]


def test_jobs_enqueued_from_a_thread_have_ended_too(app: Windlass) -> None:
    @app.task
    def child() -> str:
        return "child"

    @app.task
    def parent() -> str:
        return app.blocking.result(child.enqueue_sync())

    with inline(app):
        assert app.blocking.result(parent.enqueue_sync()) == "child"


async def test_concurrent_callers_each_get_their_own_job_ended(app: Windlass) -> None:
    @app.task
    async def work(number: int) -> int:
        await asyncio.sleep(0)
        if number % 3 == 0:
            await work.enqueue(number + 1)
        return number

    async def enqueue(number: int) -> int:
        job = await work.enqueue(number)
        assert (await job.refresh()).state is State.SUCCEEDED
        return await job.result()

    with inline(app):
        assert await asyncio.gather(*map(enqueue, range(20))) == list(range(20))


async def test_a_key_that_is_held_reuses_the_job_and_runs_nothing(app: Windlass) -> None:
    ran: list[str] = []

    @app.task
    async def work(name: str) -> None:
        ran.append(name)

    with inline(app):
        first = await work.options(key="k", unique_for=60).enqueue("first")
        second = await work.options(key="k", unique_for=60).enqueue("second")
    assert second.id == first.id
    assert not second.created
    assert ran == ["first"]


async def test_a_chain_without_an_end_is_cut(app: Windlass) -> None:
    @app.task(max_attempts=1)
    async def again() -> None:
        await again.enqueue()

    with inline(app), pytest.raises(JobFailed, match="have enqueued one another"):
        await again.enqueue()


async def test_a_job_that_never_ends_is_cut(app: Windlass) -> None:
    @app.task
    async def later() -> None:
        raise Snooze(1)

    with inline(app), pytest.raises(NeverEmpty, match="later keeps asking"):
        await later.enqueue()


async def test_a_paused_queue_keeps_its_jobs(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    with isolated(app):
        await app.admin.queues.pause("default")
        with inline(app):
            job = await work.enqueue()
            assert (await job.refresh()).state is State.WAITING


async def test_inside_an_isolation_the_store_and_the_clock_are_shared(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task
    async def work(number: int) -> None: ...

    await work.options(delay=60).enqueue(1)
    with inline(app):
        await work.enqueue(2)
    assert [job.arguments for job in await enqueued(app)] == [{"number": 1}]
    clock.advance(60)
    assert (await drain(app)).ran == 1


async def test_events_and_history_are_those_of_any_job(app: Windlass) -> None:
    verbs: list[str] = []
    app.on_transition(lambda event: verbs.append(getattr(event, "verb", "enqueued")))

    @app.task(max_attempts=2)
    async def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("first")

    with inline(app):
        job = await flaky.enqueue()
        (attempt,) = await app.admin.jobs.history(job.id)
    assert verbs == ["enqueued", "claim", "retry", "claim", "succeed"]
    assert attempt.error is not None
    assert attempt.error.message == "first"


async def test_limits_hold_nothing_back(app: Windlass) -> None:
    ran: list[int] = []

    @app.task(limits=Limit("api", Rate(1, per=3600)))
    async def work(number: int) -> None:
        ran.append(number)

    with inline(app):
        await work.enqueue(1)
        await app.enqueue_many([work.call(2), work.call(3)])
        assert ran == [1, 2, 3]


async def test_jobs_that_a_handler_adds_have_run_too(app: Windlass) -> None:
    ran: list[str] = []

    @app.task(name="ship", limits=[Limit("dock", rate=Rate(1, timedelta(hours=1)))])
    async def ship(ctx: Context, order: int) -> None:
        ran.append(f"ship {order}")
        if order == 1:
            ctx.then(ship.options(delay=60).call(3))

    @app.task
    async def pay(ctx: Context) -> None:
        ctx.then(ship.call(1), ship.options(delay=3600).call(2))
        ran.append("pay")

    with inline(app):
        await pay.enqueue()
        assert ran == ["pay", "ship 1", "ship 2", "ship 3"]


async def test_an_added_job_that_fails_raises_from_the_call_that_enqueued(app: Windlass) -> None:
    @app.task(max_attempts=1)
    async def ship() -> None:
        raise ValueError("no truck")

    @app.task
    async def pay(ctx: Context) -> None:
        ctx.then(ship.call())

    with inline(app), pytest.raises(JobFailed, match="no truck"):
        await pay.enqueue()
    with inline(app, errors="keep"):
        await pay.enqueue()


async def test_a_task_that_adds_itself_without_end_is_reported(app: Windlass) -> None:
    @app.task(name="again")
    async def again(ctx: Context) -> None:
        ctx.then(again.call())

    with inline(app), pytest.raises(TooDeep, match=r"ctx\.then"):
        await again.enqueue()
