"""Budgets that are emptied, filled and changed while jobs wait for them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from windlass._core.job.job import ClaimedJob, LimitUse
from windlass._core.job.outcome import Interrupted
from windlass._core.job.transition import throttle
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.protocol.storage import Storage
from windlass.errors import LimitUnknown
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    SECOND,
    a_job,
    add,
    ask,
    at_most,
    claim,
    claim_one,
    end,
    ended,
    enlist,
    happened,
    ids,
    limited,
    look,
    started,
)
from windlass.testing.conformance.storage import woken

__all__ = ["ChangedRateConformance", "DrainConformance"]


async def define(storage: Storage, rate: Rate, name: str = "api", most: int | None = None) -> None:
    """Define a rate, and a worker to claim with."""
    await enlist(storage)
    await storage.limits.define([LimitSpec(name=name, rate=rate, concurrency=most)])


async def full_at(storage: Storage, name: str = "api", key: str = "") -> datetime | None:
    """Return when a bucket is full again, as it is shown; None: it is full."""
    shown = [state for state in await storage.limits.states(name) if state.key == key]
    until = shown[0].spent_until if shown else None
    return until if until is not None and until > await storage.now() else None


async def turned_away(storage: Storage, job: ClaimedJob, delay: timedelta = HOUR) -> None:
    """End a claim by a real refusal: all its buckets are empty."""
    await ended(storage, throttle(job, by="w1", delay=delay, drains=True))


class DrainConformance:
    """A bucket is emptied for everybody, by a job or by a person, and filled again."""

    async def test_a_drained_bucket_has_nothing_left_and_fills_as_ever(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-11
        await define(storage, Rate(1, MINUTE, 3))
        wanted = await add(storage, *(limited("api") for _ in range(5)))
        await storage.limits.drain("api")
        assert await full_at(storage) == clock.now() + 3 * MINUTE
        assert (await ask(storage, 10)).next_at == clock.now() + MINUTE
        clock.advance(MINUTE - INSTANT)
        assert await claim(storage, 10) == []
        clock.advance(INSTANT)
        assert ids(await claim(storage, 10)) == wanted[:1]
        clock.advance(2 * MINUTE)
        assert ids(await claim(storage, 10)) == wanted[1:3]

    async def test_draining_takes_what_is_left_and_no_more(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(1, MINUTE, 3))
        await started(storage, limited("api"))
        await storage.limits.drain("api")
        assert await full_at(storage) == clock.now() + 3 * MINUTE
        clock.advance(SECOND)
        await storage.limits.drain("api")
        assert await full_at(storage) == clock.now() + 3 * MINUTE

    async def test_a_debt_is_not_forgiven_by_draining(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(1, MINUTE, 2))
        await started(storage, a_job(limits=(LimitUse("api", cost=9.0),)))
        await storage.limits.drain("api")
        assert await full_at(storage) == clock.now() + 9 * MINUTE

    async def test_only_the_bucket_of_that_key_is_drained(self, storage: Storage) -> None:
        await define(storage, Rate(1, MINUTE))
        await define(storage, Rate(1, MINUTE), "api2")
        await storage.limits.drain("api", "a")
        await add(storage, limited("api:a"))
        others = await add(storage, limited("api"), limited("api:b"), limited("api2:a"))
        assert ids(await claim(storage, 10)) == others

    async def test_draining_a_limit_without_a_rate_changes_nothing(self, storage: Storage) -> None:
        await at_most(storage, db=1)
        await storage.limits.drain("db")
        (job,) = await add(storage, limited("db"))
        assert ids(await claim(storage, 10)) == [job]

    async def test_draining_an_undefined_limit_is_an_error(self, storage: Storage) -> None:
        with pytest.raises(LimitUnknown):
            await storage.limits.drain("nobody")

    async def test_a_drained_bucket_outlives_tidying(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(1, HOUR, 2))
        await storage.limits.drain("api", "a")
        await storage.maintenance.tidy()
        assert await full_at(storage, key="a") == clock.now() + 2 * HOUR

    async def test_a_throttled_job_drains_every_rate_it_draws_on(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(1, MINUTE, 4))
        await define(storage, Rate(1, HOUR, 2), "tokens", most=9)
        await at_most(storage, db=5)
        running = await started(storage, limited("api:a", "tokens", "db"))
        await turned_away(storage, running)
        assert await full_at(storage, key="a") == clock.now() + 4 * MINUTE
        assert await full_at(storage, "tokens") == clock.now() + 2 * HOUR
        await add(storage, limited("api:a"), limited("tokens"))
        free = await add(storage, limited("api:b"), limited("db"), a_job())
        assert ids(await claim(storage, 10)) == free

    async def test_a_throttled_job_that_does_not_say_so_drains_nothing(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(1, MINUTE, 4))
        running = await started(storage, limited("api"))
        await ended(storage, throttle(running, by="w1", delay=HOUR))
        assert await full_at(storage) == clock.now() + MINUTE

    async def test_a_drain_comes_to_no_more_than_its_finish(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-8
        await define(storage, Rate(1, DAY, 9))
        late, cancelled = await started(storage, limited("api")), await started(storage)
        await happened(storage, late, Interrupted(), by="reaper")
        (answer,) = await end(storage, throttle(late, by="w1", delay=HOUR, drains=True))
        assert answer.verdict is Verdict.REFUSED
        assert await full_at(storage) == clock.now() + DAY
        await storage.jobs.cancel([late.claim.job, cancelled.claim.job])
        running = await started(storage, limited("api"))
        await storage.jobs.cancel([running.claim.job])
        await turned_away(storage, running)
        assert await full_at(storage) == clock.now() + 2 * DAY

    async def test_a_reset_bucket_is_full(self, storage: Storage) -> None:
        await define(storage, Rate(1, DAY, 2))
        wanted = await add(storage, *(limited("api") for _ in range(5)))
        await storage.limits.drain("api")
        assert await claim(storage, 10) == []
        await storage.limits.reset("api")
        assert await full_at(storage) is None
        assert (await storage.jobs.outlook(["default"])).claimable
        assert ids(await claim(storage, 10)) == wanted[:2]

    async def test_a_reset_forgives_a_debt(self, storage: Storage) -> None:
        await define(storage, Rate(1, DAY, 2))
        await started(storage, a_job(limits=(LimitUse("api", cost=9.0),)))
        await storage.limits.reset("api")
        (job,) = await add(storage, limited("api"))
        assert ids(await claim(storage, 10)) == [job]

    async def test_only_the_bucket_of_that_key_is_reset(self, storage: Storage) -> None:
        await define(storage, Rate(1, DAY))
        for key in ("a", "b", ""):
            await storage.limits.drain("api", key)
        _, one, _ = await add(storage, limited("api:a"), limited("api:b"), limited("api"))
        await storage.limits.reset("api", "b")
        assert ids(await claim(storage, 10)) == [one]

    async def test_a_reset_gives_no_running_job_back(self, storage: Storage) -> None:
        await at_most(storage, db=1)
        await started(storage, limited("db"))
        await add(storage, limited("db"))
        await storage.limits.reset("db")
        assert await claim(storage, 10) == []
        (shown,) = await storage.limits.states("db")
        assert shown.running == 1

    async def test_resetting_what_was_never_used_is_harmless(self, storage: Storage) -> None:
        await define(storage, Rate(1, DAY))
        await storage.limits.reset("api", "a")
        _, two = await add(storage, limited("api:a"), limited("api:b"))
        assert ids(await claim(storage, 10))[-1] == two

    async def test_a_reset_wakes(self, storage: Storage) -> None:
        await define(storage, Rate(1, DAY))
        await storage.limits.drain("api")
        async with woken(storage):
            await storage.limits.reset("api")


class ChangedRateConformance:
    """A rate is changed: what is owed are tokens, not time."""

    async def test_under_a_faster_rate_what_is_owed_is_paid_sooner(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(1, HOUR))
        await started(storage, limited("api"))
        (waiting,) = await add(storage, limited("api"))
        assert await claim(storage, 10) == []
        await define(storage, Rate(6, MINUTE))
        assert await full_at(storage) == clock.now() + 10 * SECOND
        assert (await ask(storage, 10)).next_at == clock.now() + 10 * SECOND
        clock.advance(10 * SECOND - INSTANT)
        assert await claim(storage, 10) == []
        clock.advance(INSTANT)
        assert ids(await claim(storage, 10)) == [waiting]

    async def test_under_a_slower_rate_what_is_owed_is_paid_later(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(6, MINUTE))
        await started(storage, limited("api"))
        await define(storage, Rate(1, HOUR))
        assert await full_at(storage) == clock.now() + HOUR

    async def test_part_of_a_token_is_owed_in_part(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(1, HOUR, 4))
        await started(storage, a_job(limits=(LimitUse("api", cost=3.0),)))
        clock.advance(HOUR / 2)
        await define(storage, Rate(1, MINUTE, 4))
        assert await full_at(storage) == clock.now() + 2.5 * MINUTE

    async def test_every_key_of_the_limit_and_no_other_limit_is_changed(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(1, HOUR))
        await define(storage, Rate(1, HOUR), "api2")
        for limit in ("api", "api:a", "api:b:c", "api2", "api2:a"):
            await started(storage, limited(limit))
        await define(storage, Rate(1, MINUTE))
        for key in ("", "a", "b:c"):
            assert await full_at(storage, key=key) == clock.now() + MINUTE
        for key in ("", "a"):
            assert await full_at(storage, "api2", key) == clock.now() + HOUR

    async def test_a_rate_that_is_defined_again_as_it_is_changes_nothing(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        rate = Rate(2.5, MINUTE, 3)
        await define(storage, rate)
        await started(storage, limited("api"))
        clock.advance(SECOND)
        before = await full_at(storage)
        for most in (None, 7, None):
            await define(storage, rate, most=most)
            assert await full_at(storage) == before

    async def test_a_larger_burst_alone_changes_nothing_that_is_owed(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(1, MINUTE, 2))
        await started(storage, limited("api"))
        await define(storage, Rate(1, MINUTE, 5))
        assert await full_at(storage) == clock.now() + MINUTE
        await add(storage, *(limited("api") for _ in range(9)))
        assert len(await claim(storage, 10)) == 4

    async def test_a_full_bucket_stays_full(self, storage: Storage, clock: VirtualClock) -> None:
        await define(storage, Rate(1, MINUTE))
        await started(storage, limited("api"))
        clock.advance(MINUTE)
        await define(storage, Rate(1, DAY))
        (job,) = await add(storage, limited("api"))
        assert ids(await claim(storage, 10)) == [job]

    async def test_jobs_that_wait_at_home_are_judged_by_the_new_rate(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(1, DAY))
        wanted = await add(storage, *(limited("api") for _ in range(4)))
        assert (await claim_one(storage)).claim.job == wanted[0]
        assert await claim(storage, 10) == []
        await define(storage, Rate(1, SECOND, 3))
        assert ids(await claim(storage, 10)) == wanted[1:3]
        clock.advance(SECOND)
        assert ids(await claim(storage, 10)) == wanted[3:]
        assert (await look(storage, wanted[3])).attempt == 1

    async def test_a_changed_rate_wakes(self, storage: Storage) -> None:
        await define(storage, Rate(1, DAY))
        async with woken(storage):
            await define(storage, replace(Rate(1, DAY), burst=2))
