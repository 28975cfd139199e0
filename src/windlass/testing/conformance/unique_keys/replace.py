"""Unique keys that are held: what a waiting holder takes over from the new job."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from windlass._core.job.job import FollowUp, JobId, LimitUse, NewJob
from windlass._core.job.unique import OnConflict, UniqueKey, Window
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    a_job,
    add,
    at_most,
    claim,
    claim_one,
    enlist,
    ids,
    keyed,
    look,
    started,
    succeeded,
)

__all__ = ["ReplaceConformance"]

REPLACING = (OnConflict.REPLACE, OnConflict.REPLACE_ARGUMENTS, OnConflict.REPLACE_DUE)


def meeting(
    what: OnConflict, key: str = "k", window: Window = Window.UNTIL_FINISHED, **asked: Any
) -> NewJob:
    """Return a job with a key, and with a rule for its holder."""
    period = HOUR if window is Window.FOR_A_TIME else None
    return a_job(unique=UniqueKey(key, window, period, what), **asked)


async def insert(storage: Storage, job: NewJob) -> Inserted:
    (answer,) = await storage.jobs.insert([job])
    return answer


async def replaced(storage: Storage, holder: JobId, by: NewJob) -> None:
    """Check that the holder takes over the values of ``by``."""
    assert await insert(storage, by) == Inserted(holder, created=False, replaced=True)
    assert list(await storage.admin.get([by.id])) == [None]


class ReplaceConformance:
    """A waiting job takes over, in its place, what was asked for in its stead."""

    async def test_a_free_key_is_taken_as_ever(self, storage: Storage) -> None:
        for what in OnConflict:
            job = meeting(what, key=what.value)
            assert await insert(storage, job) == Inserted(job.id, created=True, replaced=False)
            assert (await look(storage, job)).key_held

    async def test_replacing_takes_over_arguments_and_due_time(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await at_most(storage, db=1, api=1)
        (holder,) = await add(
            storage,
            keyed("k", payload=b"old", limits=(LimitUse("db", "x", 2.0),), principal="ann"),
        )
        uses = (LimitUse("api", "y", 0.5), LimitUse("db"))
        new = meeting(
            OnConflict.REPLACE,
            payload=b"new",
            delay=MINUTE,
            limits=uses,
            principal="bob",
            correlation_id="c",
            trace="t",
        )
        await replaced(storage, holder, new)
        job = await look(storage, holder)
        assert (job.payload, job.limits, job.due) == (b"new", uses, clock.now() + MINUTE)
        assert (job.principal, job.correlation_id, job.trace) == ("bob", "c", "t")

    async def test_replacing_arguments_leaves_the_due_time(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        due = clock.now() + HOUR
        (holder,) = await add(storage, keyed("k", payload=b"old", delay=HOUR, trace="old"))
        clock.advance(MINUTE)
        await replaced(
            storage, holder, meeting(OnConflict.REPLACE_ARGUMENTS, payload=b"new", delay=DAY)
        )
        job = await look(storage, holder)
        assert (job.payload, job.trace, job.due) == (b"new", None, due)

    async def test_replacing_the_due_time_leaves_the_arguments(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # debouncing
        (holder,) = await add(
            storage,
            keyed("k", payload=b"old", delay=HOUR, principal="ann", correlation_id="c", trace="t"),
        )
        clock.advance(MINUTE)
        before = await look(storage, holder)
        await replaced(
            storage,
            holder,
            meeting(OnConflict.REPLACE_DUE, payload=b"new", delay=HOUR, principal="bob"),
        )
        job = await look(storage, holder)
        assert job.due == clock.now() + HOUR
        assert (job.payload, job.principal, job.correlation_id) == (b"old", "ann", "c")
        assert (job.trace, job.limits) == (before.trace, before.limits)

    async def test_everything_else_of_the_holder_stays(self, storage: Storage) -> None:
        (holder,) = await add(
            storage,
            keyed(
                "k",
                queue="a",
                priority=3,
                max_attempts=4,
                timeout=MINUTE,
                expires=DAY,
                backoff=Backoff.fixed(1),
                tags=("one",),
                tenant="acme",
                delay=HOUR,
                on_failure=FollowUp(task="sorry"),
            ),
        )
        before = await look(storage, holder)
        new = meeting(
            OnConflict.REPLACE_ARGUMENTS,
            queue="b",
            priority=-3,
            max_attempts=1,
            tags=("two",),
            tenant="other",
            expires=DAY,
            payload=b"{}",
            on_failure=FollowUp(task="glad"),
            window=Window.UNTIL_STARTED,
        )
        await replaced(storage, holder, new)
        assert await look(storage, holder) == before

    async def test_the_due_time_is_that_of_a_new_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        (holder,) = await add(storage, keyed("k", delay=HOUR))
        clock.advance(MINUTE)
        past, now = clock.now() - DAY, clock.now()
        cases: tuple[tuple[NewJob, datetime], ...] = (
            (meeting(OnConflict.REPLACE, delay=DAY), now + DAY),
            (meeting(OnConflict.REPLACE_DUE, at=now + HOUR), now + HOUR),
            (meeting(OnConflict.REPLACE_DUE, at=past), past),
            (meeting(OnConflict.REPLACE), now),
        )
        for new, due in cases:
            await replaced(storage, holder, new)
            assert (await look(storage, holder)).due == due

    async def test_every_replace_sets_the_expiry_of_the_new_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        for what in REPLACING:
            (holder,) = await add(storage, keyed(what, expires=HOUR))
            clock.advance(MINUTE)
            for expires in (2 * MINUTE, None, DAY):
                await replaced(storage, holder, meeting(what, what, expires=expires))
                until = None if expires is None else clock.now() + expires
                assert (await look(storage, holder)).expires_at == until
            first, second = keyed(f"{what}!", expires=MINUTE), meeting(what, f"{what}!")
            await storage.jobs.insert([first, second])
            assert (await look(storage, first)).expires_at is None

    async def test_one_that_is_past_its_expiry_and_was_not_met_yet_is_wanted_again(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await at_most(storage, db=9)
        for what in REPLACING:
            for limits in ((), (LimitUse("db"),)):
                (holder,) = await add(storage, keyed("k", expires=MINUTE, limits=limits))
                clock.advance(MINUTE)
                new = meeting(what, expires=HOUR, limits=limits)
                await replaced(storage, holder, new)
                assert list(await storage.maintenance.expire(10)) == []
                running = await claim_one(storage)
                assert running.claim.job == holder
                await succeeded(storage, running)

    async def test_a_ready_job_that_is_put_off_is_claimed_once_when_it_is_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        (holder,) = await add(storage, keyed("k"))
        await replaced(storage, holder, meeting(OnConflict.REPLACE_DUE, delay=MINUTE))
        assert await claim(storage, 10) == []
        assert await storage.maintenance.next_due() == clock.now() + MINUTE
        clock.advance(MINUTE)
        assert ids(await claim(storage, 10)) == [holder]
        assert await claim(storage, 10) == []
        assert await storage.maintenance.promote(10) == 0

    async def test_a_later_job_that_is_brought_forward_is_claimed_once(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        (holder,) = await add(storage, keyed("k", delay=MINUTE))
        await replaced(storage, holder, meeting(OnConflict.REPLACE))
        (running,) = await claim(storage, 10)
        assert running.claim.job == holder
        clock.advance(HOUR)
        await storage.maintenance.promote(10)
        assert await claim(storage, 10) == []

    async def test_a_job_that_is_put_off_again_and_again_runs_after_the_last_time(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # debouncing
        await enlist(storage)
        (holder,) = await add(storage, keyed("k", delay=MINUTE))
        for _ in range(5):
            clock.advance(MINUTE - INSTANT)
            await replaced(storage, holder, meeting(OnConflict.REPLACE_DUE, delay=MINUTE))
            assert await claim(storage, 10) == []
        clock.advance(MINUTE)
        assert ids(await claim(storage, 10)) == [holder]

    async def test_the_claim_brings_what_was_taken_over(self, storage: Storage) -> None:
        await enlist(storage)
        (holder,) = await add(storage, keyed("k", payload=b"old"))
        new = meeting(OnConflict.REPLACE, payload=b"new", principal="bob", trace="t")
        await replaced(storage, holder, new)
        running = await claim_one(storage)
        assert (running.claim.job, running.payload) == (holder, b"new")
        assert (running.principal, running.trace, running.attempt) == ("bob", "t", 1)

    async def test_new_arguments_leave_the_job_in_its_place(self, storage: Storage) -> None:
        await enlist(storage)
        holder, behind = await add(storage, keyed("k"), a_job())
        await replaced(storage, holder, meeting(OnConflict.REPLACE_ARGUMENTS, payload=b"new"))
        assert ids(await claim(storage, 10)) == [holder, behind]

    async def test_a_new_due_time_orders_the_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        holder, behind = await add(storage, keyed("k"), a_job())
        clock.advance(MINUTE)
        await replaced(storage, holder, meeting(OnConflict.REPLACE_DUE))
        assert ids(await claim(storage, 10)) == [behind, holder]

    async def test_the_job_waits_in_the_lane_of_its_new_limits(self, storage: Storage) -> None:
        await at_most(storage, db=1, api=1)
        await started(storage, a_job(limits=(LimitUse("db"),)))
        (holder,) = await add(storage, keyed("k", limits=(LimitUse("db"),)))
        assert await claim(storage, 10) == []
        new = meeting(OnConflict.REPLACE_ARGUMENTS, limits=(LimitUse("api"),))
        await replaced(storage, holder, new)
        assert (await storage.jobs.outlook(["default"])).claimable
        running = await claim_one(storage)
        assert running.claim.job == holder
        (shown,) = [s for s in await storage.limits.states("api") if s.running]
        assert shown.running == 1
        await succeeded(storage, running)
        assert all(s.running == 0 for s in await storage.limits.states("api"))

    async def test_limits_that_are_dropped_or_new_count_at_the_claim(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await at_most(storage, db=1)
        await started(storage, a_job(limits=(LimitUse("db"),)))
        use = (LimitUse("db"),)
        free, bound, later = await add(
            storage, keyed("a", limits=use), keyed("b"), keyed("c", delay=MINUTE)
        )
        await replaced(storage, free, meeting(OnConflict.REPLACE, "a"))
        await replaced(storage, bound, meeting(OnConflict.REPLACE_ARGUMENTS, "b", limits=use))
        await replaced(storage, later, meeting(OnConflict.REPLACE_ARGUMENTS, "c", limits=use))
        clock.advance(MINUTE)
        assert ids(await claim(storage, 10)) == [free]

    async def test_a_new_cost_is_what_the_claim_spends(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        await storage.limits.define([LimitSpec(name="api", rate=Rate(1, MINUTE, 5))])
        (holder,) = await add(storage, keyed("k", limits=(LimitUse("api"),)))
        new = meeting(OnConflict.REPLACE_ARGUMENTS, limits=(LimitUse("api", cost=4.0),))
        await replaced(storage, holder, new)
        assert ids(await claim(storage, 10)) == [holder]
        (shown,) = await storage.limits.states("api")
        assert shown.spent_until == clock.now() + 4 * MINUTE
