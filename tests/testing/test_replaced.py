"""``replaced``: another function runs for the jobs of a task, for as long as a test lasts."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from windlass import Context, Success, Windlass
from windlass.errors import DefinitionError, UnknownTask
from windlass.testing import drain, inline, isolated, replaced


def shop() -> tuple[Windlass, list[str]]:
    app, ran = Windlass("memory://"), list[str]()

    @app.task(name="charge", aliases=["pay"], queue="bank", max_attempts=2, run_in="process")
    async def charge(order: int, note: str = "") -> str:
        ran.append("the bank")
        return "paid"

    return app, ran


async def fake(order: int, note: str = "") -> str:
    return f"fake {order}{note}"


def plain(order: int, note: str = "") -> str:
    return f"fake {order}{note}"


async def with_context(ctx: Context, order: int, note: str = "") -> str:
    return f"{ctx.task} {order}{note}"


@pytest.mark.parametrize(
    ("function", "result"), [(fake, "fake 7"), (plain, "fake 7"), (with_context, "charge 7")]
)
async def test_another_function_runs_while_the_block_lasts(function: Any, result: str) -> None:
    app, ran = shop()
    charge = app.tasks["charge"]
    with isolated(app), replaced(app, charge, function) as stand_in:
        assert app.tasks["charge"] is app.tasks["pay"] is stand_in
        job = await charge.enqueue(7)
        many = await app.enqueue_many([charge.options(priority=1).call(7)])
        assert (await job.refresh()).queue == "bank"
        assert (await drain(app)).succeeded == 2
        assert {await one.result() for one in (job, *many)} == {result}
    assert ran == []
    assert app.tasks["charge"] is app.tasks["pay"] is charge
    assert app.tasks.names == ["charge"]


async def test_a_task_may_be_given_by_name_or_alias_and_be_replaced_inline() -> None:
    app, ran = shop()
    with inline(app), replaced(app, "charge", fake):
        assert await (await app.enqueue("pay", {"order": 8})).result() == "fake 8"
    assert ran == []


async def test_blocks_nest_and_an_error_restores_the_task() -> None:
    app, _ = shop()
    charge = app.tasks["charge"]

    async def second(order: int) -> str:
        return "second"

    with isolated(app), replaced(app, charge, fake):
        with suppress(ZeroDivisionError), replaced(app, charge, second):
            job = await charge.enqueue(1)
            await drain(app)
            assert await job.result() == "second"
            raise ZeroDivisionError
        job = await charge.enqueue(2)
        await drain(app)
        assert await job.result() == "fake 2"
    assert app.tasks["charge"] is charge


async def test_the_options_of_the_task_still_apply() -> None:
    app, told = Windlass("memory://"), list[Any]()

    @app.task(name="tell")
    async def tell(success: Success) -> None:
        told.append(success.result)

    @app.task(name="pay", on_success=tell)
    async def pay() -> int:
        return 1

    with isolated(app), replaced(app, pay, two):
        await pay.enqueue()
        await drain(app)
    assert told == [2]


async def two() -> int:
    return 2


def test_a_task_that_does_not_exist_and_an_object_that_is_no_function_are_refused() -> None:
    app, _ = shop()
    with pytest.raises(UnknownTask, match="Did you mean 'charge'"), replaced(app, "charg", fake):
        pass
    with pytest.raises(DefinitionError, match="is not one"), replaced(app, "charge", 5):  # type: ignore[arg-type]
        pass
