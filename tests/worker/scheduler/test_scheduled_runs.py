"""Scheduled tasks through a whole worker, in virtual time: every outcome takes effect."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.worker.fixtures import World, simulate, working
from windlass import Backoff, Context, Cron, Every, GiveUp, Manual, Once, Snooze, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._core.schedule.schedule import slot_of
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass.errors import DefinitionError, InvalidArgument, ScheduleUnknown


async def jobs_of(app: Windlass, task: str) -> list[Any]:
    return [*reversed(await app.admin.jobs.find(JobFilter(task=task), limit=1000))]


# --- the tests of the scheduler this one succeeds -------------------------------------------------


def test_a_driver_fires_a_periodic_job() -> None:
    """U1: a period of 50 ms, 400 ms: at least two runs, and a clean stop."""

    async def scenario(world: World) -> int:
        ran = []

        @world.app.schedule(Every(0.05))
        @world.app.task(name="tick")
        async def tick() -> None:
            ran.append(1)

        async with working(world.app):
            await asyncio.sleep(0.4)
        return len(ran)

    assert 2 <= simulate(scenario) <= 8


def test_removing_a_schedule_halts_further_runs() -> None:
    """U2: at least one run; after the removal at most the one in flight."""

    async def scenario(world: World) -> tuple[int, int, int]:
        ran = []

        @world.app.schedule(Every(0.05))
        @world.app.task(name="tick")
        async def tick() -> None:
            ran.append(1)

        async with working(world.app):
            await asyncio.sleep(0.15)
            before = len(ran)
            await world.app.admin.acting("ann").schedules.remove("tick")
            await asyncio.sleep(0.3)
            after = len(ran)
        async with working(world.app):  # H-1: and a restart does not bring it back
            await asyncio.sleep(0.3)
        return before, after, len(ran)

    before, after, restarted = simulate(scenario)
    assert before >= 1
    assert after <= before + 1
    assert restarted == after


def test_a_breaker_opens_after_ten_failures_in_a_row() -> None:
    """U3: always failing, every 20 ms for 500 ms: between 10 and 20 runs."""

    async def scenario(world: World) -> tuple[int, Any]:
        ran = []

        @world.app.schedule(Every(0.02))
        @world.app.task(name="doomed", max_attempts=1)
        async def doomed() -> None:
            ran.append(1)
            raise RuntimeError("always")

        async with working(world.app):
            await asyncio.sleep(0.5)
            after = len(ran)
            await asyncio.sleep(0.5)
            return after, await world.app.admin.schedules.get("doomed")

    ran, report = simulate(scenario)
    assert 10 <= ran <= 20
    assert report.breaker.open_until is not None
    assert report.failures >= 10
    assert "breaker" in report.runs[0].outcome


def test_without_a_breaker_a_failing_schedule_continues() -> None:
    async def scenario(world: World) -> int:
        ran = []

        @world.app.schedule(Every(0.1), breaker=False)
        @world.app.task(name="doomed", max_attempts=1)
        async def doomed() -> None:
            ran.append(1)
            raise RuntimeError("always")

        async with working(world.app):
            await asyncio.sleep(5)
        return len(ran)

    assert simulate(scenario) > 30


# --- outcomes count (H-10) ------------------------------------------------------------------------


def test_a_failed_run_is_retried_by_the_policy_of_its_task() -> None:
    async def scenario(world: World) -> list[float]:
        seen: list[float] = []

        @world.app.schedule(Every(60))
        @world.app.task(name="moody", backoff=Backoff.fixed(5), max_attempts=3)
        async def moody() -> None:
            seen.append(asyncio.get_running_loop().time())
            if len(seen) < 3:
                raise RuntimeError("not yet")

        async with working(world.app):
            await asyncio.sleep(80)
        return seen

    seen = simulate(scenario)
    assert len(seen) == 3
    assert [round(b - a) for a, b in pairwise(seen)] == [5, 5]


def test_run_again_later_takes_effect_and_holds_back_the_slots_meanwhile() -> None:
    async def scenario(world: World) -> tuple[int, int]:
        seen = []

        @world.app.schedule(Every(10))
        @world.app.task(name="patient")
        async def patient(ctx: Context) -> None:
            seen.append(ctx.job_id)
            if len(seen) == 1:
                raise Snooze(25)

        async with working(world.app):
            await asyncio.sleep(45)
            (first, *_) = await jobs_of(world.app, "patient")
            assert first.state is State.SUCCEEDED
            return seen.count(first.id), len({*seen})

    runs_of_first, jobs = simulate(scenario)
    assert runs_of_first == 2
    assert jobs <= 2


def test_the_timeout_of_a_scheduled_task_is_enforced() -> None:
    async def scenario(world: World) -> Any:
        @world.app.schedule(Every(60))
        @world.app.task(name="slow", timeout=2, max_attempts=1)
        async def slow() -> None:
            await asyncio.sleep(3600)

        async with working(world.app):
            await asyncio.sleep(70)
            return await world.app.admin.schedules.get("slow")

    report = simulate(scenario)
    assert [run.outcome for run in report.runs] == ["failed"]
    assert report.failures == 1


def test_giving_up_fails_the_run_and_a_success_resets_the_count() -> None:
    async def scenario(world: World) -> Any:
        ran = []

        @world.app.schedule(Every(1))
        @world.app.task(name="flaky")
        async def flaky() -> None:
            ran.append(1)
            if len(ran) % 3:
                raise GiveUp("no")

        async with working(world.app):
            await asyncio.sleep(2.5)
            two = await world.app.admin.schedules.get("flaky")
            await asyncio.sleep(1)
            three = await world.app.admin.schedules.get("flaky")
        return two.failures, three.failures

    assert simulate(scenario) == (2, 0)


def test_runs_that_wait_their_turn_never_overlap() -> None:
    async def scenario(world: World) -> tuple[int, int]:
        running, most, ran = 0, 0, 0

        @world.app.schedule(Every(1), overlap="queue")
        @world.app.task(name="long")
        async def long() -> None:
            nonlocal running, most, ran
            running, ran = running + 1, ran + 1
            most = max(most, running)
            await asyncio.sleep(1.7)
            running -= 1

        async with working(world.app):
            await asyncio.sleep(20)
        return most, ran

    most, ran = simulate(scenario)
    assert most == 1
    assert ran >= 10


def test_a_worker_that_stops_lets_its_runs_end(caplog: pytest.LogCaptureFixture) -> None:
    """H-11: only the driver was waited for, not the runs it had started."""

    async def scenario(world: World) -> list[str]:
        said: list[str] = []

        @world.app.schedule(Every(1))
        @world.app.task(name="long")
        async def long() -> None:
            said.append("begun")
            await asyncio.sleep(5)
            said.append("ended")

        async with working(world.app):
            await asyncio.sleep(1.5)
        return said

    assert simulate(scenario) == ["begun", "ended"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_slots_missed_without_workers_are_caught_up_once() -> None:
    """H-12: a restart computed the next slot from now."""

    async def scenario(world: World) -> list[datetime | None]:
        @world.app.schedule(Every(600))
        @world.app.task(name="rare")
        async def rare() -> None: ...

        async with working(world.app):
            await asyncio.sleep(30)
        await asyncio.sleep(2000)
        async with working(world.app):
            await asyncio.sleep(30)
            return [slot_of(job.id) for job in await jobs_of(world.app, "rare")]

    slots = simulate(scenario)
    assert len(slots) == 1


def test_a_finished_one_time_schedule_stays_finished_after_a_restart() -> None:
    async def scenario(world: World) -> int:
        storage = await parts_of(world.app).storage()
        at = await storage.now() + timedelta(seconds=5)

        @world.app.schedule(Once(at))
        @world.app.task(name="once")
        async def once() -> None: ...

        for _ in range(3):
            async with working(world.app):
                await asyncio.sleep(20)
        return len(await jobs_of(world.app, "once"))

    assert simulate(scenario) == 1


def test_two_workers_fire_each_slot_once() -> None:
    async def scenario(world: World) -> tuple[int, int]:
        @world.app.schedule(Every(1), overlap="allow")
        @world.app.task(name="tick")
        async def tick() -> None: ...

        async with working(world.app), working(world.app), working(world.app):
            await asyncio.sleep(30.5)
        jobs = await jobs_of(world.app, "tick")
        return len(jobs), len({slot_of(job.id) for job in jobs})

    jobs, slots = simulate(scenario)
    assert jobs == slots
    assert 29 <= slots <= 31


# --- what a handler and people see ----------------------------------------------------------------


def test_a_handler_learns_its_slot_and_its_arguments() -> None:
    async def scenario(world: World) -> list[Any]:
        seen: list[Any] = []

        @world.app.schedule(Every(60), name="report-eu", kwargs={"region": "eu"})
        @world.app.schedule(Every(60), name="report-us", args=("us",), jitter=20)
        @world.app.task(name="report")
        async def report(ctx: Context, region: str) -> None:
            seen.append((region, ctx.slot))

        async with working(world.app):
            await asyncio.sleep(90)
        return seen

    seen = simulate(scenario)
    assert sorted(region for region, _ in seen) == ["eu", "us"]
    assert len({slot for _, slot in seen}) == 1
    assert all(slot.second == 0 and slot.microsecond == 0 for _, slot in seen)


def test_our_own_chores_are_schedules_that_can_be_paused() -> None:
    async def scenario(world: World) -> tuple[list[str], str, int]:
        async with working(world.app):
            await asyncio.sleep(61)
            names = [report.name for report in await world.app.admin.schedules.list()]
            report = await world.app.admin.schedules.get("windlass.retention")
            await world.app.admin.acting("ann").schedules.pause("windlass.retention")
            await asyncio.sleep(120)
            after = await world.app.admin.schedules.get("windlass.retention")
            assert after.state == "paused"
            return names, report.runs[0].outcome, after.fired - report.fired

    names, outcome, fired = simulate(scenario)
    assert names == ["windlass.retention", "windlass.tidy"]
    assert outcome == "0 jobs removed"
    assert fired == 0


async def test_schedules_can_be_made_changed_and_triggered_at_run_time() -> None:
    async with Windlass("memory://") as app:

        @app.task(name="report")
        async def report(region: str) -> None: ...

        made = await app.admin.acting("ann").schedules.create(
            "eu", Cron("0 8 * * *", "Europe/Berlin"), report.call("eu"), overlap=3
        )
        assert made.words == "at 08:00 every day, Europe/Berlin"
        assert len(made.upcoming) == 5
        assert not made.declared
        changed = await app.admin.acting("bob").schedules.change("eu", rule=Manual(), jitter=5)
        assert (changed.next_at, changed.changed_by) == (None, "bob")
        job = await app.admin.acting("bob").schedules.trigger("eu")
        assert job is not None
        stored = await app.admin.jobs.get(job.id)
        assert stored.tags == ("schedule:eu",)
        assert (await app.admin.schedules.get("eu")).runs[0].by == "bob"
        await app.admin.acting("bob").schedules.remove("eu", cancel_runs=True)
        assert (await app.admin.jobs.get(job.id)).state is State.CANCELLED
        with pytest.raises(ScheduleUnknown):
            await app.admin.schedules.get("eu")


async def test_an_operators_value_is_shown_beside_the_codes() -> None:
    async with Windlass("memory://") as app:

        @app.schedule(Every(60))
        @app.task(name="tick")
        async def tick() -> None: ...

        async with app.worker():
            pass
        await app.admin.acting("ann").schedules.change("tick", rule=Every(30))
        async with app.worker():
            pass
        report = await app.admin.schedules.get("tick")
        assert report.changed == {"rule": ("every minute", "every 30 seconds")}
        assert report.declared


# --- bad input ------------------------------------------------------------------------------------


def test_an_invalid_schedule_is_refused_where_it_is_declared() -> None:
    app = Windlass("memory://")

    @app.task(name="needs")
    async def needs(region: str) -> None: ...

    with pytest.raises(DefinitionError, match="args="):
        app.schedule(Every(1))(needs)
    with pytest.raises(InvalidArgument, match=r"Cron\('0 8"):
        app.schedule("0 8 * * *")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"above @app\.task"):
        app.schedule(Every(1))(lambda: None)  # type: ignore[type-var]
    with pytest.raises(InvalidArgument, match="overlap"):
        app.schedule(Every(1), overlap="never")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="missed"):
        app.schedule(Every(1), missed="some")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="overlap"):
        app.schedule(Every(1, "end"), overlap="allow")
    app.schedule(Every(1), name="eu")(needs.call("eu"))
    with pytest.raises(DefinitionError, match="two schedules"):
        app.schedule(Every(1), name="eu")(needs.call("us"))
    with pytest.raises(InvalidArgument, match="args="):
        app.schedule(Every(1), name="us", args=("us",))(needs.call("us"))


async def test_a_schedule_with_a_delay_is_refused() -> None:
    async with Windlass("memory://") as app:

        @app.task(name="tick")
        async def tick() -> None: ...

        with pytest.raises(InvalidArgument, match="delay"):
            await app.admin.schedules.create("x", Every(60), tick.options(delay=5).call())
        with pytest.raises(InvalidArgument, match="no option"):
            await app.admin.schedules.create("x", Every(60), tick.call(), overlapp="skip")  # type: ignore[call-arg]
        with pytest.raises(InvalidArgument, match="nothing to change"):
            await app.admin.schedules.change("x")
