"""Celery's calls, on a SQLite file with a real worker. Celery itself is not installed here."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.architecture.source import ROOT
from windlass import Cron, Results, Windlass
from windlass.errors import (
    BlockingCallOnLoop,
    DefinitionError,
    FlowTimeout,
    InvalidArgument,
    JobCancelled,
    JobExpired,
    JobFailed,
    JobNotFound,
    PayloadError,
    ResultTimeout,
)
from windlass.integrations.celery import (
    AsyncResult,
    CeleryCalls,
    GroupResult,
    Signature,
    _instead,
    chain,
    chord,
    group,
)
from windlass.testing import isolated

PATIENCE = 30


class Shop:
    """Tasks with Celery's calls, and what their runs have noted."""

    def __init__(self, url: str) -> None:
        self.app = Windlass(url)
        self.celery = celery = CeleryCalls(self.app)
        self.noted: list[str] = []
        self.open = threading.Event()

        @celery.task
        @self.app.task(name="add")
        def add(x: int, y: int) -> int:
            return x + y

        @celery.task
        @self.app.task(name="total")
        def total(numbers: list[int]) -> int:
            return sum(numbers)

        @celery.task
        @self.app.task(name="total_in_pages")
        async def total_in_pages(numbers: Results[int]) -> int:
            return sum([number async for number in numbers])

        @celery.task
        @self.app.task(name="fail", max_attempts=1)
        def fail(why: str = "no") -> int:
            raise ValueError(why)

        @celery.task
        @self.app.task(name="note")
        def note(what: str) -> str:
            self.noted.append(what)
            return what

        @celery.task
        @self.app.task(name="wait")
        def wait() -> str:
            self.open.wait(PATIENCE)
            return "done"

        self.add, self.total, self.total_in_pages = add, total, total_in_pages
        self.fail, self.note, self.wait = fail, note, wait

    def work(self) -> None:
        """Run all jobs."""

        async def work() -> None:
            async with self.app.worker(until_empty=True) as worker:
                await worker.wait()

        self.app.blocking.run(work())


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop whose worker runs on a thread of its own, as another process would."""
    made = Shop(f"sqlite:///{tmp_path_factory.mktemp('celery')}/jobs.db")
    ready, stopped = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def work() -> None:
        loops.append(asyncio.get_running_loop())
        async with made.app, made.app.worker():
            ready.set()
            await stopped.wait()

    worker = threading.Thread(target=asyncio.run, args=(work(),))
    worker.start()
    assert ready.wait(PATIENCE)
    yield made
    loops[0].call_soon_threadsafe(stopped.set)
    worker.join(PATIENCE)
    made.app.blocking.close()


# --- a single task ---


def test_delay_stores_a_job_and_get_returns_its_result(shop: Shop) -> None:
    result = shop.add.delay(2, 3)
    assert result.get(timeout=PATIENCE) == 5
    assert (result.state, result.status, result.result) == ("SUCCESS", "SUCCESS", 5)
    assert (result.ready(), result.successful(), result.failed()) == (True, True, False)
    assert (result.name, result.traceback) == ("add", None)
    assert result.date_done is not None
    assert str(result) == result.id == result.task_id
    again = shop.celery.AsyncResult(result.id)
    assert again == result
    assert again.get() == shop.add.AsyncResult(result.id).get() == 5


def test_the_function_and_the_calls_of_windlass_still_work(shop: Shop) -> None:
    assert shop.add(2, 3) == 5
    assert shop.add.s(2)(1) == 3
    job = shop.add.enqueue_sync(20, 3)
    assert shop.app.blocking.result(shop.add.job(job.id), PATIENCE) == 23
    (other,) = shop.app.blocking.enqueue_many([shop.add.options(priority=1).call(1, 1)])
    assert shop.app.blocking.result(other, PATIENCE) == 2


def test_a_scheduled_task_can_have_the_calls_too(alone: Shop) -> None:
    @alone.celery.task
    @alone.app.schedule(Cron("0 8 * * *"))
    @alone.app.task(name="daily")
    def daily(region: str = "eu") -> str:
        return region

    assert stored(alone, daily.delay("us")).payload == b'{"region":"us"}'


def test_a_failed_job_raises_or_returns_its_error(shop: Shop) -> None:
    result = shop.fail.delay(why="sold out")
    with pytest.raises(JobFailed, match="ValueError: sold out"):
        result.get(timeout=PATIENCE)
    assert isinstance(result.get(propagate=False), JobFailed)
    assert isinstance(result.result, JobFailed)
    assert (result.state, result.failed(), result.ready()) == ("FAILURE", True, True)
    assert "sold out" in (result.traceback or "")


def test_a_wait_that_takes_too_long_is_a_timeout(shop: Shop) -> None:
    result = shop.add.apply_async((1, 1), countdown=3600)
    with pytest.raises(ResultTimeout):
        result.get(timeout=0.01)
    with pytest.raises(TimeoutError):
        result.get(timeout=0.01, propagate=False)
    assert (result.state, result.result, result.ready()) == ("PENDING", None, False)


def test_a_revoked_job_does_not_run(shop: Shop) -> None:
    result = shop.note.apply_async(["late"], countdown=3600)
    result.revoke()
    assert result.state == "REVOKED"
    assert "late" not in shop.noted


def test_a_run_is_stopped_only_if_revoke_says_so(shop: Shop) -> None:
    result = shop.wait.delay()
    until(lambda: result.state == "STARTED")
    result.revoke()
    assert not shop.app.blocking.refresh(shop.app.job(result.id)).cancel_requested
    result.revoke(terminate=True)
    assert shop.app.blocking.refresh(shop.app.job(result.id)).cancel_requested
    shop.open.set()
    result.get(timeout=PATIENCE, propagate=False)


def test_a_forgotten_job_is_unknown(shop: Shop) -> None:
    waiting = shop.add.apply_async((1, 1), countdown=3600)
    with pytest.raises(InvalidArgument, match="has not ended"):
        waiting.forget()
    result = shop.add.delay(1, 1)
    result.get(timeout=PATIENCE)
    result.forget()
    with pytest.raises(JobNotFound):
        _ = result.state


async def test_on_an_event_loop_the_error_names_the_coroutine(shop: Shop) -> None:
    with pytest.raises(BlockingCallOnLoop, match=r"await add\.enqueue"):
        shop.add.delay(1, 1)
    job = await shop.add.enqueue(1, 1)
    assert await job.result(timeout=PATIENCE) == 2
    await shop.app.close()


# --- options ---


@pytest.fixture
def alone() -> Iterator[Shop]:
    """A shop without a worker, on a clock that stands still."""
    made = Shop("memory://")
    with isolated(made.app):
        yield made


def stored(shop: Shop, result: AsyncResult[Any]) -> Any:
    return shop.app.blocking.refresh(shop.app.job(result.id))


def test_options_of_apply_async_become_those_of_a_call(alone: Shop) -> None:
    identity = uuid4()
    first = alone.add.apply_async(
        (1,), {"y": 2}, countdown=60, expires=90, queue="mail", task_id=str(identity), time_limit=5
    )
    job = stored(alone, first)
    assert job.id == identity.hex
    assert (job.queue, job.timeout) == ("mail", timedelta(seconds=5))
    assert job.due - job.created_at == timedelta(seconds=60)
    assert job.expires_at - job.created_at == timedelta(seconds=90)
    eta = datetime(2100, 1, 1, tzinfo=UTC)
    later = stored(alone, alone.add.s(1, 2).set(queue="mail").apply_async(eta=eta, expires=None))
    assert (later.due, later.queue, later.expires_at) == (eta, "mail", None)


def test_a_time_of_expiry_becomes_a_duration(alone: Shop) -> None:
    now = stored(alone, alone.add.delay(1, 1)).created_at
    later = stored(alone, alone.add.apply_async((1, 1), expires=now + timedelta(hours=2)))
    assert later.expires_at == now + timedelta(hours=2)


def test_a_job_that_is_stored_after_its_expiry_does_not_run(shop: Shop) -> None:
    result = shop.note.apply_async(["too late"], expires=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(JobExpired):
        result.get(timeout=PATIENCE)
    assert result.state == "REVOKED"


@pytest.mark.parametrize(("order", "kept"), [("lower_first", 3), ("higher_first", -3)])
def test_the_order_of_priorities_is_that_of_the_broker(order: Any, kept: int) -> None:
    app = Windlass("memory://")
    celery = CeleryCalls(app, priority=order)

    @celery.task
    @app.task
    def work() -> None: ...

    with isolated(app):
        job = app.job(work.apply_async(priority=3).id)
        assert app.blocking.refresh(job).priority == kept


def test_a_task_of_other_code_is_sent_by_name(alone: Shop) -> None:
    job = stored(alone, alone.celery.send_task("mail.send", kwargs={"to": "ada"}, queue="mail"))
    assert (job.task, job.queue, job.payload) == ("mail.send", "mail", b'{"to":"ada"}')
    known = stored(alone, alone.celery.send_task("add", [1, 2]))
    assert known.payload == b'{"x":1,"y":2}'


# --- canvas ---


def test_a_chain_passes_results_on(shop: Shop) -> None:
    result = chain(shop.add.s(2, 2), shop.add.s(4), shop.add.si(10, 8), shop.add.s(1)).apply_async()
    assert result.get(timeout=PATIENCE) == 19
    values = []
    step: AsyncResult[Any] | GroupResult[Any] | None = result
    while step is not None:
        values.append(step.get())
        step = step.parent
    assert values == [19, 18, 8, 4]


def test_a_group_returns_results_in_order(shop: Shop) -> None:
    result = group(shop.add.s(n, n) for n in range(5)).apply_async()
    assert result.get(timeout=PATIENCE) == result.join() == [0, 2, 4, 6, 8]
    assert (result.ready(), result.successful(), result.failed()) == (True, True, False)
    assert (result.completed_count(), len(result), result[1].get()) == (5, 5, 2)
    assert [one.get() for one in result] == [0, 2, 4, 6, 8]
    assert shop.app.blocking.run(shop.app.flow_run(result.id).refresh()).succeeded == 5


def test_a_group_with_a_failure_raises_it_or_returns_it_in_its_place(shop: Shop) -> None:
    result = group([shop.add.s(1, 1), shop.fail.s()])()
    with pytest.raises(JobFailed):
        result.get(timeout=PATIENCE)
    first, second = result.get(propagate=False)
    assert first == 2
    assert isinstance(second, JobFailed)
    assert (result.successful(), result.failed()) == (False, True)


def test_a_group_that_waits_can_be_revoked(shop: Shop) -> None:
    result = group(shop.note.s("never").set(countdown=3600) for _ in range(2)).delay()
    with pytest.raises(FlowTimeout):
        result.get(timeout=0.01)
    result.revoke()
    assert [one.state for one in result] == ["REVOKED", "REVOKED"]


@pytest.mark.parametrize("body", ["total", "total_in_pages"])
def test_the_body_of_a_chord_gets_a_list_or_pages(shop: Shop, body: str) -> None:
    taker: Signature = getattr(shop, body).s()
    header = [shop.add.s(n, n) for n in range(5)]
    assert chord(header, taker).apply_async().get(timeout=PATIENCE) == 20
    assert chord(header)(taker).get(timeout=PATIENCE) == 20
    assert (group(header) | taker | shop.add.s(1)).delay().get(timeout=PATIENCE) == 21


@pytest.mark.parametrize("body", ["total", "total_in_pages"])
def test_chords_hold_chains_and_chords(shop: Shop, body: str) -> None:
    inner = chord([shop.add.s(1, 1), shop.add.s(2, 2)], shop.total.s())
    header = [chain(shop.add.s(1, 1), shop.add.s(2)), inner, shop.add.s(5, 5)]
    assert chord(header, getattr(shop, body).s())().get(timeout=PATIENCE) == 4 + 6 + 10


def test_a_group_after_a_step_gets_its_result_in_every_member(shop: Shop) -> None:
    result = chain(shop.add.s(1, 1), group(shop.add.s(10), shop.add.s(20))).delay()
    assert result.get(timeout=PATIENCE) == [12, 22]
    assert result.parent is not None
    assert result.parent.get() == 2


def test_a_chain_may_be_long(alone: Shop) -> None:
    canvas = chain(alone.add.s(0, 0))
    for _ in range(1_500):
        canvas |= alone.add.s(1)
    step: AsyncResult[Any] | GroupResult[Any] | None = canvas.delay()
    steps = 0
    while step is not None:
        step, steps = step.parent, steps + 1
    assert steps == 1_501
    (flow,) = alone.app.blocking.admin.flows.list()
    assert flow.total == 1_501


def test_a_link_runs_after_success_with_the_result(shop: Shop) -> None:
    link = chain(shop.add.s(30), shop.note.si("linked"))
    assert shop.add.apply_async((1, 1), link=link).get(timeout=PATIENCE) == 2
    until(lambda: "linked" in shop.noted)


def test_an_errback_runs_after_failure_with_the_id_of_the_job(shop: Shop) -> None:
    result = shop.fail.apply_async(link_error=[shop.note.s(), shop.note.si("it failed")])
    with pytest.raises(JobFailed):
        result.get(timeout=PATIENCE)
    until(lambda: {result.id, "it failed"} <= {*shop.noted})


def test_the_errback_of_a_chain_runs_once_and_the_rest_is_revoked(shop: Shop) -> None:
    canvas = shop.fail.s() | shop.add.s(1) | shop.add.s(2)
    result = canvas.on_error(shop.note.si("the chain failed")).apply_async()
    until(result.ready)
    assert isinstance(result, AsyncResult)
    assert result.state == "REVOKED"
    with pytest.raises(JobCancelled, match="before it succeeded: after add, which failed"):
        result.get()
    until(lambda: "the chain failed" in shop.noted)
    assert shop.noted.count("the chain failed") == 1


def test_link_error_of_a_chain_runs_once_however_many_jobs_a_failure_cancels(alone: Shop) -> None:
    canvas = alone.fail.s() | alone.add.s(1) | alone.add.s(2)
    canvas.apply_async(link_error=alone.note.si("the chain failed"))
    canvas.apply_async()  # the handler belongs to the call before
    of_a_step = alone.add.s(1).on_error(alone.note.si("a step did not succeed"))
    chain(alone.fail.s(), of_a_step).apply_async()
    alone.work()
    assert sorted(alone.noted) == ["a step did not succeed", "the chain failed"]


def test_the_id_of_a_flow_is_told_from_that_of_a_job(alone: Shop) -> None:
    result = alone.celery.AsyncResult(group(alone.add.s(1, 1)).delay().id)
    for ask in (result.get, result.ready):
        with pytest.raises(JobNotFound, match=r"a flow, not of a job: read app\.flow_run\("):
            ask()


def test_the_jobs_of_a_canvas_are_one_flow(alone: Shop) -> None:
    secret = alone.note.s("a card's number")
    assert "card" not in repr(chain(secret, alone.note.si("x")))
    chain(alone.add.s(1, 1), alone.add.s(2)).delay()
    (flow,) = alone.app.blocking.admin.flows.list()
    assert (flow.name, flow.total) == ("chain of 2, first add", 2)


@pytest.mark.parametrize("server", ["postgres_url", "redis_url"])
def test_canvases_run_on_servers_too(request: pytest.FixtureRequest, server: str) -> None:
    there = Shop(request.getfixturevalue(server))
    lists = chord([there.add.s(1, 1), there.add.s(2, 2)], there.total.s()).delay()
    pages = chord([there.add.s(1, 1), there.add.s(2, 2)], there.total_in_pages.s()).delay()
    failed = there.fail.apply_async(link_error=there.note.s())
    there.work()
    assert (lists.get(), pages.get(), failed.state) == (6, 6, "FAILURE")
    assert there.noted == [failed.id]
    there.app.blocking.close()


# --- what is not imitated ---


@pytest.mark.parametrize(
    ("mistake", "error", "says"),
    [
        (lambda s: s.add.apply_async((1, 1), serializer="pickle"), InvalidArgument, "are JSON"),
        (lambda s: s.add.apply_async((1, 1), retry=False), InvalidArgument, "options(id=…)"),
        (lambda s: s.add.apply_async((1, 1), quue="x"), InvalidArgument, "Did you mean 'queue'"),
        (lambda s: s.add.apply_async((1, 1), priority=3), InvalidArgument, "'higher_first'"),
        (lambda s: s.add.apply_async((1, 1), task_id="7"), InvalidArgument, "is a UUID"),
        (lambda s: s.add.apply_async((1, 1), eta=datetime(2100, 1, 1)), InvalidArgument, "naive"),  # noqa: DTZ001
        (lambda s: s.add.delay("one", 1), PayloadError, "Expected `int`"),
        (lambda s: s.add.retry, AttributeError, "Retry(after=…)"),
        (lambda s: s.add.delay_on_commit, AttributeError, "enqueue_on_commit"),
        (lambda s: s.add.unheard_of, AttributeError, "no attribute 'unheard_of'"),
        (lambda s: s.celery.conf, AttributeError, "Windlass(…)"),
        (lambda s: s.celery.task(print), DefinitionError, "above @app.task"),
        (lambda s: s.celery.task(bind=True), DefinitionError, "got bind=. Write @celery.task,"),
        (lambda s: s.celery.send_task("mail.send", ["ada"]), InvalidArgument, "kwargs="),
        (lambda s: s.celery.signature("mail.send")(), InvalidArgument, "delay()"),
        (lambda s: s.add.s(1, 1).chunks, AttributeError, "flow.map"),
        (lambda s: s.add.s(1, 1).link_error(print), InvalidArgument, "report.si(…)"),
        (lambda s: chain(s.add.s(1, 1), 7), InvalidArgument, "task.s(1)"),  # type: ignore[arg-type]
        (
            lambda s: chord([s.add.s(1, 1)] * 5_001, s.total.s()).delay(),
            InvalidArgument,
            "Results[…]",
        ),
        (lambda s: group(), InvalidArgument, "at least one signature"),
        (lambda s: group(s.add.s(1, 1)).delay().restore, AttributeError, "app.flow_run(id)"),  # type: ignore[attr-defined]
        (lambda s: group(s.add.s(1, 1)).apply_async(countdown=1), InvalidArgument, ".set(countd"),
        (lambda s: group(group(s.add.s(1, 1))).delay(), InvalidArgument, "one group(…)"),
        (lambda s: group(s.add.s(1, 1)).on_error(s.note.s()), InvalidArgument, "task.si(…)"),
        (
            lambda s: group(s.add.s(1, 1)).apply_async(link_error=s.note.s()),
            InvalidArgument,
            "link_error of a group takes one signature made by task.si(…)",
        ),
        (
            lambda s: chain(group(s.add.s(1, 1)).on_error(s.note.si("x"))),
            InvalidArgument,
            "whole canvas",
        ),
        (
            lambda s: chain(s.add.s(1, 1)).on_error(s.note.si("x")) | s.add.s(1),
            InvalidArgument,
            "whole canvas",
        ),
        (
            lambda s: (s.add.s(1, 1).set(task_id=str(uuid4())) | s.add.s(1)).delay(),
            InvalidArgument,
            "single job",
        ),
        (lambda s: s.add.delay(1, 1).get(interval=1), InvalidArgument, "timeout="),
        (lambda s: s.add.delay(1, 1).revoke(signal="KILL"), InvalidArgument, "terminate=True"),
        (lambda s: s.add.delay(1, 1).children, AttributeError, "JobFilter(parent=id)"),
        (lambda _: CeleryCalls(Windlass("memory://"), priority="up"), InvalidArgument, "lower_f"),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_imitated_names_the_windlass_way(
    alone: Shop, mistake: Callable[[Shop], object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as raised:
        mistake(alone)
    assert says in str(raised.value)


@pytest.mark.parametrize("table", [name for name in _instead.__all__ if name.isupper()])
def test_the_page_lists_all_that_is_not_imitated(table: str) -> None:
    page = (ROOT / "docs" / "migrating" / "celery.md").read_text(encoding="utf-8")
    listed = page.partition("**Not imitated.**")[2].partition("Coroutines cannot")[0]
    assert set(getattr(_instead, table)) - set(re.findall(r"\w+", listed)) == set()


def until(happened: Callable[[], bool]) -> None:
    """Wait for a job that another thread runs."""
    pause = threading.Event()
    for _ in range(PATIENCE * 100):
        if happened():
            return
        pause.wait(0.01)
    raise AssertionError(f"not within {PATIENCE} seconds")
