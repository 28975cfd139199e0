"""`Edit`: a waiting job gets another due time, priority or queue, and moves to its place."""

from __future__ import annotations

from datetime import UTC, datetime

from windlass._core.job.outcome import Raised
from windlass._core.job.state import State
from windlass._core.limits.queue_settings import QueueSettings
from windlass._core.values.instants import LAST_INSTANT
from windlass._storage.protocol.actions import ActionResult, Edit
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.jobs.solo_runs import suspected
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    ask,
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

__all__ = ["EditConformance"]

DONE = [ActionResult.DONE]


class EditConformance:
    """The place of an edited job."""

    async def test_ready_jobs_change_places_by_priority(self, storage: Storage) -> None:
        await enlist(storage)
        first, second, third = await add(storage, a_job(), a_job(), a_job())
        assert await obeyed(storage, Edit(priority=-1), third) == DONE
        assert await obeyed(storage, Edit(priority=1), first) == DONE
        assert (await look(storage, third)).priority == -1
        assert ids(await claim(storage, 10)) == [third, second, first]

    async def test_a_job_due_later_keeps_its_new_priority(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        first, second = await add(storage, a_job(delay=MINUTE), a_job(delay=MINUTE))
        assert await obeyed(storage, Edit(priority=-1), second) == DONE
        assert await claim(storage, 10) == []
        clock.advance(MINUTE)
        assert ids(await claim(storage, 10)) == [second, first]

    async def test_a_ready_job_may_be_put_off(self, storage: Storage, clock: VirtualClock) -> None:
        await enlist(storage)
        job, other = await add(storage, a_job(), a_job())
        later = clock.now() + HOUR
        assert await obeyed(storage, Edit(due=later), job) == DONE
        (counts,) = await storage.admin.counts()
        assert (counts.ready, counts.scheduled) == (1, 1)
        reply = await ask(storage, 10)
        assert (ids(list(reply.jobs)), reply.next_at) == ([other], later)
        clock.advance(HOUR)
        assert ids(await claim(storage, 10)) == [job]

    async def test_a_job_due_later_may_be_ready_at_once(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        first, early = await add(storage, a_job(), a_job(delay=DAY))
        past = clock.now() - HOUR
        assert await obeyed(storage, Edit(due=past), early) == DONE
        assert (await look(storage, early)).due == past
        assert ids(await claim(storage, 10)) == [early, first]
        clock.advance(2 * DAY)
        assert await claim(storage, 10) == []

    async def test_a_job_due_later_may_come_sooner(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        (job,) = await add(storage, a_job(delay=DAY))
        soon = clock.now() + MINUTE
        assert await obeyed(storage, Edit(due=soon), job) == DONE
        assert await storage.maintenance.next_due() == soon
        clock.advance(MINUTE)
        assert ids(await claim(storage, 10)) == [job]

    async def test_an_instant_beyond_the_calendar_is_brought_into_it(
        self, storage: Storage
    ) -> None:
        (job,) = await add(storage, a_job())
        assert await obeyed(storage, Edit(due=datetime(9999, 12, 31, tzinfo=UTC)), job) == DONE
        assert (await look(storage, job)).due == LAST_INSTANT

    async def test_a_ready_job_moves_to_another_queue_and_keeps_the_order_there(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        (moved,) = await add(storage, a_job(queue="a"))
        clock.advance(MINUTE)
        stays, there, first = await add(
            storage, a_job(queue="a"), a_job(queue="b"), a_job(queue="b", priority=-1)
        )
        assert await obeyed(storage, Edit(queue="b"), moved) == DONE
        counts = {one.queue: one.ready for one in await storage.admin.counts()}
        assert counts == {"a": 1, "b": 3}
        assert ids(await claim(storage, 10, queue="a")) == [stays]
        jobs = await claim(storage, 10, queue="b")
        assert ids(jobs) == [first, moved, there]
        assert {job.queue for job in jobs} == {"b"}

    async def test_a_job_due_later_moves_to_another_queue(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        (moved,) = await add(storage, a_job(queue="a", delay=MINUTE))
        assert await obeyed(storage, Edit(queue="b"), moved) == DONE
        due = clock.now() + MINUTE
        assert await storage.maintenance.next_due(["a"]) is None
        assert await storage.maintenance.next_due(["b"]) == due
        clock.advance(MINUTE)
        assert await claim(storage, 10, queue="a") == []
        assert ids(await claim(storage, 10, queue="b")) == [moved]

    async def test_a_limited_job_moves_with_its_limits(self, storage: Storage) -> None:
        await at_most(storage, one=1)
        running = await started(storage, limited("one"))
        moved, stays = await add(storage, limited("one"), limited("one"))
        assert await obeyed(storage, Edit(queue="b"), moved) == DONE
        assert await claim(storage, 10, queue="b") == []
        await succeeded(storage, running)
        (there,) = await claim(storage, 10, queue="b")
        assert there.claim.job == moved
        assert await claim(storage, 10) == []
        await succeeded(storage, there)
        assert ids(await claim(storage, 10)) == [stays]

    async def test_limited_jobs_change_places_within_their_lane(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await at_most(storage, one=1)
        jobs = await add(storage, *(limited("one") for _ in range(3)))
        assert await obeyed(storage, Edit(priority=-1), jobs[2]) == DONE
        assert await obeyed(storage, Edit(due=clock.now() + HOUR), jobs[0]) == DONE
        met = []
        for _ in range(2):
            running = await claim_one(storage)
            met.append(running.claim.job)
            await succeeded(storage, running)
        assert met == [jobs[2], jobs[1]]
        assert await claim(storage, 10) == []
        clock.advance(HOUR)
        assert ids(await claim(storage, 10)) == [jobs[0]]

    async def test_a_job_that_runs_alone_moves_as_such(self, storage: Storage) -> None:
        suspect = await suspected(storage)
        assert await obeyed(storage, Edit(queue="b"), suspect.claim.job) == DONE
        assert not (await ask(storage, 10)).solo_due
        reply = await ask(storage, 10, queue="b")
        assert (list(reply.jobs), reply.solo_due) == ([], True)
        (alone,) = await claim(storage, 10, queue="b", solo=True)
        assert (alone.claim.job, alone.solo) == (suspect.claim.job, True)

    async def test_a_job_is_held_by_what_holds_its_new_queue(self, storage: Storage) -> None:
        await enlist(storage)
        await storage.admin.pause("shut")
        await storage.queues.change("full", QueueSettings(max_running=1), old=QueueSettings())
        one, two, three = await add(storage, a_job(), a_job(), a_job(queue="full"))
        assert await obeyed(storage, Edit(queue="shut"), one) == DONE
        assert await obeyed(storage, Edit(queue="full", priority=-1), two) == DONE
        assert await claim(storage, 10, queue="shut") == []
        (running,) = await claim(storage, 10, queue="full")
        assert running.claim.job == two
        await succeeded(storage, running)
        assert ids(await claim(storage, 10, queue="full")) == [three]
        await storage.admin.resume("shut")
        assert ids(await claim(storage, 10, queue="shut")) == [one]

    async def test_omitted_fields_stay_as_they_are(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage, keyed("k", priority=3, expires=DAY))
        await happened(storage, running, Raised(OOPS))
        before = await look(storage, running)
        assert await obeyed(storage, Edit(), before.id) == DONE
        assert await look(storage, running) == before
        assert await obeyed(storage, Edit(priority=7), before.id) == DONE
        after = await look(storage, running)
        assert (after.priority, after.queue, after.due) == (7, before.queue, before.due)
        assert (after.attempt, after.error, after.expires_at) == (1, OOPS, before.expires_at)
        (answer,) = await storage.jobs.insert([keyed("k")])
        assert (answer.id, answer.created) == (before.id, False)
        clock.advance(HOUR)
        assert (await claim_one(storage)).attempt == 2

    async def test_all_at_once(self, storage: Storage, clock: VirtualClock) -> None:
        await enlist(storage)
        jobs = await add(storage, *(a_job() for _ in range(3)))
        later = clock.now() + MINUTE
        edit = Edit(due=later, priority=4, queue="b")
        assert await obeyed(storage, edit, *jobs) == [*DONE, *DONE, *DONE]
        found = [await look(storage, job) for job in jobs]
        assert {(job.due, job.priority, job.queue) for job in found} == {(later, 4, "b")}
        clock.advance(MINUTE)
        assert ids(await claim(storage, 10, queue="b")) == jobs

    async def test_only_waiting_jobs_are_edited(self, storage: Storage) -> None:
        dead = await failed(storage)
        running = await started(storage)
        asked = [dead, running.claim.job, new_job_id()]
        wrong = ActionResult.WRONG_STATE
        assert await obeyed(storage, Edit(queue="b"), *asked) == [
            wrong,
            wrong,
            ActionResult.UNKNOWN,
        ]
        assert (await look(storage, running)).queue == "default"
        assert (await look(storage, dead)).state is State.FAILED
