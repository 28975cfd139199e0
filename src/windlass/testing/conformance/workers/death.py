"""`WorkerStore`: overdue workers, declaring them dead, and the claims that the reaper may end."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from windlass._core.job.outcome import Lost, Succeeded
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import decide, succeed
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerState
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    OOPS,
    POLICY,
    a_job,
    a_worker,
    add,
    ask,
    claim,
    claim_one,
    end,
    enlist,
    happened,
    ids,
    look,
    started,
)

__all__ = ["SteadyLeaseConformance", "WorkerDeathConformance"]

LEASE = timedelta(seconds=30)


class WorkerDeathConformance:
    """Dead workers are told from late ones, and lose nothing before the reaper ends
    their claims.
    """

    async def test_a_worker_is_overdue_when_its_lease_has_passed_not_before(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # LEASE-2, F3
        await enlist(storage)
        clock.advance(LEASE)
        assert list(await storage.workers.overdue()) == []
        clock.advance(timedelta(milliseconds=1))
        assert list(await storage.workers.overdue()) == ["w1"]

    async def test_every_worker_is_judged_by_its_own_lease(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # H-4
        await storage.workers.register(a_worker("short", lease=LEASE))
        await storage.workers.register(a_worker("long", lease=HOUR))
        clock.advance(MINUTE)
        assert list(await storage.workers.overdue()) == ["short"]

    async def test_asking_who_is_overdue_changes_nothing(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        clock.advance(HOUR)
        assert list(await storage.workers.overdue()) == ["w1"]
        assert list(await storage.workers.overdue()) == ["w1"]
        assert (await ask(storage)).live

    async def test_the_dead_and_the_gone_are_not_overdue(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage, "w1", "w2", "w3")
        await storage.workers.bury(["w1"])
        await storage.workers.leave("w2", [])
        clock.advance(HOUR)
        assert list(await storage.workers.overdue()) == ["w3"]

    async def test_declaring_dead_names_the_workers_it_changed(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage, "w1", "w2", "w3")
        await storage.workers.leave("w3", [])
        assert list(await storage.workers.bury(["w1"])) == ["w1"]
        assert list(await storage.workers.bury(["w1", "w2", "w3", "nobody"])) == ["w2"]
        records = {record.start.id: record for record in await storage.workers.workers()}
        assert records["w1"].state is WorkerState.DEAD
        assert records["w1"].ended_at == clock.now()
        assert records["w3"].state is WorkerState.GONE

    async def test_overdue_workers_are_declared_dead_and_named(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage, "late", "punctual")
        clock.advance(MINUTE)
        await storage.workers.beat("punctual")
        asked = ["late", "punctual", "nobody"]
        assert list(await storage.workers.bury_overdue(asked)) == ["late"]
        assert list(await storage.workers.bury_overdue(asked)) == []
        records = {record.start.id: record for record in await storage.workers.workers()}
        assert records["late"].state is WorkerState.DEAD
        assert records["late"].ended_at == clock.now()
        assert records["punctual"].state is WorkerState.LIVE

    async def test_a_heartbeat_after_the_check_keeps_its_worker_alive(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        clock.advance(HOUR)
        overdue = await storage.workers.overdue()
        await storage.workers.beat("w1")
        assert list(await storage.workers.bury_overdue(overdue)) == []
        assert (await ask(storage)).live

    async def test_only_the_named_workers_are_declared_dead(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage, "w1", "w2")
        clock.advance(HOUR)
        assert list(await storage.workers.bury_overdue(["w1"])) == ["w1"]
        assert (await ask(storage, worker="w2")).live

    async def test_declaring_a_worker_dead_ends_no_claim(self, storage: Storage) -> None:
        running = await started(storage)
        await storage.workers.bury(["w1"])
        assert (await look(storage, running)).state is State.RUNNING

    async def test_a_dead_worker_may_finish_until_its_claim_is_ended(
        self, storage: Storage
    ) -> None:
        quick, slow = await started(storage), await started(storage)
        await storage.workers.bury(["w1"])
        assert await end(storage, succeed(quick, by="w1", result=None)) == [
            TransitionAnswer(Verdict.APPLIED, Verb.SUCCEED)
        ]
        await happened(storage, slow, Lost(OOPS), by="reaper")
        assert await end(storage, succeed(slow, by="w1", result=None)) == [
            TransitionAnswer(Verdict.REFUSED)
        ]

    async def test_the_reaper_does_not_resurrect_a_job_that_was_finished(
        self, storage: Storage
    ) -> None:  # LEASE-7, LEASE-8
        await started(storage)
        await storage.workers.bury(["w1"])
        (orphan,) = await storage.workers.orphans(10)
        await happened(storage, orphan, Succeeded(b"1"), by="w1")
        now = await storage.now()
        reap = decide(orphan, Lost(OOPS), POLICY, by="reaper", now=now, chance=0.5)
        assert await end(storage, reap) == [TransitionAnswer(Verdict.REFUSED)]
        assert (await look(storage, orphan)).state is State.SUCCEEDED

    async def test_orphans_are_the_running_jobs_of_workers_that_are_not_live(
        self, storage: Storage
    ) -> None:
        lost = await started(storage, a_job(payload=b"[1]", timeout=MINUTE), worker="dead")
        await started(storage, worker="alive")
        await add(storage, a_job())
        assert list(await storage.workers.orphans(10)) == []
        await storage.workers.bury(["dead"])
        assert list(await storage.workers.orphans(10)) == [replace(lost, payload=b"")]

    async def test_orphans_of_many_workers_come_in_chunks_worker_by_worker(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        wanted = []
        for worker in ("a", "b", "c", "a", "b"):
            clock.advance(MINUTE)
            wanted.append((await started(storage, worker=worker)).claim.job)
        await storage.workers.bury(["a", "b", "c"])
        first, second, third, fourth, fifth = wanted
        assert ids(list(await storage.workers.orphans(3))) == [first, fourth, second]
        orphans = ids(list(await storage.workers.orphans(10)))
        assert orphans == [first, fourth, second, fifth, third]

    async def test_orphans_come_in_chunks_oldest_claim_first(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        wanted = await add(storage, a_job(priority=2), a_job(priority=1), a_job(priority=0))
        for _ in wanted:
            clock.advance(MINUTE)
            await claim_one(storage)
        await storage.workers.bury(["w1"])
        assert ids(list(await storage.workers.orphans(2))) == [wanted[2], wanted[1]]

    async def test_a_reaped_job_is_no_orphan_any_more(self, storage: Storage) -> None:
        await started(storage)
        await storage.workers.bury(["w1"])
        (orphan,) = await storage.workers.orphans(10)
        await happened(storage, orphan, Lost(OOPS), by="reaper")
        assert list(await storage.workers.orphans(10)) == []

    async def test_the_orphan_of_a_dead_worker_runs_elsewhere(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # A26, DELIV-1
        await enlist(storage, "w2")
        running = await started(storage)
        await storage.workers.bury(["w1"])
        for orphan in await storage.workers.orphans(10):
            await happened(storage, orphan, Lost(OOPS), by="w2")
        clock.advance(HOUR)
        assert ids(await claim(storage, worker="w2")) == [running.claim.job]


class SteadyLeaseConformance:
    """For stores on this machine: their leases run on a clock that cannot be stepped.

    A server has its wall clock only. Stepped forward it may make living workers overdue once; their
    claims are fenced, and they continue under a new identity.
    """

    async def test_a_stepped_wall_clock_makes_no_worker_overdue(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # guarantee 9
        await enlist(storage)
        clock.jump(clock.now() + DAY)
        assert list(await storage.workers.overdue()) == []

    async def test_a_wall_clock_stepped_back_keeps_no_worker_alive(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # guarantee 9
        await enlist(storage)
        clock.jump(clock.now() - DAY)
        clock.advance(MINUTE)
        assert list(await storage.workers.overdue()) == ["w1"]
