"""Strangers in a batch do not meet: guarantee 10."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

import pytest

from tests.client.fakes import Wrapped, wrapping
from windlass import Windlass
from windlass._client.client import Batcher
from windlass._core.job.job import NewJob
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.storage import Storage
from windlass._storage.shared.errors import copy_error
from windlass.errors import StoreBusy


class Cursed(Exception):
    """The store cannot hold this job, today or ever."""


class Picky(Wrapped):
    """Refuses a batch with a job tagged ``cursed``, as a database refuses what it cannot hold."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.batches: list[int] = []
        self.arrivals: asyncio.Queue[int] = asyncio.Queue()
        self.open = asyncio.Event()
        self.open.set()
        self.busy = False

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        self.batches.append(len(jobs))
        self.arrivals.put_nowait(len(jobs))
        await self.open.wait()
        if self.busy:
            raise StoreBusy("somebody else holds the storage")
        if any("cursed" in job.tags for job in jobs):
            raise Cursed
        return await self.inner.insert(jobs)


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


async def stored(app: Windlass) -> int:
    return sum(counts.ready for counts in await app.admin.queues.counts())


async def test_calls_made_while_a_flush_is_under_way_are_merged(app: Windlass) -> None:
    @app.task
    async def work(number: int) -> None: ...

    with wrapping(app, Picky):
        async with app:
            picky = Picky.of(app)
            await asyncio.gather(*[work.enqueue(n) for n in range(500)])
            assert await stored(app) == 500
            assert len(picky.batches) <= 3


async def test_a_single_call_does_not_wait_for_a_batch(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    with wrapping(app, Picky):
        for _ in range(3):
            await work.enqueue()
        assert Picky.of(app).batches == [1, 1, 1]


async def test_only_the_callers_whose_job_cannot_be_stored_get_the_error(app: Windlass) -> None:
    @app.task
    async def work(number: int) -> None: ...

    def enqueue(number: int) -> asyncio.Task[object]:
        tags = ["cursed"] if number in (13, 77) else []
        return asyncio.create_task(work.options(tags=tags).enqueue(number))

    with wrapping(app, Picky):
        async with app:
            answers = await asyncio.gather(*map(enqueue, range(100)), return_exceptions=True)
            failed = [n for n, answer in enumerate(answers) if isinstance(answer, Cursed)]
            assert failed == [13, 77]
            assert await stored(app) == 98


async def test_a_batch_is_halved_by_calls_and_never_inside_one(app: Windlass) -> None:
    @app.task
    async def work(number: int) -> None: ...

    bad = [work.call(0), work.options(tags=["cursed"]).call(1), work.call(2)]
    good = [work.call(3), work.call(4)]
    with wrapping(app, Picky):
        async with app:
            answers = await asyncio.gather(
                app.enqueue_many(good),
                app.enqueue_many(bad),
                app.enqueue_many(good),
                return_exceptions=True,
            )
            assert [type(answer) for answer in answers] == [list, Cursed, list]
            assert await stored(app) == 4  # nothing of the bad call, all of the others


async def test_a_passing_error_is_not_halved_and_the_next_call_succeeds(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    with wrapping(app, Picky):
        async with app:
            picky = Picky.of(app)
            picky.busy = True
            answers = await asyncio.gather(
                *[work.enqueue() for _ in range(8)], return_exceptions=True
            )
            assert {type(answer) for answer in answers} == {StoreBusy}
            assert len({id(answer) for answer in answers}) == 8  # nobody's trace is mixed up
            assert len(picky.batches) <= 2
            picky.busy = False
            await work.enqueue()
            assert await stored(app) == 1


class Odd(Exception):
    """One that cannot be made from its own text."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


class Stubborn(Exception):
    def __new__(cls, *args: object) -> Self:
        raise TypeError


def test_a_twin_of_an_error_is_the_same_but_another() -> None:
    cause = ValueError("why")
    error = Odd(5, reason="no")
    error.add_note("a note")
    try:
        raise error from cause
    except Odd as raised:
        copy = copy_error(raised)
    assert copy is not error
    assert isinstance(copy, Odd)
    assert (str(copy), copy.code, copy.__cause__) == ("5: no", 5, cause)
    assert copy.__traceback__ is error.__traceback__
    copy.add_note("another")
    assert error.__notes__ == ["a note"]


def test_an_error_that_cannot_be_copied_is_shared() -> None:
    error = Exception.__new__(Stubborn)
    assert copy_error(error) is error


async def test_cancelling_a_caller_does_not_cancel_the_flush_it_shares(app: Windlass) -> None:
    @app.task
    async def work(number: int) -> None: ...

    with wrapping(app, Picky):
        async with app:
            picky = Picky.of(app)
            picky.open.clear()
            first = asyncio.create_task(work.enqueue(0))
            await picky.arrivals.get()
            others = [asyncio.create_task(work.enqueue(n)) for n in range(1, 4)]
            await asyncio.sleep(0)
            first.cancel()
            others[0].cancel()
            picky.open.set()
            answers = await asyncio.gather(first, *others, return_exceptions=True)
            cancelled = [isinstance(answer, asyncio.CancelledError) for answer in answers]
            assert cancelled == [True, True, False, False]
            # Whether a cancelled caller's job is stored is not promised; the others' are.
            assert await stored(app) >= 2


async def test_keyed_jobs_flush_apart(app: Windlass) -> None:
    @app.task
    async def work(number: int) -> None: ...

    with wrapping(app, Picky):
        async with app:
            picky = Picky.of(app)
            picky.open.clear()
            keyed = asyncio.create_task(work.options(key="k").enqueue(1))
            await picky.arrivals.get()
            plain = asyncio.create_task(work.enqueue(2))
            await picky.arrivals.get()  # it does not wait behind the keyed one
            picky.open.set()
            await asyncio.gather(keyed, plain)


async def test_closing_waits_for_the_flush_under_way(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    with wrapping(app, Picky):
        async with app:
            picky = Picky.of(app)
            picky.open.clear()
            enqueueing = asyncio.create_task(work.enqueue())
            await picky.arrivals.get()
            closing = asyncio.create_task(app.close())
            await asyncio.sleep(0)
            assert not closing.done()
            picky.open.set()
            await closing
            assert (await enqueueing).created


async def test_merging_is_bounded_but_one_call_may_be_larger() -> None:
    flushes: list[int] = []
    waiting = asyncio.Event()

    async def flush(items: Sequence[int]) -> Sequence[int]:
        flushes.append(len(items))
        await waiting.wait()
        return items

    batcher: Batcher[int, int] = Batcher(flush, largest=10)
    calls = [asyncio.create_task(batcher.submit([n] * 4)) for n in range(5)]
    calls.append(asyncio.create_task(batcher.submit(list(range(25)))))
    waiting.set()
    answers = await asyncio.gather(*calls)
    assert flushes == [8, 8, 4, 25]
    assert answers[2] == [2, 2, 2, 2]
    assert answers[5] == list(range(25))
    await batcher.idle()
    assert await batcher.submit([]) == []


async def test_a_flush_that_is_cancelled_before_it_starts_holds_nothing_up() -> None:
    flushed: list[int] = []

    async def flush(items: Sequence[int]) -> Sequence[int]:
        flushed.extend(items)
        return items

    batcher = Batcher(flush, largest=10)
    caller = asyncio.create_task(batcher.submit([1]))
    before = asyncio.all_tasks()
    await asyncio.sleep(0)
    (drain,) = asyncio.all_tasks() - before
    drain.cancel()  # as the end of an event loop cancels every task of it
    caller.cancel()
    await asyncio.wait([drain, caller])
    async with asyncio.timeout(30):
        await batcher.idle()
        assert await batcher.submit([2]) == [2]
    assert flushed == [1, 2]


class LoopEnded(BaseException):
    """Like KeyboardInterrupt, but asyncio and pytest do not treat it in a special way."""


@pytest.mark.parametrize("error", [asyncio.CancelledError, LoopEnded])
async def test_a_flush_that_other_code_ends_leaves_no_caller_waiting(
    error: type[BaseException],
) -> None:
    async def flush(items: Sequence[object]) -> Sequence[object]:
        if len(items) > 1:
            raise ValueError("of one of them alone")
        if error in items:
            raise error
        return items

    batcher = Batcher(flush, largest=3)
    calls = [asyncio.create_task(batcher.submit([item])) for item in (1, error, 2, 3, 4)]
    async with asyncio.timeout(30):
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert answers[0] == [1]
        assert [type(answer) for answer in answers[1:]] == [error] * 4
        assert await batcher.submit([5]) == [5]
