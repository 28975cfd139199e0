"""One contract for every executor: the loop, threads and child processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.worker.fixtures import logged
from tests.worker.process_app import EXECUTORS, app
from windlass import Context, Manual, testing
from windlass._app.parts import parts_of
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State, Verb
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._tasks.context import CallNext
from windlass._tasks.handle import Job
from windlass._tasks.task import Task
from windlass._worker.child_process.pool import ChildPool
from windlass._worker.worker import Worker
from windlass.errors import JobCancelled, JobFailed

pytestmark = pytest.mark.parametrize("executor", EXECUTORS)


@pytest.fixture
async def worker(executor: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Worker]:
    if not executor.startswith("process"):
        # A child costs a third of a second, and no run of this test is in need of one.
        monkeypatch.setattr(ChildPool, "warm", lambda _children: None)
    with testing.isolated(app):
        async with app, app.worker(slots=4) as worker:
            yield worker


def task(executor: str, name: str) -> Task[..., Any]:
    return app.tasks[f"{executor}.{name}"]


async def eventually(look: Callable[[], Awaitable[object]], seconds: float = 15) -> None:
    """Wait for something that another process brings about."""
    async with asyncio.timeout(seconds):
        while not await look():  # noqa: ASYNC110 -- other processes set no events
            await asyncio.sleep(0.01)


async def begun(job: Job[Any]) -> None:
    async def noted() -> bool:
        return (await job.refresh()).progress is not None

    await eventually(noted)


async def settled(job: Job[Any]) -> JobRecord:
    """The job when its first run is over."""

    async def over() -> bool:
        record = await job.refresh()
        return record.claim_number > 0 and record.state is not State.RUNNING

    await eventually(over)
    return await job.refresh()


# --- ends ----------------------------------------------------------------------------------------


async def test_the_return_value_of_a_handler_is_the_result(executor: str, worker: Worker) -> None:
    jobs = [await task(executor, "echo").enqueue(n) for n in range(5)]
    assert [await job.result(timeout=15) for job in jobs] == [0, 1, 2, 3, 4]


async def test_a_handler_is_told_of_its_soft_timeout_and_may_succeed(
    executor: str, worker: Worker
) -> None:
    job = await task(executor, "late").enqueue()
    assert await job.result(timeout=15) == "told"


async def test_a_task_that_stores_no_result_may_return_any_object(
    executor: str, worker: Worker
) -> None:
    job = await task(executor, "forget").enqueue()
    assert await job.result(timeout=15) is None
    record = await job.refresh()
    assert (record.state, record.result) == (State.SUCCEEDED, None)


@pytest.mark.parametrize("fate", ["succeed", "fail"])
async def test_what_a_handler_notes_is_stored_with_its_outcome(
    executor: str, worker: Worker, fate: str
) -> None:
    record = await settled(await task(executor, "notes").enqueue(fate))
    assert record.state is (State.SUCCEEDED if fate == "succeed" else State.FAILED)
    assert record.metadata == {"rows": 120, "source": "s3", "whole": True}
    history = await app.admin.jobs.history(record.id)
    assert [past.metadata for past in history] == [record.metadata] * (fate == "fail")


@pytest.mark.parametrize("fate", ["succeed", "fail"])
@pytest.mark.parametrize("layered", [False, True], ids=["plain", "in middleware"])
async def test_jobs_that_a_handler_adds_are_stored_with_its_success_alone(
    executor: str,
    worker: Worker,
    fate: str,
    layered: bool,  # noqa: FBT001 -- a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def layer(ctx: Context, call_next: CallNext) -> Any:
        return await call_next()

    if layered:
        monkeypatch.setattr(worker.engine.runner, "_layers", [layer])
    call = task(executor, "add").options(tenant="acme", correlation_id="r-1")
    record = await settled(await call.enqueue(fate))
    assert record.state is (State.SUCCEEDED if fate == "succeed" else State.FAILED)
    jobs = [*reversed(await app.admin.jobs.find(JobFilter(task="added")))]
    assert len(jobs) == (4 if fate == "succeed" else 0)
    for job in jobs:
        facts = (job.parent, job.tenant, job.correlation_id, job.queue, job.max_attempts)
        assert facts == (record.id, "acme", "r-1", "idle", 3)
    for job in jobs[3:]:
        assert (job.priority, job.tags, job.key_held) == (-1, ("x",), True)
        assert (job.due - job.created_at).total_seconds() == 60


async def test_what_a_handler_noted_before_its_timeout_is_stored(
    executor: str, worker: Worker
) -> None:
    record = await settled(await task(executor, "notes").options(timeout=0.5).enqueue("hang"))
    assert record.state is State.FAILED
    assert record.metadata == {"rows": 120, "source": "s3", "whole": True}


async def test_an_exception_of_a_handler_is_stored_with_its_traceback(
    executor: str, worker: Worker
) -> None:
    job = await task(executor, "broken").enqueue()
    with pytest.raises(JobFailed, match="ValueError: no good"):
        await job.result(timeout=15)
    (attempt,) = await app.admin.jobs.history(job.id)
    assert attempt.error is not None
    assert (attempt.error.kind, attempt.error.message) == ("ValueError", "no good")
    assert 'raise ValueError("no good")' in attempt.error.traceback
    assert "windlass/_worker" not in attempt.error.traceback


@pytest.mark.parametrize(
    ("how", "verb", "attempt"),
    [
        ("snooze", State.WAITING, 0),
        ("throttle", State.WAITING, 0),
        ("retry", State.WAITING, 1),
        ("give up", State.FAILED, 1),
        ("exit", State.FAILED, 1),
    ],
)
async def test_a_handler_steers_its_fate(
    executor: str, worker: Worker, how: str, verb: State, attempt: int
) -> None:
    job = await task(executor, "steer").enqueue(how)
    record = await settled(job)
    assert (record.state, record.attempt) == (verb, attempt)
    if how == "retry":
        assert (record.due - record.created_at).total_seconds() >= 3600
    if how == "throttle":
        assert record.throttled == 1
        assert (await app.admin.queues.get(record.queue)).cool_until == record.due
    if how == "exit":
        assert record.error is not None
        assert record.error.kind == "SystemExit"


async def test_a_result_that_cannot_be_stored_fails_for_good(executor: str, worker: Worker) -> None:
    job = await task(executor, "odd").enqueue()
    with pytest.raises(JobFailed, match="cannot be stored"):
        await job.result(timeout=15)


# --- time and requests ---------------------------------------------------------------------------


async def test_a_run_past_its_timeout_has_failed_and_names_the_limit(
    executor: str, worker: Worker
) -> None:
    job = await task(executor, "brief").enqueue()
    record = await settled(job)
    assert record.state is State.FAILED
    assert record.error is not None
    assert record.error.kind == "windlass.errors.JobTimeout"
    assert record.error.message == "ran longer than its timeout of 0.3 s"
    await eventually(lambda: _idle(worker))


async def _idle(worker: Worker) -> bool:
    return worker.engine.slots.used == 0


async def test_a_cancelled_run_ends_and_is_cancelled(executor: str, worker: Worker) -> None:
    job = await task(executor, "hang").enqueue()
    await begun(job)
    await job.cancel()
    with pytest.raises(JobCancelled):
        await job.result(timeout=15)
    (attempt,) = await app.admin.jobs.history(job.id)
    assert attempt.verb is Verb.CANCEL
    await eventually(lambda: _idle(worker))


async def test_success_wins_over_a_request(executor: str, worker: Worker) -> None:
    job = await task(executor, "stubborn").enqueue()
    await begun(job)
    await job.cancel()
    assert await job.result(timeout=15) == "done all the same"


async def test_a_stopping_worker_gives_the_run_back_with_its_attempt(executor: str) -> None:
    with testing.isolated(app):
        async with app:
            async with app.worker():
                job = await task(executor, "hang").enqueue()
                await begun(job)
            record = await job.refresh()
            assert (record.state, record.attempt) == (State.WAITING, 0)
            assert (await app.admin.jobs.history(job.id))[0].verb is Verb.RELEASE


# --- context -------------------------------------------------------------------------------------


async def test_a_handler_knows_its_run(executor: str, worker: Worker) -> None:
    asked = task(executor, "about").options(
        tenant="acme", principal="ada", correlation_id="r-1", tags=["vip"]
    )
    first, second = await asked.enqueue(), await asked.enqueue()
    for job in (first, second):
        assert await job.result(timeout=15) == {
            "job": job.id,
            "attempt": [1, 3],
            "identity": ["acme", "ada", "r-1"],
            "tags": ["vip"],
            "state": True,
            "colour": "none",  # what the other run has set is its own
        }


async def test_a_second_run_knows_what_went_wrong(executor: str, worker: Worker) -> None:
    job = await task(executor, "once_more").enqueue()
    assert await job.result(timeout=15) == "ValueError: first"


async def test_log_lines_of_handlers_reach_the_workers_log(executor: str, worker: Worker) -> None:
    with logged("shop") as shop, logged() as own:
        job = await task(executor, "tell").enqueue()
        await job.result(timeout=15)
    assert shop.having("from a library")
    assert [r.job_id for r in own.records if r.getMessage() == "from the handler"] == [job.id]  # type: ignore[attr-defined]
    (traced,) = [r for r in shop.records if r.getMessage() == "with a trace"]
    assert traced.exc_info is not None or "KeyError: 'lost'" in (traced.exc_text or "")


async def test_log_lines_of_handlers_are_stored_with_the_run(executor: str, worker: Worker) -> None:
    job = await task(executor, "tell").enqueue()
    await job.result(timeout=15)
    storage = await parts_of(app).storage()

    async def told() -> list[str]:
        chunks = await storage.journal.logs(job.id)
        return [line.text for chunk in chunks for line in chunk.lines]

    await eventually(told)
    library, handler, trace = await told()
    assert (library, handler) == ("from a library", "from the handler")
    assert trace.startswith("with a trace\nTraceback")
    assert trace.endswith("KeyError: 'lost'")


async def test_a_run_of_a_schedule_reads_the_one_before(executor: str, worker: Worker) -> None:
    admin = app.admin.acting("ada")
    await admin.schedules.create("by-hand", Manual(), task(executor, "resume").call())
    results = []
    for _ in range(2):
        made = await admin.schedules.trigger("by-hand")
        assert made is not None
        results.append(await app.job(made.id).result(timeout=15))
    assert results == [1, 2]


async def test_a_follow_up_remembers_where_it_came_from(executor: str, worker: Worker) -> None:
    asked = task(executor, "enqueue").options(tenant="acme", principal="ada", correlation_id="r-1")
    job = await asked.enqueue()
    if executor == "process":  # its own app would open a memory of its own
        with pytest.raises(JobFailed, match="this is a child process of it"):
            await job.result(timeout=15)
        return
    child = await app.job(await job.result(timeout=15)).refresh()
    assert (child.parent, child.tenant, child.principal, child.correlation_id) == (
        job.id,
        "acme",
        "ada",
        "r-1",
    )
