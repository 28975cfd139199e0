"""The scheduler, one step at a time, on a clock that stands still."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from windlass._core.job.event import Event
from windlass._core.job.job import JobId, LimitUse, NewJob
from windlass._core.job.outcome import GaveUp, Succeeded
from windlass._core.job.state import State
from windlass._core.job.unique import UniqueKey
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec
from windlass._core.schedule.rules import Cron, Every, Manual, Once
from windlass._core.schedule.schedule import Missed, Schedule, ScheduleState, slot_of
from windlass._observe.bus import Bus
from windlass._schedules.edits import DECLARED_FOR, Schedules, ScheduleView, decoded, encoded
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.schedules import ScheduleWrite
from windlass._system.seams import new_job_ids
from windlass._worker.scheduler.scheduler import STANDBY_DELAY, BoundChore, Scheduler
from windlass.errors import ScheduleBusy, ScheduleExists, ScheduleUnknown, StoreBusy
from windlass.testing._clock import START, VirtualClock
from windlass.testing.conformance.steps import OOPS, a_worker, happened

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
JOB = NewJob(id=JobId(""), task="report")


class Leading:
    """Whoever leads, or does not."""

    def __init__(self, *, leading: bool = True) -> None:
        self.leading = leading


class Stage:
    """A store, its clock, and any number of schedulers on it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.database = MemoryDatabase(self.clock)
        self.storage = MemoryStorage(self.database)
        self.bus = Bus()
        self.book = Schedules(self.storage.schedules, self.storage.now, new_job_ids)

    def scheduler(
        self,
        *,
        leading: bool = True,
        chores: dict[str, BoundChore] | None = None,
        declared: Sequence[str] = (),
    ) -> Scheduler:
        leader: Any = Leading(leading=leading)
        poll = timedelta(seconds=1)
        (token,) = new_job_ids(1)
        return Scheduler(
            self.storage, leader, self.bus, chores or {}, poll=poll, token=token, declared=declared
        )

    async def declare(self, name: str = "nightly", **fields: Any) -> None:
        fields = {"rule": Every(MINUTE), "job": JOB, **fields}
        await self.book.declare({name: Schedule(**fields)}, by="code")

    async def advance(self, by: timedelta | float) -> None:
        """Let time pass while some process goes on having the schedules in its code."""
        self.clock.advance(by)
        await self.book.still_declared([row.name for row in await self.storage.schedules.rows()])

    async def jobs(self) -> Sequence[Any]:
        found = list(self.database.by_id)
        return [job for job in await self.storage.admin.get(found) if job is not None]

    async def slots(self) -> list[datetime]:
        made = [slot_of(job.id) for job in await self.jobs()]
        return sorted(slot for slot in made if slot is not None)

    async def finish(self, outcome: Any = None) -> int:
        """Run everything that is ready."""
        await self.storage.workers.register(a_worker("w1"))
        reply = await self.storage.jobs.claim("w1", [Want("default", 100)], total=100)
        for job in reply.jobs:
            await happened(self.storage, job, outcome or Succeeded())
        return len(reply.jobs)

    async def known(self, name: str = "nightly") -> ScheduleView:
        return await self.book.get(name, removed=True)


@pytest.fixture
def stage() -> Stage:
    return Stage()


# --- slots --------------------------------------------------------------------------------------


async def test_a_schedule_fires_at_its_slot_and_not_before(stage: Stage) -> None:
    await stage.declare()
    scheduler = stage.scheduler()
    await stage.advance(59.999)
    assert await scheduler.step() == 0
    assert scheduler.pause == timedelta(milliseconds=1)
    await stage.advance(0.001)
    assert await scheduler.step() == 1
    assert await stage.slots() == [START + MINUTE]
    assert await scheduler.step() == 0


async def test_the_job_of_a_slot_is_due_at_the_slot_and_tagged_as_asked(stage: Stage) -> None:
    await stage.declare(job=msgspec.structs.replace(JOB, queue="slow", tags=("x",), priority=3))
    await stage.advance(75)
    await stage.scheduler().step()
    (job,) = await stage.jobs()
    assert (job.due, job.queue, job.tags, job.priority) == (START + MINUTE, "slow", ("x",), 3)


async def test_two_schedulers_that_fire_the_same_slot_make_one_job(stage: Stage) -> None:
    await stage.declare()
    await stage.advance(60)
    schedulers = [stage.scheduler() for _ in range(5)]
    fired = await asyncio.gather(*(scheduler.step() for scheduler in schedulers))
    assert sum(fired) == 1
    assert await stage.slots() == [START + MINUTE]


async def test_of_two_schedulers_that_make_the_same_move_at_once_one_tells_and_does_the_chore(
    stage: Stage,
) -> None:
    done: list[str] = []

    async def chore() -> str:
        done.append("swept")
        return "done"

    told: list[Event] = []
    stage.bus.subscribe(told.append)
    await stage.declare()
    await stage.declare("sweep", job=None)
    await stage.advance(60)
    due = await stage.storage.schedules.due(10)
    rivals = [stage.scheduler(chores={"sweep": chore}) for _ in range(3)]
    assert [await rival._fire(due.rows, due.at) for rival in rivals] == [1, 0, 0]
    for rival in rivals:
        await rival.close()
    assert len(told) == len(await stage.jobs()) == 1
    assert done == ["swept"]


async def test_a_write_whose_answer_was_lost_is_published_when_repeated(stage: Stage) -> None:
    told: list[Event] = []
    stage.bus.subscribe(told.append)
    await stage.declare()
    await stage.advance(60)
    due = await stage.storage.schedules.due(10)
    scheduler = stage.scheduler()
    write = stage.storage.schedules.write

    async def twice(writes: Sequence[ScheduleWrite]) -> Any:
        await write(writes)
        return await write(writes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage.storage.schedules, "write", twice)
        assert await scheduler._fire(due.rows, due.at) == 1
    assert len(told) == 1


# --- unique keys --------------------------------------------------------------------------------

KEYED = msgspec.structs.replace(JOB, unique=UniqueKey("report"))


async def test_a_slot_whose_unique_key_is_held_is_left_out_and_names_the_holder(
    stage: Stage,
) -> None:
    told: list[Event] = []
    stage.bus.subscribe(told.append)
    holder = msgspec.structs.replace(KEYED, id=new_job_ids(1)[0])
    await stage.storage.jobs.insert([holder])
    await stage.declare(job=KEYED, overlap="allow")
    await stage.declare("other", overlap="allow")
    await stage.advance(60)
    assert await stage.scheduler().step() == 1, "the other one"
    state = (await stage.known()).state
    assert (state.fired, state.left_out) == (0, 1)
    assert [(run.job, run.outcome) for run in state.runs] == [
        (None, f"left out: job {holder.id} holds its unique key")
    ]
    assert len(told) == 1
    assert (await stage.known()).row.next_at == stage.clock.now() + MINUTE
    await stage.storage.jobs.cancel([holder.id])
    await stage.advance(60)
    assert await stage.scheduler().step() == 2
    assert ((await stage.known()).state.fired, len(told)) == (1, 3)


async def test_of_missed_slots_with_one_unique_key_the_first_gets_it(stage: Stage) -> None:
    await stage.declare(job=KEYED, overlap="allow", missed="all", most_missed=3)
    await stage.advance(5 * MINUTE)
    assert await stage.scheduler().step() == 1
    state = (await stage.known()).state
    (job,) = await stage.jobs()
    assert [run.job for run in state.runs] == [job.id, None, None]
    assert (state.fired, state.left_out) == (1, 3)
    assert {run.outcome for run in state.runs[1:]} == {
        f"left out: job {job.id} holds its unique key"
    }


async def test_a_trigger_that_meets_a_held_key_makes_nothing_and_names_the_holder(
    stage: Stage,
) -> None:
    holder = msgspec.structs.replace(KEYED, id=new_job_ids(1)[0])
    await stage.storage.jobs.insert([holder])
    await stage.declare(job=KEYED, overlap="allow")
    before = await stage.known()
    made = await stage.book.trigger("nightly", by="ann")
    assert made is not None
    assert (made.created, made.holder) == (False, holder.id)
    assert await stage.known() == before
    await stage.storage.jobs.cancel([holder.id])
    made = await stage.book.trigger("nightly", by="ann")
    assert made is not None
    assert made.created
    assert [run.job for run in (await stage.known()).state.runs] == [made.job.id]


async def test_a_follower_fires_only_slots_that_the_leader_left_for_long(stage: Stage) -> None:
    await stage.declare()
    backup = stage.scheduler(leading=False)
    await stage.advance(60)
    assert await backup.step() == 0
    assert backup.pause == timedelta(seconds=1)
    await stage.advance(STANDBY_DELAY)
    assert await backup.step() == 1


async def test_jitter_moves_the_job_and_not_the_slot(stage: Stage) -> None:
    await stage.declare(jitter=timedelta(seconds=30), overlap="allow")
    for _ in range(20):
        await stage.advance(60)
        await stage.scheduler().step()
    late = [job.due - slot_of(job.id) for job in await stage.jobs()]
    assert len(await stage.slots()) == 20
    assert all(timedelta(0) <= by < timedelta(seconds=30) for by in late)
    assert max(late) - min(late) > timedelta(seconds=5)


async def test_a_schedule_fires_within_its_dates(stage: Stage) -> None:
    await stage.declare(starts=START + 3 * MINUTE, ends=START + 5 * MINUTE, overlap="allow")
    for _ in range(10):
        await stage.advance(60)
        await stage.scheduler().step()
    assert await stage.slots() == [START + 3 * MINUTE, START + 4 * MINUTE]
    assert (await stage.known()).state.ended


# --- missed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missed", "fired"),
    [(Missed.SKIP, []), (Missed.ONE, [180]), (Missed.ALL, [120, 150, 180])],
    ids=["skip", "one", "all"],
)
async def test_missed_slots_follow_the_policy(
    stage: Stage, missed: Missed, fired: list[int]
) -> None:
    await stage.declare(rule=Every(30 * MINUTE), missed=missed, most_missed=3, overlap="allow")
    await stage.advance(3 * HOUR + 10 * MINUTE)
    await stage.scheduler().step()
    assert await stage.slots() == [START + minutes * MINUTE for minutes in fired]
    known = await stage.known()
    assert known.row.next_at == START + 3 * HOUR + 30 * MINUTE


async def test_a_slot_that_is_hardly_late_is_not_missed(stage: Stage) -> None:
    await stage.declare(rule=Every(10), missed=Missed.SKIP, overlap="allow")
    await stage.advance(35)
    await stage.scheduler().step()
    assert len(await stage.slots()) == 3


async def test_an_overdue_one_time_schedule_fires_once_and_never_again(stage: Stage) -> None:
    await stage.declare(rule=Once(START - HOUR))
    assert await stage.scheduler().step() == 1
    await stage.finish()
    for _ in range(3):
        await stage.advance(HOUR)
        await stage.declare(rule=Once(START - HOUR))  # the process starts again
        assert await stage.scheduler().step() == 0
    assert (await stage.known()).state.ended


async def test_a_manual_schedule_waits_for_an_operator(stage: Stage) -> None:
    await stage.declare(rule=Manual())
    await stage.advance(HOUR)
    assert await stage.scheduler().step() == 0
    assert not (await stage.known()).state.ended
    assert await stage.book.trigger("nightly", by="ann") is not None
    assert len(await stage.jobs()) == 1


# --- overlap ------------------------------------------------------------------------------------


async def test_a_slot_is_left_out_while_the_run_before_is_active(stage: Stage) -> None:
    await stage.declare()
    scheduler = stage.scheduler()
    for _ in range(3):
        await stage.advance(60)
        await scheduler.step()
    assert len(await stage.jobs()) == 1
    state = (await stage.known()).state
    assert (state.fired, state.left_out) == (1, 2)
    await stage.finish()
    await stage.advance(60)
    assert await scheduler.step() == 1
    outcomes = [run.outcome for run in (await stage.known()).state.runs]
    assert outcomes[0] == "succeeded"
    assert outcomes[-1] == ""
    assert "still active" in outcomes[1]


async def test_the_number_of_active_runs_is_bounded(stage: Stage) -> None:
    await stage.declare(overlap=2)
    for _ in range(5):
        await stage.advance(60)
        await stage.scheduler().step()
    assert len(await stage.jobs()) == 2


async def test_a_run_that_ends_between_the_look_and_the_write_does_not_matter(
    stage: Stage,
) -> None:
    """The store judges what is active, not the scheduler's memory of it."""
    await stage.declare(overlap=2)
    for _ in range(2):
        await stage.advance(60)
        await stage.scheduler().step()
    active = tuple(job.id for job in await stage.jobs())
    known = await stage.known()
    write = ScheduleWrite(
        name="nightly",
        revision=known.row.revision,
        body=known.row.body,
        jobs=(msgspec.structs.replace(JOB, id=JobId("0" * 32)),),
        active=active,
        most_active=2,
    )
    assert [str(a.what) for a in await stage.storage.schedules.write([write])] == ["busy"]
    assert len(await stage.jobs()) == 2


async def test_every_after_the_end_waits_for_the_end(stage: Stage) -> None:
    await stage.declare(rule=Every(MINUTE, "end"))
    scheduler = stage.scheduler()
    assert await scheduler.step() == 1  # the first at once
    for _ in range(60):
        await stage.advance(5)
        await scheduler.step()
    assert len(await stage.jobs()) == 1
    await stage.finish()
    ended = stage.clock.now()
    while len(await stage.jobs()) == 1:
        await stage.advance(1)
        await scheduler.step()
    assert stage.clock.now() == ended + MINUTE


# --- breakers -----------------------------------------------------------------------------------


async def test_an_open_breaker_leaves_slots_out_without_failing_them(stage: Stage) -> None:
    gate = "report (breaker)"
    await stage.storage.limits.define([LimitSpec(name=gate, breaker=Breaker(2, HOUR))])
    await stage.declare(job=msgspec.structs.replace(JOB, limits=(LimitUse(gate),)))
    for _ in range(10):
        await stage.advance(60)
        await stage.scheduler().step()
        await stage.finish(GaveUp(OOPS))
    assert len(await stage.jobs()) == 2
    (state,) = await stage.storage.limits.states(gate)
    assert state.breaker is not None
    assert state.breaker.failures == 2
    assert "breaker" in (await stage.known()).state.runs[-1].outcome
    await stage.advance(HOUR)
    await stage.scheduler().step()
    await stage.finish()
    assert (await stage.storage.limits.states(gate))[0].breaker.failures == 0  # type: ignore[union-attr]


# --- code and people ----------------------------------------------------------------------------


async def test_code_changes_values_that_no_operator_has_set(stage: Stage) -> None:
    await stage.declare()
    await stage.declare(rule=Every(HOUR))
    known = await stage.known()
    assert known.state.plan.rule == Every(HOUR)
    assert known.row.next_at == START + HOUR


async def test_an_operators_change_survives_a_restart_and_a_deploy(stage: Stage) -> None:
    await stage.declare()
    await stage.book.change("nightly", by="ann", rule=Every(2 * MINUTE))
    await stage.declare()  # a restart
    assert (await stage.known()).state.plan.rule == Every(2 * MINUTE)
    await stage.declare(jitter=MINUTE)  # a deploy that changes something else
    known = await stage.known()
    assert (known.state.plan.rule, known.state.plan.jitter) == (Every(2 * MINUTE), MINUTE)
    assert known.state.edited
    await stage.book.reset("nightly", by="ann")
    assert (await stage.known()).state.plan.rule == Every(MINUTE)


async def test_a_paused_schedule_stays_paused_over_restarts_and_misses_nothing(
    stage: Stage,
) -> None:
    await stage.declare()
    await stage.book.pause("nightly", by="ann")
    await stage.advance(10 * MINUTE)
    await stage.declare()
    assert await stage.scheduler().step() == 0
    await stage.book.resume("nightly", by="ann")
    assert await stage.scheduler().step() == 0
    await stage.advance(60)
    assert await stage.scheduler().step() == 1
    known = await stage.known()
    assert known.state.changed_by == "ann"


@pytest.mark.parametrize(("missed", "runs"), [(Missed.SKIP, 0), (Missed.ONE, 1), (Missed.ALL, 6)])
async def test_while_all_schedules_are_paused_none_fires_and_then_each_by_its_missed_option(
    stage: Stage, missed: Missed, runs: int
) -> None:
    declared: dict[str, Any] = {"rule": Every(30 * MINUTE), "missed": missed, "overlap": "allow"}
    await stage.declare(**declared)
    await stage.storage.schedules.pause()
    await stage.advance(3 * HOUR + 10 * MINUTE)
    await stage.declare(**declared)  # a restart
    assert await stage.scheduler().step() == 0
    await stage.storage.schedules.resume()
    assert await stage.scheduler().step() == runs
    await stage.advance(20 * MINUTE)
    assert await stage.scheduler().step() == 1


async def test_a_pause_of_all_schedules_leaves_the_upkeep_of_the_storage_running(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    def chore(name: str) -> BoundChore:
        async def run() -> str:
            ran.append(name)
            return "done"

        return run

    names = ("windlass.retention", "ours.clean")
    for name in names:
        await stage.declare(name, job=None)
    scheduler = stage.scheduler(chores={name: chore(name) for name in names})
    await stage.storage.schedules.pause()
    with caplog.at_level(logging.INFO, "windlass"):
        for _ in range(2):
            await stage.advance(MINUTE)
            await scheduler.step()
            await scheduler.close()
    assert ran == ["windlass.retention"] * 2
    assert scheduler.pause == timedelta(seconds=1)
    assert caplog.messages == ["all schedules are paused"]


async def test_a_removed_schedule_does_not_come_back_with_its_code(stage: Stage) -> None:
    """H-1: a cancel that only memory knew was undone by a restart."""
    await stage.declare()
    await stage.book.remove("nightly", by="ann")
    await stage.declare()
    await stage.advance(HOUR)
    assert await stage.scheduler().step() == 0
    with pytest.raises(ScheduleUnknown):
        await stage.book.get("nightly")
    await stage.book.reset("nightly", by="ann")
    await stage.advance(60)
    assert await stage.scheduler().step() == 1


async def test_declaring_a_schedule_twice_does_not_fire_it_twice(stage: Stage) -> None:
    """H-2: the second registration fired beside the first."""
    await stage.declare()
    await stage.declare()
    await stage.advance(60)
    assert await stage.scheduler().step() == 1


async def test_a_restart_keeps_the_stored_next_slot(stage: Stage) -> None:
    """H-12: replay computed it anew, so that what was missed stayed missed."""
    await stage.declare()
    await stage.advance(90)
    await stage.declare()
    assert await stage.scheduler().step() == 1
    assert await stage.slots() == [START + MINUTE]


async def test_an_undeclared_schedule_is_held_and_continues_later(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.declare(rule=Every(HOUR))
    stage.clock.advance(HOUR)  # nobody has said for an hour that its code has it
    with caplog.at_level(logging.WARNING):
        assert await stage.scheduler().step() == 0
    assert "nightly" in caplog.text
    assert "declares" in (await stage.known()).state.problem
    assert (await stage.storage.schedules.due(10)).rows == []
    await stage.declare(rule=Every(HOUR))
    assert await stage.scheduler().step() == 1
    assert await stage.slots() == [START + HOUR]


async def test_one_that_was_made_at_run_time_needs_no_code(stage: Stage) -> None:
    await stage.book.create("ad-hoc", Schedule(rule=Every(HOUR), job=JOB), by="ann")
    stage.clock.advance(10 * DECLARED_FOR + HOUR)
    assert await stage.scheduler().step() == 1
    with pytest.raises(ScheduleExists):
        await stage.book.create("ad-hoc", Schedule(rule=Every(HOUR), job=JOB), by="ann")


async def test_a_schedule_that_cannot_be_read_disables_itself_alone(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.declare()
    bad = encoded(ScheduleState(plan=Schedule(rule=Cron("* * * * *"), job=JOB)))
    bad = bad.replace(b"* * * * *", b"61 * * * *")
    store = stage.storage.schedules
    await store.write([ScheduleWrite(name="bad", revision=0, body=bad, next_at=START)])
    await stage.advance(60)
    with caplog.at_level(logging.ERROR):
        assert await stage.scheduler().step() == 1
    assert "bad" in caplog.text
    assert [row.name for row in (await store.due(10)).rows] == []
    rows = {row.name: decoded(row) for row in await store.rows()}
    assert not isinstance(rows["bad"], ScheduleView)
    assert "minute" in rows["bad"].problem


async def test_a_trigger_respects_overlap_and_leaves_the_slots_alone(stage: Stage) -> None:
    await stage.declare()
    before = (await stage.known()).row.next_at
    assert await stage.book.trigger("nightly", by="ann") is not None
    with pytest.raises(ScheduleBusy, match="overlap"):
        await stage.book.trigger("nightly", by="ann")
    known = await stage.known()
    assert known.row.next_at == before
    assert known.state.runs[-1].by == "ann"


async def test_concurrent_changes_are_all_kept(stage: Stage) -> None:
    await stage.declare()
    await asyncio.gather(
        stage.book.change("nightly", by="ann", jitter=MINUTE),
        stage.book.change("nightly", by="bob", missed=Missed.ALL),
        stage.book.pause("nightly", by="cy"),
    )
    state = (await stage.known()).state
    assert (state.plan.jitter, state.plan.missed, state.paused) == (MINUTE, Missed.ALL, True)


# --- chores -------------------------------------------------------------------------------------


async def test_a_chore_runs_once_per_slot_and_says_what_it_did(stage: Stage) -> None:
    ran: list[datetime] = []

    async def sweep() -> str:
        ran.append(stage.clock.now())
        return "3 removed"

    await stage.declare("windlass.sweep", job=None)
    schedulers = [stage.scheduler(chores={"windlass.sweep": sweep}) for _ in range(3)]
    await stage.advance(60)
    for scheduler in schedulers:
        await scheduler.step()
        await scheduler.close()
    assert len(ran) == 1
    (run,) = (await stage.known("windlass.sweep")).state.runs
    assert run.outcome == "3 removed"


async def test_a_chore_that_fails_is_tried_at_its_next_slot(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async def sweep() -> str:
        raise StoreBusy("try again")

    await stage.declare("windlass.sweep", job=None)
    scheduler = stage.scheduler(chores={"windlass.sweep": sweep})
    for _ in range(2):
        await stage.advance(60)
        await scheduler.step()
        await scheduler.close()
    assert caplog.text.count("windlass.sweep failed") == 2
    assert (await stage.known("windlass.sweep")).state.fired == 2


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()], ids=repr)
async def test_a_chore_that_exits_has_failed_and_ends_nothing_else(
    stage: Stage, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    async def sweep() -> str:
        raise error

    await stage.declare("windlass.sweep", job=None)
    scheduler = stage.scheduler(chores={"windlass.sweep": sweep})
    await stage.advance(60)
    await scheduler.step()
    await scheduler.close()
    assert "windlass.sweep failed" in caplog.text
    (run,) = (await stage.known("windlass.sweep")).state.runs
    assert run.outcome.startswith(f"failed: {type(error).__name__}")


async def test_the_states_of_runs_come_from_their_jobs(stage: Stage) -> None:
    await stage.declare()
    scheduler = stage.scheduler()
    for outcome in (Succeeded(), GaveUp(OOPS), GaveUp(OOPS)):
        await stage.advance(60)
        await scheduler.step()
        await stage.finish(outcome)
    await stage.advance(60)
    await scheduler.step()
    runs = (await stage.known()).state.runs
    assert [run.outcome for run in runs] == [State.SUCCEEDED, State.FAILED, State.FAILED, ""]


def test_naive_instants_are_refused() -> None:
    with pytest.raises(ValueError, match="naive"):
        Once(datetime(2030, 1, 1))  # noqa: DTZ001 -- the very point
    assert Once(datetime(2030, 1, 1, tzinfo=UTC)).at == START
