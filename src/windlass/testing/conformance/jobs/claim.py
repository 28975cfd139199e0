"""`JobStore.claim`: which jobs, in which order, and what a claim does to them."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from windlass._core.job.job import NO_TIMEOUT, AttemptError, Claim, JobId, Progress
from windlass._core.job.outcome import GaveUp, Interrupted, Raised
from windlass._core.job.state import State
from windlass._core.job.transition import retry
from windlass._core.limits.backoff import Backoff
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    ask,
    at_most,
    claim,
    claim_one,
    end,
    enlist,
    happened,
    ids,
    limited,
    look,
    seeded,
    started,
)

__all__ = ["ClaimConformance", "ClaimOrderConformance"]

_DATA = {"rows": 12, "files": ["a", "\x1f\x00ü"], "at": None}


class ClaimConformance:
    """The jobs that a claim returns, and its changes."""

    async def test_a_claim_returns_the_job_and_marks_it_running(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # F1, A12, CLAIM-5, forge enqueue_then_claim_returns_the_row
        await enlist(storage)
        (wanted,) = await add(storage, a_job(task="mail.send"))
        clock.advance(MINUTE)
        claimed = await claim_one(storage)
        assert (claimed.claim.job, claimed.task) == (wanted, "mail.send")
        assert (claimed.attempt, claimed.claim.number) == (1, 1)
        assert (claimed.worker, claimed.started_at) == ("w1", clock.now())
        job = await look(storage, wanted)
        assert (job.state, job.attempt, job.claim_number) == (State.RUNNING, 1, 1)
        assert (job.worker, job.started_at, job.seq) == ("w1", clock.now(), claimed.claim.seq)

    async def test_a_claimed_job_is_not_claimed_again(
        self, storage: Storage
    ) -> None:  # F1, CLAIM-1
        await enlist(storage, "w1", "w2")
        await add(storage, a_job())
        assert len(await claim(storage, 10)) == 1
        assert await claim(storage, 10, worker="w2") == []

    async def test_eight_concurrent_claimers_never_share_a_job(
        self, storage: Storage
    ) -> None:  # CLAIM-1, guarantee 2
        workers = [f"w{number}" for number in range(8)]
        await enlist(storage, *workers)
        wanted = await add(storage, *(a_job() for _ in range(500)))

        async def drain(worker: str) -> list[str]:
            taken: list[str] = []
            while jobs := await claim(storage, 7, worker=worker):
                taken += ids(jobs)
            return taken

        taken = [job for jobs in await asyncio.gather(*map(drain, workers)) for job in jobs]
        assert sorted(taken) == sorted(wanted)

    async def test_a_claimed_job_carries_what_its_worker_needs(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        asked = a_job(
            payload=b"[1]",
            max_attempts=4,
            timeout=MINUTE,
            backoff=Backoff.fixed(3),
            tags=("a",),
            tenant="acme",
            principal="42",
            correlation_id="c-1",
            trace="00-trace",
        )
        claimed = await started(storage, asked)
        assert (claimed.payload, claimed.queue, claimed.due) == (b"[1]", "default", clock.now())
        assert (claimed.max_attempts, claimed.budget, claimed.tries) == (4, 4, 1)
        assert (claimed.timeout, claimed.backoff) == (MINUTE, asked.backoff)
        assert (claimed.tags, claimed.tenant, claimed.principal) == (("a",), "acme", "42")
        assert (claimed.correlation_id, claimed.trace) == ("c-1", "00-trace")
        assert (claimed.lost, claimed.solo, claimed.missed_at, claimed.error) == (
            0,
            False,
            None,
            None,
        )

    async def test_no_timeout_is_another_answer_than_none_said(self, storage: Storage) -> None:
        asked = [a_job(timeout=timeout) for timeout in (NO_TIMEOUT, None, MINUTE)]
        stored = await storage.admin.get(await add(storage, *asked))
        assert [job and job.timeout for job in stored] == [NO_TIMEOUT, None, MINUTE]
        await enlist(storage)
        claimed = await claim(storage, 3)
        assert [job.timeout for job in claimed] == [NO_TIMEOUT, None, MINUTE]

    async def test_the_last_error_comes_with_the_next_claim_without_its_traceback(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # H-9
        await happened(storage, await started(storage), Raised(OOPS))
        clock.advance(HOUR)
        claimed = await claim_one(storage)
        assert claimed.error == AttemptError(OOPS.kind, OOPS.message)

    async def test_every_claim_raises_the_claim_number_also_when_the_attempt_was_given_back(
        self, storage: Storage
    ) -> None:  # the fence
        running = await started(storage)
        await happened(storage, running, Interrupted())
        again = await claim_one(storage)
        assert (again.attempt, again.claim.number) == (1, 2)

    async def test_a_claim_clears_a_cancel_request_left_from_an_earlier_run(
        self, storage: Storage
    ) -> None:  # CLAIM-7, forge claim_next_clears_stale_cancel_flag_from_previous_attempt
        running = await started(storage)
        await storage.jobs.cancel([running.claim.job])
        stubborn = retry(running, by="w1", error=OOPS, delay=0 * MINUTE)
        await end(storage, replace(stubborn, if_cancelled=None))
        again = await claim_one(storage)
        assert (await storage.workers.beat("w1")).cancelled == []
        assert not (await look(storage, again)).cancel_requested

    async def test_a_claim_clears_the_progress_of_an_earlier_run(self, storage: Storage) -> None:
        running = await started(storage)
        await storage.jobs.report([(running.claim, Progress(0.9, "nearly"))])
        await happened(storage, running, Interrupted())
        assert (await look(storage, await claim_one(storage))).progress is None

    async def test_a_worker_that_never_registered_gets_nothing(self, storage: Storage) -> None:
        (wanted,) = await add(storage, a_job())
        reply = await ask(storage, worker="nobody")
        assert (reply.live, list(reply.jobs)) == (False, [])
        assert (await look(storage, wanted)).state is State.WAITING

    async def test_a_dead_worker_gets_no_jobs(self, storage: Storage) -> None:
        await enlist(storage)
        (wanted,) = await add(storage, a_job())
        assert (await ask(storage, 0)).live
        await storage.workers.bury(["w1"])
        reply = await ask(storage)
        assert (reply.live, list(reply.jobs)) == (False, [])
        assert (await look(storage, wanted)).state is State.WAITING

    async def test_a_worker_that_has_left_gets_nothing(self, storage: Storage) -> None:
        await enlist(storage)
        (wanted,) = await add(storage, a_job())
        await storage.workers.leave("w1", [])
        reply = await ask(storage)
        assert (reply.live, list(reply.jobs)) == (False, [])
        assert (await look(storage, wanted)).state is State.WAITING

    async def test_a_failed_job_does_not_block_those_behind_it(
        self, storage: Storage
    ) -> None:  # F5, CLAIM-12
        failed = await started(storage, a_job(priority=-5))
        (fresh,) = await add(storage, a_job())
        await happened(storage, failed, GaveUp(OOPS))
        assert ids(await claim(storage, 10)) == [fresh]

    async def test_progress_is_stored_for_a_claim_that_holds(self, storage: Storage) -> None:
        running = await started(storage)
        for said in (Progress(0.5, "half"), Progress(0.5, "half", _DATA), Progress(1, "", {})):
            await storage.jobs.report([(running.claim, said)])
            assert (await look(storage, running)).progress == said

    async def test_progress_of_a_claim_that_is_not_held_changes_nothing(
        self, storage: Storage
    ) -> None:
        former = await started(storage)
        await happened(storage, former, Interrupted())
        current = await claim_one(storage)
        unrelated = Claim(new_job_id(), 1, 999_999)
        said = [(current.claim, 0.1), (former.claim, 0.9), (unrelated, 0.9)]
        await storage.jobs.report([(claim, Progress(fraction)) for claim, fraction in said])
        assert (await look(storage, current)).progress == Progress(0.1)


class ClaimOrderConformance:
    """Guarantee 5: which job comes first, and when something comes at all."""

    async def test_lower_priority_numbers_come_first(self, storage: Storage) -> None:  # PRIO-1
        await enlist(storage)
        late, soon, middle = await add(
            storage, a_job(priority=10), a_job(priority=-10), a_job(priority=0)
        )
        assert ids(await claim(storage, 3)) == [soon, middle, late]

    async def test_priority_comes_before_due_time(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # PRIO-1
        await enlist(storage)
        old, urgent = await add(storage, a_job(at=clock.now() - DAY), a_job(priority=-1))
        assert ids(await claim(storage, 2)) == [urgent, old]

    async def test_within_a_priority_the_longest_due_comes_first(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # PRIO-1
        await enlist(storage)
        second, first = await add(storage, a_job(delay=2 * MINUTE), a_job(delay=MINUTE))
        clock.advance(HOUR)
        assert ids(await claim(storage, 2)) == [first, second]

    async def test_jobs_due_together_come_in_the_order_of_insertion(
        self, storage: Storage
    ) -> None:  # PRIO-2, forge claim_next_is_fifo_within_priority_and_scheduled_at
        await enlist(storage)
        wanted = await add(storage, *(a_job() for _ in range(5)))
        assert [(await claim_one(storage)).claim.job for _ in wanted] == wanted

    async def test_a_retried_job_competes_by_its_new_due_time(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # PRIO-7
        retried = await started(storage)
        await happened(storage, retried, Raised(OOPS))
        before, after = await add(storage, a_job(delay=MINUTE / 2), a_job(delay=2 * MINUTE))
        clock.advance(HOUR)
        assert ids(await claim(storage, 3)) == [before, retried.claim.job, after]

    async def test_wants_are_served_in_their_order(self, storage: Storage) -> None:
        await enlist(storage)
        urgent, plain = await add(storage, a_job(queue="b", priority=-9), a_job(queue="a"))
        reply = await storage.jobs.claim("w1", [Want("a", 1), Want("b", 1)], total=2)
        assert ids(list(reply.jobs)) == [plain, urgent]

    async def test_a_claim_gives_at_most_the_total(self, storage: Storage) -> None:
        await enlist(storage)
        await add(storage, *(a_job(queue=queue) for queue in "aabb"))
        reply = await storage.jobs.claim("w1", [Want("a", 2), Want("b", 2)], total=3)
        assert [job.queue for job in reply.jobs] == ["a", "a", "b"]

    async def test_a_claim_gives_at_most_what_each_want_has_room_for(
        self, storage: Storage
    ) -> None:
        await enlist(storage)
        await add(storage, *(a_job(queue=queue) for queue in "aaabbb"))
        reply = await storage.jobs.claim("w1", [Want("a", 1), Want("b", 2)], total=10)
        assert [job.queue for job in reply.jobs] == ["a", "b", "b"]

    async def test_a_claim_without_room_gives_nothing(self, storage: Storage) -> None:
        await enlist(storage)
        await add(storage, a_job())
        reply = await storage.jobs.claim("w1", [Want("default", 5)], total=0)
        assert (reply.live, list(reply.jobs)) == (True, [])

    async def test_any_mix_of_jobs_comes_in_the_one_order(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # guarantee 5
        chance = seeded(5)
        await at_most(storage, roomy=1000)
        for _ in range(60):
            asked = limited(*chance.choice([(), (), ("roomy",), ("roomy:a",)]))
            delay = chance.randrange(5) * MINUTE
            await add(storage, replace(asked, priority=chance.randrange(3), delay=delay))
        clock.advance(HOUR)
        taken: list[JobId] = []
        while jobs := await claim(storage, chance.randrange(1, 9)):
            taken += ids(jobs)
        stored = [await look(storage, job) for job in taken]
        assert len(stored) == 60
        assert stored == sorted(stored, key=lambda job: (job.priority, job.due, job.seq))

    async def test_claims_get_through_any_number_of_jobs_that_fell_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # a claim promotes in chunks, without help
        await enlist(storage)
        wanted = await add(storage, *(a_job(delay=MINUTE) for _ in range(1200)))
        clock.advance(MINUTE)
        taken: list[JobId] = []
        while jobs := await claim(storage, 300):
            taken += ids(jobs)
        assert taken == wanted

    async def test_a_claim_takes_from_no_other_queue(self, storage: Storage) -> None:  # CLAIM-10
        await enlist(storage)
        await add(storage, a_job(queue="other"))
        assert await claim(storage, 10) == []

    async def test_a_job_due_later_is_not_claimed(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # PRIO-3, forge claim_skips_future_scheduled_jobs
        await enlist(storage)
        await add(storage, a_job(delay=MINUTE))
        clock.advance(MINUTE - INSTANT)
        assert await claim(storage) == []

    async def test_a_job_is_claimed_at_the_very_instant_it_is_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # PRIO-3, inclusive; not promoted before
        await enlist(storage)
        (wanted,) = await add(storage, a_job(delay=MINUTE))
        clock.advance(MINUTE)
        assert ids(await claim(storage)) == [wanted]

    async def test_the_reply_tells_the_stores_now(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        clock.advance(DAY)
        assert (await ask(storage)).at == clock.now()

    async def test_nothing_to_claim_is_an_empty_reply(self, storage: Storage) -> None:  # CLAIM-11
        await enlist(storage)
        reply = await ask(storage, 10)
        assert (list(reply.jobs), reply.live, reply.next_at, reply.solo_due) == (
            [],
            True,
            None,
            False,
        )

    async def test_the_reply_tells_when_the_next_job_of_its_queues_is_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        await add(storage, a_job(delay=HOUR), a_job(delay=MINUTE), a_job(queue="b", delay=INSTANT))
        assert (await ask(storage)).next_at == clock.now() + MINUTE

    async def test_the_reply_forgets_a_due_time_that_was_cancelled(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        soon, _ = await add(storage, a_job(delay=MINUTE), a_job(delay=HOUR))
        await storage.jobs.cancel([soon])
        assert (await ask(storage)).next_at == clock.now() + HOUR

    async def test_claimable_is_never_wrong_about_ready_jobs(self, storage: Storage) -> None:
        await enlist(storage)
        await add(storage, a_job(queue="a"))
        assert (await storage.jobs.outlook(["b", "a"])).claimable

    async def test_claimable_is_never_wrong_about_jobs_that_fell_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await add(storage, a_job(delay=MINUTE))
        clock.advance(MINUTE)
        assert (await storage.jobs.outlook(["default"])).claimable
