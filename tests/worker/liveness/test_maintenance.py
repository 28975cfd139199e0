"""What a leader does for everybody: promotion, expiry, retention."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.worker.fixtures import Bench, Hook, World, bench, register, simulate, working
from windlass import GiveUp
from windlass._app.parts import parts_of
from windlass._core.flows.flow import FlowState
from windlass._core.job.job import JobId
from windlass._core.job.state import State
from windlass._settings.settings import WorkerSettings
from windlass._storage.protocol.jobs import CancelAnswer, Outlook
from windlass._tasks.task import Task
from windlass._worker.liveness.leader import Leader
from windlass._worker.liveness.maintenance import CHUNK_SIZE, Promoter, Pruner
from windlass._worker.liveness.recycling import megabytes_used, recycle_reason
from windlass.errors import JobExpired, JobNotFound
from windlass.testing.conformance.flows.steps import Plan, act, run, run_all, start, state
from windlass.testing.conformance.steps import total

DAY = timedelta(days=1)


def leader_of(it: Bench) -> Leader:
    return Leader(it.store.storage.leader, it.engine.identity, lease=timedelta(seconds=15))


async def leading(it: Bench) -> Leader:
    leader = leader_of(it)
    assert await leader.step()
    return leader


def pruner_of(it: Bench) -> Pruner:
    return Pruner(
        it.store.storage, it.app.settings, it.engine.decisions.queues, parts_of(it.app).hooks.bus
    )


def noop(it: Bench, **options: Any) -> Task[[], None]:
    @it.app.task(name="noop", **options)
    async def noop() -> None: ...

    return noop


# --- leadership ----------------------------------------------------------------------------------


async def test_one_worker_leads_until_its_lease_ends() -> None:
    async with bench() as it:
        leader = await leading(it)
        other = await parts_of(it.app).storage()
        assert not await other.leader.lead("chores", "other", timedelta(seconds=15))
        it.clock.advance(14)
        assert await leader.step()
        it.clock.advance(15)
        assert await other.leader.lead("chores", "other", timedelta(seconds=15))
        assert not await leader.step()
        assert not leader.leading


async def test_a_leader_that_resigns_can_be_followed_at_once() -> None:
    async with bench() as it:
        leader = await leading(it)
        await leader.resign()
        assert not leader.leading
        storage = await parts_of(it.app).storage()
        assert await storage.leader.lead("chores", "other", timedelta(seconds=15))


async def test_who_does_not_lead_does_no_chores() -> None:
    async with bench() as it:
        leader = leader_of(it)
        assert await Promoter(it.store.storage, leader).step() == 0
        assert not [name for name in it.store.calls if name.startswith(("maintenance.", "flows."))]


def test_the_chores_of_a_worker_that_stops_are_taken_over_with_the_next_beat() -> None:
    async def scenario(world: World) -> None:
        first, second = await world.tampered(), await world.tampered()
        async with working(world.app, store=first) as shift, working(world.app, store=second):
            await world.until(20)
            assert first.calls["maintenance.promote"] >= 20
            assert second.calls["maintenance.promote"] == 0
            shift.worker.stop()
            await shift.ended()
            await world.until(26)
            assert second.calls["maintenance.promote"] >= 1

    simulate(scenario, heartbeat=5, lease=1000)


# --- promotion -----------------------------------------------------------------------------------


async def test_the_promoter_makes_due_jobs_ready_in_bites() -> None:
    async with bench() as it:
        task = noop(it).options(delay=60)
        await it.app.enqueue_many([task.call() for _ in range(1200)])
        promoter = Promoter(it.store.storage, await leading(it))
        assert await promoter.step() == 0
        it.clock.advance(60)
        assert await promoter.step() == 1200
        assert it.store.calls["maintenance.promote"] == 1 + 3
        assert await promoter.step() == 0


def test_a_promoted_job_wakes_whoever_serves_its_queue() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> None:
            world.say("ran")

        # Its own clock of due times is broken: only the promoter's hint can wake it in time.
        store = await world.tampered()

        async def outlook(call: Hook, queues: object) -> Outlook:
            seen: Outlook = await call(queues)
            return msgspec.structs.replace(seen, next_at=None)

        store.on("jobs.outlook", outlook)
        async with working(world.app, store=store):
            await job.options(delay=10).enqueue()
            await world.until(15)
        ((second, _),) = world.seen
        assert 10 <= second <= 12

    simulate(scenario, poll=1)


async def test_the_promoter_settles_flows_until_nothing_is_left() -> None:
    async with bench() as it:
        plan = Plan()
        plan.part("first")
        plan.part("rows", 1200, after=["first"])
        plan.part("sum", after=["rows"])
        storage = it.store.storage
        await start(storage, plan)
        promoter = Promoter(storage, await leading(it))
        assert await promoter.step() == 0
        await run(storage, "first")  # it fails, and its end settles the first hundred of the rest
        assert await promoter.step() == 1100 + 1
        assert (await state(storage, plan)).state is FlowState.FAILED
        assert it.store.calls["flows.settle"] == 1 + 4


def test_an_expired_flow_ends_though_no_worker_claims_from_its_queue() -> None:
    async def scenario(world: World) -> None:
        storage = await parts_of(world.app).storage()
        plan = Plan(expires=timedelta(seconds=10))
        plan.part("first", queue="another")  # no worker serves it
        plan.part("second", after=["first"])
        async with working(world.app):
            await storage.flows.start([plan.flow])
            await world.until(15)
        flow = await state(storage, plan)
        assert (flow.state, flow.open) == (FlowState.CANCELLED, 0)

    simulate(scenario, poll=1)


# --- expiry --------------------------------------------------------------------------------------


async def test_a_job_past_its_expiry_is_discarded_and_says_so() -> None:
    async with bench() as it:
        job = await noop(it, expires=60).enqueue()
        pruner = pruner_of(it)
        it.clock.advance(59)
        assert await pruner.step() == 0
        it.clock.advance(1)
        assert await pruner.step() == 1
        assert (await job.refresh()).reason == "expired"
        with pytest.raises(JobExpired):
            await job.result()


async def test_an_expired_job_is_not_run_even_before_the_pruner_comes() -> None:
    async with bench() as it:
        job = await noop(it, expires=60).enqueue()
        it.clock.advance(60)
        assert await it.engine.step() == 0
        assert (await job.refresh()).state is State.DISCARDED


# --- retention -----------------------------------------------------------------------------------


async def finished_jobs(it: Bench) -> dict[str, JobId]:
    """One job for each way to end."""

    @it.app.task(name="fails")
    async def fails() -> None:
        raise GiveUp("no")

    task = noop(it)
    succeeded = await it.run(task.call())
    failed = await it.run(fails.call())
    cancelled = await task.enqueue()
    assert await cancelled.cancel() is CancelAnswer.CANCELLED
    discarded = await it.run(fails.call())
    await it.app.admin.jobs.discard(discarded.id, reason="not needed")
    waiting = await task.enqueue()
    return {
        "succeeded": succeeded.id,
        "failed": failed.id,
        "cancelled": cancelled.id,
        "discarded": discarded.id,
        "waiting": waiting.id,
    }


async def test_jobs_are_kept_as_long_as_the_settings_say() -> None:
    async with bench(keep_succeeded=7 * DAY, keep_failed=30 * DAY) as it:
        jobs = await finished_jobs(it)
        leader = leader_of(it)
        pruner = pruner_of(it)

        async def after(days: int) -> list[str]:
            it.clock.advance(days * DAY)
            await leader.step()
            await pruner.step()
            storage = await parts_of(it.app).storage()
            found = await storage.admin.get(list(jobs.values()))
            return [name for name, job in zip(jobs, found, strict=True) if job is not None]

        assert await after(7) == list(jobs)
        assert await after(1) == ["failed", "waiting"]
        assert await after(22) == ["failed", "waiting"]
        assert await after(1) == ["waiting"]


async def ended_flows(it: Bench) -> dict[str, Plan]:
    """Store one flow for each way to end, and one that runs."""
    plans: dict[str, Plan] = {}
    for name in ("succeeded", "failed", "cancelled", "running"):
        plan = plans[name] = Plan()
        plan.part(name)
        plan.part("after", after=[name])
        await start(it.store.storage, plan)
        if name == "cancelled":
            await act(it.store.storage, plan, "cancel")
        elif name != "running":
            await run_all(it.store.storage, "failed")
    return plans


async def test_flows_are_kept_as_long_as_the_settings_say() -> None:
    async with bench(keep_succeeded=7 * DAY, keep_failed=30 * DAY) as it:
        plans = await ended_flows(it)
        storage, pruner = it.store.storage, pruner_of(it)

        async def after(days: int) -> tuple[list[str], int]:
            """Return the flows that are left, and how many jobs there are."""
            it.clock.advance(days * DAY)
            await pruner.step()
            left = [name for name in plans if await storage.flows.graph(plans[name].id)]
            return left, await total(storage)

        assert await after(7) == (["succeeded", "failed", "cancelled", "running"], 8)
        assert await after(1) == (["failed", "running"], 4)
        assert await after(22) == (["failed", "running"], 4)
        assert await after(1) == (["running"], 2)


async def test_many_flows_are_deleted_in_chunks() -> None:
    async with bench(keep_succeeded=DAY) as it:
        storage = it.store.storage
        for _ in range(3):
            plan = Plan()
            plan.part("rows", 400)
            await start(storage, plan)
        await run_all(storage)
        it.clock.advance(2 * DAY)
        assert await pruner_of(it).step() == 1200
        assert await total(storage) == 0
        # Two flows at once, then one, then none; and one look at each other state.
        assert it.store.calls["flows.prune"] == 3 + 2


async def test_retention_works_in_bites() -> None:
    async with bench(slots=1300, keep_succeeded=DAY) as it:
        task = noop(it)
        await it.app.enqueue_many([task.call() for _ in range(1300)])
        assert await it.engine.step() == 1300
        it.clock.advance(2 * DAY)
        pruner = pruner_of(it)
        assert await pruner.step() == 1300
        # Three bites of those that succeeded, one look at each other state.
        assert it.store.calls["maintenance.prune"] == 3 + 3


async def test_a_retention_of_nothing_deletes_at_once() -> None:
    async with bench(keep_succeeded=0) as it:
        job = await noop(it).enqueue()
        await it.engine.step()
        with pytest.raises(JobNotFound):
            await job.refresh()
        assert await it.app.admin.queues.counts() == []


async def test_a_retention_of_nothing_keeps_what_failed() -> None:
    async with bench(keep_succeeded=0) as it:

        @it.app.task(name="fails", max_attempts=1)
        async def fails() -> None:
            raise ValueError("x")

        job = await it.run(fails.call())
        assert job.state is State.FAILED


async def test_rows_of_workers_that_ended_long_ago_go_too() -> None:
    async with bench() as it:
        storage = await parts_of(it.app).storage()
        await register(storage, "past")
        await storage.workers.leave("past", [])
        it.clock.advance(2 * DAY)
        await storage.workers.beat(it.engine.identity.id)
        await pruner_of(it).step()
        assert [row.start.id for row in await it.app.admin.workers.list()] == [
            it.engine.identity.id
        ]


async def test_old_rollups_go_too() -> None:
    async with bench(keep_rollups=DAY) as it:
        await it.run(noop(it).call())
        start = it.clock.now() - DAY
        it.clock.advance(3 * DAY)
        assert len(await it.app.admin.stats.rollups(start, it.clock.now())) == 1
        await pruner_of(it).step()
        assert await it.app.admin.stats.rollups(start, it.clock.now()) == []


async def test_old_events_and_records_of_orders_go_too() -> None:
    async with bench(keep_events=DAY, keep_audit=5 * DAY, event_log=True) as it:
        job = await it.run(noop(it).call())
        await it.app.admin.queues.pause("default")
        await parts_of(it.app).connections.settle()
        storage = await parts_of(it.app).storage()

        async def left() -> tuple[int, int]:
            long = 100 * DAY
            now = it.clock.now()
            events = await storage.journal.events(now - long, now + long, limit=100, job=job.id)
            return len(events), len(await it.app.admin.audit.list())

        assert await left() == (3, 1)
        for days, wanted in ((2, (0, 1)), (4, (0, 0))):
            it.clock.advance(days * DAY)
            await pruner_of(it).step()
            assert await left() == wanted


async def test_gauges_of_two_days_ago_become_hours_and_old_ones_go() -> None:  # METR-8
    async with bench(keep_rollups=30 * DAY) as it:
        storage, start = it.store.storage, it.clock.now()
        for _ in range(130):
            await storage.workers.beat(it.engine.identity.id, readings={"host": {"cpu": 0.5}})
            it.clock.advance(60)
        it.clock.advance(2 * DAY + timedelta(hours=1))
        await pruner_of(it).step()
        rows = await storage.admin.gauges(start - DAY, it.clock.now())
        assert {row.minute.minute for row in rows} == {0}
        assert sum(row.gauges["cpu"].samples for row in rows) == 130
        it.clock.advance(30 * DAY)
        await pruner_of(it).step()
        assert await storage.admin.gauges(start - DAY, it.clock.now()) == []


async def test_rollups_of_two_days_ago_become_hours_until_nothing_is_saved() -> None:
    async with bench() as it:
        task = noop(it)
        for _ in range(3):
            await it.run(task.call())
            it.clock.advance(60)
        start = it.clock.now() - DAY
        it.clock.advance(3 * DAY)
        before = await it.app.admin.stats.rollups(start, it.clock.now())
        assert len({rollup.minute for rollup in before}) == 3
        await pruner_of(it).step()
        after = await it.app.admin.stats.rollups(start, it.clock.now())
        assert len({rollup.minute for rollup in after}) == 1
        assert sum(sum(r.counts.values()) for r in after) == 3

        answers = [7, 3, 0]

        async def compact(_call: Hook, *, older_than: timedelta, limit: int) -> int:
            assert (older_than, limit) == (2 * DAY, CHUNK_SIZE)
            return answers.pop(0)

        it.store.on("maintenance.compact_rollups", compact)
        await pruner_of(it).step()
        assert answers == []


# --- wear ----------------------------------------------------------------------------------------


def test_a_worker_is_worn_out_by_jobs_or_by_memory() -> None:
    assert recycle_reason(WorkerSettings(), 10**9) is None
    assert recycle_reason(WorkerSettings(max_jobs=5), 4) is None
    assert recycle_reason(WorkerSettings(max_jobs=5), 5) == "it has run 5 jobs (max_jobs=5)"
    assert recycle_reason(WorkerSettings(max_megabytes=1_000_000), 5) is None
    used = recycle_reason(WorkerSettings(max_megabytes=1), 5)
    assert used is not None
    assert "max_megabytes=1" in used


def test_the_memory_in_use_is_plausible() -> None:
    assert 10 < megabytes_used() < 10_000


@pytest.mark.parametrize(
    "chore", ["prune_rollups", "prune_gauges", "prune_workers", "prune_events", "prune_audits"]
)
async def test_old_rollups_and_records_go_in_bites_until_one_is_short(chore: str) -> None:
    async with bench() as it:
        answers = [CHUNK_SIZE, CHUNK_SIZE, 3]

        async def prune(_call: Hook, *, older_than: timedelta, limit: int) -> int:
            assert (older_than > timedelta(0), limit) == (True, CHUNK_SIZE)
            return answers.pop(0)

        it.store.on(f"maintenance.{chore}", prune)
        await pruner_of(it).step()
        assert answers == []
