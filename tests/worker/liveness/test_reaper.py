"""The dead are buried when they may be judged, and their jobs come back by the one retry rule."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tests.worker.fixtures import (
    Bench,
    Hook,
    World,
    bench,
    logged,
    make_worker,
    register,
    simulate,
    working,
)
from windlass import Backoff, Context
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, JobMoved, WorkerChanged
from windlass._core.job.job import ClaimedJob, JobRecord
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import succeed
from windlass._storage.memory import MemoryDatabase
from windlass._storage.protocol.jobs import Verdict, Want
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStart, WorkerState
from windlass._tasks.task import Task
from windlass._worker.liveness.reaper import Reaper
from windlass._worker.liveness.store_contact import StoreContact
from windlass.errors import StorageUnavailable

LEASE = 30.0


def reaper_of(it: Bench, *, may_judge: bool = True) -> Reaper:
    """A reaper of the bench's worker, with or without the right to judge by time."""
    seconds = [0.0]
    lease = timedelta(seconds=LEASE)
    presence = StoreContact(beat=timedelta(seconds=60), lease=lease, clock=lambda: seconds[0])
    presence.reached()
    if may_judge:
        seconds[0] = LEASE
        presence.reached()
    return Reaper(
        it.store.storage,
        it.engine.identity,
        presence,
        decisions=it.engine.decisions,
        bus=parts_of(it.app).hooks.bus,
    )


def job_of(it: Bench, **options: Any) -> Task[[], None]:
    @it.app.task(name="job", **options)
    async def job() -> None: ...

    return job


async def doomed(it: Bench, call: Any, worker: str = "doomed") -> ClaimedJob:
    """A job held by a worker that will not be heard of again."""
    await parts_of(it.app).producer.enqueue_call(call)
    return await held(await parts_of(it.app).storage(), worker)


async def held(storage: Storage, worker: str, *, solo: bool = False) -> ClaimedJob:
    await register(storage, worker, lease=LEASE)
    wants = [Want("default", 1)]
    (job,) = (await storage.jobs.claim(worker, wants, total=1, solo=solo)).jobs
    return job


async def worker_states(it: Bench) -> dict[str, WorkerState]:
    return {row.start.id: row.state for row in await it.app.admin.workers.list()}


# --- who is buried -------------------------------------------------------------------------------


async def test_an_overdue_worker_is_buried_and_its_job_comes_back_with_backoff() -> None:
    async with bench() as it:
        claimed = await doomed(it, job_of(it, backoff=Backoff.fixed(7)).call())
        it.clock.advance(LEASE + 1)
        with logged() as lines:
            assert await reaper_of(it).step() == 1
        assert (await worker_states(it))["doomed"] is WorkerState.DEAD
        job = await parts_of(it.app).producer.refresh(claimed.claim.job)
        assert (job.state, job.attempt, job.lost) == (State.WAITING, 1, 1)
        assert job.due - it.clock.now() == timedelta(seconds=7)
        assert job.error is not None
        assert (job.error.kind, job.error.message) == (
            "WorkerLost",
            "worker doomed: it sent no heartbeat for longer than its lease",
        )
        assert [attempt.verb for attempt in await it.history(job)] == [Verb.RETRY]
        (line,) = lines.having("worker doomed is dead")
        assert "longer than its lease" in line


async def test_a_worker_within_its_lease_is_left_alone() -> None:
    async with bench() as it:
        claimed = await doomed(it, job_of(it).call())
        it.clock.advance(LEASE)
        assert await reaper_of(it).step() == 0
        assert (await parts_of(it.app).producer.refresh(claimed.claim.job)).state is State.RUNNING


async def test_who_may_not_judge_buries_nobody() -> None:
    async with bench() as it:
        claimed = await doomed(it, job_of(it).call())
        it.clock.advance(1000)
        assert await reaper_of(it, may_judge=False).step() == 0
        assert (await worker_states(it))["doomed"] is WorkerState.LIVE
        assert (await parts_of(it.app).producer.refresh(claimed.claim.job)).state is State.RUNNING


async def test_a_death_that_is_proven_needs_no_lease_and_no_right_to_judge() -> None:
    async with bench() as it:
        claimed = await doomed(it, job_of(it).call())

        def prove_dead(worker: WorkerStart) -> bool:
            return worker.id == "doomed"

        vars(it.store)["prove_dead"] = prove_dead
        with logged() as lines:
            assert await reaper_of(it, may_judge=False).watch() == 1
        job = await parts_of(it.app).producer.refresh(claimed.claim.job)
        assert job.state is State.WAITING
        assert job.error is not None
        assert job.error.message == "worker doomed: its process has ended (killed or crashed)"
        assert lines.having("its process has ended")


async def test_the_job_of_a_worker_that_others_buried_claims_no_cause() -> None:
    async with bench() as it:
        claimed = await doomed(it, job_of(it).call())
        await it.store.storage.workers.bury(["doomed"])
        assert await reaper_of(it, may_judge=False).step() == 1
        job = await parts_of(it.app).producer.refresh(claimed.claim.job)
        assert job.error is not None
        assert job.error.message == "worker doomed: it has stopped and left this job running"


async def test_a_beat_between_the_look_and_the_burial_keeps_a_worker_alive() -> None:
    async with bench() as it:
        await doomed(it, job_of(it).call(), worker="late")
        it.clock.advance(LEASE + 1)

        async def overdue(call: Hook) -> Sequence[str]:
            found: Sequence[str] = await call()
            assert "late" in found
            await it.store.inner.workers.beat("late")
            return found

        it.store.on("workers.overdue", overdue)
        assert await reaper_of(it).step() == 0
        assert (await worker_states(it))["late"] is WorkerState.LIVE


async def test_a_judge_whose_look_took_as_long_as_an_outage_judges_nobody() -> None:
    async with bench() as it:
        await doomed(it, job_of(it).call(), worker="cut off")
        it.clock.advance(LEASE + 1)
        reaper = reaper_of(it)

        async def overdue(call: Hook) -> Sequence[str]:
            found: Sequence[str] = await call()
            contact = reaper._presence
            assert isinstance(contact, StoreContact)
            contact.missed()
            return found

        it.store.on("workers.overdue", overdue)
        assert await reaper.step() == 0
        assert (await worker_states(it))["cut off"] is WorkerState.LIVE


async def test_a_reaper_never_buries_itself() -> None:
    async with bench() as it:
        it.clock.advance(1000)
        vars(it.store)["prove_dead"] = lambda worker: True
        await reaper_of(it).step()
        assert await worker_states(it) == {it.engine.identity.id: WorkerState.LIVE}


async def test_a_stepped_wall_clock_buries_nobody() -> None:
    async with bench() as it:
        claimed = await doomed(it, job_of(it).call())
        it.clock.jump(it.clock.now() + timedelta(days=365))
        assert await reaper_of(it).step() == 0
        assert (await parts_of(it.app).producer.refresh(claimed.claim.job)).state is State.RUNNING


async def test_of_two_reapers_one_buries_and_one_gives_back() -> None:
    async with bench() as it:
        events: list[Event] = []
        claimed = await doomed(it, job_of(it).call())
        it.app.on_transition(events.append)
        it.clock.advance(LEASE + 1)
        counts = await asyncio.gather(reaper_of(it).step(), reaper_of(it).step())
        assert sorted(counts) == [0, 1]
        buried = [event for event in events if isinstance(event, WorkerChanged)]
        assert [(event.worker, event.what) for event in buried] == [("doomed", "buried")]
        assert len(await it.app.admin.jobs.history(claimed.claim.job)) == 1


# --- whose jobs come back ------------------------------------------------------------------------


async def test_a_job_of_a_worker_whose_row_is_missing_comes_back() -> None:
    async with bench() as it:
        claimed = await doomed(it, job_of(it).call())
        database = parts_of(it.app).connections.opener._memory
        assert isinstance(database, MemoryDatabase)
        del database.workers["doomed"]
        assert await reaper_of(it, may_judge=False).step() == 1
        assert (await parts_of(it.app).producer.refresh(claimed.claim.job)).state is State.WAITING


async def test_a_claim_that_raced_its_workers_burial_is_caught_by_the_next_sweep() -> None:
    async with bench() as it:
        reaper = reaper_of(it, may_judge=False)
        await (await parts_of(it.app).storage()).workers.bury(["nobody"])
        assert await reaper.step() == 0
        claimed = await doomed(it, job_of(it).call())
        await it.store.inner.workers.bury(["doomed"])
        assert await reaper.step() == 1
        assert (await parts_of(it.app).producer.refresh(claimed.claim.job)).state is State.WAITING


async def test_more_orphans_than_one_bite_all_come_back_in_one_step() -> None:
    async with bench() as it:
        task = job_of(it)
        await it.app.enqueue_many([task.call() for _ in range(450)])
        storage = await parts_of(it.app).storage()
        await register(storage, "doomed")
        reply = await storage.jobs.claim("doomed", [Want("default", 450)], total=450)
        assert len(reply.jobs) == 450
        await storage.workers.bury(["doomed"])
        assert await reaper_of(it, may_judge=False).step() == 450
        (counts,) = await it.app.admin.queues.counts()
        assert (counts.running, counts.scheduled) == (0, 450)


async def test_running_jobs_of_the_living_are_left_alone() -> None:
    async with bench() as it:
        await doomed(it, job_of(it).call(), worker="healthy")
        assert await reaper_of(it).step() == 0


async def test_a_job_with_a_cancel_request_is_cancelled_and_not_retried() -> None:
    async with bench() as it:
        claimed = await doomed(it, job_of(it).call())
        await parts_of(it.app).producer.cancel(claimed.claim.job)
        await it.store.inner.workers.bury(["doomed"])
        await reaper_of(it).step()
        assert (await parts_of(it.app).producer.refresh(claimed.claim.job)).state is State.CANCELLED


async def test_listeners_hear_of_a_lost_attempt_like_of_any_other() -> None:
    async with bench() as it:
        claimed = await doomed(it, job_of(it, backoff=Backoff.fixed(7)).call())
        moved: list[JobMoved] = []

        def hear(event: Event) -> None:
            if isinstance(event, JobMoved):
                moved.append(event)

        it.app.on_transition(hear)
        await it.store.inner.workers.bury(["doomed"])
        for _ in range(2):
            await reaper_of(it).step()
        (event,) = moved
        assert (event.verb, event.job, event.claim_number) == (Verb.RETRY, claimed.claim.job, 1)
        assert event.worker == "doomed"
        assert event.delay == timedelta(seconds=7)
        assert event.error is not None
        assert event.error.kind == "WorkerLost"


# --- how often -----------------------------------------------------------------------------------


async def lose(it: Bench, times: int, *, solo_last: bool = False) -> JobRecord:
    """Let workers die one after the other while they hold the only job."""
    storage = await parts_of(it.app).storage()
    job: JobRecord | None = None
    for number in range(times):
        it.clock.advance(timedelta(hours=2))
        worker = f"doomed at {it.clock.now()}"
        claimed = await held(storage, worker, solo=solo_last and number == times - 1)
        await storage.workers.bury([worker])
        assert await reaper_of(it).step() == 1
        job = await parts_of(it.app).producer.refresh(claimed.claim.job)
    assert job is not None
    return job


async def test_a_job_lost_twice_in_a_row_runs_alone_from_then_on() -> None:
    async with bench() as it:
        await job_of(it).enqueue()
        job = await lose(it, 1)
        assert (job.lost, job.solo) == (1, False)
        job = await lose(it, 1)
        assert (job.lost, job.solo, job.state) == (2, True, State.WAITING)
        it.clock.advance(timedelta(hours=2))
        storage = await parts_of(it.app).storage()
        reply = await storage.jobs.claim(it.engine.identity.id, [Want("default", 5)], total=5)
        assert not reply.jobs
        assert reply.solo_due


async def test_a_third_loss_alone_quarantines_the_job() -> None:
    async with bench() as it:
        await job_of(it, max_attempts=10).enqueue()
        job = await lose(it, 3, solo_last=True)
        assert (job.state, job.attempt) == (State.FAILED, 3)
        assert job.error is not None
        assert job.error.kind == "Quarantined"
        assert "lost 3 times in a row, the last time running alone" in job.error.message


async def test_a_lost_last_attempt_is_given_back() -> None:
    async with bench() as it:
        await job_of(it, max_attempts=1).enqueue()
        job = await lose(it, 1)
        assert (job.state, job.attempt, job.lost) == (State.WAITING, 0, 1)


async def test_a_job_that_must_not_run_twice_fails_at_its_first_loss() -> None:
    async with bench() as it:
        await job_of(it).options(on_lost="fail").enqueue()
        job = await lose(it, 1)
        assert (job.state, job.attempt) == (State.FAILED, 1)
        assert job.error is not None
        assert job.error.kind == "WorkerLost"


async def test_a_run_that_ends_by_itself_clears_the_suspicion() -> None:
    async with bench() as it:

        @it.app.task(name="job", backoff=Backoff.none())
        async def job() -> None:
            raise ValueError("an ordinary error")

        await job.enqueue()
        record = await lose(it, 1)
        assert record.lost == 1
        record = await it.again(record, 7200)
        assert (record.state, record.lost) == (State.WAITING, 0)


async def test_a_job_that_is_not_known_here_comes_back_all_the_same() -> None:
    async with bench() as it:
        claimed = await doomed(it, job_of(it).call())
        for name in it.app.tasks.names:
            it.app.tasks.remove(name)
        await it.store.inner.workers.bury(["doomed"])
        assert await reaper_of(it).step() == 1
        assert (await parts_of(it.app).producer.refresh(claimed.claim.job)).state is State.WAITING


async def test_a_late_attempt_that_is_not_known_here_comes_back_soon() -> None:
    """Its task may wait for moments only, where the default waits for minutes by now."""
    async with bench() as it:

        @it.app.task(name="job", backoff=Backoff.none())
        async def job() -> None:
            raise ValueError("an ordinary error")

        record = await it.run(job.call())
        for _ in range(2):
            record = await it.again(record)
        await held(await parts_of(it.app).storage(), "doomed")
        for name in it.app.tasks.names:
            it.app.tasks.remove(name)
        await it.store.inner.workers.bury(["doomed"])
        assert await reaper_of(it).step() == 1
        record = await parts_of(it.app).producer.refresh(record.id)
        assert (record.state, record.attempt) == (State.WAITING, 4)
        assert record.due - it.clock.now() == timedelta(seconds=5)


# --- late finishes -------------------------------------------------------------------------------


async def test_a_late_finish_before_the_reaping_is_accepted() -> None:
    async with bench() as it:
        claimed = await doomed(it, job_of(it).call())
        storage = await parts_of(it.app).storage()
        await storage.workers.bury(["doomed"])
        applied = await storage.jobs.apply([succeed(claimed, by="doomed", result=None)])
        assert applied.answers[0].verdict is Verdict.APPLIED
        assert await reaper_of(it).step() == 0
        assert (await parts_of(it.app).producer.refresh(claimed.claim.job)).state is State.SUCCEEDED


async def test_a_late_finish_after_the_reaping_is_refused() -> None:
    async with bench() as it:
        claimed = await doomed(it, job_of(it).call())
        storage = await parts_of(it.app).storage()
        await storage.workers.bury(["doomed"])
        assert await reaper_of(it).step() == 1
        applied = await storage.jobs.apply([succeed(claimed, by="doomed", result=None)])
        assert applied.answers[0].verdict is Verdict.REFUSED
        assert (await parts_of(it.app).producer.refresh(claimed.claim.job)).state is State.WAITING


# --- in the life of a cluster --------------------------------------------------------------------


def test_jobs_of_a_worker_that_is_killed_are_run_by_another_after_its_lease() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job", backoff=Backoff.fixed(10))
        async def job(ctx: Context) -> None:
            world.say(f"attempt {ctx.attempt}")
            await asyncio.sleep(20)
            world.say("done")

        async def live() -> None:
            await (await make_worker(world.app)).run()

        victim = world.loop.spawn_process("victim", live)
        await job.enqueue()
        await world.until(5)
        async with working(world.app):
            await world.until(6)
            victim.kill()
            await world.until(120)
        # The last beat was at 5, the survivor came at 5: 35 for the lease, up to 5 for the
        # reaper, 10 for the backoff.
        ((first, _), (second, _), (end, _)) = world.seen
        assert world.words == ["attempt 1", "attempt 2", "done"]
        assert first == 0.0
        assert 45 <= second <= 52
        assert end - second == 20

    simulate(scenario)


def test_a_worker_fresh_from_its_start_waits_a_lease_before_it_judges() -> None:
    async def scenario(world: World) -> None:
        storage = await parts_of(world.app).storage()
        await register(storage, "silent", lease=30)
        await world.until(100)
        async with working(world.app):
            await world.until(129)
            (row,) = [
                row for row in await world.app.admin.workers.list() if row.start.id == "silent"
            ]
            assert row.state is WorkerState.LIVE
            await world.until(132)
            (row,) = [
                row for row in await world.app.admin.workers.list() if row.start.id == "silent"
            ]
            assert row.state is WorkerState.DEAD

    simulate(scenario)


def test_an_outage_of_the_store_buries_nobody() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> str:
            await asyncio.sleep(250)
            return "done"

        store = await world.tampered()
        with logged() as lines:
            async with (
                working(world.app, store=store, slots=1),
                working(world.app, store=store, slots=1),
            ):
                jobs = await world.app.enqueue_many([job.call(), job.call()])
                await world.until(50)
                store.down = True
                await world.until(150)
                store.down = False
                assert [await each.result(timeout=200) for each in jobs] == ["done"] * 2
        assert {(await each.refresh()).claim_number for each in jobs} == {1}
        assert lines.having("is dead") == []
        assert lines.having("was declared dead") == []

    simulate(scenario)


def test_an_outage_during_a_sweep_delays_it_and_nothing_else() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job", backoff=Backoff.none())
        async def job() -> str:
            return "done"

        storage = await parts_of(world.app).storage()
        enqueued = await job.enqueue()
        await held(storage, "doomed")
        await storage.workers.bury(["doomed"])
        store = await world.tampered()
        failures = [StorageUnavailable("away")] * 3

        async def orphans(call: Hook, limit: int) -> Sequence[ClaimedJob]:
            if failures:
                raise failures.pop()
            found: Sequence[ClaimedJob] = await call(limit)
            return found

        store.on("workers.orphans", orphans)
        with logged() as lines:
            async with working(world.app, store=store):
                assert await enqueued.result(timeout=20) == "done"
        assert not failures
        assert len(lines.having("the reaper failed")) == 1

    simulate(scenario)
