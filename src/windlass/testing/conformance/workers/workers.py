"""`WorkerStore`: who works here, and who is believed dead."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from windlass._core.job.outcome import Succeeded
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import release, retry
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import HeartbeatAnswer, WorkerState
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    a_worker,
    add,
    claim,
    claim_one,
    ended,
    enlist,
    happened,
    ids,
    look,
    started,
)

__all__ = ["HeartbeatConformance", "WorkerLeaveConformance"]

LEASE = timedelta(seconds=30)


class HeartbeatConformance:
    """Rows, heartbeats and the duties that workers get."""

    async def test_a_registered_worker_is_live_and_listed(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # LEASE-20, forge process_registry_register_then_list
        assert await storage.workers.register(a_worker("w1")) == clock.now()
        (record,) = await storage.workers.workers()
        assert (record.start, record.state) == (a_worker("w1"), WorkerState.LIVE)
        assert (record.started_at, record.beat_at) == (clock.now(), clock.now())
        assert (record.ended_at, record.running) == (None, 0)

    async def test_workers_are_listed_newest_first_with_what_they_run(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await started(storage, worker="old")
        clock.advance(MINUTE)
        await enlist(storage, "new")
        records = await storage.workers.workers()
        assert [(record.start.id, record.running) for record in records] == [("new", 0), ("old", 1)]

    async def test_a_row_keeps_what_its_worker_says_of_itself(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # LEASE-20
        start = msgspec.structs.replace(
            a_worker("w1"),
            queues=("a", "夜"),
            tasks=("mail.send", "ünï 'x'"),
            clock=clock.now() - HOUR + INSTANT,
            signatures={"mail.send": "0123456789abcdef", "ünï 'x'": ""},
            pools={"a": 3, "夜": 1},
        )
        await storage.workers.register(start)
        (record,) = await storage.workers.workers()
        (live,) = await storage.workers.live()
        for told in (record.start, live):
            assert (tuple(told.queues), tuple(told.tasks)) == (start.queues, start.tasks)
            assert told.clock == start.clock
            assert (told.signatures, told.pools) == (start.signatures, start.pools)

    async def test_a_heartbeat_reports_the_memory_in_use(self, storage: Storage) -> None:
        async def memory() -> int | None:
            (record,) = await storage.workers.workers()
            return record.memory

        await enlist(storage)
        assert await memory() is None
        await storage.workers.beat("w1", memory=5_000_000_000)
        assert await memory() == 5_000_000_000
        await storage.workers.beat("w1")
        assert await memory() == 5_000_000_000
        pulse = storage.workers.pulse()
        try:
            await pulse.beat("w1", memory=7)
        finally:
            await pulse.close()
        assert await memory() == 7
        await storage.workers.bury(["w1"])
        await storage.workers.beat("w1", memory=8)
        assert await memory() == 7

    async def test_live_workers_are_named_newest_first_as_they_registered(
        self, storage: Storage
    ) -> None:
        await enlist(storage, "old", "dead", "gone", "new")
        await storage.workers.bury(["dead"])
        await storage.workers.leave("gone", [])
        assert list(await storage.workers.live()) == [a_worker("new"), a_worker("old")]

    async def test_registering_again_after_a_lost_answer_is_harmless(
        self, storage: Storage
    ) -> None:  # guarantee 8
        running = await started(storage)
        await enlist(storage)
        (record,) = await storage.workers.workers()
        assert (record.state, record.running) == (WorkerState.LIVE, 1)
        assert (await look(storage, running)).state is State.RUNNING

    async def test_registering_does_not_revive_a_dead_worker(self, storage: Storage) -> None:
        await enlist(storage)
        await storage.workers.bury(["w1"])
        await enlist(storage)
        (record,) = await storage.workers.workers()
        assert record.state is WorkerState.DEAD

    async def test_a_heartbeat_renews_the_lease(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        clock.advance(LEASE)
        beat = await storage.workers.beat("w1")
        assert (beat.live, beat.at) == (True, clock.now())
        clock.advance(LEASE)
        assert list(await storage.workers.overdue()) == []
        (record,) = await storage.workers.workers()
        assert record.beat_at == clock.now() - LEASE

    async def test_a_late_heartbeat_that_finds_its_row_live_renews_it(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        clock.advance(DAY)
        assert (await storage.workers.beat("w1")).live
        assert list(await storage.workers.overdue()) == []

    async def test_a_heartbeat_returns_the_claims_of_the_worker(self, storage: Storage) -> None:
        mine = [await started(storage), await started(storage)]
        await started(storage, worker="w2")
        beat = await storage.workers.beat("w1")
        assert set(beat.holding) == {job.claim for job in mine}
        await happened(storage, mine[0], Succeeded())
        assert list((await storage.workers.beat("w1")).holding) == [mine[1].claim]

    async def test_a_claim_whose_answer_was_lost_is_found_by_the_next_heartbeat(
        self, storage: Storage
    ) -> None:  # guarantee 8
        await enlist(storage)
        (wanted,) = await add(storage, a_job())
        lost = await claim_one(storage)  # the worker never sees this answer
        (held,) = (await storage.workers.beat("w1")).holding
        assert (held, held.job) == (lost.claim, wanted)
        await ended(storage, release(lost, by="w1"))
        again = await claim_one(storage)
        assert (again.claim.job, again.attempt) == (wanted, 1)

    async def test_a_heartbeat_may_come_from_another_event_loop(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # the heartbeat has a separate thread
        running = await started(storage)
        clock.advance(LEASE)

        async def beat() -> HeartbeatAnswer:
            pulse = storage.workers.pulse()
            try:
                return await pulse.beat("w1")
            finally:
                await pulse.close()
                await pulse.close()

        answer = await asyncio.to_thread(asyncio.run, beat())
        assert (answer.live, list(answer.holding)) == (True, [running.claim])
        clock.advance(LEASE)
        assert list(await storage.workers.overdue()) == []

    async def test_the_heartbeat_of_a_dead_worker_reports_that_and_does_not_revive_it(
        self, storage: Storage
    ) -> None:
        await enlist(storage)
        await storage.workers.bury(["w1"])
        assert not (await storage.workers.beat("w1")).live
        (record,) = await storage.workers.workers()
        assert record.state is WorkerState.DEAD

    async def test_the_heartbeat_of_a_worker_without_a_row_is_not_live(
        self, storage: Storage
    ) -> None:
        assert not (await storage.workers.beat("nobody")).live
        assert list(await storage.workers.workers()) == []


class WorkerLeaveConformance:
    """Leaving: releases and the end of the row are one."""

    async def test_leaving_ends_the_row_and_gives_every_claim_back(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        named, forgotten = await started(storage), await started(storage)
        applied = await storage.workers.leave("w1", [release(named, by="w1")])
        assert applied.at == clock.now()
        assert list(applied.answers) == [TransitionAnswer(Verdict.APPLIED, Verb.RELEASE)]
        for running in (named, forgotten):
            job = await look(storage, running)
            assert (job.state, job.attempt) == (State.WAITING, 0)
        (record,) = await storage.workers.workers()
        assert (record.state, record.ended_at) == (WorkerState.GONE, clock.now())
        assert record.running == 0

    async def test_released_jobs_are_ready_for_other_workers(self, storage: Storage) -> None:
        running = await started(storage)
        await enlist(storage, "w2")
        await storage.workers.leave("w1", [])
        assert ids(await claim(storage, worker="w2")) == [running.claim.job]

    async def test_leaving_again_after_a_lost_answer_is_harmless(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # guarantee 8
        running = await started(storage)
        releases = [release(running, by="w1")]
        await storage.workers.leave("w1", releases)
        left = clock.now()
        clock.advance(MINUTE)
        again = await storage.workers.leave("w1", releases)
        assert list(again.answers) == [TransitionAnswer(Verdict.REPEATED, Verb.RELEASE)]
        (record,) = await storage.workers.workers()
        assert (record.state, record.ended_at) == (WorkerState.GONE, left)

    async def test_a_dead_worker_that_leaves_gives_back_its_claims_and_stays_dead(
        self, storage: Storage
    ) -> None:
        running = await started(storage)
        await storage.workers.bury(["w1"])
        await storage.workers.leave("w1", [])
        assert (await look(storage, running)).state is State.WAITING
        (record,) = await storage.workers.workers()
        assert record.state is WorkerState.DEAD

    async def test_a_release_that_is_not_held_any_more_is_refused(self, storage: Storage) -> None:
        await enlist(storage, "w2")
        running = await started(storage)
        await ended(storage, retry(running, by="reaper", error=OOPS, delay=0 * MINUTE))
        current = await claim_one(storage, "w2")
        applied = await storage.workers.leave("w1", [release(running, by="w1")])
        assert list(applied.answers) == [TransitionAnswer(Verdict.REFUSED)]
        assert (await look(storage, current)).state is State.RUNNING

    async def test_a_forgotten_claim_with_a_cancel_request_is_cancelled(
        self, storage: Storage
    ) -> None:  # guarantee 7
        running = await started(storage)
        await storage.jobs.cancel([running.claim.job])
        await storage.workers.leave("w1", [])
        assert (await look(storage, running)).state is State.CANCELLED

    async def test_a_forgotten_claim_keeps_its_suspicion(self, storage: Storage) -> None:
        running = await started(storage)
        await ended(
            storage, retry(running, by="w1", error=OOPS, delay=0 * MINUTE, lost=2, solo=True)
        )
        alone = await claim_one(storage, solo=True)
        await storage.workers.leave("w1", [])
        job = await look(storage, alone)
        assert (job.lost, job.solo) == (2, True)
