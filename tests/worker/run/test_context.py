"""What a handler knows about its run, and what it leaves behind for the next one: nothing."""

from __future__ import annotations

import asyncio
import contextvars
import logging

import pytest

import windlass
from tests.worker.fixtures import bench, logged
from windlass import Backoff, Context
from windlass._core.job.state import State
from windlass.errors import InvalidArgument, WindlassError

colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


# --- current() -----------------------------------------------------------------------------------


async def test_current_is_the_context_of_the_coroutine() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def job(ctx: Context) -> bool:
            await asyncio.sleep(0)
            return windlass.current() is ctx

        enqueued = await job.enqueue()
        await it.engine.step()
        assert await enqueued.result() is True


async def test_current_is_the_context_of_the_function_on_its_thread() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        def job(ctx: Context) -> bool:
            return windlass.current() is ctx

        enqueued = await job.enqueue()
        await it.engine.step()
        assert await enqueued.result() is True


async def test_current_is_known_to_what_a_handler_starts() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def job() -> list[str]:
            async def inner() -> str:
                return windlass.current().job_id

            loop = asyncio.get_running_loop()
            return [await loop.create_task(inner()), await asyncio.to_thread(_current_id)]

        enqueued = await job.enqueue()
        await it.engine.step()
        assert await enqueued.result() == [enqueued.id] * 2


def _current_id() -> str:
    return windlass.current().job_id


async def test_current_outside_a_job_says_what_to_do() -> None:
    with pytest.raises(WindlassError, match="outside a running job"):
        windlass.current()


async def test_current_is_gone_when_the_job_is() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def job() -> None:
            windlass.current()

        await it.run(job.call())
        with pytest.raises(WindlassError):
            windlass.current()


async def test_neighbours_see_their_own_contexts() -> None:
    async with bench() as it:

        @it.app.task(name="loop")
        async def on_loop() -> str:
            await asyncio.sleep(0)
            return windlass.current().job_id

        @it.app.task(name="thread")
        def on_thread() -> str:
            return windlass.current().job_id

        calls = [task.call() for task in (on_loop, on_thread) for _ in range(5)]
        jobs = await it.app.enqueue_many(calls)
        await it.engine.step()
        assert [await job.result() for job in jobs] == [job.id for job in jobs]


# --- context variables ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_context_variables_do_not_leak_into_the_next_job(kind: str) -> None:
    async with bench(slots=1) as it:

        async def coroutine(new: str) -> str:
            old = colour.get()
            colour.set(new)
            return old

        def function(new: str) -> str:
            old = colour.get()
            colour.set(new)
            return old

        task = it.app.task(name="job")(coroutine if kind == "coroutine" else function)
        jobs = await it.app.enqueue_many([task.call(new) for new in ("red", "green", "blue")])
        for _ in jobs:
            await it.engine.step()
        assert [await job.result() for job in jobs] == ["none"] * 3
        assert colour.get() == "none"


# --- what it tells -------------------------------------------------------------------------------


async def test_a_context_tells_what_was_asked_for() -> None:
    async with bench() as it:
        told: list[Context] = []

        @it.app.task(name="shop.send", max_attempts=3, tags=["a"])
        async def send(ctx: Context) -> None:
            told.append(ctx)
            assert not ctx.cancelled

        bound = send.options(tenant="acme", principal="alice", correlation_id="r-1", tags=["b"])
        job = await it.run(bound.call())
        (ctx,) = told
        assert ctx.job_id == job.id
        assert (ctx.task, ctx.queue) == ("shop.send", "default")
        assert (ctx.attempt, ctx.max_attempts) == (1, 3)
        assert (ctx.tenant, ctx.principal, ctx.correlation_id) == ("acme", "alice", "r-1")
        assert ctx.tags == ("b",)
        assert ctx.previous_error is None


async def test_state_is_what_the_application_put_there() -> None:
    async with bench(state="the pool") as it:
        pools: list[object] = []

        @it.app.task(name="job")
        async def job(ctx: Context) -> None:
            pools.append(ctx.state)

        await it.run(job.call())
        assert pools == ["the pool"]


async def test_a_second_attempt_knows_what_went_wrong_in_the_first() -> None:
    async with bench() as it:
        seen: list[tuple[int, str | None]] = []

        @it.app.task(name="job", backoff=Backoff.none())
        async def job(ctx: Context) -> None:
            seen.append((ctx.attempt, ctx.previous_error))
            if ctx.attempt < 3:
                raise ValueError(f"attempt {ctx.attempt}")

        record = await it.run(job.call())
        record = await it.again(record)
        record = await it.again(record)
        assert record.state is State.SUCCEEDED
        assert seen == [(1, None), (2, "ValueError: attempt 1"), (3, "ValueError: attempt 2")]


async def test_a_line_logged_by_a_job_carries_its_ids() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def job(ctx: Context) -> None:
            ctx.log("sent %d mails", 3)
            ctx.log("slow", level=logging.WARNING)

        with logged() as lines:
            record = await it.run(job.call())
        first, second = (line for line in lines.records if line.name == "windlass.job")
        assert first.getMessage() == "sent 3 mails"
        assert (first.levelname, second.levelname) == ("INFO", "WARNING")
        ids = [
            (vars(line)["job_id"], vars(line)["task"], vars(line)["attempt"])
            for line in (first, second)
        ]
        assert ids == [(record.id, "job", 1)] * 2


# --- follow-up work ------------------------------------------------------------------------------


async def test_follow_up_work_remembers_where_it_came_from() -> None:
    async with bench() as it:

        @it.app.task(name="child")
        async def child() -> None: ...

        @it.app.task(name="parent")
        async def parent(ctx: Context) -> str:
            job = await ctx.enqueue(child.call())
            assert isinstance(job, windlass.Job)
            return job.id

        job = await parent.options(correlation_id="r-1", tenant="acme").enqueue()
        await it.engine.step()
        record = await it.app.admin.jobs.get(await job.result())
        assert record.parent == job.id
        assert (record.correlation_id, record.tenant) == ("r-1", "acme")


async def test_follow_up_work_may_say_otherwise() -> None:
    async with bench() as it:

        @it.app.task(name="child")
        async def child() -> None: ...

        @it.app.task(name="parent")
        async def parent(ctx: Context) -> str:
            bound = child.options(correlation_id="r-2", tenant="other", queue="later", delay=60)
            return str((await ctx.enqueue(bound.call())).id)

        job = await parent.options(correlation_id="r-1", tenant="acme").enqueue()
        await it.engine.step()
        record = await it.app.admin.jobs.get(await job.result())
        assert (record.correlation_id, record.tenant, record.queue) == ("r-2", "other", "later")
        assert record.parent == job.id


async def test_progress_outside_nought_and_one_is_refused() -> None:
    async with bench() as it:

        @it.app.task(name="job", max_attempts=1)
        async def job(ctx: Context) -> None:
            ctx.progress(1.5)

        record = await it.run(job.call())
        assert record.error is not None
        assert record.error.kind.endswith(InvalidArgument.__name__)
