"""Aliases: jobs that are stored under a former name of a task run."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.plugins.fakes import EVERYTHING, Some
from tests.worker.fixtures import bench
from windlass import Context, Failure, Registrar, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass.errors import DefinitionError, DuplicateTask, InvalidArgument


async def test_a_job_stored_under_a_former_name_runs() -> None:
    async with bench() as it:
        before = await it.app.enqueue("charge", {"order": 7})

        @it.app.task(name="shop.charge", aliases=["charge", "pay"], max_attempts=1)
        async def charge(ctx: Context, order: int) -> str:
            return f"{ctx.task} {order}"

        await it.engine.step()
        assert await before.result() == "charge 7"
        after = await it.run(charge.call(8))
        assert (after.task, after.result) == ("shop.charge", b'"shop.charge 8"')


async def test_an_alias_leads_to_its_task() -> None:
    app = Windlass("memory://")

    @app.task(name="shop.charge", aliases=["charge"])
    async def charge(order: int) -> None: ...

    assert app.tasks["charge"] is app.tasks.find("charge") is charge
    assert (list(app.tasks), app.tasks.names, len(app.tasks)) == ([charge], ["shop.charge"], 1)
    async with app:
        record = await (await app.enqueue("charge", {"order": 7})).refresh()
        assert record.task == "shop.charge"  # stored under the name that it has now


@pytest.mark.parametrize(
    ("name", "aliases", "message"),
    [
        ("shop.charge", [], "Two tasks are named 'shop.charge'"),
        ("charge", [], "alias 'charge' of task 'shop.charge' is the name of task 'charge'"),
        ("other", ["charge"], "alias 'charge' of task '.*' is also an alias of task"),
        ("other", ["shop.charge"], "alias 'shop.charge' of task 'other' is the name of task"),
    ],
)
def test_names_that_clash_are_refused(name: str, aliases: list[str], message: str) -> None:
    app = Windlass("memory://")

    @app.task(name="shop.charge", aliases=["charge"])
    async def charge() -> None: ...

    async def other() -> None: ...

    with pytest.raises(DefinitionError, match=message) as raised:
        app.task(name=name, aliases=aliases)(other)
    assert isinstance(raised.value, DuplicateTask) is (name == "shop.charge")
    assert app.tasks.names == ["shop.charge"]


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ("charge", "a list of names"),
        (["shop.charge"], "other names than its own"),
        (["a", "a"], "each given once"),
        (["a/b"], "must not contain '/'"),
        ([5], "an alias of task 'shop.charge'"),
    ],
)
def test_aliases_that_no_job_can_have_are_refused(aliases: Any, message: str) -> None:
    app = Windlass("memory://")

    async def charge() -> None: ...

    with pytest.raises(InvalidArgument, match=message):
        app.task(name="shop.charge", aliases=cast("list[str]", aliases))(charge)


async def test_on_failure_may_name_an_alias() -> None:
    async with bench() as it:
        told: list[Failure] = []

        @it.app.task(name="shop.tell", aliases=["tell"])
        async def tell(failure: Failure) -> None:
            told.append(failure)

        @it.app.task(name="shop.pay", on_failure="tell", max_attempts=1)
        async def pay() -> None:
            raise ValueError("no money")

        await it.run(pay.call())
        (follower,) = await it.app.admin.jobs.find(JobFilter(task="shop.tell"))
        assert follower.state is State.WAITING
        await it.engine.step()
        assert [failure.task for failure in told] == ["shop.pay"]


async def test_an_on_failure_that_leads_back_by_an_alias_is_refused() -> None:
    async with bench() as it:

        @it.app.task(name="shop.pay", aliases=["pay"], on_failure="tell")
        async def pay(failure: Failure) -> None: ...

        @it.app.task(name="tell", on_failure="pay")
        async def tell(failure: Failure) -> None: ...

        with pytest.raises(DefinitionError, match="leads in a circle"):
            await parts_of(it.app).workers.dependencies()


async def test_explain_and_doctor_know_that_a_worker_has_the_task() -> None:
    app = Windlass("memory://")
    async with app:
        job = await app.enqueue("charge", delay="1h")

        @app.task(name="shop.charge", aliases=["charge"])
        async def charge() -> None: ...

        async with app.worker():
            (known,) = await app.admin.workers.list()
            assert {"shop.charge", "charge"} <= set(known.start.tasks)
            explained = await app.admin.jobs.explain(job.id)
            assert "unknown_task" not in {cause.code for cause in explained.causes}
            found = await app.admin.doctor.check()
            assert "unknown_task" not in {one.name for one in found if one.level != "ok"}


async def test_the_aliases_of_a_plugins_task_are_behind_its_name() -> None:
    async with bench() as it:
        before = await it.app.enqueue("some.old", {"name": "ada"})

        async def greet(ctx: Context, name: str) -> str:
            ctx.progress(0.5, "its own run")
            return f"hello {name}"

        def bring(registrar: Registrar) -> None:
            registrar.task(name="greet", aliases=["old"])(greet)

        it.app.install(Some(bring), grants=EVERYTHING)
        await it.engine.step()
        assert await before.result() == "hello ada"
        await it.app.uninstall("some")
        assert it.app.tasks.find("some.old") is None
