"""Host services: optional, attached once, weakly held, and no trap for a shutdown."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any, Protocol, runtime_checkable

import pytest

from tests.plugins.fakes import EVERYTHING, Mailer, Some
from tests.worker.fixtures import World, bench, logged, simulate, working
from windlass import Context, Registrar, Snooze, Windlass
from windlass._core.job.state import State
from windlass._plugins.builtin_maintenance import UPKEEP, Upkeep
from windlass._tasks.services import AttachedServices
from windlass.errors import InvalidArgument, ServiceMissing


@pytest.fixture
def services() -> AttachedServices:
    return AttachedServices()


def test_one_that_is_not_there_is_none_or_a_coded_error(services: AttachedServices) -> None:
    with logged() as lines:
        assert services.get("mailer") is None
    assert lines.having("not attached"), "at debug level"
    assert lines.records[0].levelname == "DEBUG"
    with pytest.raises(ServiceMissing, match=r"services\.attach\('mailer'") as missing:
        services.need("mailer")
    assert missing.value.code == "service_missing"


def test_one_is_attached_once_and_later_ones_are_ignored(services: AttachedServices) -> None:
    first, second = Mailer(), Mailer()
    assert services.attach("mailer", first) is True
    with logged() as lines:
        assert services.attach("mailer", second) is False
    assert lines.having("ignored")
    assert services.need("mailer") is services.get("mailer", Mailer) is first
    assert services.names == ["mailer"]


def test_it_does_not_keep_its_host_alive(services: AttachedServices) -> None:
    mailer = Mailer()
    services.attach("mailer", mailer)
    seen = weakref.ref(mailer)
    del mailer
    gc.collect()
    assert seen() is None
    assert services.get("mailer") is None
    assert services.names == []
    with pytest.raises(Snooze):  # its host goes down: no failure
        services.need("mailer")
    again = Mailer()
    assert services.attach("mailer", again)
    assert services.need("mailer") is again


def test_a_service_is_of_the_kind_that_is_asked_for(services: AttachedServices) -> None:
    @runtime_checkable
    class Sends(Protocol):
        def send(self, to: str) -> None: ...

    class Pays(Protocol):
        def pay(self) -> None: ...

    mailer = Mailer()
    services.attach("mailer", mailer)
    assert services.need("mailer", Sends) is mailer
    with pytest.raises(ServiceMissing, match="is a Mailer, and the handler needs a int"):
        services.need("mailer", int)
    with pytest.raises(ServiceMissing):
        services.get("mailer", int)
    with pytest.raises(InvalidArgument, match="runtime_checkable"):
        services.need("mailer", Pays)


@pytest.mark.parametrize("service", [{}, [], 5, None, Mailer().send])
def test_a_service_without_weak_references_is_refused(
    services: AttachedServices, service: Any
) -> None:
    with pytest.raises(InvalidArgument, match="mailer"):
        services.attach("mailer", service)


def test_a_name_that_looks_like_another_is_suggested(services: AttachedServices) -> None:
    mailer = Mailer()
    services.attach("mailer", mailer)
    with pytest.raises(ServiceMissing, match="Did you mean 'mailer'"):
        services.need("mailr")


# --- in handlers ----------------------------------------------------------------------------------


def needing(app: Windlass, **options: Any) -> Any:
    """A plugin's task that needs a mailer, and another that can go on without."""

    def say(registrar: Registrar) -> None:
        @registrar.task(max_attempts=1, **options)
        async def needs(ctx: Context) -> None:
            ctx.services.need("mailer", Mailer).send("ada")

        @registrar.task(max_attempts=1)
        async def prefers(ctx: Context) -> str:
            mailer = ctx.services.get("mailer", Mailer)
            if mailer is None:
                return "skipped"
            mailer.send("bob")
            return "sent"

    app.install(Some(say), grants=EVERYTHING)
    return app.tasks["some.needs"]


async def test_a_handler_fails_without_required_services_and_runs_without_optional_ones() -> None:
    async with bench() as it:
        needs = needing(it.app)
        job = await it.run(needs.call())
        assert job.state is State.FAILED
        assert job.error is not None
        assert job.error.kind == "windlass.errors.ServiceMissing"
        job = await it.run(it.app.tasks["some.prefers"].call())
        assert (job.state, job.result) == (State.SUCCEEDED, b'"skipped"')
        mailer = Mailer()
        it.app.services.attach("mailer", mailer)
        assert (await it.run(needs.call())).state is State.SUCCEEDED
        assert (await it.run(it.app.tasks["some.prefers"].call())).result == b'"sent"'
        assert mailer.sent == ["ada", "bob"]
        (closed,) = [one for one in await it.app.admin.breakers.list() if one.task == "some.needs"]
        assert (closed.failures, closed.state) == (0, "closed")


async def test_one_that_is_gone_skips_the_run_at_no_cost() -> None:
    async with bench() as it:
        needs = needing(it.app, breaker=True)
        it.app.services.attach("mailer", Mailer())  # and nobody keeps it
        gc.collect()
        job = await it.run(needs.call())
        assert (job.state, job.attempt, job.error) == (State.WAITING, 0, None)
        assert (job.due - it.clock.now()).total_seconds() == 5
        report = next(one for one in await it.app.admin.breakers.list() if one.task == "some.needs")
        assert report.failures == 0
        mailer = Mailer()
        it.app.services.attach("mailer", mailer)
        assert (await it.again(job, after=5)).state is State.SUCCEEDED


def test_a_worker_that_stops_skips_what_needs_a_service_that_was_never_there() -> None:
    async def scenario(world: World) -> Any:
        reached = asyncio.Event()

        def say(registrar: Registrar) -> None:
            @registrar.task(max_attempts=1)
            async def slow(ctx: Context) -> None:
                reached.set()
                await asyncio.sleep(5)
                ctx.services.need("mailer")

        world.app.install(Some(say), grants=EVERYTHING)
        job = await world.app.tasks["some.slow"].enqueue()
        async with working(world.app):
            await reached.wait()
        return await job.refresh()

    job = simulate(scenario, grace=30)
    assert (job.state, job.attempt, job.error) == (State.WAITING, 0, None)


async def test_handlers_of_the_host_may_use_every_service() -> None:
    async with bench() as it:
        mailer = Mailer()
        it.app.services.attach("mailer", mailer)

        @it.app.task
        async def sends(ctx: Context) -> list[str]:
            ctx.services.need("mailer", Mailer).send("eve")
            upkeep = ctx.services.need(UPKEEP, Upkeep)
            assert await upkeep.tidy() == "done"
            return ctx.services.names

        job = await it.run(sends.call())
        assert (job.result, mailer.sent) == (b'["mailer","windlass.upkeep"]', ["eve"])
