"""Cool-downs and breakers in tests of users: a drain moves the clock past them, inline mode does
not wait at all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from windlass import Backoff, Breaker, Throttled, Windlass, testing
from windlass.errors import JobFailed
from windlass.testing import VirtualClock


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


@pytest.fixture
def clock(app: Windlass) -> Iterator[VirtualClock]:
    with testing.isolated(app) as clock:
        yield clock


async def test_a_drain_stops_at_a_queue_that_cools_down(app: Windlass, clock: VirtualClock) -> None:
    @app.task(name="call", queue="api")
    async def call(number: int) -> None:
        if number == 0 and clock.now() == start:
            raise Throttled(30)

    start = clock.now()
    await app.enqueue_many([call.call(number) for number in range(3)])
    first = await testing.drain(app)
    assert (first.ran, first.postponed) == (1, 1)
    clock.advance(30)
    assert (await testing.drain(app)).succeeded == 3


async def test_drain_all_moves_the_clock_past_a_cool_down(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(name="call", queue="api")
    async def call() -> None:
        if clock.now() == start:
            raise Throttled

    start = clock.now()
    await app.enqueue_many([call.call() for _ in range(3)])
    drained = await testing.drain_all(app)
    assert (drained.postponed, drained.succeeded) == (1, 3)
    assert (clock.now() - start).total_seconds() == 1


async def test_drain_all_moves_the_clock_past_an_open_breaker(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(name="call", breaker=Breaker(failures=2, cool_down=40), backoff=Backoff.none())
    async def call() -> None:
        if (clock.now() - start).total_seconds() < 100:
            raise ConnectionError

    start = clock.now()
    job = await call.options(max_attempts=10).enqueue()
    drained = await testing.drain_all(app)
    assert (drained.retried, drained.succeeded) == (3, 1)
    assert (clock.now() - start).total_seconds() == 120, "forty seconds, then twice as long"
    assert (await job.refresh()).attempt == 4


async def test_a_drain_follows_settings_of_the_queue(app: Windlass, clock: VirtualClock) -> None:
    @app.task(name="call", max_attempts=2)
    async def call() -> None:
        raise ConnectionError

    await app.admin.queues.set("default", backoff=Backoff.fixed(77))
    start = clock.now()
    await call.enqueue()
    await testing.drain_all(app)
    assert (clock.now() - start).total_seconds() == 77


async def test_inline_jobs_wait_for_no_cool_down(app: Windlass) -> None:
    hits = 0

    @app.task(name="call")
    async def call() -> int:
        nonlocal hits
        hits += 1
        if hits < 4:
            raise Throttled(3600)
        return hits

    with testing.inline(app):
        assert await (await call.enqueue()).result() == 4


async def test_inline_jobs_are_held_by_no_breaker(app: Windlass) -> None:
    @app.task(name="call", breaker=Breaker(failures=1), max_attempts=1)
    async def call() -> None:
        raise ConnectionError

    with testing.inline(app):
        for _ in range(3):
            with pytest.raises(JobFailed):
                await call.enqueue()
