"""What a plugin's code can reach through what it was given, and what it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from tests.plugins.fakes import EVERYTHING, Mailer, Some
from tests.worker.fixtures import Bench, World, bench, simulate, working
from windlass import Context, Grants, Registrar, current
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._tasks.options import JobOptions
from windlass._tasks.task import Call, Task
from windlass.errors import NotGranted

NOBODY: Any = object()
HERE = Grants(tasks=True, queues=["default", "mail"], max_running=5, services=["mailer"])
"""The bench serves the default queue alone."""


@pytest.fixture
async def it() -> AsyncIterator[Bench]:
    async with bench(state={"secret": 1}) as made:
        yield made


def host_task(it: Bench) -> Task[[], None]:
    @it.app.task(name="host.task")
    async def task() -> None: ...

    return task


async def probed(it: Bench, handler: Callable[[Context, Any], Any]) -> Any:
    seen: list[Any] = []

    def say(registrar: Registrar) -> None:
        @registrar.task(name="probe", max_attempts=1)
        async def probe(ctx: Context) -> None:
            try:
                seen.append(await handler(ctx, probe))
            except NotGranted as error:
                seen.append(error)

    it.app.install(Some(say), grants=HERE)
    job = await it.run(it.app.tasks["some.probe"].call())
    assert job.state is State.SUCCEEDED, job.error
    (found,) = seen
    return found


# --- the context ----------------------------------------------------------------------------------


async def test_the_state_of_the_host_is_not_the_plugins(it: Bench) -> None:
    async def asks(ctx: Context, probe: Any) -> Any:
        return ctx.state

    found = await probed(it, asks)
    assert isinstance(found, NotGranted)
    assert "service" in str(found)


async def test_the_current_context_gives_no_more_than_the_one_that_was_given(it: Bench) -> None:
    async def asks(ctx: Context, probe: Any) -> Any:
        assert current() is ctx
        return current().state

    assert isinstance(await probed(it, asks), NotGranted)


async def test_a_thread_that_the_handler_starts_has_no_more_either(it: Bench) -> None:
    async def asks(ctx: Context, probe: Any) -> Any:
        return await asyncio.to_thread(lambda: current().state)

    assert isinstance(await probed(it, asks), NotGranted)


async def test_a_plain_function_of_a_plugin_is_confined_too(it: Bench) -> None:
    seen: list[Any] = []

    def say(registrar: Registrar) -> None:
        @registrar.task(max_attempts=1)
        def plain(ctx: Context, word: str) -> str:
            for context in (ctx, current()):
                with pytest.raises(NotGranted):
                    _ = context.state
            seen.append(ctx.task)
            return word

        def hidden() -> Any:
            async def inner() -> None:
                with pytest.raises(NotGranted):
                    _ = current().state
                seen.append("awaited")

            return inner()

        registrar.task(max_attempts=1)(hidden)

    it.app.install(Some(say), grants=HERE)
    job = await it.run(it.app.tasks["some.plain"].call("x"))
    assert (job.state, job.result) == (State.SUCCEEDED, b'"x"'), job.error
    job = await it.run(it.app.tasks["some.hidden"].call())
    assert job.state is State.SUCCEEDED, job.error
    assert seen == ["some.plain", "awaited"]


async def test_called_as_a_function_it_is_the_function(it: Bench) -> None:
    def say(registrar: Registrar) -> None:
        @registrar.task
        async def double(number: int) -> int:
            return 2 * number

        @registrar.task
        def half(number: int) -> int:
            return number // 2

    it.app.install(Some(say), grants=HERE)
    assert await it.app.tasks["some.double"](21) == 42
    assert it.app.tasks["some.half"](84) == 42


async def test_the_token_of_a_run_is_read_and_leads_nowhere(it: Bench) -> None:
    async def asks(ctx: Context, probe: Any) -> Any:
        assert not ctx.cancelled
        assert ctx.cancelled.wait(0) is False
        assert not {name for name in dir(ctx.cancelled) if not name.startswith("_")} - {
            "metadata",  # of this run, if it is the plugin's own
            "note",
            "put_off",  # of this run, as `raise Snooze` does
            *("add", "added", "closed", "take_added"),  # jobs of its own tasks, in its own run
            "set",
            "wait",
            "wish",
        }
        return ctx.cancelled.set()

    assert isinstance(await probed(it, asks), NotGranted)


def test_a_cancel_request_reaches_a_handler_of_a_plugin() -> None:
    async def scenario(world: World) -> list[bool]:
        seen: list[bool] = []
        begun = asyncio.Event()

        def say(registrar: Registrar) -> None:
            @registrar.task(max_attempts=1)
            async def waits(ctx: Context) -> None:
                begun.set()
                try:
                    await asyncio.sleep(60)
                finally:
                    seen.append(bool(ctx.cancelled))

        world.app.install(Some(say), grants=HERE)
        job = await world.app.tasks["some.waits"].enqueue()
        async with working(world.app):
            await begun.wait()
            await job.cancel()
            await world.until(10)
            assert (await job.refresh()).state is State.CANCELLED
        return seen

    assert simulate(scenario) == [True]


async def test_progress_and_results_are_as_for_any_task(it: Bench) -> None:
    def say(registrar: Registrar) -> None:
        @registrar.task
        async def works(ctx: Context, n: int = 2) -> int:
            ctx.progress(0.5, "half")
            ctx.note(half=True)
            ctx.log("working")
            assert await ctx.previous_run() is None
            return n * ctx.attempt

    it.app.install(Some(say), grants=HERE)
    job = await it.run(it.app.tasks["some.works"].call(21))
    assert (job.state, job.result, job.metadata) == (State.SUCCEEDED, b"21", {"half": True})
    assert job.tags == ("plugin:some",)


# --- enqueueing -----------------------------------------------------------------------------------


async def test_a_plugin_enqueues_its_own_tasks_on_granted_queues(it: Bench) -> None:
    async def asks(ctx: Context, probe: Any) -> Any:
        made = await ctx.enqueue(probe.options(queue="mail", delay=60, tags=["x"]).call())
        return await made.refresh()

    job = await probed(it, asks)
    assert (job.queue, job.tags, job.parent is not None) == ("mail", ("x", "plugin:some"), True)


WAYS: dict[str, Callable[[Context, Any], Any]] = {
    "ctx.enqueue": lambda ctx, task: ctx.enqueue(task.options(queue="vip").call()),
    "task.enqueue": lambda ctx, task: task.options(queue="vip").enqueue(),
    "enqueue_sync": lambda ctx, task: asyncio.to_thread(task.options(queue="vip").enqueue_sync),
    "a call made over": lambda ctx, task: ctx.enqueue(
        msgspec.structs.replace(task.call(), options=JobOptions(queue="vip"))
    ),
    "a call without its limits": lambda ctx, task: ctx.enqueue(
        msgspec.structs.replace(task.call(), limits=())
    ),
    "a key of the whole app": lambda ctx, task: ctx.enqueue(
        task.options(key="k", scope="global").call()
    ),
    "settings made over": lambda ctx, task: _with_settings(task).enqueue(),
}


def _with_settings(task: Any) -> Any:
    task.settings = msgspec.structs.replace(task.settings, queue="vip", limits=())
    task.draws = ()
    return task


@pytest.mark.parametrize("way", WAYS)
async def test_no_way_leads_past_the_grants(it: Bench, way: str) -> None:
    found = await probed(it, WAYS[way])
    assert isinstance(found, NotGranted), way
    counts = {count.queue: count for count in await it.app.admin.queues.counts()}
    assert set(counts) == {"default"}


async def test_tasks_of_the_host_are_not_enqueued_through_the_context(it: Bench) -> None:
    host = host_task(it)
    for call in (host.call(), msgspec.structs.replace(host.call(), options=JobOptions())):

        async def asks(ctx: Context, probe: Any, call: Call[Any] = call) -> Any:
            return await ctx.enqueue(call)

        found = await probed(it, asks)
        assert isinstance(found, NotGranted)
        await it.app.uninstall("some")


async def test_a_task_that_only_sounds_like_the_plugins_is_not_its_own(it: Bench) -> None:
    @it.app.task(name="some.host")
    async def host() -> None: ...

    async def asks(ctx: Context, probe: Any) -> Any:
        return await ctx.enqueue(host.call())

    assert isinstance(await probed(it, asks), NotGranted)


async def test_grants_bind_the_host_as_well_when_it_enqueues(it: Bench) -> None:
    it.app.install(Some(lambda r: r.task(name="probe")(_nothing)), grants=HERE)
    task = it.app.tasks["some.probe"]
    with pytest.raises(NotGranted):
        await task.options(queue="vip").enqueue()
    with pytest.raises(NotGranted):
        await it.app.enqueue_many([task.call(), task.options(queue="vip").call()])
    assert await it.app.admin.queues.counts() == []


async def _nothing() -> None: ...


# --- services -------------------------------------------------------------------------------------


async def test_services_are_those_that_were_granted(it: Bench) -> None:
    mailer, bank = Mailer(), Mailer()
    it.app.services.attach("mailer", mailer)
    it.app.services.attach("bank", bank)

    async def asks(ctx: Context, probe: Any) -> Any:
        assert ctx.services.names == ["mailer"]
        ctx.services.need("mailer", Mailer).send("ada")
        assert not hasattr(ctx.services, "attach")
        wider = ctx.services.only(["mailer", "bank"], "some")
        assert wider.names == ["mailer"]
        with pytest.raises(NotGranted):
            ctx.services.get("bank")
        with pytest.raises(NotGranted):
            ctx.services.get("windlass.upkeep")
        return ctx.services.need("bank")

    assert isinstance(await probed(it, asks), NotGranted)
    assert (mailer.sent, bank.sent) == (["ada"], [])


# --- middleware -----------------------------------------------------------------------------------


async def layered(it: Bench, grant: str, say: Callable[[Context], Any]) -> list[str]:
    """The tasks that a plugin's layer met, in an app with a task of each, and what it may do."""
    met: list[str] = []

    def brings(registrar: Registrar) -> None:
        @registrar.middleware
        async def layer(ctx: Context, call_next: Callable[[], Any]) -> Any:
            met.append(ctx.task)
            say(ctx)
            assert not hasattr(call_next, "args"), "which would hold the host's context"
            value = await call_next()
            say(current())
            return value

        registrar.task(name="own")(_nothing)

    grants = msgspec.structs.replace(EVERYTHING, middleware=grant)
    it.app.install(Some(brings), grants=grants)
    outer: list[object] = []

    @it.app.middleware
    async def hosts(ctx: Context, call_next: Callable[[], Any]) -> Any:
        outer.append(ctx.state)
        return await call_next()

    @it.app.task(name="host.task")
    async def host(ctx: Context) -> None:
        outer.append(ctx.state)
        outer.append(current().state)

    for task in ("some.own", "host.task"):
        job = await it.run(it.app.tasks[task].call())
        assert job.state is State.SUCCEEDED, job.error
    assert outer == [{"secret": 1}] * 4, "the host's own code keeps its rights"
    return met


async def test_middleware_sees_its_own_jobs_or_all_as_granted(it: Bench) -> None:
    assert await layered(it, "own", lambda ctx: None) == ["some.own"]


async def test_middleware_around_all_jobs_has_the_plugins_rights_in_them(it: Bench) -> None:
    def asks(ctx: Context) -> None:
        with pytest.raises(NotGranted):
            _ = ctx.state
        with pytest.raises(NotGranted):
            ctx.services.get("bank")
        if ctx.task != "some.own":
            with pytest.raises(NotGranted):
                ctx.progress(0.5)
            with pytest.raises(NotGranted):
                ctx.note(seen=True)
            with pytest.raises(NotGranted):
                ctx.previous_run().wait()
            with pytest.raises(NotGranted):
                ctx.cancelled.set()
            with pytest.raises(NotGranted):
                ctx.finish_sync(connection=NOBODY)

    assert await layered(it, "all", asks) == ["some.own", "host.task"]


async def test_middleware_leaves_with_its_plugin(it: Bench) -> None:
    await layered(it, "all", lambda ctx: None)
    assert len(parts_of(it.app).hooks.layers) == 2
    await it.app.uninstall("some")
    assert len(parts_of(it.app).hooks.layers) == 1
