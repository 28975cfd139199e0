"""The current tenant: asked for once per call, where the call is made."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from windlass import Context, Windlass, testing
from windlass._app.parts import parts_of
from windlass._core.job.job import JobId
from windlass._tasks.task import Task
from windlass.errors import DefinitionError, InvalidArgument

CURRENT: contextvars.ContextVar[str | None] = contextvars.ContextVar("tenant", default=None)


def asking(app: Windlass) -> Task[..., None]:
    app.current_tenant(CURRENT.get)

    @app.task(name="work")
    async def work(n: int = 0) -> None: ...

    return work


@pytest.fixture
def app() -> Windlass:
    """On a memory of its own: the blocking twins have a loop, and so a storage, of theirs."""
    return Windlass("memory://")


async def tenant_of(app: Windlass, job: Any) -> str | None:
    return (await parts_of(app).producer.refresh(JobId(job.id))).tenant


async def test_a_call_carries_the_tenant_that_is_current_where_it_is_made(app: Windlass) -> None:
    work = asking(app)
    async with app:
        assert await tenant_of(app, await work.enqueue()) is None
        CURRENT.set("acme")
        assert await tenant_of(app, await work.enqueue()) == "acme"
        assert await tenant_of(app, await work.options(priority=1).enqueue()) == "acme"
        CURRENT.set("bolt")
        jobs = await app.enqueue_many([work.call(), work.options(delay=5).call()])
        assert [await tenant_of(app, job) for job in jobs] == ["bolt", "bolt"]


async def test_calls_of_one_batch_may_have_different_tenants(app: Windlass) -> None:
    work = asking(app)
    calls = []
    for tenant in ("acme", "bolt", None, "acme"):
        CURRENT.set(tenant)
        calls.append(work.call())
    async with app:
        jobs = await app.enqueue_many(calls)
        found = [await tenant_of(app, job) for job in jobs]
    assert found == ["acme", "bolt", None, "acme"]


async def test_the_value_of_the_call_wins(app: Windlass) -> None:
    work = asking(app)
    CURRENT.set("acme")
    async with app:
        assert await tenant_of(app, await work.options(tenant="bolt").enqueue()) == "bolt"


async def test_a_blocking_call_asks_on_its_own_thread(app: Windlass) -> None:
    work = asking(app)

    def blocking() -> list[str | None]:
        CURRENT.set("acme")
        jobs = [work.enqueue_sync(), *app.blocking.enqueue_many([work.call()])]
        tenants = [app.blocking.refresh(job).tenant for job in jobs]
        app.blocking.close()
        return tenants

    assert await asyncio.to_thread(blocking) == ["acme", "acme"]


async def test_a_job_passes_its_tenant_to_jobs_it_enqueues_unless_another_is_current(
    app: Windlass,
) -> None:
    work = asking(app)

    @app.task(name="parent")
    async def parent(ctx: Context) -> list[str]:
        jobs = [await work.enqueue(), await ctx.enqueue(work.call())]
        CURRENT.set("bolt")
        jobs += [await work.enqueue(), await ctx.enqueue(work.call())]
        return [job.id for job in jobs]

    with testing.isolated(app):
        job = await parent.options(tenant="acme").enqueue()
        (await testing.drain(app)).raise_errors()
        children = await job.result()
        found = [await tenant_of(app, app.job(child)) for child in children]
    assert found == ["acme", "acme", "bolt", "bolt"]


async def test_calls_that_share_a_tenant_still_share_their_options(app: Windlass) -> None:
    work = asking(app)
    CURRENT.set("acme")
    one, two = work.call(1), work.call(2)
    assert one.options is two.options


def test_a_second_answer_is_refused(app: Windlass) -> None:
    asking(app)

    def other() -> str | None:
        return None

    with pytest.raises(DefinitionError, match="an app has one such function"):
        app.current_tenant(other)


async def waits() -> str | None: ...


def takes(request: object) -> str | None: ...


@pytest.mark.parametrize("function", [waits, takes])
def test_a_current_tenant_function_with_arguments_is_refused(app: Windlass, function: Any) -> None:
    with pytest.raises(DefinitionError, match="without arguments"):
        app.current_tenant(function)


def test_an_answer_that_is_no_text_is_refused_where_the_call_is_made(app: Windlass) -> None:
    answer: Any = 5
    app.current_tenant(lambda: answer)

    @app.task(name="work")
    async def work() -> None: ...

    with pytest.raises(InvalidArgument, match="tenant must be text"):
        work.call()
