"""``job.result()``: the value, or a distinct error for each way there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import windlass
from tests.client.fakes import Wrapped, wrapping
from windlass import Context, GiveUp, Retry, Snooze, Throttled, Windlass
from windlass._core.job.job import JobId, NewJob
from windlass._core.job.state import State
from windlass._storage.protocol.jobs import Settled
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.errors import (
    AppClosed,
    InvalidArgument,
    JobCancelled,
    JobDiscarded,
    JobExpired,
    JobFailed,
    JobNotFound,
    ResultError,
    ResultTimeout,
    StorageReplaced,
    StorageUnavailable,
)
from windlass.testing import VirtualClock


async def test_the_value_is_typed_by_the_function(app: Windlass) -> None:
    @app.task
    async def work() -> tuple[int, timedelta]:
        return 1, timedelta(seconds=2)

    async with app.worker():
        job = await work.enqueue()
        assert await job.result(timeout=30) == (1, timedelta(seconds=2))


@dataclass
class Invoice:
    total: Decimal
    due: timedelta


async def test_a_handle_made_of_an_id_gives_what_the_first_one_gives(app: Windlass) -> None:
    @app.task
    async def work() -> tuple[int, Invoice]:
        return 1, Invoice(Decimal("2.50"), timedelta(seconds=2))

    async with app.worker():
        job = await work.enqueue()
        first = await job.result(timeout=30)
        assert first == (1, Invoice(Decimal("2.50"), timedelta(seconds=2)))
        for again in (app.job(job.id), work.job(job.id)):
            assert await again.result(timeout=30) == first
            assert again == job
            assert hash(again) == hash(job)
        assert await asyncio.to_thread(app.blocking.result, app.job(job.id)) == first


async def test_a_handle_gives_plain_json_where_the_task_is_not_known(app: Windlass) -> None:
    @app.task(name="work")
    async def work() -> tuple[int, timedelta]:
        return 1, timedelta(seconds=2)

    async with app.worker():
        job = await work.enqueue()
        await job.result(timeout=30)
    app.tasks.remove("work")
    assert await app.job(job.id).result(timeout=30) == [1, "PT2S"]


async def test_a_failed_job_raises_what_the_handler_said(app: Windlass) -> None:
    @app.task
    async def work() -> None:
        raise GiveUp("no such customer")

    async with app.worker():
        job = await work.enqueue()
        with pytest.raises(JobFailed, match=r"customer.*app\.admin\.jobs\.history") as caught:
            await job.result(timeout=30)
    assert caught.value.job_id == job.id
    assert (caught.value.kind, caught.value.text) == ("windlass.GiveUp", "no such customer")


async def test_a_cancelled_job_raises(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    await job.cancel()
    with pytest.raises(JobCancelled, match=r"was cancelled before it succeeded\b"):
        await job.result(timeout=30)


async def test_an_expired_job_raises(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.options(expires=60).enqueue()
    clock.advance(61)
    async with app.worker():
        with pytest.raises(JobExpired, match="no worker started it in time"):
            await job.result(timeout=30)


async def test_a_discarded_job_raises_with_the_reason(app: Windlass) -> None:
    @app.task
    async def work() -> None:
        raise GiveUp

    async with app.worker():
        job = await work.enqueue()
        with pytest.raises(JobFailed):
            await job.result(timeout=30)
    await app.admin.jobs.discard(job.id, reason="not worth it")
    with pytest.raises(JobDiscarded, match="not worth it") as caught:
        await job.result(timeout=30)
    assert not isinstance(caught.value, JobExpired)


async def test_an_unknown_job_raises_at_once(app: Windlass) -> None:
    job = app.job("0" * 32)
    with pytest.raises(JobNotFound, match="retention"):
        await job.result(timeout=30)
    with pytest.raises(JobNotFound):
        await job.refresh()


async def test_a_wait_that_is_too_short_names_the_state_of_the_job(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    with pytest.raises(ResultTimeout, match=r"still waiting.*a worker serves its queue") as caught:
        await job.result(timeout=0.01)
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, ResultError)
    assert (await job.refresh()).state is State.WAITING


async def test_no_time_at_all_is_enough_for_what_is_there(app: Windlass) -> None:
    @app.task
    async def work() -> int:
        return 1

    async with app.worker():
        job = await work.enqueue()
        await job.result(timeout=30)
    assert await job.result(timeout=0) == 1
    with pytest.raises(JobNotFound):
        await app.job("0" * 32).result(timeout=0)


async def test_a_timeout_that_makes_no_sense_is_refused(app: Windlass) -> None:
    with pytest.raises(InvalidArgument, match="timeout must not be negative"):
        await app.job("0" * 32).result(timeout=-1)


async def test_a_timeout_of_the_callers_own_is_not_mistaken_for_ours(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(0.01):
            await job.result(timeout=60)
    assert not isinstance(caught.value, ResultTimeout)


async def test_a_handler_may_wait_for_another_job(app: Windlass) -> None:
    @app.task
    async def child() -> str:
        return "from the child"

    @app.task
    async def parent(ctx: Context) -> str:
        job = await ctx.enqueue(child.call())
        return str(await job.result(timeout=30))

    async with app.worker():
        assert await (await parent.enqueue()).result(timeout=30) == "from the child"


async def test_a_result_that_is_stored_already_needs_no_worker(app: Windlass) -> None:
    @app.task
    async def work() -> int:
        return 7

    async with app.worker():
        job = await work.enqueue()
        await job.result(timeout=30)
    assert await job.result() == 7


class Counting(Wrapped):
    """Remembers what was asked about, and fails when told to."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.asked: list[int] = []
        self.looked = asyncio.Event()
        self.error: Exception | None = None

    async def settled(self, ids: Sequence[JobId]) -> Sequence[Settled]:
        self.asked.append(len(ids))
        self.looked.set()
        if self.error is not None:
            raise self.error
        return await self.inner.settled(ids)


async def test_one_waiter_asks_for_all_awaited_jobs_at_once() -> None:
    app = Windlass("memory://")

    @app.task
    async def work(number: int) -> int:
        return number

    with wrapping(app, Counting):
        jobs = await app.enqueue_many([work.call(n) for n in range(200)])
        waits = [asyncio.create_task(job.result(timeout=30)) for job in jobs]
        twice = [asyncio.create_task(jobs[0].result(timeout=30)) for _ in range(3)]
        async with app.worker(slots=200):
            assert await asyncio.gather(*waits) == list(range(200))
            assert await asyncio.gather(*twice) == [0, 0, 0]
        counting = Counting.of(app)
        assert counting.asked[0] == 200
        assert len(counting.asked) < 40


async def test_an_outage_ends_nobodys_wait() -> None:
    app = Windlass("memory://")

    @app.task
    async def work() -> str:
        return "after the outage"

    with wrapping(app, Counting):
        job = await work.enqueue()
        counting = Counting.of(app)
        counting.error = StorageUnavailable("the disk is gone for a moment")
        waiting = asyncio.create_task(job.result(timeout=30))
        await counting.looked.wait()
        counting.error = None
        async with app.worker():
            assert await waiting == "after the outage"


@pytest.mark.parametrize("error", [StorageReplaced("another file"), ZeroDivisionError("a bug")])
async def test_a_permanent_error_reaches_every_waiting_caller(error: Exception) -> None:
    app = Windlass("memory://")

    @app.task
    async def work() -> None: ...

    with wrapping(app, Counting):
        jobs = await app.enqueue_many([work.call(), work.call()])
        Counting.of(app).error = error
        waits = [job.result(timeout=30) for job in jobs]
        one, other = await asyncio.gather(*waits, return_exceptions=True)
        assert type(one) is type(other) is type(error)
        assert str(one) == str(other) == str(error)
        assert one is not other  # one object raised in two tasks would mix their traces


async def test_many_awaited_jobs_are_asked_for_in_slices() -> None:
    app = Windlass("memory://")

    @app.task
    async def work(number: int) -> int:
        return number

    with wrapping(app, Counting):
        jobs = await app.enqueue_many(work.call(n) for n in range(1200))
        waits = [asyncio.create_task(job.result(timeout=30)) for job in jobs]
        async with app.worker(slots=100):
            assert await asyncio.gather(*waits) == list(range(1200))
        assert Counting.of(app).asked[:3] == [500, 500, 200]


class Slow(Counting):
    """Takes its time to answer, and something has always changed since."""

    async def settled(self, ids: Sequence[JobId]) -> Sequence[Settled]:
        answer = await super().settled(ids)
        await asyncio.sleep(0.03)
        await self.inner.insert([NewJob(id=new_job_id(), task="noise")])
        return answer


async def test_the_longer_a_look_takes_the_longer_is_the_pause_after_it() -> None:
    app = Windlass("memory://")

    @app.task
    async def work() -> None: ...

    with wrapping(app, Slow):
        job = await work.enqueue()
        with pytest.raises(ResultTimeout):
            await job.result(timeout=1)
        assert len(Slow.of(app).asked) <= 5  # 30 ms each, 300 ms between; and one at the end


async def test_closing_the_app_fails_callers_that_still_wait(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    waiting = asyncio.create_task(job.result())
    await asyncio.sleep(0)
    await app.close()
    with pytest.raises(AppClosed, match="the job continues"):
        await waiting


async def test_giving_up_one_wait_leaves_the_others(app: Windlass) -> None:
    @app.task
    async def work() -> int:
        return 1

    job = await work.enqueue()
    given_up = asyncio.create_task(job.result())
    patient = asyncio.create_task(job.result(timeout=30))
    await asyncio.sleep(0)
    given_up.cancel()
    async with app.worker():
        assert await patient == 1
    assert given_up.cancelled()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "failed with GeneratorExit. Its attempts"),
        ("no", "failed with GeneratorExit: no. Its attempts"),
        ("Gone.", "failed with GeneratorExit: Gone. Its attempts"),
        ("really?\n", "failed with GeneratorExit: really? Its attempts"),
        ("a\x1b[31mb\x00\ud800", r"GeneratorExit: a\x1b[31mb\x00\ud800. Its"),
        ("two\nlines", "GeneratorExit: two\nlines. Its attempts"),
    ],
)
def test_the_text_of_a_failure_reads_well_for_any_error(text: str, told: str) -> None:
    failed = JobFailed("1", "GeneratorExit", text)
    assert told in str(failed)
    assert failed.text == text


@pytest.mark.parametrize("kind", [GiveUp, Retry, Snooze, Throttled])
def test_an_instruction_is_known_by_its_public_name(kind: type[Exception]) -> None:
    assert kind.__module__ == "windlass"
    assert getattr(windlass, kind.__qualname__) is kind


@pytest.mark.parametrize("after", ["soon", True, None])
async def test_an_instruction_that_makes_no_sense_is_an_error_like_any_other(
    app: Windlass, after: Any
) -> None:
    @app.task(max_attempts=1)
    async def work() -> None:
        raise Snooze(after)

    async with app.worker():
        with pytest.raises(JobFailed, match="InvalidArgument: after"):
            await (await work.enqueue()).result(timeout=30)
