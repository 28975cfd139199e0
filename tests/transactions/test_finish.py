"""A handler's writes and its job's success are committed together, or neither is."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.transactions.drivers import DRIVERS, SOME, Open, Theirs
from windlass import Context, Flow, Success, Windlass
from windlass._app.parts import parts_of
from windlass._core.flows.flow import FlowState
from windlass._core.job.event import Event, JobEnqueued, JobMoved
from windlass._core.job.job import AttemptError, LimitUse, NewJob, Progress
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import fail, succeed
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.jobs import CancelAnswer, Want
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.transactions import ClaimEnd
from windlass._storage.protocol.workers import WorkerStart
from windlass._system.seams import new_job_id
from windlass.errors import AlreadyFinished, ClaimLost, JobFailed, StoreBusy, WindlassError

Body = Callable[[Context, Theirs], Awaitable[Any]]


def orders(url: str) -> list[str]:
    with psycopg.connect(url) as line:
        return [name for (name,) in line.execute("SELECT name FROM orders ORDER BY name")]


async def finish(ctx: Context, theirs: Theirs, result: object = None) -> None:
    if theirs.blocks:
        ctx.finish_sync(result, connection=theirs.connection)
    else:
        await ctx.finish(result, connection=theirs.connection)


def worker(name: str) -> WorkerStart:
    lease = timedelta(seconds=30)
    return WorkerStart(
        id=name, host="h", pid=1, version="1", queues=["default"], slots=9, lease=lease
    )


def task(app: Windlass, open_one: Open, body: Body, **options: Any) -> Any:
    @app.task(name="work", **options)
    async def work(ctx: Context) -> Any:
        async with open_one(app.settings.url, None) as theirs:
            return await body(ctx, theirs)

    return work


async def test_their_writes_and_the_success_are_one(
    app: Windlass, driver: Open, postgres_url: str
) -> None:
    events: list[Event] = []
    app.on_transition(events.append)

    async def body(ctx: Context, theirs: Theirs) -> str:
        await theirs.write("one")
        await finish(ctx, theirs, {"paid": 3})
        seen = await app.admin.jobs.get(ctx.job_id)
        assert seen.state is State.RUNNING
        await theirs.commit()
        return "not this"

    work = task(app, driver, body)
    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == {"paid": 3}
    assert orders(postgres_url) == ["one"]
    moves = [event.verb for event in events if isinstance(event, JobMoved)]
    assert moves == [Verb.CLAIM, Verb.SUCCEED]
    now = await (await parts_of(app).storage()).now()
    span = timedelta(minutes=2)
    (rollup,) = await app.admin.stats.rollups(now - span, now + span)
    assert rollup.counts == {Verb.SUCCEED: 1}


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_a_task_that_stores_no_result_stores_none_with_their_transaction(
    app: Windlass, driver: Open, postgres_url: str
) -> None:
    async def body(ctx: Context, theirs: Theirs) -> object:
        await theirs.write("one")
        await finish(ctx, theirs, object())  # cannot be stored
        await theirs.commit()
        return object()

    job = await task(app, driver, body, store_result=False).enqueue()
    async with app.worker():
        assert await job.result(timeout=20) is None
    record = await job.refresh()
    assert (record.state, record.result) == (State.SUCCEEDED, None)
    assert orders(postgres_url) == ["one"]


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_the_job_that_follows_a_success_is_part_of_their_transaction(
    app: Windlass, driver: Open, postgres_url: str
) -> None:
    heard: list[tuple[str, Any]] = []
    enqueued: list[str] = []
    app.on_transition(
        lambda event: enqueued.append(event.job) if isinstance(event, JobEnqueued) else None
    )

    @app.task(name="tell")
    async def tell(success: Success) -> None:
        heard.append((success.job_id, success.result))

    async def body(ctx: Context, theirs: Theirs) -> None:
        await finish(ctx, theirs, "first try")
        await theirs.rollback()
        if hasattr(theirs, "begin"):
            await theirs.begin()
        await finish(ctx, theirs, "paid")
        await theirs.commit()

    job = await task(app, driver, body, on_success=tell).enqueue()
    async with app.worker(until_empty=True) as worker:
        await worker.wait()
    assert heard == [(job.id, "paid")]
    (then,) = await app.admin.jobs.find(JobFilter(task="tell"))
    assert enqueued == [job.id, then.id]


async def test_jobs_added_before_finish_are_part_of_their_transaction(
    app: Windlass, driver: Open, postgres_url: str
) -> None:
    ran: list[int] = []
    enqueued: list[str] = []
    app.on_transition(
        lambda event: enqueued.append(event.job) if isinstance(event, JobEnqueued) else None
    )

    @app.task(name="ship")
    async def ship(order: int) -> None:
        ran.append(order)

    @app.task(name="tell")
    async def tell(success: Success) -> None: ...

    async def body(ctx: Context, theirs: Theirs) -> None:
        ctx.then(ship.call(1), ship.call(2))
        await finish(ctx, theirs, "first try")
        await theirs.rollback()
        if hasattr(theirs, "begin"):
            await theirs.begin()
        await finish(ctx, theirs, "paid")
        assert await app.admin.jobs.find(JobFilter(task="ship")) == []
        with pytest.raises(WindlassError, match=r"after ctx\.finish"):
            ctx.then(ship.call(3))
        await theirs.commit()

    job = await task(app, driver, body, on_success=tell).enqueue()
    async with app.worker(until_empty=True) as worker:
        await worker.wait()
    assert (await job.refresh()).state is State.SUCCEEDED
    assert sorted(ran) == [1, 2]
    assert len(enqueued) == 4


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_flows_added_before_finish_are_part_of_their_transaction(
    app: Windlass, driver: Open, postgres_url: str
) -> None:
    ran: list[int] = []

    @app.task(name="ship")
    async def ship(order: int) -> int:
        ran.append(order)
        return order

    async def body(ctx: Context, theirs: Theirs) -> None:
        flow = Flow("orders")
        flow.add(ship.call(1)).then(ship)
        ctx.then(flow)
        before = len(await app.admin.jobs.find(JobFilter(task="ship")))
        await finish(ctx, theirs, "paid")
        assert len(await app.admin.jobs.find(JobFilter(task="ship"))) == before
        await theirs.commit()

    pay = task(app, driver, body)
    outer = Flow("outer")
    outer.add(ship.call(3), after=outer.add(pay.call()))
    run = await app.start(outer)
    async with app.worker():
        await run.wait(20)
    alone = await pay.enqueue()
    async with app.worker(until_empty=True) as worker:
        await worker.wait()
    assert (await alone.refresh()).state is State.SUCCEEDED
    record = await run.refresh()
    assert (record.state, record.succeeded) == (FlowState.SUCCEEDED, 4)
    assert sorted(ran) == [1, 1, 1, 1, 3]
    (own,) = [one for one in await app.admin.flows.list() if one.id != run.id]
    assert (own.name, own.state) == ("orders", FlowState.SUCCEEDED)


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_jobs_that_are_left_out_of_their_transaction_are_not_announced(
    app: Windlass, driver: Open, postgres_url: str
) -> None:
    announced: list[str] = []
    app.on_transition(
        lambda event: announced.append(event.task) if isinstance(event, JobEnqueued) else None
    )

    @app.task(name="ship", queue="later")
    async def ship(order: int) -> None: ...

    async def body(ctx: Context, theirs: Theirs) -> None:
        flow = Flow("held", key="held")
        flow.add(ship.call(3))
        ctx.then(ship.options(key="held").call(1), ship.call(2), flow)
        await finish(ctx, theirs)
        await theirs.commit()

    await ship.options(key="held").enqueue(0)
    holder = Flow("holder", key="held")
    holder.add(ship.call(4))
    await app.start(holder)
    announced.clear()
    job = await task(app, driver, body).enqueue()
    async with app.worker(queues=["default"]):
        await job.result(timeout=20)
    assert sorted(announced) == ["ship", "work"]


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_an_error_before_the_commit_stores_no_job_that_was_added(
    app: Windlass, driver: Open, postgres_url: str
) -> None:
    @app.task(name="ship", queue="later")
    async def ship(order: int) -> None: ...

    async def body(ctx: Context, theirs: Theirs) -> None:
        ctx.then(ship.call(1))
        await finish(ctx, theirs)
        message = "after all"
        raise ValueError(message)

    job = await task(app, driver, body, max_attempts=1).enqueue()
    async with app.worker():
        with pytest.raises(JobFailed, match="after all"):
            await job.result(timeout=20)
    assert await app.admin.jobs.find(JobFilter(task="ship")) == []


async def test_an_error_before_the_commit_undoes_both(
    app: Windlass, driver: Open, postgres_url: str
) -> None:
    async def body(ctx: Context, theirs: Theirs) -> None:
        await theirs.write("one")
        await finish(ctx, theirs)
        message = "after all"
        raise ValueError(message)

    job = await task(app, driver, body, max_attempts=1).enqueue()
    async with app.worker():
        with pytest.raises(JobFailed, match="after all"):
            await job.result(timeout=20)
    assert orders(postgres_url) == []


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_an_error_after_the_commit_changes_nothing(
    app: Windlass, driver: Open, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(ctx: Context, theirs: Theirs) -> None:
        await theirs.write("one")
        await finish(ctx, theirs, 7)
        await theirs.commit()
        message = "too late"
        raise ValueError(message)

    job = await task(app, driver, body).enqueue()
    with caplog.at_level(logging.WARNING, "windlass"):
        async with app.worker():
            assert await job.result(timeout=20) == 7
    assert orders(postgres_url) == ["one"]
    assert "the job has succeeded" in caplog.text


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_a_rollback_that_nobody_mentions_is_no_success(
    app: Windlass, driver: Open, postgres_url: str
) -> None:
    async def body(ctx: Context, theirs: Theirs) -> None:
        await finish(ctx, theirs)
        await theirs.rollback()

    job = await task(app, driver, body, max_attempts=1).enqueue()
    async with app.worker():
        with pytest.raises(JobFailed, match="NotCommitted"):
            await job.result(timeout=20)


async def test_a_plain_function_finishes_on_its_thread(app: Windlass, postgres_url: str) -> None:
    @app.task
    def work(ctx: Context) -> str:
        with psycopg.connect(postgres_url) as line:
            line.execute("INSERT INTO orders VALUES ('one')")
            ctx.progress(0.5)
            ctx.note(rows=1)
            ctx.finish_sync("done", connection=line)
            ctx.progress(1.0)  # the row is locked: it must not make the worker wait
        return "not this"

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "done"
    assert orders(postgres_url) == ["one"]
    record = await job.refresh()
    assert record.progress == Progress(0.5)  # what was said before is stored
    assert record.metadata == {"rows": 1}


async def test_a_lost_claim_makes_their_commit_impossible(
    app: Windlass, driver: Open, postgres_url: str
) -> None:
    caught: list[Exception] = []
    over = asyncio.Event()

    async def body(ctx: Context, theirs: Theirs) -> None:
        await lose(app, ctx)
        await theirs.write("one")
        try:
            await finish(ctx, theirs)
        except ClaimLost as error:
            caught.append(error)
        try:
            await theirs.commit()  # what a handler does that looks at nothing
        except Exception as error:  # noqa: BLE001 -- each driver has its own
            caught.append(error)
        over.set()

    await task(app, driver, body, max_attempts=1).enqueue()
    async with app.worker():
        await asyncio.wait_for(over.wait(), 20)
    assert isinstance(caught[0], ClaimLost)
    assert "cannot be finished by this run" in str(caught[0])
    assert orders(postgres_url) == []


async def lose(app: Windlass, ctx: Context) -> None:
    """End the claim as a reaper would."""
    error = AttemptError("Lost", "taken for dead")
    await (await parts_of(app).storage()).jobs.apply([fail(ctx.claimed, by="reaper", error=error)])


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_a_second_finish_fails_so_that_nothing_is_written_twice(
    app: Windlass, driver: Open, postgres_url: str
) -> None:
    caught: list[Exception] = []

    async def body(ctx: Context, theirs: Theirs) -> None:
        await theirs.write("one")
        await finish(ctx, theirs, "first")
        await theirs.commit()
        async with driver(postgres_url, None) as again:
            await again.write("two")
            try:
                await finish(ctx, again, "second")
            except AlreadyFinished as error:
                caught.append(error)
                raise

    job = await task(app, driver, body).enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "first"
    assert len(caught) == 1
    assert orders(postgres_url) == ["one"]


@pytest.mark.parametrize("driver", SOME, indirect=True)
async def test_after_a_rollback_it_can_be_finished_again(
    app: Windlass, driver: Open, postgres_url: str
) -> None:
    async def body(ctx: Context, theirs: Theirs) -> None:
        await finish(ctx, theirs, "first")
        await theirs.rollback()
        async with driver(postgres_url, None) as again:
            await again.write("two")
            await finish(ctx, again, "second")
            await again.commit()

    job = await task(app, driver, body).enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "second"
    assert orders(postgres_url) == ["two"]


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_stricter_isolation_works(
    app: Windlass, driver: Open, postgres_url: str, isolation: str
) -> None:
    @app.task(name="work")
    async def work(ctx: Context) -> str:
        async with driver(postgres_url, isolation) as theirs:
            await theirs.write(ctx.job_id)
            await finish(ctx, theirs, "done")
            await theirs.commit()
        return "not stored any more"

    jobs = await app.enqueue_many([work.call() for _ in range(3)])
    async with app.worker():
        for job in jobs:
            assert await job.result(timeout=20) == "done"
    assert orders(postgres_url) == sorted(job.id for job in jobs)


async def test_success_wins_over_a_cancel_request(app: Windlass, postgres_url: str) -> None:
    loop = asyncio.get_running_loop()

    @app.task(name="work")
    def work(ctx: Context) -> str:
        with psycopg.connect(postgres_url) as line:
            line.execute("INSERT INTO orders VALUES ('one')")
            asked = asyncio.run_coroutine_threadsafe(
                parts_of(app).producer.cancel(ctx.job_id), loop
            )
            assert asked.result() is CancelAnswer.REQUESTED
            return ctx.finish_sync("done", connection=line)

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "done"
    assert orders(postgres_url) == ["one"]


async def test_an_unknown_commit_is_read_from_the_claim(app: Windlass, postgres_url: str) -> None:
    """The commit is executed, and its answer is lost: the handler can only raise."""

    @app.task(name="work", max_attempts=1)
    async def work(ctx: Context) -> str:
        async with DRIVERS["asyncpg_connection"](postgres_url, None) as theirs:
            await theirs.write("one")
            await ctx.finish("done", connection=theirs.connection)
            await theirs.commit()
            message = "connection was closed in the middle of operation"
            raise ConnectionError(message)

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "done"


async def test_a_transaction_that_is_still_open_is_waited_for(
    app: Windlass, postgres_url: str
) -> None:
    """Only its end says what happened; meanwhile nobody else may have the job."""
    line = psycopg.connect(postgres_url)
    finished = asyncio.Event()

    @app.task(name="work")
    async def work(ctx: Context) -> str:
        finished.set()
        return ctx.finish_sync("done", connection=line)

    @app.task(name="other")
    async def other() -> str:
        return "not kept waiting"

    job = await work.enqueue()
    try:
        async with app.worker():
            await asyncio.wait_for(finished.wait(), 20)
            beside = await other.enqueue()
            assert await beside.result(timeout=20) == "not kept waiting"
            assert (await job.refresh()).state is State.RUNNING
            assert line.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS
            line.commit()
            assert await job.result(timeout=20) == "done"
    finally:
        line.close()


async def test_a_thread_that_commits_after_its_time_was_up_has_succeeded(
    app: Windlass, postgres_url: str
) -> None:
    """It cannot be stopped, only asked; what it committed is what happened."""

    @app.task(name="work", timeout=0.2, max_attempts=1)
    def work(ctx: Context) -> str:
        with psycopg.connect(postgres_url) as line:
            line.execute("INSERT INTO orders VALUES ('one')")
            ctx.finish_sync("done", connection=line)
            assert ctx.cancelled.wait(20)  # its time is up
        return "not this"

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == "done"
    assert orders(postgres_url) == ["one"]


async def test_a_thread_that_comes_after_its_end_cannot_commit(
    app: Windlass, postgres_url: str
) -> None:
    caught: list[Exception] = []
    ended, over = threading.Event(), threading.Event()

    @app.task(name="work", timeout=0.2, max_attempts=1)
    def work(ctx: Context) -> None:
        with psycopg.connect(postgres_url) as line:
            line.execute("INSERT INTO orders VALUES ('one')")
            assert ended.wait(20)
            try:
                ctx.finish_sync("done", connection=line)
            except ClaimLost as error:
                caught.append(error)
                line.rollback()
            finally:
                over.set()

    job = await work.enqueue()
    async with app.worker():
        with pytest.raises(JobFailed, match="timeout"):
            await job.result(timeout=20)
        ended.set()
        assert await asyncio.to_thread(over.wait, 20)
    assert "the run is over" in str(caught[0])
    assert orders(postgres_url) == []


async def test_its_key_is_free_and_a_row_that_is_not_kept_is_gone(postgres_url: str) -> None:
    app = Windlass(postgres_url, keep_succeeded=0, poll=0.1)
    succeeded = asyncio.Event()

    @app.on_transition
    def listen(event: Event) -> None:
        if isinstance(event, JobMoved) and event.verb is Verb.SUCCEED:
            succeeded.set()

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        connection = await asyncpg.connect(postgres_url)
        try:
            await ctx.finish("done", connection=connection)  # its own transaction: at once
        finally:
            await connection.close()

    async with app:
        await work.options(key="k").enqueue()
        async with app.worker():
            await asyncio.wait_for(succeeded.wait(), 20)
        assert await app.admin.jobs.find() == []
        assert (await work.options(key="k").enqueue()).created


async def test_a_dead_worker_s_open_transaction_keeps_nobody_waiting(
    app: Windlass, postgres_url: str
) -> None:
    """Its machine lost power, and the server has not noticed: only the row is out of reach."""
    storage = await parts_of(app).storage()
    assert storage.transactions is not None
    await storage.workers.register(worker("dead"))
    await storage.jobs.insert([NewJob(id=new_job_id(), task="t") for _ in range(2)])
    first, second = (await storage.jobs.claim("dead", [Want("default", 9)], total=9)).jobs
    async with DRIVERS["asyncpg_connection"](postgres_url, None) as theirs:
        await storage.transactions.finish(theirs.connection, succeed(first, by="dead", result=None))
        await storage.workers.bury(["dead"])
        assert [job.claim for job in await storage.workers.orphans(10)] == [second.claim]
        await theirs.rollback()
    assert [job.claim for job in await storage.workers.orphans(10)] == [first.claim, second.claim]


async def test_a_job_that_another_transaction_is_finishing_is_busy(
    app: Windlass, postgres_url: str
) -> None:
    storage = await parts_of(app).storage()
    assert storage.transactions is not None
    await storage.workers.register(worker("w"))
    await storage.jobs.insert([NewJob(id=new_job_id(), task="t")])
    (job,) = (await storage.jobs.claim("w", [Want("default", 9)], total=9)).jobs
    success = succeed(job, by="w", result=None)
    async with (
        DRIVERS["asyncpg_connection"](postgres_url, None) as first,
        DRIVERS["psycopg_async"](postgres_url, None) as second,
    ):
        await storage.transactions.finish(first.connection, success)
        with pytest.raises(StoreBusy, match="End that one first"):
            await storage.transactions.finish(second.connection, success)
        await second.rollback()
        await first.rollback()


async def test_units_of_a_limit_come_back_with_the_commit(app: Windlass, postgres_url: str) -> None:
    storage = await parts_of(app).storage()
    store = storage.transactions
    assert store is not None
    await storage.limits.define([LimitSpec(name="one", concurrency=1)])
    await storage.workers.register(worker("w"))
    news = [NewJob(id=new_job_id(), task="t", limits=(LimitUse("one"),)) for _ in range(3)]
    await storage.jobs.insert(news)

    async def claim() -> list[Any]:
        return list((await storage.jobs.claim("w", [Want("default", 9)], total=9)).jobs)

    for number, new in enumerate(news):
        (job,) = await claim()
        assert job.claim.job == new.id
        success = succeed(job, by="w", result=None)
        async with DRIVERS["asyncpg_connection"](postgres_url, None) as theirs:
            await store.finish(theirs.connection, success)
            assert (await store.ended(success)).what is ClaimEnd.OPEN
            assert await claim() == []  # and nobody waits for theirs
            await theirs.commit()
        if number == 1:
            await storage.maintenance.tidy()  # the worker did not live to see it
        else:
            assert (await store.ended(success)).what is ClaimEnd.STORED
    assert await claim() == []


async def test_a_worker_that_stops_calls_nothing_a_success_that_is_not_committed(
    postgres_url: str,
) -> None:
    app = Windlass(postgres_url, poll=0.1, grace=0.1)
    line = await asyncpg.connect(postgres_url)
    theirs = line.transaction()
    asked, began = asyncio.Event(), asyncio.Event()

    @app.task(name="work")
    async def work(ctx: Context) -> str:
        await theirs.start()  # and nobody ends it
        asked.set()
        return await ctx.finish("done", connection=line)

    @app.task(name="other")
    async def other() -> None:
        began.set()
        await asyncio.Event().wait()

    async with app:
        job, neighbour = await work.enqueue(), await other.enqueue()
        async with asyncio.timeout(20):
            async with app.worker():
                await asked.wait()
                await began.wait()
        assert (await neighbour.refresh()).state is State.WAITING
        assert (await job.refresh()).state is State.RUNNING
        await theirs.rollback()
        storage = await parts_of(app).storage()
        (orphan,) = await storage.workers.orphans(10)
        assert orphan.claim.job == job.id
    await line.close()
