"""``breaker=``: a task that fails again and again is left alone, by every worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from tests.worker.fixtures import Bench, World, bench, simulate, working
from windlass import Backoff, Breaker, Limit, Windlass
from windlass._core.job.job import JobRecord, LimitUse
from windlass._core.job.state import State
from windlass._tasks.handle import Job as JobHandle
from windlass._tasks.task import Task
from windlass.admin import BreakerReport
from windlass.errors import BreakerUnknown, InvalidArgument, LimitUnknown

SECOND = timedelta(seconds=1)
NAME = "job (breaker)"


class Upstream:
    """Somebody who fails until told otherwise."""

    def __init__(self) -> None:
        self.well = False
        self.asked = 0

    def ask(self) -> None:
        self.asked += 1
        if not self.well:
            raise ConnectionError


def calling(app: Windlass, upstream: Upstream, **options: Any) -> Task[[], None]:
    options = {"breaker": Breaker(failures=3, cool_down=30), "backoff": Backoff.none()} | options

    @app.task(name="job", **options)
    async def job() -> None:
        upstream.ask()

    return job


async def report(app: Windlass) -> BreakerReport:
    (found,) = await app.admin.breakers.list()
    assert found == await app.admin.breakers.get(found.task)
    return found


async def opened(it: Bench, upstream: Upstream, **options: Any) -> list[JobHandle[None]]:
    """Four jobs of which three have failed."""
    task = calling(it.app, upstream, max_attempts=1, **options)
    jobs = []
    for _ in range(4):
        jobs.append(await task.enqueue())
        await it.engine.step()
    return jobs


# --- what it does --------------------------------------------------------------------------------


async def test_it_opens_after_its_failures_and_holds_the_jobs_without_a_cost() -> None:
    async with bench() as it:
        upstream = Upstream()
        *_, held = await opened(it, upstream)
        assert upstream.asked == 3
        record = await held.refresh()
        assert (record.state, record.attempt, record.claim_number) == (State.WAITING, 0, 0)
        found = await report(it.app)
        assert (found.task, found.state, found.failures, found.opened) == ("job", "open", 3, 1)
        assert found.open_until == it.clock.now() + 30 * SECOND


async def test_after_the_cool_down_one_trial_closes_it_or_opens_it_for_longer() -> None:
    async with bench() as it:
        upstream = Upstream()
        task = calling(it.app, upstream, max_attempts=1)
        await it.app.enqueue_many([task.call() for _ in range(9)])
        for _ in range(9):
            await it.engine.step()
        assert upstream.asked == 9, "what was claimed before it opened runs"
        jobs = await it.app.enqueue_many([task.call() for _ in range(3)])
        it.clock.advance(30)
        assert (await report(it.app)).state == "trial"
        await it.engine.step()
        assert upstream.asked == 10, "one at a time"
        assert (await report(it.app)).open_until == it.clock.now() + 60 * SECOND
        it.clock.advance(60)
        upstream.well = True
        await it.engine.step()
        assert (await report(it.app)).state == "closed"
        await it.engine.step()
        states = [(await job.refresh()).state for job in jobs]
        assert sorted(states) == [State.FAILED, State.SUCCEEDED, State.SUCCEEDED]


async def test_a_success_starts_the_count_again() -> None:
    async with bench() as it:
        upstream = Upstream()
        task = calling(it.app, upstream, max_attempts=1)
        for number in range(8):
            upstream.well = number % 3 == 2
            await it.run(task.call())
        assert upstream.asked == 8
        assert (await report(it.app)).state == "closed"


async def test_retries_count_and_what_is_no_failure_does_not() -> None:
    async with bench() as it:
        upstream = Upstream()
        job = await it.run(calling(it.app, upstream, max_attempts=10).call())
        job = await it.again(job)
        job = await it.again(job)
        assert (upstream.asked, job.attempt) == (3, 3)
        job = await it.again(job)
        assert (upstream.asked, job.attempt) == (3, 3), "no attempt is spent on an open breaker"


async def test_other_tasks_are_not_held() -> None:
    async with bench() as it:
        await opened(it, Upstream())

        @it.app.task(name="other", breaker=True)
        async def other() -> None: ...

        job: JobRecord = await it.run(other.call())
        assert job.state is State.SUCCEEDED


def test_workers_share_it_and_wake_for_the_trial() -> None:
    async def scenario(world: World) -> None:
        app, upstream = world.app, Upstream()
        task = calling(app, upstream, max_attempts=1)
        async with working(app, slots=1), working(app, slots=1):
            for _ in range(3):
                await task.enqueue()
                await world.until(world.loop.time() + 1)
            job = await task.enqueue()
            await world.until(20)
            assert upstream.asked == 3
            upstream.well = True
            await job.result(timeout=30)
        assert round(world.loop.time()) in range(32, 35)

    simulate(scenario)


# --- how it is kept ------------------------------------------------------------------------------


async def test_every_call_counts_against_it_and_it_is_no_limit_to_people() -> None:
    async with bench() as it:
        api = Limit("api", concurrency=2)
        task = calling(it.app, Upstream(), limits=[api])
        job = await (await task.enqueue()).refresh()
        assert job.limits == (LimitUse("api"), LimitUse(NAME))
        assert [found.spec.name for found in await it.app.admin.limits.list()] == ["api"]
        with pytest.raises(LimitUnknown):
            await it.app.admin.limits.set(NAME, concurrency=1)
        with pytest.raises(LimitUnknown):
            await it.app.admin.limits.reset(NAME)


async def test_calls_in_bulk_and_from_elsewhere_count_too() -> None:
    async with bench() as it:
        task = calling(it.app, Upstream())
        jobs = await it.app.enqueue_many([task.call(), task.options(priority=3).call()])
        assert [(await job.refresh()).limits for job in jobs] == [(LimitUse(NAME),)] * 2


async def test_true_is_a_breaker_with_the_defaults() -> None:
    async with bench() as it:
        await calling(it.app, Upstream(), breaker=True).enqueue()
        found = await report(it.app)
        assert found.breaker == Breaker(failures=10, cool_down=30)
        assert (found.state, found.failures, found.running) == ("closed", 0, 0)


async def test_it_is_reset_by_hand() -> None:
    async with bench() as it:
        upstream = Upstream()
        *_, held = await opened(it, upstream)
        upstream.well = True
        await it.app.admin.breakers.reset("job")
        assert (await report(it.app)).state == "closed"
        await it.engine.step()
        assert (await held.refresh()).state is State.SUCCEEDED


async def test_its_numbers_are_changed_while_everything_runs() -> None:
    async with bench() as it:
        await calling(it.app, Upstream()).enqueue()
        new = await it.app.admin.breakers.set("job", failures=7, longest=90)
        assert new == Breaker(failures=7, cool_down=30, longest=90)
        assert (await report(it.app)).breaker == new


async def test_an_operators_breaker_survives_a_restart_and_ends_with_a_deploy(
    tmp_path: Any,
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with Windlass(url) as app:
        await calling(app, Upstream()).enqueue()
        await app.admin.breakers.set("job", failures=7)
    async with Windlass(url) as app:
        await calling(app, Upstream()).enqueue()
        assert (await report(app)).breaker.failures == 7
    async with Windlass(url) as app:
        await calling(app, Upstream(), breaker=Breaker(failures=4)).enqueue()
        assert (await report(app)).breaker.failures == 4


# --- refusals ------------------------------------------------------------------------------------


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    async with Windlass("memory://") as app:
        yield app


async def test_a_task_without_one_is_named(app: Windlass) -> None:
    calling(app, Upstream(), breaker=False)
    with pytest.raises(BreakerUnknown):
        await app.admin.breakers.get("job")
    with pytest.raises(BreakerUnknown, match=r"breaker=True"):
        await app.admin.breakers.reset("job")
    with pytest.raises(BreakerUnknown):
        await app.admin.breakers.set("job", failures=3)


@pytest.mark.parametrize("given", [5, "yes", Breaker, {"failures": 3}])
def test_an_invalid_breaker_is_refused_where_it_is_declared(given: object) -> None:
    with pytest.raises(InvalidArgument, match=r"Breaker\(failures=5\)"):
        calling(Windlass("memory://"), Upstream(), breaker=given)


async def test_nothing_to_change_is_said(app: Windlass) -> None:
    with pytest.raises(InvalidArgument, match="nothing to change"):
        await app.admin.breakers.set("job")


def test_a_name_that_no_limit_may_have_is_refused_with_a_breaker() -> None:
    app = Windlass("memory://")
    with pytest.raises(InvalidArgument, match="':'"):
        app.task(name="shop:send", breaker=True)(nothing)


async def nothing() -> None: ...
