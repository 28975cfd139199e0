"""``app.before_enqueue``: every call of the application passes it once, before it is stored."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, cast

import psycopg
import pytest

from tests.plugins.fakes import EVERYTHING, Some
from tests.worker.fixtures import bench
from windlass import Call, Context, Registrar, Windlass
from windlass._app.parts import parts_of
from windlass._tasks.task import Task
from windlass.errors import DefinitionError, InvalidArgument
from windlass.testing import enqueued, inline, isolated

REQUEST: contextvars.ContextVar[str | None] = contextvars.ContextVar("request", default=None)


def working(app: Windlass, **options: Any) -> Task[..., None]:
    @app.task(name="work", **options)
    async def work(n: int = 0) -> None: ...

    return work


def seeing(app: Windlass) -> list[str]:
    seen: list[str] = []

    @app.before_enqueue
    def see(call: Call[Any]) -> Call[Any]:
        seen.append(f"{call.task.name} on {threading.current_thread().name}")
        return call.with_options(tags=[*call.tags, "seen"], correlation_id=REQUEST.get())

    return seen


async def test_each_way_to_enqueue_passes_it_once_with_the_variables_of_the_caller() -> None:
    async with Windlass("memory://") as app:
        work, seen = working(app, tags=["own"]), seeing(app)
        REQUEST.set("r-1")
        jobs = [
            await work.enqueue(1),
            await work.options(tags=["call"]).enqueue(1),
            *await app.enqueue_many([work.call(1), work.call(2)]),
            await app.enqueue("elsewhere"),
        ]
        here = threading.current_thread().name
        assert seen == [f"work on {here}"] * 4 + [f"elsewhere on {here}"]
        stored = [await job.refresh() for job in jobs]
    assert [job.tags for job in stored] == [
        ("own", "seen"),
        ("call", "seen"),
        ("own", "seen"),
        ("own", "seen"),
        ("seen",),
    ]
    assert {job.correlation_id for job in stored} == {"r-1"}


def test_blocking_calls_pass_it_once_on_the_thread_of_the_caller() -> None:
    app = Windlass("memory://")
    work, seen = working(app), seeing(app)
    with isolated(app):
        work.enqueue_sync(1)
        app.blocking.enqueue_many([work.call()])
        app.blocking.enqueue("elsewhere")
    here = threading.current_thread().name
    assert seen == [f"work on {here}", f"work on {here}", f"elsewhere on {here}"]


@pytest.mark.parametrize("in_memory", [True, False])
async def test_calls_in_a_transaction_of_the_user_pass_it_once(
    postgres_url: str, *, in_memory: bool
) -> None:
    async with Windlass(postgres_url) as app:
        work, seen = working(app), seeing(app)

        async def enqueue() -> None:
            with psycopg.connect(postgres_url) as connection:
                work.options(connection=connection).enqueue_sync(1)
                app.blocking.enqueue_many([work.call(2)], connection=connection)
            async with await psycopg.AsyncConnection.connect(postgres_url) as theirs:
                await work.options(connection=theirs).enqueue(3)

        if in_memory:
            with isolated(app):
                await enqueue()
        else:
            await enqueue()
    assert len(seen) == 3


async def test_a_handler_s_calls_pass_it_and_inherit_what_it_leaves_open() -> None:
    async with bench() as it:
        work = working(it.app)

        @it.app.task(name="first")
        async def first(ctx: Context) -> None:
            await ctx.enqueue(work.call(1))
            await work.enqueue(2)

        seen = seeing(it.app)
        job = await it.run(first.options(tenant="acme", correlation_id="c").call())
        children = [one.job for one in await enqueued(it.app, work)]
        assert len(seen) == 3
        assert {(one.parent, one.tenant, one.correlation_id) for one in children} == {
            (job.id, "acme", "c")
        }


async def test_jobs_that_run_inline_pass_it_once() -> None:
    app = Windlass("memory://")
    work, seen = working(app), seeing(app)
    with inline(app):
        await work.enqueue(1)
    assert len(seen) == 1


async def test_what_it_raises_refuses_the_call_and_all_calls_of_a_batch() -> None:
    async with Windlass("memory://") as app:
        work = working(app)

        @app.before_enqueue
        def refuse(call: Call[Any]) -> None:
            if call.payload == b'{"n":13}':
                raise PermissionError("unlucky")

        with pytest.raises(PermissionError, match="unlucky"):
            await work.enqueue(13)
        with pytest.raises(PermissionError, match="unlucky"):
            await app.enqueue_many([work.call(1), work.call(13)])
        assert await enqueued(app) == []
        assert (await (await work.enqueue(1)).refresh()).tags == ()


async def test_functions_run_in_order_and_see_what_the_one_before_left() -> None:
    async with Windlass("memory://") as app:
        work = working(app)
        for number in range(3):

            def add(call: Call[Any], number: int = number) -> Call[Any]:
                return call.with_options(tags=[*call.tags, str(number)])

            app.before_enqueue(add)
        assert (await (await work.enqueue()).refresh()).tags == ("0", "1", "2")


async def test_options_are_replaced_and_none_leaves_them() -> None:
    async with Windlass("memory://") as app:
        call = working(app).options(delay=60, priority=3, queue="mail").call()
        changed = call.with_options(at=None, priority=None, queue="bulk", max_attempts=2)
        (job,) = await app.enqueue_many([changed])
        record = await job.refresh()
        assert (record.priority, record.queue, record.max_attempts) == (3, "bulk", 2)
        assert record.due > record.created_at
        now = await (await parts_of(app).storage()).now()
        assert call.with_options(at=now).options.delay is None
        assert call.with_options(delay=5).options.at is None


async def test_a_plugins_calls_keep_the_mark_of_the_plugin() -> None:
    async with bench() as it:
        seeing(it.app)

        async def greet() -> None: ...

        def bring(registrar: Registrar) -> None:
            registrar.task(name="greet")(greet)

        it.app.install(Some(bring), grants=EVERYTHING)
        job = await it.run(it.app.tasks["some.greet"].call())
        assert job.tags == ("seen", "plugin:some")


async def not_awaited(call: Call[Any]) -> None: ...
def without_argument() -> None: ...


@pytest.mark.parametrize("hook", [not_awaited, without_argument, 5])
def test_a_function_of_another_form_is_refused(hook: Any) -> None:
    with pytest.raises(DefinitionError, match=r"`def name\(call\)`"):
        Windlass("memory://").before_enqueue(hook)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: 5, r"returned 5: return the call"),
        (lambda call: call.with_options(priority="high"), "priority must be a whole number"),
        (lambda call: call.with_options(key="k"), "'key' cannot be changed once a call is made"),
        (lambda call: call.with_options(tags=["plugin:x"]), "are set by Windlass alone"),
        (lambda call: call.with_options(delay=1, at=2), "time zone|at"),
    ],
)
async def test_what_it_may_not_return_is_said(
    make: Callable[[Call[Any]], Any], message: str
) -> None:
    async with Windlass("memory://") as app:
        work = working(app)
        app.before_enqueue(cast("Any", make))
        with pytest.raises(InvalidArgument, match=message):
            await work.enqueue()
        assert await enqueued(app) == []
