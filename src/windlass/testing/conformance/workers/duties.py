"""`WorkerStore.assign`: what people ask of workers."""

from __future__ import annotations

import asyncio

from windlass._storage.protocol.actions import AuditRecord
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import Duty
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import a_note, enlist, started

__all__ = ["DutyConformance"]


async def duties(storage: Storage) -> dict[str, Duty]:
    """Return the duty of each worker."""
    return {record.start.id: record.duty for record in await storage.workers.workers()}


async def records(storage: Storage) -> list[AuditRecord]:
    """Return the audit log."""
    return list(await storage.orders.audits(limit=10))


class DutyConformance:
    """To work, to take nothing new, to leave: heard of with the next beat."""

    async def test_a_new_worker_is_asked_to_work(self, storage: Storage) -> None:
        await enlist(storage)
        assert await duties(storage) == {"w1": Duty.WORK}
        assert (await storage.workers.beat("w1")).duty is Duty.WORK

    async def test_a_heartbeat_returns_the_duty_of_the_worker(self, storage: Storage) -> None:
        await enlist(storage, "w1", "w2")
        for duty in (Duty.QUIET, Duty.WORK, Duty.STOP):
            assert await storage.workers.assign(["w1"], duty) == ["w1"]
            assert (await storage.workers.beat("w1")).duty is duty
            assert (await storage.workers.beat("w2")).duty is Duty.WORK
            assert await duties(storage) == {"w1": duty, "w2": Duty.WORK}

    async def test_a_duty_outlives_heartbeats_and_another_registration(
        self, storage: Storage
    ) -> None:
        await enlist(storage)
        await storage.workers.assign(["w1"], Duty.QUIET)
        await storage.workers.beat("w1", memory=1)
        await enlist(storage)
        assert (await storage.workers.beat("w1")).duty is Duty.QUIET

    async def test_a_stop_is_never_taken_back(self, storage: Storage) -> None:
        await enlist(storage)
        await storage.workers.assign(["w1"], Duty.STOP)
        assert await storage.workers.assign(["w1"], Duty.WORK) == []
        assert await storage.workers.assign(["w1"], Duty.QUIET) == []
        assert (await storage.workers.beat("w1")).duty is Duty.STOP

    async def test_only_live_workers_get_a_duty_and_are_named_once_in_order(
        self, storage: Storage
    ) -> None:
        await enlist(storage, "w1", "w2", "dead", "gone")
        await storage.workers.bury(["dead"])
        await storage.workers.leave("gone", [])
        asked = ["w2", "nobody", "dead", "w1", "w2", "gone"]
        assert await storage.workers.assign(asked, Duty.QUIET) == ["w2", "w1"]
        assert (await duties(storage))["dead"] is Duty.WORK
        assert (await storage.workers.beat("dead")).duty is Duty.WORK
        assert await storage.workers.assign([], Duty.QUIET) == []

    async def test_asking_again_after_a_lost_answer_is_answered_the_same(
        self, storage: Storage
    ) -> None:
        await enlist(storage, "w1", "w2")
        note = a_note(what="workers.quiet")
        for _ in range(2):
            named = await storage.workers.assign(["w1", "w2"], Duty.QUIET, audit=note)
            assert named == ["w1", "w2"]
        assert len(await records(storage)) == 1

    async def test_the_record_counts_the_workers_whose_duty_changed(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage, "w1", "w2", "w3")
        await storage.workers.assign(["w1"], Duty.QUIET)
        note = a_note(what="workers.quiet", subject="worker w2")
        await storage.workers.assign(["w1", "w2", "w3"], Duty.QUIET, audit=note)
        (record,) = await records(storage)
        assert (record.note, record.count, record.at) == (note, 2, clock.now())

    async def test_a_duty_without_effect_leaves_no_record(self, storage: Storage) -> None:
        await enlist(storage)
        await storage.workers.assign(["w1", "nobody"], Duty.WORK, audit=a_note())
        await storage.workers.assign(["nobody"], Duty.STOP, audit=a_note())
        assert await records(storage) == []

    async def test_a_duty_ends_no_claim(self, storage: Storage) -> None:
        running = await started(storage)
        await storage.workers.assign(["w1"], Duty.STOP)
        beat = await storage.workers.beat("w1")
        assert (beat.live, beat.holding) == (True, [running.claim])

    async def test_of_concurrent_duties_a_stop_wins(self, storage: Storage) -> None:
        await enlist(storage)
        wanted = [Duty.QUIET, Duty.STOP, Duty.WORK, Duty.QUIET]
        await asyncio.gather(*(storage.workers.assign(["w1"], duty) for duty in wanted))
        assert await duties(storage) == {"w1": Duty.STOP}
