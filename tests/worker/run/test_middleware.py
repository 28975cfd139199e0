"""The onion around handlers, what surrounds a worker's life, and the state handlers see."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import pytest

import windlass
from tests.worker import process_app
from tests.worker.fixtures import Bench, World, bench, logged, simulate, until, working
from windlass import Backoff, Context, GiveUp, Snooze, Windlass, testing
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, JobMoved
from windlass._core.job.state import State
from windlass._tasks.handle import Job
from windlass._tasks.hooks import CallNext, Middleware
from windlass._tasks.task import Call
from windlass._worker.run.execution import StopCause
from windlass.errors import ChildDied, ChildError, DefinitionError, JobFailed

colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")
KINDS = ("coroutine", "function")


def echo_of(it: Bench, kind: str, said: list[str] | None = None, **options: Any) -> Any:
    def plain(word: str) -> str:
        if said is not None:
            said.append(word)
        return word

    async def coroutine(word: str) -> str:
        return plain(word)

    return it.app.task(name="echo", **options)(coroutine if kind == "coroutine" else plain)


# --- the onion -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_the_first_layer_is_outermost(kind: str) -> None:
    async with bench() as it:
        said: list[str] = []
        for name in ("outer", "inner"):

            def layer_of(name: str) -> Middleware:
                async def layer(ctx: Context, call_next: CallNext) -> Any:
                    said.append(f"{name} before")
                    value = await call_next()
                    said.append(f"{name} after")
                    return f"{value} {name}"

                return layer

            it.app.middleware(layer_of(name))
        job = await echo_of(it, kind, said).enqueue("hi")
        await it.engine.step()
        assert await job.result() == "hi inner outer"
        assert said == ["outer before", "inner before", "hi", "inner after", "outer after"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_layer_may_answer_without_calling_the_rest(kind: str) -> None:
    async with bench() as it:
        said: list[str] = []

        @it.app.middleware
        async def cached(ctx: Context, call_next: CallNext) -> str:
            return "from the cache"

        job = await echo_of(it, kind, said).enqueue("hi")
        await it.engine.step()
        assert await job.result() == "from the cache"
        assert said == []


@pytest.mark.parametrize("kind", KINDS)
async def test_an_exception_of_middleware_ends_the_job(kind: str) -> None:
    async with bench() as it:

        @it.app.middleware
        async def closed(ctx: Context, call_next: CallNext) -> None:
            raise Snooze(60)

        record = await it.run(echo_of(it, kind).call("hi"))
        assert (record.state, record.attempt) == (State.WAITING, 0)
        assert record.due - record.created_at == timedelta(seconds=60)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_layer_sees_what_a_handler_raises_and_may_judge_it(kind: str) -> None:
    async with bench() as it:

        async def coroutine() -> None:
            raise LookupError("gone")

        def function() -> None:
            raise LookupError("gone")

        @it.app.middleware
        async def judge(ctx: Context, call_next: CallNext) -> Any:
            try:
                return await call_next()
            except LookupError as error:
                raise GiveUp(f"{ctx.task}: {error}") from error

        task = it.app.task(name="job")(coroutine if kind == "coroutine" else function)
        record = await it.run(task.call())
        assert record.state is State.FAILED
        assert record.error is not None
        assert record.error.message == "job: gone"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_layer_may_call_again(kind: str) -> None:
    async with bench() as it:
        said: list[str] = []

        @it.app.middleware
        async def twice(ctx: Context, call_next: CallNext) -> Any:
            await call_next()
            return await call_next()

        await it.run(echo_of(it, kind, said).call("hi"))
        assert said == ["hi", "hi"]


@pytest.mark.parametrize("kind", KINDS)
async def test_layers_and_handler_share_context_and_variables(kind: str) -> None:
    async with bench() as it:

        @it.app.middleware
        async def paint(ctx: Context, call_next: CallNext) -> Any:
            assert windlass.current() is ctx
            colour.set("red")
            return await call_next()

        def plain(ctx: Context) -> list[Any]:
            return [colour.get(), windlass.current() is ctx]

        async def coroutine(ctx: Context) -> list[Any]:
            return plain(ctx)

        task = it.app.task(name="job")(coroutine if kind == "coroutine" else plain)
        job = await task.enqueue()
        await it.engine.step()
        assert await job.result() == ["red", True]
        assert colour.get() == "none"


async def test_an_awaitable_of_a_plain_function_is_awaited_inside_the_middleware() -> None:
    async with bench() as it:

        @it.app.middleware
        async def shout(ctx: Context, call_next: CallNext) -> str:
            return str(await call_next()).upper()

        async def inner() -> str:
            return "done"

        @it.app.task(name="job", run_in="thread")
        def job() -> Any:
            return inner()

        enqueued = await job.enqueue()
        await it.engine.step()
        assert await enqueued.result() == "DONE"


async def test_a_layer_added_later_counts_for_the_next_job() -> None:
    async with bench() as it:
        task = echo_of(it, "coroutine")
        first = await task.enqueue("a")
        await it.engine.step()

        @it.app.middleware
        async def shout(ctx: Context, call_next: CallNext) -> str:
            return str(await call_next()).upper()

        second = await task.enqueue("a")
        await it.engine.step()
        assert [await first.result(), await second.result()] == ["a", "A"]


@pytest.mark.parametrize("where", ["before", "handler", "after"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_timeout_covers_the_whole_chain(kind: str, where: str) -> None:
    async with bench() as it:
        ends = threading.Event()

        async def coroutine() -> None:
            if where == "handler":
                await asyncio.sleep(60)

        def function(ctx: Context) -> None:
            if where == "handler":
                ctx.cancelled.wait(60)
            ends.set()

        @it.app.middleware
        async def slow(ctx: Context, call_next: CallNext) -> None:
            if where == "before":
                await asyncio.sleep(60)
            await call_next()
            if where == "after":
                await asyncio.sleep(60)

        task = it.app.task(name="job", timeout=0.05)(coroutine if kind == "coroutine" else function)
        record = await it.run(task.call())
        assert record.error is not None
        assert record.error.kind == "windlass.errors.JobTimeout"
        if kind == "function" and where == "handler":
            assert ends.wait(30)  # the thread was asked to end


async def test_a_request_reaches_a_layer_that_waits() -> None:
    async with bench() as it:

        @it.app.middleware
        async def queue_up(ctx: Context, call_next: CallNext) -> None:
            await asyncio.sleep(60)

        job = await echo_of(it, "function").enqueue("hi")
        await it.engine.claimer.step()
        await asyncio.sleep(0)
        (claim,) = it.engine.runner.active
        await job.cancel()
        it.engine.runner.stop(claim, StopCause.CANCEL)
        await it.engine.step()
        assert (await job.refresh()).state is State.CANCELLED


async def test_arguments_that_do_not_fit_meet_no_layer() -> None:
    async with bench() as it:
        met: list[str] = []

        @it.app.middleware
        async def note(ctx: Context, call_next: CallNext) -> Any:
            met.append(ctx.task)
            return await call_next()

        task = echo_of(it, "coroutine")
        call = task.call("hi")
        record = await it.run(Call(task, b'{"nonsense":1}', None, call.options))
        assert record.state is State.FAILED
        assert met == []


@pytest.mark.parametrize(
    "layer",
    [lambda ctx, call_next: None, "not even callable"],
    ids=["plain", "text"],
)
def test_invalid_middleware_is_refused(layer: Any) -> None:
    with pytest.raises(DefinitionError, match="async def name"):
        Windlass("memory://").middleware(layer)


def test_a_layer_takes_two_arguments() -> None:
    async def layer(call_next: CallNext) -> None: ...

    with pytest.raises(DefinitionError, match="call_next"):
        Windlass("memory://").middleware(layer)  # type: ignore[arg-type]


# --- around child processes ----------------------------------------------------------------------


@contextmanager
def layered(layer: Middleware) -> Iterator[None]:
    process_app.app.middleware(layer)
    try:
        yield
    finally:
        parts_of(process_app.app).hooks.layers.remove(layer)


async def test_layers_of_child_processes_run_in_the_worker_around_the_call() -> None:
    seen: list[object] = []

    async def layer(ctx: Context, call_next: CallNext) -> Any:
        try:
            value = await call_next()
        except Exception as error:
            seen.append((type(error), getattr(error, "kind", "")))
            raise
        seen.append(os.getpid())
        return value

    app = process_app.app
    with testing.isolated(app), layered(layer):
        async with app, app.worker(slots=1):
            child, _ = await (await process_app.whoami.enqueue()).result(timeout=20)
            assert child != os.getpid()
            broken = await app.tasks["process.broken"].enqueue()
            with pytest.raises(JobFailed, match="ValueError: no good"):
                await broken.result(timeout=20)
            dies = await process_app.leave.enqueue(3)
            with pytest.raises(JobFailed, match="exit code 3"):
                await dies.result(timeout=20)
            snoozes = await app.tasks["process.steer"].enqueue("snooze")
            await until(lambda: len(seen) == 4, seconds=20)
            assert (await snoozes.refresh()).attempt in (0, 1)
    assert seen == [os.getpid(), (ChildError, "ValueError"), (ChildDied, "ChildDied"), (Snooze, "")]


async def test_a_layer_may_try_a_child_that_died_again() -> None:
    tries: list[int] = []

    async def layer(ctx: Context, call_next: CallNext) -> Any:
        for number in (1, 2):
            tries.append(number)
            try:
                return await call_next()
            except ChildDied:
                pass
        return "gave up on it"

    app = process_app.app
    with testing.isolated(app), layered(layer):
        async with app, app.worker(slots=1):
            job: Job[Any] = await process_app.leave.enqueue(3)
            assert await job.result(timeout=20) == "gave up on it"
    assert tries == [1, 2]


# --- lifespans and state -------------------------------------------------------------------------


def test_lifespans_surround_the_worker_and_nest() -> None:
    async def scenario(world: World) -> None:
        app = world.app

        @app.lifespan
        async def outer(app: Windlass) -> AsyncIterator[None]:
            world.say("outer opens")
            app.state = ["pool"]
            yield
            world.say("outer closes")

        @app.lifespan
        @asynccontextmanager
        async def inner(app: Windlass) -> AsyncIterator[None]:
            world.say("inner opens")
            yield
            world.say("inner closes")

        @app.task(name="job")
        async def job(ctx: Context) -> str:
            world.say("job")
            return str(ctx.state[0])

        enqueued = await job.enqueue()
        async with working(app):
            assert await enqueued.result(timeout=5) == "pool"
        assert world.words == ["outer opens", "inner opens", "job", "inner closes", "outer closes"]

    simulate(scenario)


def test_a_lifespan_that_fails_keeps_the_worker_from_starting() -> None:
    async def scenario(world: World) -> None:
        @world.app.lifespan
        async def broken(app: Windlass) -> AsyncIterator[None]:
            if app is world.app:
                raise RuntimeError("no database")
            yield

        with pytest.raises(RuntimeError, match="no database"):
            async with working(world.app):
                pass
        assert await world.app.admin.workers.list() == []

    simulate(scenario)


async def test_a_lifespan_ends_also_when_the_worker_cannot_continue() -> None:
    closed: list[bool] = []
    async with Windlass("memory://") as app:

        @app.lifespan
        async def pool(app: Windlass) -> AsyncIterator[None]:
            try:
                yield
            finally:
                closed.append(True)

        worker = await parts_of(app).workers.make(parts_of(app).workers.settings())
        running = asyncio.ensure_future(worker.run())
        await worker.started.wait()
        running.cancel()
        await asyncio.wait([running])
        assert closed == [True]


@pytest.mark.parametrize("wrong", ["coroutine", "no argument"])
def test_an_invalid_lifespan_is_refused(wrong: str) -> None:
    async def coroutine(app: Windlass) -> None: ...

    async def lonely() -> AsyncIterator[None]:
        yield

    with pytest.raises(DefinitionError, match="one `yield`"):
        Windlass("memory://").lifespan(coroutine if wrong == "coroutine" else lonely)


async def test_state_is_what_it_is_when_the_handler_looks() -> None:
    async with bench(state="old") as it:

        @it.app.task(name="job")
        async def job(ctx: Context) -> str:
            return str(ctx.state)

        it.app.state = "new"
        enqueued = await job.enqueue()
        await it.engine.step()
        assert await enqueued.result() == "new"


# --- listeners -----------------------------------------------------------------------------------


def test_a_listener_that_would_have_to_be_awaited_is_refused() -> None:
    async def listener(event: Event) -> None: ...

    with pytest.raises(DefinitionError, match="not awaited"):
        Windlass("memory://").on_transition(listener)  # type: ignore[arg-type]


async def test_a_listener_that_exits_stops_no_worker() -> None:
    async with bench() as it:

        @it.app.on_transition
        def leave(event: Event) -> None:
            raise SystemExit(1)

        with logged() as lines:
            record = await it.run(echo_of(it, "coroutine").call("hi"))
        assert record.state is State.SUCCEEDED
        assert lines.having("failed on JobMoved")


# --- what travels --------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["ctx.enqueue", "enqueue", "enqueue_many", "enqueue_sync"])
async def test_ids_travel_to_the_jobs_that_a_job_enqueues(way: str) -> None:
    async with bench() as it:

        @it.app.task(name="child")
        async def child() -> None: ...

        async def coroutine(ctx: Context) -> list[str]:
            if way == "ctx.enqueue":
                return [(await ctx.enqueue(child.call())).id]
            if way == "enqueue":
                return [(await child.enqueue()).id]
            return [job.id for job in await it.app.enqueue_many([child.call(), child.call()])]

        def function() -> list[str]:
            return [child.enqueue_sync().id]

        parent: Any = it.app.task(name="job")(function if way == "enqueue_sync" else coroutine)
        asked = parent.options(tenant="acme", principal="ada", correlation_id="r-1")
        job = await asked.enqueue()
        await it.engine.step()
        for made in await job.result():
            record = await it.app.job(made).refresh()
            assert (record.tenant, record.principal, record.correlation_id, record.parent) == (
                "acme",
                "ada",
                "r-1",
                job.id,
            )
        await asyncio.to_thread(it.app.blocking.close)


async def test_values_of_a_call_override_inherited_ones() -> None:
    async with bench() as it:

        @it.app.task(name="child")
        async def child(user_id: int, request_id: str | None = None) -> None: ...

        @it.app.task(name="job")
        async def job() -> list[str]:
            bound = child.options(tenant="other")
            return [(await child.enqueue(7)).id, (await bound.enqueue(8, "r-2")).id]

        asked = job.options(tenant="acme", principal="ada", correlation_id="r-1")
        enqueued = await asked.enqueue()
        await it.engine.step()
        first, second = [await it.app.job(made).refresh() for made in await enqueued.result()]
        assert (first.tenant, first.principal, first.correlation_id) == ("acme", "7", "r-1")
        assert (second.tenant, second.principal, second.correlation_id) == ("other", "8", "r-2")


async def test_a_listener_hears_where_a_job_came_from_and_where_it_went() -> None:
    async with bench() as it:
        moves: list[tuple[State | None, State]] = []

        @it.app.on_transition
        def note(event: Event) -> None:
            if isinstance(event, JobMoved):
                moves.append((event.previous, event.state))

        @it.app.task(name="job", max_attempts=2, backoff=Backoff.none())
        async def job() -> None:
            raise ValueError("no")

        record = await it.run(job.call())
        await it.again(record)
        await it.app.admin.jobs.requeue(record.id)
        await parts_of(it.app).producer.cancel(record.id)
        assert moves == [
            (State.WAITING, State.RUNNING),
            (State.RUNNING, State.WAITING),
            (State.WAITING, State.RUNNING),
            (State.RUNNING, State.FAILED),
            (State.FAILED, State.WAITING),
            (State.WAITING, State.CANCELLED),
        ]
