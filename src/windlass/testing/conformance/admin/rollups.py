"""Rollups: what they count, and that they equal a recount."""

from __future__ import annotations

from datetime import datetime, timedelta

from windlass._core.job.job import ClaimedJob
from windlass._core.job.outcome import GaveUp, Interrupted, Lost, Raised, Snoozed, Succeeded
from windlass._core.job.state import Verb
from windlass._core.job.transition import decide, retry, succeed
from windlass._core.stats.rollup import Rollup, bucket_of, merge, minute_of
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    OOPS,
    POLICY,
    a_job,
    add,
    claim,
    end,
    ended,
    enlist,
    happened,
    seeded,
    started,
    succeeded,
)

__all__ = ["RollupConformance"]

SECOND = timedelta(seconds=1)


async def rollups(storage: Storage) -> list[Rollup]:
    now = await storage.now()
    return list(await storage.admin.rollups(now - DAY, now + DAY))


class RollupConformance:
    """One count per accepted finish, in the minute it happened, under the verb that took effect."""

    async def test_a_finish_is_counted_with_how_long_it_waited_and_ran(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # forge completed_latencies, metrics_roll_once_aggregates_completed_job
        await enlist(storage)
        await add(storage, a_job(task="mail", queue="q", delay=MINUTE))
        clock.advance(MINUTE + 3 * SECOND)
        (running,) = await claim(storage, queue="q")
        clock.advance(2 * SECOND)
        await succeeded(storage, running)
        assert await rollups(storage) == [
            Rollup(
                minute=minute_of(clock.now()),
                queue="q",
                task="mail",
                counts={"succeed": 1},
                wait={bucket_of(3_000_000): 1},
                run={bucket_of(2_000_000): 1},
            )
        ]

    async def test_minutes_queues_and_tasks_are_counted_apart(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        for queue, task in (("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")):
            await add(storage, a_job(queue=queue, task=task))
            for job in await claim(storage, queue=queue):
                await succeeded(storage, job)
        clock.advance(MINUTE)
        await succeeded(storage, await started(storage, a_job(task="x")))
        counted = {(r.minute, r.queue, r.task): r.counts for r in await rollups(storage)}
        first, second = minute_of(clock.now() - MINUTE), minute_of(clock.now())
        assert counted == {
            (first, "a", "x"): {"succeed": 2},
            (first, "a", "y"): {"succeed": 1},
            (first, "b", "x"): {"succeed": 1},
            (second, "default", "x"): {"succeed": 1},
        }

    async def test_verbs_that_lead_back_to_waiting_count_too(self, storage: Storage) -> None:
        await happened(storage, await started(storage), Raised(OOPS))
        await happened(storage, await started(storage), Snoozed(HOUR))
        (rollup,) = await rollups(storage)
        assert rollup.counts == {"retry": 1, "snooze": 1}

    async def test_a_finish_is_counted_under_the_verb_that_took_effect(
        self, storage: Storage
    ) -> None:
        running = await started(storage)
        await storage.jobs.cancel([running.claim.job])
        await happened(storage, running, Raised(OOPS))
        (rollup,) = await rollups(storage)
        assert rollup.counts == {"cancel": 1}

    async def test_a_repeated_finish_is_counted_once(self, storage: Storage) -> None:  # guarantee 8
        done = succeed(await started(storage), by="w1", result=None)
        await end(storage, done, done)
        await end(storage, done)
        (rollup,) = await rollups(storage)
        assert (rollup.counts, sum(rollup.wait.values())) == ({"succeed": 1}, 1)

    async def test_a_refused_finish_is_not_counted(self, storage: Storage) -> None:
        running = await started(storage)
        await ended(storage, retry(running, by="reaper", error=OOPS, delay=HOUR))
        await end(storage, succeed(running, by="w1", result=None))
        (rollup,) = await rollups(storage)
        assert rollup.counts == {"retry": 1}

    async def test_a_finish_that_is_not_kept_is_counted(self, storage: Storage) -> None:
        running = await started(storage)
        await ended(storage, succeed(running, by="w1", result=None, keep=False))
        (rollup,) = await rollups(storage)
        assert rollup.counts == {"succeed": 1}

    async def test_jobs_released_by_a_leaving_worker_are_counted(self, storage: Storage) -> None:
        await started(storage)
        await storage.workers.leave("w1", [])
        (rollup,) = await rollups(storage)
        assert rollup.counts == {"release": 1}

    async def test_waiting_jobs_that_end_without_a_claim_are_not_counted(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        jobs = await add(storage, a_job(), a_job(expires=MINUTE))
        await storage.jobs.cancel(jobs[:1])
        clock.advance(HOUR)
        await storage.maintenance.expire(10)
        assert await rollups(storage) == []

    async def test_the_range_includes_its_start_and_excludes_its_end(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await succeeded(storage, await started(storage))
        minute = minute_of(clock.now())
        assert len(await storage.admin.rollups(minute, minute + MINUTE)) == 1
        assert list(await storage.admin.rollups(minute - MINUTE, minute)) == []
        assert list(await storage.admin.rollups(minute + MINUTE, minute + HOUR)) == []

    async def test_the_finishes_of_several_workers_are_merged(self, storage: Storage) -> None:
        for worker in ("w1", "w2"):
            await succeeded(storage, await started(storage, worker=worker))
        (rollup,) = await rollups(storage)
        assert rollup.counts == {"succeed": 2}

    async def test_old_rollups_are_pruned_in_chunks(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        for _ in range(3):
            await succeeded(storage, await started(storage))
            clock.advance(MINUTE)
        clock.advance(HOUR)
        await succeeded(storage, await started(storage))
        prune = storage.maintenance.prune_rollups
        assert await prune(older_than=DAY, limit=10) == 0
        assert [await prune(older_than=30 * MINUTE, limit=2) for _ in range(3)] == [2, 1, 0]
        (rollup,) = await rollups(storage)
        assert rollup.minute == minute_of(clock.now())

    async def test_rollups_equal_a_recount(self, storage: Storage, clock: VirtualClock) -> None:
        chance = seeded(3)
        outcomes = (
            Succeeded(),
            Raised(OOPS),
            GaveUp(OOPS),
            Snoozed(MINUTE),
            Interrupted(),
            Lost(OOPS),
        )
        await enlist(storage)
        asked = [a_job(task=chance.choice("xyz"), max_attempts=3) for _ in range(40)]
        await add(storage, *asked)
        recount: list[Rollup] = []
        past = []
        for _ in range(60):
            clock.advance(chance.choice([0.01, 1.7, 25, 90]))
            for job in await claim(storage, 5):
                clock.advance(chance.choice([0.002, 0.4, 3]))
                if chance.random() < 0.1:
                    await storage.jobs.cancel([job.claim.job])
                outcome = chance.choice(outcomes)
                now = clock.now()
                past.append(decide(job, outcome, POLICY, by="w1", now=now, chance=0.5))
                (answer,) = await end(storage, past[-1])
                assert answer.verdict is Verdict.APPLIED
                recount.append(_counted(job, answer.verb, now))
            await end(storage, *chance.sample(past, min(3, len(past))))
        assert len(recount) > 40
        stored = {(r.minute, r.task): (r.counts, r.wait, r.run) for r in await rollups(storage)}
        again = {(r.minute, r.task): (r.counts, r.wait, r.run) for r in merge(recount)}
        assert stored == again


def _counted(job: ClaimedJob, verb: Verb | None, now: datetime) -> Rollup:
    assert verb is not None
    return Rollup.of(
        minute=minute_of(now),
        queue=job.queue,
        task=job.task,
        verb=verb,
        waited=job.started_at - job.due,
        ran=now - job.started_at,
    )
