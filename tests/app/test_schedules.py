"""``app.admin`` and schedules: what people see, what holds, and what goes on by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from windlass import Cron, Every, Manual, Once, Task, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.job import JobId, LimitUse, NewJob
from windlass._core.job.outcome import Succeeded
from windlass._core.schedule.schedule import RUNS_KEPT, Overlap, Schedule, ScheduleState
from windlass._observe.bus import Bus
from windlass._schedules.edits import DECLARED_FOR, Schedules, ScheduleView
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.schedules import ScheduleWrite
from windlass._system.seams import new_job_ids
from windlass._worker.scheduler.schedule_sync import ScheduleSync
from windlass._worker.scheduler.scheduler import BoundChore, Scheduler
from windlass.errors import DefinitionError, InvalidArgument, ScheduleExists
from windlass.testing._clock import START, VirtualClock
from windlass.testing.conformance.steps import a_worker, happened

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
JOB = NewJob(id=JobId(""), task="report")


class Leading:
    leading = True


class Stage:
    """A store on a clock that stands still, its book of schedules, and one scheduler."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.database = MemoryDatabase(self.clock)
        self.storage = MemoryStorage(self.database)
        self.book = Schedules(self.storage.schedules, self.storage.now, new_job_ids)

    def scheduler(self, chores: dict[str, BoundChore] | None = None) -> Scheduler:
        leader: Any = Leading()
        (token,) = new_job_ids(1)
        poll = timedelta(seconds=1)
        return Scheduler(self.storage, leader, Bus(), chores or {}, poll=poll, token=token)

    async def declare(self, **fields: Any) -> None:
        plan = Schedule(**{"rule": Every(HOUR), "job": JOB, **fields})
        await self.book.declare({"nightly": plan}, by="code")

    async def pass_by(self, scheduler: Scheduler, span: timedelta) -> None:
        """Let time pass, second by second, while some process has the schedule in its code."""
        for _ in range(span // timedelta(seconds=1)):
            self.clock.advance(1)
            await self.book.still_declared(["nightly"])
            await scheduler.step()

    async def finish(self) -> None:
        """Let everything that is ready succeed."""
        await self.storage.workers.register(a_worker("w1"))
        for job in (await self.storage.jobs.claim("w1", [Want("default", 100)], total=100)).jobs:
            await happened(self.storage, job, Succeeded())

    async def state(self, name: str = "nightly") -> ScheduleState:
        return (await self.known(name)).state

    async def known(self, name: str = "nightly") -> ScheduleView:
        return await self.book.get(name, removed=True)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    async with Windlass("memory://") as made:
        yield made


def report_of(app: Windlass) -> Task[[str], None]:
    @app.task(name="report")
    async def report(region: str) -> None: ...

    return report


# --- what people see ------------------------------------------------------------------------------


async def test_an_overdue_slot_is_followed_by_the_next_ones(app: Windlass) -> None:
    await app.admin.schedules.create("eu", Every(HOUR), report_of(app).call("eu"))
    storage = await parts_of(app).storage()
    (row,) = await storage.schedules.rows()
    overdue = Every(HOUR).slot(Every(HOUR).number(await storage.now()) - 3)
    late = ScheduleWrite(name="eu", revision=row.revision, body=row.body, next_at=overdue)
    await storage.schedules.write([late])
    found = await app.admin.schedules.get("eu")
    assert list(found.upcoming) == [overdue + HOUR * number for number in range(5)]


async def test_the_slots_ahead_end_where_the_schedule_does(app: Windlass) -> None:
    now = await (await parts_of(app).storage()).now()
    call = report_of(app).call("eu")
    made = await app.admin.schedules.create("eu", Every(HOUR), call, ends=now + 2 * HOUR)
    assert len(made.upcoming) == 2
    once = await app.admin.schedules.create("once", Once(now + HOUR), call)
    assert list(once.upcoming) == [now + HOUR]


async def test_a_schedule_whose_dates_are_over_has_ended(app: Windlass) -> None:
    over = await (await parts_of(app).storage()).now() - HOUR
    call = report_of(app).call("eu")
    made = await app.admin.schedules.create("late", Every(60), call, ends=over)
    assert (made.state, made.next_at, list(made.upcoming)) == ("ended", None, [])
    again = await app.admin.schedules.change("late", ends=over + 2 * HOUR)
    assert again.state == "active"
    assert (await app.admin.schedules.create("hand", Manual(), call)).state == "active"


async def test_a_removed_declaration_is_reported_before_its_slot() -> None:
    clock = VirtualClock()
    async with Windlass("memory://", clock=clock) as app:
        storage = await parts_of(app).storage()
        book = Schedules(storage.schedules, storage.now, new_job_ids)
        yearly = Schedule(rule=Cron("0 0 1 1 *"), job=JOB)
        await book.declare({"yearly": yearly}, by="code")
        assert not (await app.admin.schedules.get("yearly")).problem
        clock.advance(DECLARED_FOR + MINUTE)
        assert "no running process" in (await app.admin.schedules.get("yearly")).problem
        (report,) = await app.admin.schedules.list()
        assert "no running process" in report.problem


async def test_changed_arguments_are_shown_beside_those_of_the_code(app: Windlass) -> None:
    report = report_of(app)
    app.schedule(Manual(), name="eu")(report.call("eu"))
    async with app.worker():
        pass
    found = await app.admin.acting("ann").schedules.change("eu", call=report.call("us"))
    assert found.changed == {"arguments": ('{"region":"eu"}', '{"region":"us"}')}


async def test_a_preview_stores_nothing(app: Windlass) -> None:
    slots = await app.admin.schedules.preview(Cron("0 8 * * *", "Europe/Berlin"), 3)
    assert len(slots) == 3
    assert slots == sorted(slots)
    assert await app.admin.schedules.preview(Manual()) == []
    assert await app.admin.schedules.list() == []


# --- whose word holds -----------------------------------------------------------------------------


async def test_an_operators_value_holds_when_code_changes_the_same_one(stage: Stage) -> None:
    await stage.declare()
    await stage.book.change("nightly", by="ann", rule=Every(2 * HOUR))
    await stage.declare(rule=Every(3 * HOUR))
    state = await stage.state()
    assert state.plan.rule == Every(2 * HOUR)
    assert state.written is not None
    assert state.written.rule == Every(3 * HOUR)
    await stage.book.reset("nightly", by="ann")
    assert (await stage.state()).plan.rule == Every(3 * HOUR)


async def test_code_does_not_overwrite_what_a_person_made_under_its_name(stage: Stage) -> None:
    await stage.book.create("nightly", Schedule(rule=Every(MINUTE), job=JOB), by="ann")
    await stage.declare()
    state = await stage.state()
    assert (state.plan.rule, state.changed_by, state.edited) == (Every(MINUTE), "ann", True)
    await stage.book.reset("nightly", by="ann")
    assert (await stage.state()).plan.rule == Every(HOUR)


async def test_a_schedule_continues_when_code_moves_its_end(stage: Stage) -> None:
    await stage.declare(ends=START + 90 * MINUTE)
    stage.clock.advance(HOUR)
    await stage.book.still_declared(["nightly"])
    assert await stage.scheduler().step() == 1
    assert (await stage.state()).ended
    await stage.declare(ends=START + 24 * HOUR)
    assert not (await stage.state()).ended
    assert (await stage.known()).row.next_at == START + 2 * HOUR


async def test_a_one_time_schedule_that_was_fires_again_only_at_another_instant(
    stage: Stage,
) -> None:
    await stage.declare(rule=Once(START))
    assert await stage.scheduler().step() == 1
    await stage.book.change("nightly", by="ann", jitter=MINUTE)
    await stage.book.reset("nightly", by="ann")
    await stage.book.remove("nightly", by="ann")
    await stage.book.reset("nightly", by="ann")
    await stage.declare(rule=Once(START), missed="all")
    state = await stage.state()
    assert state.ended
    assert (await stage.known()).row.next_at is None
    await stage.book.change("nightly", by="ann", rule=Once(START + HOUR))
    assert (await stage.known()).row.next_at == START + HOUR


# --- after the end of the last run ----------------------------------------------------------------


async def test_the_slot_of_a_run_that_follows_another_is_its_end_and_the_period(
    stage: Stage,
) -> None:
    await stage.declare(rule=Every(MINUTE, "end"))
    scheduler = stage.scheduler()
    await scheduler.step()
    await stage.pass_by(scheduler, 2 * MINUTE)
    ended = stage.clock.now()
    await stage.finish()
    await stage.pass_by(scheduler, 2 * MINUTE)
    first, second = (await stage.state()).runs
    assert (first.slot, second.slot) == (START, ended + MINUTE)


async def test_a_schedule_that_follows_its_runs_ends_at_its_end(stage: Stage) -> None:
    await stage.declare(rule=Every(MINUTE, "end"), ends=START + timedelta(seconds=150))
    scheduler = stage.scheduler()
    for _ in range(5):
        await scheduler.step()
        await stage.finish()
        await stage.pass_by(scheduler, MINUTE)
    state = await stage.state()
    assert state.ended
    assert [run.slot for run in state.runs] == [START, START + MINUTE, START + 2 * MINUTE]


# --- overlap that is changed ----------------------------------------------------------------------


async def test_runs_wait_their_turn_once_an_operator_sets_it(app: Windlass) -> None:
    call = report_of(app).call("eu")
    await app.admin.schedules.create("eu", Manual(), call, overlap="allow")
    changes: list[tuple[Overlap, int]] = [("queue", 2), ("allow", 1)]
    for overlap, limits in changes:
        await app.admin.schedules.change("eu", overlap=overlap)
        job = await app.admin.schedules.trigger("eu")
        assert job is not None
        assert len((await app.admin.jobs.get(job.id)).limits) == limits
    assert (await app.admin.schedules.get("eu")).changed == {}


async def test_another_call_leaves_the_breaker_as_it_was(app: Windlass) -> None:
    report = report_of(app)
    await app.admin.schedules.create("bare", Manual(), report.call("eu"), breaker=False)
    await app.admin.schedules.create("usual", Manual(), report.call("eu"))
    for name, breaker in (("bare", False), ("usual", True)):
        found = await app.admin.schedules.change(name, call=report.call("us"))
        assert (found.breaker is not None) is breaker


# --- triggers -------------------------------------------------------------------------------------


async def test_a_chore_runs_when_it_is_triggered_between_its_slots(stage: Stage) -> None:
    ran = []

    async def sweep() -> str:
        ran.append(stage.clock.now())
        return "done"

    await stage.declare(job=None)
    scheduler = stage.scheduler({"nightly": sweep})
    stage.clock.advance(100)
    assert await stage.book.trigger("nightly", by="ann") is None
    await scheduler.step()
    await scheduler.close()
    assert ran == [START + timedelta(seconds=100)]
    assert (await stage.known()).row.next_at == START + HOUR
    await stage.book.pause("nightly", by="ann")
    with pytest.raises(InvalidArgument, match="resume it first"):
        await stage.book.trigger("nightly", by="ann")


async def test_a_chore_that_is_deleted_while_it_runs_just_ends(stage: Stage) -> None:
    async def sweep() -> str:
        await stage.book.delete("nightly")
        return "done"

    await stage.declare(job=None)
    scheduler = stage.scheduler({"nightly": sweep})
    await stage.book.trigger("nightly", by="ann")
    await scheduler.step()
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    await scheduler.close()
    assert task.exception() is None


async def test_a_schedule_that_is_only_ever_triggered_does_not_grow(stage: Stage) -> None:
    await stage.declare(rule=Manual(), overlap="allow")
    for _ in range(200):
        await stage.book.trigger("nightly", by="ann")
    state = await stage.state()
    assert len(state.runs) <= 100 + RUNS_KEPT
    assert state.fired == 200


# --- held, and going on ---------------------------------------------------------------------------


async def test_after_an_outage_held_schedules_continue_by_themselves(stage: Stage) -> None:
    """Nobody could say for a while that the schedule is still in the code: it still is."""
    plans = {"nightly": Schedule(rule=Every(HOUR), job=JOB)}

    async def in_the_code() -> dict[str, Schedule]:
        return plans

    declaring = ScheduleSync(stage.book, in_the_code)
    await declaring.step()
    stage.clock.advance(HOUR + DECLARED_FOR)
    scheduler = stage.scheduler()
    await scheduler.step()
    assert (await stage.state()).held == START + HOUR
    await declaring.step()
    assert (await stage.state()).held is None
    assert await scheduler.step() == 1
    await scheduler.close()


async def test_a_person_who_resumes_a_held_schedule_gives_it_another_chance(
    stage: Stage,
) -> None:
    await stage.declare()
    stage.clock.advance(2 * HOUR)
    await stage.scheduler().step()
    assert not (await stage.state()).fires
    await stage.book.resume("nightly", by="ann")
    assert (await stage.state()).fires
    assert (await stage.known()).row.next_at == START + 3 * HOUR


async def test_a_schedule_whose_limit_is_gone_is_held_and_the_others_fire(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    lost = msgspec.structs.replace(JOB, limits=(LimitUse("gone"),))
    plans = {
        name: Schedule(rule=Every(MINUTE), job=lost if name == "b" else JOB)
        for name in ("a", "b", "c", "d")
    }
    await stage.book.declare(plans, by="code")
    stage.clock.advance(MINUTE)
    with caplog.at_level(logging.WARNING):
        assert await stage.scheduler().step() == 3
    assert "schedule b is held" in caplog.text
    state = await stage.state("b")
    assert "'gone'" in state.problem
    assert state.held == START + MINUTE


# --- made at run time -----------------------------------------------------------------------------


async def test_two_who_create_the_same_schedule_do_not_overwrite_each_other(
    app: Windlass,
) -> None:
    call = report_of(app).call("eu")
    made = await asyncio.gather(
        *(app.admin.acting(who).schedules.create("eu", Every(60), call) for who in ("ann", "bob")),
        return_exceptions=True,
    )
    assert [isinstance(one, ScheduleExists) for one in made].count(True) == 1


async def test_a_removed_name_is_free_and_a_deleted_one_is_forgotten(app: Windlass) -> None:
    call = report_of(app).call("eu")
    await app.admin.schedules.create("eu", Every(60), call)
    await app.admin.schedules.remove("eu")
    assert [found.state for found in await app.admin.schedules.list(removed=True)] == ["removed"]
    page, _ = await app.admin.schedules.page(removed=True)
    assert [found.state for found in page] == ["removed"]
    await app.admin.schedules.create("eu", Every(30), call)
    await app.admin.schedules.delete("eu")
    assert await app.admin.schedules.list(removed=True) == []


async def test_the_audit_log_names_the_given_operator(app: Windlass) -> None:
    task, admin = report_of(app), app.admin
    await admin.acting("ada").schedules.create("made", Every(3600), task.call("eu"))
    await admin.acting("ben").schedules.change("made", rule=Every(60))
    await admin.acting("cy").schedules.pause("made")
    await admin.acting("dee").schedules.resume("made")
    await admin.acting("eve").schedules.trigger("made")
    await admin.acting("fay").schedules.remove("made")
    await admin.acting("gus").schedules.delete("made")
    told = [(one.note.what, one.note.who) for one in reversed(await admin.audit.list())]
    assert told == [
        ("schedules.create", "ada"),
        ("schedules.change", "ben"),
        ("schedules.pause", "cy"),
        ("schedules.resume", "dee"),
        ("schedules.trigger", "eve"),
        ("schedules.remove", "fay"),
        ("schedules.delete", "gus"),
    ]


# --- refused where they are written ---


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"args": (1, 2)}, "schedule 'nightly' cannot call task 'report': too many"),
        ({"kwargs": {"day": object()}}, "the arguments of schedule 'nightly' do not fit: "),
    ],
)
def test_arguments_that_do_not_fit_name_the_schedule_at_once(
    arguments: dict[str, Any], told: str
) -> None:
    app = Windlass("memory://")

    @app.task(name="report")
    async def report(day: int = 0) -> None: ...

    with pytest.raises(DefinitionError, match=told):
        app.schedule(Every(60), name="nightly", **arguments)(report)


async def test_arguments_of_a_type_that_comes_later_name_the_schedule_at_the_start() -> None:
    app = Windlass("memory://")
    names: dict[str, Any] = {"app": app, "Every": Every}
    exec(  # noqa: S102 -- a module whose types are defined below its tasks
        "@app.schedule(Every(60), name='nightly', args=(object(),))\n"
        "@app.task(name='report')\n"
        "async def report(day: 'Day') -> None: ...\n"
        "Day = int\n",
        names,
    )
    with pytest.raises(DefinitionError, match="the arguments of schedule 'nightly' do not fit"):
        async with app.worker():
            pass
    await app.close()
