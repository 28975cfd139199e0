"""`ActionStore.order`: requeue, discard, cancel and run now, each job answered on its own."""

from __future__ import annotations

import asyncio

from windlass._core.job.outcome import GaveUp, Lost, Succeeded
from windlass._core.job.state import State
from windlass._core.job.unique import Window
from windlass._storage.protocol.actions import (
    ActionResult,
    Cancel,
    Delete,
    Discard,
    Requeue,
    RunNow,
)
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
    a_note,
    add,
    at_most,
    claim,
    claim_one,
    enlist,
    failed,
    happened,
    ids,
    keyed,
    limited,
    look,
    obeyed,
    started,
    succeeded,
)
from windlass.testing.conformance.storage import woken

__all__ = ["ActionConformance", "RequeueConformance"]

DONE, REQUESTED = ActionResult.DONE, ActionResult.REQUESTED
UNKNOWN, WRONG_STATE, CONFLICT = (
    ActionResult.UNKNOWN,
    ActionResult.WRONG_STATE,
    ActionResult.CONFLICT,
)


class ActionConformance:
    """The answers to actions, how often one takes effect, and who is woken."""

    async def test_each_job_is_answered_on_its_own(self, storage: Storage) -> None:  # ADMIN-14
        dead = await failed(storage)
        done = await started(storage)
        await succeeded(storage, done)
        running = await started(storage)
        (waiting,) = await add(storage, a_job())
        everybody = [waiting, dead, new_job_id(), running.claim.job, done.claim.job]
        assert await obeyed(storage, Requeue(), *everybody) == [
            *(WRONG_STATE, DONE, UNKNOWN, WRONG_STATE, WRONG_STATE)
        ]
        assert await obeyed(storage, Cancel(), *everybody) == [
            *(DONE, DONE, UNKNOWN, REQUESTED, WRONG_STATE)
        ]
        states = [job and job.state for job in await storage.admin.get(everybody)]
        assert states == [*(State.CANCELLED, State.CANCELLED, None, State.RUNNING, State.SUCCEEDED)]

    async def test_an_id_that_comes_twice_meets_what_its_first_place_left(
        self, storage: Storage
    ) -> None:
        dead = await failed(storage)
        (waiting,) = await add(storage, a_job(delay=DAY))
        assert await obeyed(storage, Requeue(), dead, dead) == [DONE, WRONG_STATE]
        assert await obeyed(storage, RunNow(), waiting, waiting) == [DONE, DONE]
        assert await obeyed(storage, Cancel(), waiting, waiting) == [DONE, WRONG_STATE]
        assert await obeyed(storage, Delete(), waiting, waiting) == [DONE, UNKNOWN]
        assert len(await claim(storage, 10)) == 1

    async def test_no_ids_give_no_answers(self, storage: Storage) -> None:
        assert await obeyed(storage, Requeue()) == []
        assert list(await storage.orders.audits(limit=10)) == []

    async def test_of_two_concurrent_requeues_exactly_one_is_done(
        self, storage: Storage
    ) -> None:  # A4, A5, ADMIN-9
        job = await failed(storage)
        answers = await asyncio.gather(*(obeyed(storage, Requeue(), job) for _ in range(2)))
        assert sorted(answers) == [[DONE], [WRONG_STATE]]
        assert len(await storage.orders.audits(limit=10)) == 1
        assert len(await claim(storage, 10)) == 1

    async def test_a_failed_job_is_discarded_with_a_reason(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # A1, ADMIN-13
        dead = await failed(storage)
        (waiting,) = await add(storage, a_job(delay=DAY))
        clock.advance(HOUR)
        assert await obeyed(storage, Discard("no use"), dead, waiting) == [DONE, WRONG_STATE]
        found = await look(storage, dead)
        assert (found.state, found.reason, found.error) == (State.DISCARDED, "no use", OOPS)
        assert found.finished_at == clock.now()
        assert (await look(storage, waiting)).state is State.WAITING

    async def test_a_cancelled_waiting_job_is_over_and_its_key_is_free(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        (waiting,) = await add(storage, keyed("k"))
        assert await obeyed(storage, Cancel(), waiting) == [DONE]
        found = await look(storage, waiting)
        assert (found.state, found.finished_at) == (State.CANCELLED, clock.now())
        await add(storage, keyed("k", delay=DAY))
        assert await claim(storage, 10) == []

    async def test_the_worker_of_a_cancelled_running_job_is_asked(self, storage: Storage) -> None:
        running = await started(storage)
        assert await obeyed(storage, Cancel(), running.claim.job) == [REQUESTED]
        assert await obeyed(storage, Cancel(), running.claim.job) == [REQUESTED]
        assert list((await storage.workers.beat("w1")).cancelled) == [running.claim]
        await happened(storage, running, GaveUp(OOPS))
        assert (await look(storage, running)).state is State.CANCELLED

    async def test_a_waiting_job_is_due_now_unless_it_already_was(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # PRIO-5
        await enlist(storage)
        first, later = await add(storage, a_job(), a_job(delay=DAY))
        clock.advance(HOUR)
        assert await obeyed(storage, RunNow(), later, first) == [DONE, DONE]
        dues = [(await look(storage, job)).due for job in (first, later)]
        assert dues == [clock.now() - HOUR, clock.now()]
        assert ids(await claim(storage, 10)) == [first, later]
        assert await obeyed(storage, RunNow(), first) == [WRONG_STATE]

    async def test_a_repeated_action_changes_nothing_and_gets_the_first_answer(
        self, storage: Storage
    ) -> None:  # guarantee 8
        dead, running = await failed(storage), await started(storage)
        note = a_note()
        asked = [dead, running.claim.job, new_job_id()]
        answers = await obeyed(storage, Requeue(), *asked, note=note)
        again = await claim_one(storage)
        await happened(storage, again, GaveUp(OOPS))
        assert await obeyed(storage, Requeue(), *asked, note=note) == answers
        assert (await look(storage, dead)).state is State.FAILED
        assert [record.count for record in await storage.orders.audits(limit=10)] == [1]

    async def test_a_repeated_delete_is_answered_as_the_first_time(self, storage: Storage) -> None:
        dead, running, note = await failed(storage), await started(storage), a_note()
        asked = (dead, running.claim.job)
        assert await obeyed(storage, Delete(), *asked, note=note) == [DONE, REQUESTED]
        assert await obeyed(storage, Delete(), *asked, note=note) == [DONE, REQUESTED]
        await succeeded(storage, running)
        await add(storage, a_job(id=dead))
        assert await obeyed(storage, Delete(), *asked, note=note) == [DONE, REQUESTED]
        assert None not in await storage.admin.get(asked)

    async def test_an_action_without_effect_may_be_repeated(self, storage: Storage) -> None:
        note = a_note()
        (job,) = await add(storage, a_job())
        assert await obeyed(storage, Requeue(), job, note=note) == [WRONG_STATE]
        await storage.jobs.cancel([job])
        assert await obeyed(storage, Requeue(), job, note=note) == [DONE]

    async def test_actions_wake_subscribers(self, storage: Storage) -> None:  # H-16
        dead = await failed(storage)
        for order in (Requeue(), Cancel(), Delete()):
            async with woken(storage):
                await obeyed(storage, order, dead)


class RequeueConformance:
    """The state of a job after a requeue."""

    async def test_a_requeued_job_waits_again_with_a_fresh_budget(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # A2, STATE-11, Q6
        job = await failed(storage, max_attempts=3, payload=b"[1]")
        clock.advance(HOUR)
        assert await obeyed(storage, Requeue(), job) == [DONE]
        back = await look(storage, job)
        assert (back.state, back.due, back.finished_at) == (State.WAITING, clock.now(), None)
        assert (back.attempt, back.max_attempts, back.budget) == (1, 4, 3)
        assert back.error == OOPS
        assert len(await storage.admin.history(job)) == 1
        again = await claim_one(storage)
        assert (again.claim.job, again.payload, again.attempt) == (job, b"[1]", 2)

    async def test_jobs_of_all_three_ends_are_requeued_together(self, storage: Storage) -> None:
        discarded, dead = await failed(storage), await failed(storage)
        (cancelled,) = await add(storage, a_job())
        await storage.jobs.cancel([cancelled])
        await obeyed(storage, Discard("no use"), discarded)
        assert await obeyed(storage, Requeue(), dead, cancelled, discarded) == [DONE, DONE, DONE]
        back = await storage.admin.get([discarded, dead, cancelled])
        assert [job and job.reason for job in back] == [None, None, None]
        assert ids(await claim(storage, 10)) == [discarded, dead, cancelled]

    async def test_a_requeue_forgets_expiry_suspicion_and_cancel_request(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # TTL-10, A27
        running = await started(storage, a_job(expires=MINUTE, max_attempts=1))
        await storage.jobs.cancel([running.claim.job])
        await happened(storage, running, Lost(OOPS), by="reaper")
        clock.advance(HOUR)
        await obeyed(storage, Requeue(), running.claim.job)
        back = await look(storage, running)
        assert (back.expires_at, back.missed_at, back.cancel_requested) == (None, None, False)
        assert (back.lost, back.solo) == (0, False)
        assert ids(await claim(storage)) == [running.claim.job]

    async def test_the_key_is_taken_again(self, storage: Storage) -> None:
        dead = await failed(storage, keyed("k"))
        await obeyed(storage, Requeue(), dead)
        assert (await look(storage, dead)).key_held
        (answer,) = await storage.jobs.insert([keyed("k")])
        assert (answer.id, answer.created) == (dead, False)

    async def test_a_key_that_another_job_holds_is_a_conflict_for_this_one_alone(
        self, storage: Storage
    ) -> None:  # A3, ADMIN-18
        dead, free = await failed(storage, keyed("k")), await failed(storage)
        (holder,) = await add(storage, keyed("k", delay=DAY))
        assert await obeyed(storage, Requeue(), dead, free) == [CONFLICT, DONE]
        found = await look(storage, dead)
        assert (found.state, found.max_attempts) == (State.FAILED, found.budget)
        assert (await look(storage, holder)).key_held
        assert ids(await claim(storage, 10)) == [free]

    async def test_of_two_jobs_with_one_key_the_first_has_it(self, storage: Storage) -> None:
        one, two = await failed(storage, keyed("k")), await failed(storage, keyed("k"))
        assert await obeyed(storage, Requeue(), two, one) == [DONE, CONFLICT]
        assert ids(await claim(storage, 10)) == [two]

    async def test_a_key_held_until_started_stays_free(self, storage: Storage) -> None:
        dead = await failed(storage, keyed("k", Window.UNTIL_STARTED))
        await add(storage, keyed("k", Window.UNTIL_STARTED, delay=DAY))
        assert await obeyed(storage, Requeue(), dead) == [DONE]
        assert not (await look(storage, dead)).key_held

    async def test_a_key_held_for_a_time_is_not_prolonged_while_it_is_held(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        dead = await failed(storage, keyed("k", Window.FOR_A_TIME))
        clock.advance(HOUR - MINUTE)
        assert await obeyed(storage, Requeue(), dead) == [DONE]
        assert (await look(storage, dead)).key_held
        clock.advance(MINUTE)
        assert not (await look(storage, dead)).key_held

    async def test_a_key_held_for_a_time_is_taken_for_a_new_period(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        dead = await failed(storage, keyed("k", Window.FOR_A_TIME))
        clock.advance(DAY)
        assert await obeyed(storage, Requeue(), dead) == [DONE]
        clock.advance(HOUR - INSTANT)
        assert (await look(storage, dead)).key_held
        clock.advance(INSTANT)
        assert not (await look(storage, dead)).key_held

    async def test_limits_count_again(self, storage: Storage) -> None:
        await at_most(storage, one=1)
        dead = await failed(storage, limited("one"))
        running = await started(storage, limited("one"))
        assert await obeyed(storage, Requeue(), dead) == [DONE]
        assert await claim(storage, 10) == []
        await happened(storage, running, Succeeded())
        assert ids(await claim(storage, 10)) == [dead]
        assert [state.running for state in await storage.limits.states("one")] == [1]
