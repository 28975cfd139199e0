"""A flow on the user's connection is there, whole, exactly when they commit."""

from __future__ import annotations

import functools
from typing import Any

import psycopg
import pytest

from tests.transactions.drivers import DRIVERS, Open, Theirs
from windlass import Flow, FlowRun, Limit, Results, Task, Windlass, ended
from windlass._core.flows.flow import FlowState
from windlass.errors import ConfigError, FlowNotFound, InvalidArgument, KeyBusy, KeyConflict
from windlass.testing import drain, isolated


class Shop:
    """The tasks of these tests."""

    def __init__(self, app: Windlass) -> None:
        @app.task(name="double", max_attempts=1)
        async def double(number: int) -> int:
            if number < 0:
                raise ValueError(number)
            return 2 * number

        @app.task(name="total")
        async def total(numbers: Results[int]) -> int:
            return sum(await numbers.list())

        limited = Limit("one", concurrency=1)

        @app.task(name="one_by_one", limits=[limited])
        async def one_by_one(number: int) -> int:
            return number

        self.double: Task[[int], int] = double
        self.total: Task[[Results[int]], int] = total
        self.one_by_one: Task[[int], int] = one_by_one


@pytest.fixture
def shop(app: Windlass) -> Shop:
    return Shop(app)


async def start(theirs: Theirs, app: Windlass, flow: Flow, **options: Any) -> FlowRun:
    begin = app.blocking.start if theirs.blocks else app.start
    call = functools.partial(begin, connection=theirs.connection, **options)
    run: FlowRun = await theirs._do(call, flow)
    return run


def orders(url: str) -> list[str]:
    with psycopg.connect(url) as line:
        return [name for (name,) in line.execute("SELECT name FROM orders ORDER BY name")]


async def test_a_flow_is_there_when_they_commit_and_runs_to_its_end(
    app: Windlass, shop: Shop, driver: Open, postgres_url: str
) -> None:
    flow = Flow("sum", on_succeeded=shop.double.call(1), expires="1h")
    rows = flow.map(shop.double, range(3))
    total = flow.add(shop.total.call(rows.results))
    flow.add(shop.double.call(1), after=flow.map(shop.double, []))
    flow.add(shop.double.call(1), after=ended(rows), when="failed")
    async with driver(postgres_url, None) as theirs:
        await theirs.write("one")
        run = await start(theirs, app, flow)
        assert run.created
        with pytest.raises(FlowNotFound):
            await run.refresh()
        await theirs.commit()
    assert orders(postgres_url) == ["one"]
    async with app.worker():
        record = await run.wait(20)
        assert (record.state, record.succeeded, record.skipped) == (FlowState.SUCCEEDED, 5, 1)
        assert await run.result(total) == 6
    assert list(await app.admin.flows.recount()) == []


async def test_a_flow_is_gone_when_they_roll_back_and_may_be_started_again(
    app: Windlass, shop: Shop, driver: Open, postgres_url: str
) -> None:
    flow = Flow("sum", key="k")
    flow.map(shop.double, range(3))
    async with driver(postgres_url, None) as theirs:
        await theirs.write("one")
        run = await start(theirs, app, flow)
        await theirs.rollback()
    assert orders(postgres_url) == []
    with pytest.raises(FlowNotFound):
        await run.refresh()
    assert await app.admin.queues.counts() == []
    again = await app.start(flow)
    assert (again.id, again.created) == (run.id, True)


async def test_members_with_limits_wait_for_the_next_claim(
    app: Windlass, shop: Shop, postgres_url: str
) -> None:
    """The open transaction holds no lock that a limited job elsewhere would wait for."""
    flow = Flow("limited")
    first = flow.map(shop.one_by_one, range(3))
    last = flow.add(shop.one_by_one.call(9), after=first)
    async with app.worker(), DRIVERS["asyncpg_connection"](postgres_url, None) as theirs:
        run = await start(theirs, app, flow, wake="commit")
        other = await shop.one_by_one.enqueue(5)
        assert await other.result(20) == 5
        await theirs.commit()
        assert await run.result(last, 20) == 9


async def test_keys_of_flows_and_of_their_jobs_hold_across_transactions(
    app: Windlass, shop: Shop, postgres_url: str
) -> None:
    first, second, third = (Flow(name, key="k") for name in ("one", "two", "three"))
    for flow in (first, second, third):
        flow.add(shop.double.call(1))
    async with DRIVERS["psycopg_async"](postgres_url, None) as theirs:
        run = await start(theirs, app, first)
        async with DRIVERS["asyncpg_connection"](postgres_url, None) as others:
            with pytest.raises(KeyBusy):
                await start(others, app, second)
        same = await start(theirs, app, third)
        assert (same.id, same.created) == (run.id, False)
        await theirs.commit()
    await shop.double.options(key="held").enqueue(1)
    clash = Flow("clash")
    clash.add(shop.double.call(1))
    clash.add(shop.double.options(key="held").call(1))
    async with DRIVERS["psycopg_async"](postgres_url, None) as theirs:
        with pytest.raises(KeyConflict):
            await start(theirs, app, clash)
        await theirs.rollback()
    assert [flow.name for flow in await app.admin.flows.list()] == ["one"]


async def test_a_connection_of_the_wrong_kind_is_refused(
    app: Windlass, shop: Shop, postgres_url: str
) -> None:
    flow = Flow("wrong")
    flow.add(shop.double.call(1))
    async with DRIVERS["psycopg_connection"](postgres_url, None) as theirs:
        with pytest.raises(InvalidArgument, match=r"app\.blocking\.start\("):
            await app.start(flow, connection=theirs.connection)
    memory = Windlass("memory://")
    other = Flow("memory")
    other.add(Shop(memory).double.call(1))
    with pytest.raises(ConfigError, match="postgresql://"):
        await memory.start(other, connection=theirs.connection)


@pytest.mark.parametrize("name", ["asyncpg_connection", "psycopg_connection", "alchemy_session"])
async def test_an_isolated_app_starts_it_at_their_commit(
    app: Windlass, shop: Shop, postgres_url: str, name: str
) -> None:
    with isolated(app):
        for ends in ("rollback", "commit"):
            flow = Flow(ends)
            flow.add(shop.total.call(flow.map(shop.double, [1, 2]).results))
            async with DRIVERS[name](postgres_url, None) as theirs:
                await start(theirs, app, flow)
                await (theirs.commit() if ends == "commit" else theirs.rollback())
        await drain(app)
        (flow_there,) = await app.admin.flows.list()
        assert (flow_there.name, flow_there.state) == ("commit", FlowState.SUCCEEDED)
