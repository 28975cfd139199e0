"""`JobStore.outlook`: whether a claim is worth it and, if not, when it may be."""

from __future__ import annotations

from windlass._core.job.outcome import GaveUp
from windlass._core.job.state import State
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    claim,
    enlist,
    happened,
    limited,
    started,
    throttled,
)

__all__ = ["OutlookConformance"]


async def opens_in_a_minute(storage: Storage, clock: VirtualClock) -> None:
    """Check that it opens in a minute: not now, not a moment before, and then."""
    begun = clock.now()
    for wait in (INSTANT * 0, MINUTE - INSTANT):
        clock.advance(wait)
        outlook = await storage.jobs.outlook(["default"])
        assert (outlook.at, outlook.claimable) == (clock.now(), False)
        assert outlook.next_at == begun + MINUTE
    clock.advance(INSTANT)
    assert (await storage.jobs.outlook(["default"])).claimable
    assert len(await claim(storage)) == 1


class OutlookConformance:
    """`JobStore.outlook`: a worker that sleeps until ``next_at`` loses none of what it may run."""

    async def test_an_empty_queue_has_no_outlook(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        outlook = await storage.jobs.outlook(["default"])
        assert (outlook.at, outlook.claimable, outlook.next_at) == (clock.now(), False, None)

    async def test_a_look_tells_when_a_job_falls_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        await add(storage, a_job(delay=HOUR), a_job(delay=MINUTE))
        await opens_in_a_minute(storage, clock)

    async def test_a_look_forgets_what_is_not_there_any_more(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        gone = a_job(delay=2 * MINUTE)
        await add(storage, a_job(delay=MINUTE + INSTANT), gone, a_job(delay=HOUR))
        await storage.jobs.cancel([gone.id])
        clock.advance(INSTANT)
        cancelled = State.CANCELLED
        assert await storage.maintenance.prune(state=cancelled, older_than=0 * MINUTE, limit=5) == 1
        due = clock.now() + HOUR - INSTANT
        await opens_in_a_minute(storage, clock)
        assert (await storage.jobs.outlook(["default"])).next_at == due

    async def test_a_look_tells_when_a_rate_has_its_next_token(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await storage.limits.define([LimitSpec(name="api", rate=Rate(1, MINUTE))])
        await started(storage, limited("api"))
        await add(storage, limited("api"), a_job(delay=HOUR))
        assert await claim(storage) == []
        await opens_in_a_minute(storage, clock)

    async def test_a_look_tells_which_key_has_its_next_token_first(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await storage.limits.define([LimitSpec(name="api", rate=Rate(1, HOUR))])
        await started(storage, limited("api:a"))
        clock.advance(HOUR - MINUTE)
        await started(storage, limited("api:b"))
        await add(storage, limited("api:b"), limited("api:a"))
        assert await claim(storage) == []
        await opens_in_a_minute(storage, clock)

    async def test_a_look_tells_when_a_breaker_lets_one_through(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        breaker = Breaker(1, cool_down=MINUTE)
        await storage.limits.define([LimitSpec(name="shop", breaker=breaker)])
        await happened(storage, await started(storage, limited("shop")), GaveUp(OOPS))
        await add(storage, limited("shop"))
        assert await claim(storage) == []
        await opens_in_a_minute(storage, clock)

    async def test_a_look_tells_when_a_queue_has_cooled_down(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        await throttled(storage, running, MINUTE)
        await storage.jobs.cancel([running.claim.job])
        await add(storage, a_job())
        await opens_in_a_minute(storage, clock)

    async def test_an_overdue_job_in_a_paused_queue_hides_no_other(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        await add(storage, a_job(queue="paused", delay=INSTANT), a_job(queue="paused", delay=HOUR))
        await add(storage, a_job(delay=2 * MINUTE))
        await storage.admin.pause("paused")
        clock.advance(MINUTE)
        outlook = await storage.jobs.outlook(["paused", "default"])
        assert (outlook.claimable, outlook.next_at) == (False, clock.now() + MINUTE)
        assert (await storage.jobs.outlook(["paused"])).next_at is None

    async def test_an_overdue_job_in_a_full_queue_hides_no_other(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        most = QueueSettings(max_running=1)
        await storage.queues.change("default", most, old=QueueSettings())
        await started(storage)
        await add(storage, a_job(delay=INSTANT), a_job(queue="other", delay=2 * MINUTE))
        clock.advance(MINUTE)
        outlook = await storage.jobs.outlook(["default", "other"])
        assert (outlook.claimable, outlook.next_at) == (False, clock.now() + MINUTE)
