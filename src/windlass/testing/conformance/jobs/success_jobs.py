"""`Transition.then`: which verbs bring it, its unique key, and many jobs of one success."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from windlass._core.job.job import LimitUse, NewJob
from windlass._core.job.outcome import Interrupted
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition, release, retry, snooze, succeed, throttle
from windlass._core.job.unique import OnConflict, UniqueKey, Window
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.protocol.storage import Storage
from windlass.errors import LimitUnknown
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    at_most,
    claim,
    end,
    ended,
    happened,
    ids,
    keyed,
    limited,
    look,
    started,
    succeeded,
    total,
)
from windlass.testing.conformance.storage import woken

__all__ = ["AddedJobConformance", "SuccessJobConformance"]


class SuccessJobConformance:
    """Follow-ups of a run that succeeded, or will run again."""

    async def test_a_success_is_followed_in_the_same_step(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running, then = await started(storage), a_job(delay=MINUTE)
        answer = await ended(storage, replace(succeed(running, by="w1", result=b"7"), then=(then,)))
        assert answer.verb is Verb.SUCCEED
        job = await look(storage, running)
        assert (job.state, job.result) == (State.SUCCEEDED, b"7")
        assert (await look(storage, then)).due == clock.now() + MINUTE

    async def test_a_success_wins_over_a_cancel_request_and_is_followed(
        self, storage: Storage
    ) -> None:
        running, then = await started(storage), a_job()
        await storage.jobs.cancel([running.claim.job])
        await ended(storage, replace(succeed(running, by="w1", result=None), then=(then,)))
        assert ids(await claim(storage, 10)) == [then.id]

    async def test_a_transition_replaced_by_a_cancel_inserts_no_follow_up(
        self, storage: Storage
    ) -> None:
        running = [await started(storage) for _ in range(4)]
        await storage.jobs.cancel([job.claim.job for job in running])
        transitions = [
            retry(running[0], by="w1", error=OOPS, delay=HOUR),
            snooze(running[1], by="w1", delay=HOUR),
            throttle(running[2], by="w1", delay=HOUR),
            release(running[3], by="w1", delay=HOUR),
        ]
        answers = await end(storage, *(replace(one, then=(a_job(),)) for one in transitions))
        assert {answer.verb for answer in answers} == {Verb.CANCEL}
        assert await total(storage) == 4

    async def test_many_successes_alike_are_each_followed(self, storage: Storage) -> None:
        running = [await started(storage) for _ in range(5)]
        thens = [a_job() for _ in range(5)]
        await end(
            storage,
            *(
                replace(succeed(job, by="w1", result=None), then=(then,) if number % 2 else ())
                for number, (job, then) in enumerate(zip(running, thens, strict=True))
            ),
        )
        for job in running:
            assert (await look(storage, job)).state is State.SUCCEEDED
        assert ids(await claim(storage, 10)) == [thens[1].id, thens[3].id]

    async def test_a_repeated_success_is_followed_once(self, storage: Storage) -> None:
        running, then = await started(storage), a_job()
        transition = replace(succeed(running, by="w1", result=None), then=(then,))
        await ended(storage, transition)
        for again in (transition, replace(transition, then=(a_job(),))):
            (answer,) = await end(storage, again)
            assert (answer.verdict, answer.verb) == (Verdict.REPEATED, Verb.SUCCEED)
        assert await total(storage) == 2

    async def test_it_takes_the_key_that_the_success_gave_back(self, storage: Storage) -> None:
        for window in (Window.UNTIL_FINISHED, Window.UNTIL_STARTED):
            key = f"k {window}"
            running, then = await started(storage, keyed(key, window)), keyed(key, window)
            await ended(storage, replace(succeed(running, by="w1", result=None), then=(then,)))
            assert (await look(storage, then)).key_held
            assert not (await look(storage, running)).key_held
            (answer,) = await storage.jobs.insert([keyed(key, window)])
            assert (answer.id, answer.created) == (then.id, False)
            await claim(storage, 10)

    async def test_it_takes_the_key_and_the_unit_of_a_success_that_is_not_kept(
        self, storage: Storage
    ) -> None:
        await at_most(storage, db=1)
        running = await started(storage, replace(limited("db"), unique=UniqueKey("k")))
        then = replace(limited("db"), unique=UniqueKey("k"))
        await ended(
            storage, replace(succeed(running, by="w1", result=None, keep=False), then=(then,))
        )
        assert await total(storage) == 1
        assert (await look(storage, then)).key_held
        assert ids(await claim(storage, 10)) == [then.id]

    async def test_it_takes_a_key_that_another_end_of_the_call_gave_back(
        self, storage: Storage
    ) -> None:
        for turn in (1, -1):
            holder = await started(storage, keyed("k"))
            running, then = await started(storage), keyed("k")
            transitions = [
                succeed(holder, by="w1", result=None),
                replace(succeed(running, by="w1", result=None), then=(then,)),
            ]
            await end(storage, *transitions[::turn])
            assert (await look(storage, then)).key_held
            await storage.jobs.cancel([then.id])

    async def test_it_is_left_out_while_its_key_is_held(self, storage: Storage) -> None:
        (holder,) = await add(storage, keyed("k", delay=HOUR))
        running = await started(storage)
        await ended(storage, replace(succeed(running, by="w1", result=None), then=(keyed("k"),)))
        assert (await look(storage, running)).state is State.SUCCEEDED
        assert await total(storage) == 2
        assert (await look(storage, holder)).key_held

    async def test_a_run_that_continues_keeps_its_key_from_its_follow_up(
        self, storage: Storage
    ) -> None:
        running = await started(storage, keyed("k"))
        then = replace(snooze(running, by="w1", delay=HOUR), then=(keyed("k"),))
        await ended(storage, then)
        assert await total(storage) == 1
        assert (await look(storage, running)).key_held

    async def test_a_held_key_stops_no_end_with_any_on_conflict(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        (holder,) = await add(storage, keyed("k", delay=HOUR, payload=b'"first"'))
        due = clock.now() + HOUR
        transitions: list[Transition] = []
        for conflict in OnConflict:
            for task in ("conform", "other"):
                running = await started(storage)
                unique = UniqueKey("k", on_conflict=conflict)
                then = a_job(task=task, unique=unique, payload=b'"second"')
                done = succeed(running, by="w1", result=None)
                transitions.append(replace(done, then=(then,)))
        answers = await end(storage, *transitions)
        assert {answer.verdict for answer in answers} == {Verdict.APPLIED}
        job = await look(storage, holder)
        assert (job.payload, job.due) == (b'"first"', due)
        assert await total(storage) == 1 + len(transitions)


def some(number: int) -> tuple[NewJob, ...]:
    """Return jobs that differ in their payloads."""
    return tuple(a_job(payload=b"%d" % n) for n in range(number))


class AddedJobConformance:
    """`Transition.then` with more than one job."""

    async def test_every_job_of_a_success_is_stored_in_order(self, storage: Storage) -> None:
        running, then = await started(storage), some(5)
        await ended(storage, succeed(running, by="w1", result=b"7", then=then))
        assert (await look(storage, running)).state is State.SUCCEEDED
        jobs = await claim(storage, 10)
        assert ids(jobs) == [job.id for job in then]
        assert [job.payload for job in jobs] == [job.payload for job in then]

    async def test_each_success_of_a_batch_brings_its_own_jobs(self, storage: Storage) -> None:
        running = [await started(storage) for _ in range(4)]
        thens = [some(2), (), some(3), some(1)]
        pairs = zip(running, thens, strict=True)
        await end(storage, *(succeed(job, by="w1", result=None, then=then) for job, then in pairs))
        assert ids(await claim(storage, 10)) == [job.id for then in thens for job in then]

    async def test_the_answer_names_the_jobs_that_were_not_stored(self, storage: Storage) -> None:
        held, stored, new = keyed("k"), a_job(delay=HOUR), a_job()
        await add(storage, keyed("k", delay=HOUR), stored)
        running = await started(storage)
        ending = succeed(running, by="w1", result=None, then=(held, stored, new))
        applied = await storage.jobs.apply([ending])
        assert set(applied.left_out) == {held.id, stored.id}
        again = await storage.jobs.apply([ending])
        assert (again.answers[0].verdict, [*again.left_out]) == (Verdict.REPEATED, [])

    async def test_a_refused_success_stores_none_of_its_jobs(self, storage: Storage) -> None:
        running = await started(storage)
        await happened(storage, running, Interrupted(), by="reaper")
        (answer,) = await end(storage, succeed(running, by="w1", result=None, then=some(3)))
        assert answer.verdict is Verdict.REFUSED
        assert await total(storage) == 1

    async def test_a_repeated_success_stores_each_of_its_jobs_once(self, storage: Storage) -> None:
        running, then = await started(storage), some(3)
        success = succeed(running, by="w1", result=None, then=then)
        await ended(storage, success)
        first, *_ = await claim(storage, 1)
        await succeeded(storage, first)
        (answer,) = await end(storage, success)
        assert answer.verdict is Verdict.REPEATED
        assert await total(storage) == 4
        assert (await look(storage, first)).state is State.SUCCEEDED
        assert ids(await claim(storage, 10)) == [job.id for job in then[1:]]

    async def test_an_undefined_limit_of_one_job_stops_the_success_and_all_its_jobs(
        self, storage: Storage
    ) -> None:
        running = await started(storage)
        then = (a_job(), a_job(limits=(LimitUse("nobody"),)), a_job())
        with pytest.raises(LimitUnknown):
            await end(storage, succeed(running, by="w1", result=None, then=then))
        assert (await look(storage, running)).state is State.RUNNING
        assert await total(storage) == 1

    async def test_a_held_key_leaves_out_that_job_alone(self, storage: Storage) -> None:
        (holder,) = await add(storage, keyed("held", delay=HOUR))
        running = await started(storage)
        then = (a_job(), keyed("held"), keyed("free"), keyed("free"), a_job())
        await ended(storage, succeed(running, by="w1", result=None, then=then))
        stored = [then[0].id, then[2].id, then[4].id]
        assert ids(await claim(storage, 10)) == stored
        assert await total(storage) == 2 + len(stored)
        assert (await look(storage, holder)).key_held
        assert (await look(storage, then[2])).key_held

    async def test_limits_and_delays_hold_for_each_of_them(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await at_most(storage, db=1)
        running = await started(storage)
        clock.advance(MINUTE)
        then = (limited("db"), limited("db"), a_job(delay=MINUTE), a_job(priority=-1))
        await ended(storage, succeed(running, by="w1", result=None, then=then))
        first = await claim(storage, 10)
        assert sorted(ids(first)) == sorted([then[0].id, then[3].id])
        assert (await look(storage, then[2])).due == clock.now() + MINUTE
        for job in first:
            await succeeded(storage, job)
        clock.advance(MINUTE)
        assert sorted(ids(await claim(storage, 10))) == sorted([then[1].id, then[2].id])

    async def test_a_success_that_is_not_kept_brings_all_its_jobs(self, storage: Storage) -> None:
        running, then = await started(storage), some(3)
        await ended(storage, succeed(running, by="w1", result=None, keep=False, then=then))
        assert await total(storage) == 3
        assert ids(await claim(storage, 10)) == [job.id for job in then]

    async def test_a_success_may_bring_thousands_of_jobs(self, storage: Storage) -> None:
        running, then = await started(storage), some(3000)
        await ended(storage, succeed(running, by="w1", result=None, then=then))
        assert await total(storage) == 3001
        assert ids(await claim(storage, 3000)) == [job.id for job in then]

    async def test_workers_of_every_queue_are_woken(self, storage: Storage) -> None:
        for queue in ("b", "c"):
            running = await started(storage)
            then = (a_job(queue="b", delay=HOUR), a_job(queue="c", delay=HOUR), a_job(queue=queue))
            async with woken(storage, queue):
                await ended(storage, succeed(running, by="w1", result=None, then=then))
