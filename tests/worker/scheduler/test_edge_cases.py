"""The scheduler where something is at its end, broken, gone, or too much."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.worker.fixtures import World, simulate, working
from tests.worker.scheduler.test_scheduler import JOB, MINUTE, Stage
from windlass._core.job.outcome import GaveUp, Succeeded
from windlass._core.job.state import State
from windlass._core.schedule.rules import Every, Once
from windlass._core.schedule.schedule import Missed, Schedule, ScheduleState
from windlass._schedules.declarations import check_schedule_name
from windlass._schedules.edits import UnreadableSchedule, encoded, write_of
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.schedules import ScheduleWrite
from windlass._worker.scheduler.scheduler import DUE_PER_STEP
from windlass.errors import InvalidArgument, StoreBusy
from windlass.testing._clock import START
from windlass.testing.conformance.steps import OOPS, a_worker, happened

SECOND = timedelta(seconds=1)


@pytest.fixture
def stage() -> Stage:
    return Stage()


# --- the end --------------------------------------------------------------------------------------


async def test_a_rule_that_waits_for_ends_of_runs_ends_at_its_date(stage: Stage) -> None:
    await stage.declare(rule=Every(MINUTE, after="end"), ends=START + 3 * MINUTE)
    scheduler = stage.scheduler()
    for _ in range(20):
        await stage.advance(30)
        await scheduler.step()
        await stage.finish()
    known = await stage.known()
    assert len(await stage.jobs()) == 3
    assert known.state.ended
    assert known.row.next_at is None


async def test_a_rule_that_waits_fires_nothing_late_for_a_slot_behind_its_end(stage: Stage) -> None:
    await stage.declare(rule=Every(MINUTE, after="end"), ends=START + 10 * SECOND)
    scheduler = stage.scheduler()
    await scheduler.step()
    await stage.finish()
    await stage.advance(timedelta(hours=1))
    await scheduler.step()
    await scheduler.step()
    assert len(await stage.jobs()) == 1
    assert (await stage.known()).state.ended


@pytest.mark.parametrize(
    ("missed", "minutes"), [(Missed.ONE, [4]), (Missed.ALL, [3, 4]), (Missed.SKIP, [])]
)
async def test_slots_before_the_end_that_were_missed_follow_the_policy(
    stage: Stage, missed: Missed, minutes: list[int]
) -> None:
    ends = START + 5 * MINUTE
    await stage.declare(missed=missed, most_missed=2, overlap="allow", ends=ends)
    await stage.advance(timedelta(hours=5))
    await stage.scheduler().step()
    assert await stage.slots() == [START + n * MINUTE for n in minutes]
    assert (await stage.known()).state.ended


# --- runs -----------------------------------------------------------------------------------------


async def test_many_runs_at_once_are_counted_to_the_last(stage: Stage) -> None:
    await stage.declare(rule=Every(SECOND), overlap=150)
    scheduler = stage.scheduler()
    for _ in range(170):
        await stage.advance(1)
        await scheduler.step()
    assert len(await stage.jobs()) == 150
    assert (await stage.known()).state.left_out == 20


def test_more_runs_at_once_than_can_be_remembered_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="overlap must be a whole number from 1 to 1,000"):
        Schedule(rule=Every(SECOND), overlap=1001)


@pytest.mark.parametrize("outcome", [Succeeded(), GaveUp(OOPS)])
async def test_the_period_begins_at_the_end_also_if_the_job_is_gone_then(
    stage: Stage, outcome: Any
) -> None:
    await stage.declare(rule=Every(5 * MINUTE, after="end"))
    scheduler = stage.scheduler()
    await scheduler.step()
    await stage.storage.workers.register(a_worker("w1"))
    (job,) = (await stage.storage.jobs.claim("w1", [Want("default", 9)], total=9)).jobs
    for _ in range(120):
        await stage.advance(5)
        await stage.storage.workers.beat("w1")
        await scheduler.step()
    await happened(stage.storage, job, outcome)
    await stage.advance(5)
    for state in (State.SUCCEEDED, State.FAILED):
        await stage.storage.maintenance.prune(state=state, older_than=SECOND, limit=9, apart=None)
    assert not await stage.jobs()
    assert await scheduler.step() == 0
    await stage.advance(5 * MINUTE - SECOND)
    assert await scheduler.step() == 0
    await stage.advance(1)
    assert await scheduler.step() == 1


async def test_the_slot_of_a_rule_that_waits_is_a_period_after_the_end(stage: Stage) -> None:
    await stage.declare(rule=Every(MINUTE, after="end"))
    scheduler = stage.scheduler()
    await scheduler.step()
    await stage.advance(20)
    await stage.finish()
    for _ in range(60):
        await stage.advance(1)
        await scheduler.step()
    assert await stage.slots() == [START, START + 80 * SECOND]


async def test_a_cancelled_run_releases_a_schedule_that_waits_for_it(stage: Stage) -> None:
    await stage.declare(rule=Every(MINUTE, after="end"))
    scheduler = stage.scheduler()
    await scheduler.step()
    (job,) = await stage.jobs()
    await stage.storage.jobs.cancel([job.id])
    for _ in range(70):
        await stage.advance(1)
        await scheduler.step()
    assert len(await stage.jobs()) == 2


async def test_a_run_that_was_cancelled_does_not_end_a_row_of_failures(stage: Stage) -> None:
    await stage.declare()
    scheduler = stage.scheduler()
    for outcome in (GaveUp(OOPS), None, GaveUp(OOPS)):
        await stage.advance(60)
        await scheduler.step()
        if outcome is None:
            await stage.storage.jobs.cancel([job.id for job in await stage.jobs()])
        else:
            await stage.finish(outcome)
    await stage.advance(60)
    await scheduler.step()
    assert (await stage.known()).state.failures == 2
    await stage.finish(Succeeded())
    await stage.advance(60)
    await scheduler.step()
    assert (await stage.known()).state.failures == 0


# --- what is broken -------------------------------------------------------------------------------


async def test_an_instant_before_the_epoch_fires_at_once_and_affects_no_other(stage: Stage) -> None:
    await stage.declare("old", rule=Once(datetime(1969, 1, 1, tzinfo=UTC)))
    await stage.declare()
    await stage.advance(60)
    assert await stage.scheduler().step() == 2
    assert all(len(job.id) == 32 and int(job.id, 16) for job in await stage.jobs())


async def test_a_schedule_continues_once_a_process_can_read_it(
    stage: Stage,
) -> None:
    await stage.declare("declared")
    await stage.declare("said again")
    await stage.book.create("made", Schedule(rule=Every(MINUTE), job=JOB), by="ann")
    for name in ("declared", "said again", "made"):
        row = (await stage.known(name)).row
        unread = ScheduleWrite(name=name, revision=row.revision, body=row.body)
        await stage.storage.schedules.write([unread])
    await stage.declare("declared")
    await stage.book.still_declared(["said again"])
    await stage.advance(60)
    assert await stage.scheduler().step() == 3


async def test_new_code_repairs_a_disabled_schedule(stage: Stage) -> None:
    await stage.declare()
    known = await stage.known()
    state = msgspec.structs.replace(known.state, problem="cannot compute its next slot")
    await stage.storage.schedules.write([write_of(known, state, None)])
    await stage.declare()
    assert (await stage.known()).state.problem
    await stage.declare(rule=Every(2 * MINUTE))
    assert not (await stage.known()).state.problem
    await stage.advance(120)
    assert await stage.scheduler().step() == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe{",
        b'{"plan":{"rule":{"type":"lunar"}}}',
        b'{"plan":{"rule":{"type":"cron","expression":"* * * * *","tz":"Mars/Base"}}}',
        b'{"plan":{"rule":{"type":"cron","expression":"never"}}}',
        b'{"plan":{"rule":{"type":"every","period":"P99999999999999D"}}}',
        b'{"plan":{"rule":{"type":"once","at":"2030-01-01T00:00:00"}}}',
        b'{"plan":{"rule":{"type":"manual"},"overlap":-1}}',
        b'{"plan":{"rule":' + b"[" * 10_000 + b"]" * 10_000 + b"}}",
    ],
    ids=lambda body: repr(body[:40]),
)
async def test_an_unreadable_schedule_blocks_no_other_and_can_be_deleted(
    stage: Stage, body: bytes
) -> None:
    await stage.declare()
    bad = ScheduleWrite(name="bad", revision=0, body=body, next_at=START)
    await stage.storage.schedules.write([bad])
    await stage.advance(60)
    assert await stage.scheduler().step() == 1
    (broken,) = [found for found in await stage.book.all() if isinstance(found, UnreadableSchedule)]
    assert broken.row.next_at is None
    assert broken.problem
    await stage.book.delete("bad")
    assert len(await stage.book.all()) == 1


async def test_a_job_that_cannot_be_stored_holds_its_schedule_and_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stage.storage.schedules
    write = store.write

    async def picky(writes: Sequence[ScheduleWrite]) -> Any:
        if any(job.priority > 10**9 for one in writes for job in one.jobs):
            raise OverflowError("too large for a column")
        return await write(writes)

    monkeypatch.setattr(store, "write", picky)
    for number in range(7):
        await stage.declare(f"good {number}")
    await stage.declare("bad", job=msgspec.structs.replace(JOB, priority=10**20))
    stage.clock.advance(60)
    assert await stage.scheduler().step() == 7
    assert "too large for a column" in (await stage.known("bad")).state.problem
    assert (await store.due(10)).rows == []


async def test_a_schedule_is_not_held_before_its_process_has_stamped_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, store = stage.scheduler(), stage.storage.schedules
    declare, write = store.declare, store.write

    async def watched(names: Sequence[str]) -> None:
        await scheduler.step()
        await declare(names)

    async def watched_write(writes: Sequence[ScheduleWrite]) -> Any:
        answer = await write(writes)
        if not writes[0].jobs and writes[0].next_at is not None:
            await scheduler.step()
        return answer

    monkeypatch.setattr(store, "declare", watched)
    await stage.declare("new", rule=Once(START))
    assert await stage.slots() == [START]
    # The same for one that was held for an hour and is let go by the process that has it.
    await stage.declare("old", overlap="allow")
    stage.clock.advance(3600)
    await scheduler.step()
    assert (await stage.known("old")).state.held is not None
    monkeypatch.setattr(store, "write", watched_write)
    await stage.declare("old", overlap="allow")
    assert (await stage.known("old")).state.held is None


async def test_a_process_that_could_not_speak_for_long_does_not_hold_what_it_has(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.declare("mine")
    await stage.declare("of others")
    stage.clock.advance(timedelta(hours=8))  # the machine slept
    scheduler = stage.scheduler(declared=["mine"])
    assert await scheduler.step() == 1
    assert (await stage.known("mine")).state.held is None
    assert (await stage.known("of others")).state.held is not None
    assert "mine" not in caplog.text


def test_names_of_our_own_chores_are_taken() -> None:
    with pytest.raises(InvalidArgument, match="are reserved for Windlass"):
        check_schedule_name("windlass.retention")


def test_a_worker_that_runs_until_it_is_empty_fires_what_is_due_first() -> None:
    async def scenario(world: World) -> int:
        ran = 0

        @world.app.schedule(Once(START))
        @world.app.task(name="once")
        async def once() -> None:
            nonlocal ran
            ran += 1

        async with working(world.app, until_empty=True) as shift:
            await shift.running
        return ran

    assert simulate(scenario) == 1


# --- many -----------------------------------------------------------------------------------------


async def test_thousands_of_due_schedules_fire_in_chunks_with_any_among_them(
    stage: Stage,
) -> None:
    count = 5 * DUE_PER_STEP
    plan = encoded(ScheduleState(plan=Schedule(rule=Every(timedelta(days=1)), job=JOB)))
    writes = [
        ScheduleWrite(
            name=f"s{number:04}",
            revision=0,
            body=b"broken" if number < DUE_PER_STEP + 10 else plan,
            next_at=START,
        )
        for number in range(count)
    ]
    await stage.storage.schedules.write(writes)
    scheduler = stage.scheduler()
    fired = [await scheduler.step() for _ in range(5)]
    assert sum(fired) == count - DUE_PER_STEP - 10
    assert scheduler.pause == timedelta(0)
    await scheduler.step()
    assert scheduler.pause > timedelta(0)


async def test_missed_slots_of_many_schedules_are_written_in_chunks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        await stage.declare(f"s{number}", missed=Missed.ALL, overlap="allow")
    await stage.advance(timedelta(hours=3))
    sizes: list[int] = []
    write = stage.storage.schedules.write

    async def counted(writes: Sequence[ScheduleWrite]) -> Any:
        sizes.append(sum(len(one.jobs) for one in writes))
        return await write(writes)

    monkeypatch.setattr(stage.storage.schedules, "write", counted)
    assert await stage.scheduler().step() == 3000
    assert sizes == [1000, 1000, 1000]


async def test_one_chunk_that_has_to_wait_stops_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        await stage.declare(f"s{number:02}", missed=Missed.ALL, overlap="allow")
    await stage.advance(timedelta(hours=3))
    write = stage.storage.schedules.write

    async def waiting(writes: Sequence[ScheduleWrite]) -> Any:
        if writes[0].name == "s00":
            raise StoreBusy("a key is being decided")
        return await write(writes)

    monkeypatch.setattr(stage.storage.schedules, "write", waiting)
    with pytest.raises(StoreBusy):
        await stage.scheduler().step()
    assert len(await stage.jobs()) == 2000


async def test_a_chore_that_takes_long_does_not_run_beside_itself(stage: Stage) -> None:
    begun, gate = 0, asyncio.Event()

    async def sweep() -> str:
        nonlocal begun
        begun += 1
        await gate.wait()
        return "done"

    await stage.declare("sweep", job=None)
    scheduler = stage.scheduler(chores={"sweep": sweep})
    for _ in range(5):
        await stage.advance(60)
        await scheduler.step()
        await asyncio.sleep(0)
    assert begun == 1
    gate.set()
    await scheduler.close()
    await stage.advance(60)
    await scheduler.step()
    await scheduler.close()
    assert begun == 2
