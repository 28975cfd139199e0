"""Limits on how often jobs start."""

from __future__ import annotations

from datetime import datetime, timedelta

from windlass._core.job.job import LimitUse
from windlass._core.job.outcome import Interrupted, Raised
from windlass._core.job.state import State
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    ask,
    claim,
    claim_one,
    enlist,
    happened,
    ids,
    limited,
    look,
    seeded,
    started,
    succeeded,
)

__all__ = ["RateConformance"]

SECOND = timedelta(seconds=1)


async def define(storage: Storage, n: float, per: timedelta, burst: int = 1) -> None:
    """Define a limit named ``api``, and a worker to claim with."""
    await enlist(storage)
    await storage.limits.define([LimitSpec(name="api", rate=Rate(n, per, burst))])


def busiest(starts: list[datetime], per: timedelta) -> int:
    """Return the most starts in any half-open window: the fullest one begins at a start."""
    return max(sum(first <= start < first + per for start in starts) for first in starts)


class RateConformance:
    """Tokens are spent at the claim and come back with time, with nothing else."""

    async def test_a_clock_that_is_set_back_keeps_no_token_waiting(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, 1, MINUTE)
        await started(storage, limited("api"))
        wanted = await add(storage, limited("api"), limited("api"))
        assert await claim(storage, 10) == []
        clock.jump(clock.now() - HOUR)
        assert (await storage.jobs.outlook(["default"])).claimable
        reply = await ask(storage, 10)
        assert (reply.jobs, reply.next_at) == ([], clock.now() + MINUTE)
        outlook = await storage.jobs.outlook(["default"])
        assert (outlook.claimable, outlook.next_at) == (False, clock.now() + MINUTE)
        clock.advance(MINUTE)
        assert ids(await claim(storage, 10)) == wanted[:1]
        clock.advance(MINUTE)
        assert ids(await claim(storage, 10)) == wanted[1:]

    async def test_a_clock_that_is_set_back_forgives_no_debt(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, 1, MINUTE)
        await started(storage, a_job(limits=(LimitUse("api", cost=3.0),)))
        (wanted,) = await add(storage, limited("api"))
        clock.jump(clock.now() - HOUR)
        assert (await ask(storage, 10)).next_at == clock.now() + 3 * MINUTE
        clock.advance(3 * MINUTE - INSTANT)
        assert await claim(storage, 10) == []
        clock.advance(INSTANT)
        assert ids(await claim(storage, 10)) == [wanted]

    async def test_a_clock_that_is_set_back_keeps_no_drained_bucket_waiting(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, 1, MINUTE)
        await started(storage, limited("api"))
        clock.advance(HOUR)
        await storage.limits.drain("api")
        (wanted,) = await add(storage, limited("api"))
        clock.jump(clock.now() - 10 * MINUTE)
        assert (await ask(storage, 10)).next_at == clock.now() + MINUTE
        clock.advance(MINUTE)
        assert ids(await claim(storage, 10)) == [wanted]

    async def test_no_window_holds_more_starts_than_the_rate_allows(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # guarantee 6: at most n + burst - 1 in any half-open window
        chance = seeded(11)
        await define(storage, 4, 10 * SECOND, burst=3)
        wanted = await add(storage, *(limited("api") for _ in range(60)))
        starts: list[datetime] = []
        for _ in range(400):
            clock.advance(chance.choice([0.1, 0.7, 1.3, 2.5, 9.0]))
            for job in await claim(storage, 10):
                starts.append(job.started_at)
                await succeeded(storage, job)
        assert len(starts) == len(wanted)
        assert busiest(starts, 10 * SECOND) <= 4 + 3 - 1

    async def test_a_burst_starts_together_and_not_one_more(self, storage: Storage) -> None:
        await define(storage, 1, MINUTE, burst=3)
        wanted = await add(storage, *(limited("api") for _ in range(5)))
        assert ids(await claim(storage, 10)) == wanted[:3]
        assert await claim(storage, 10) == []

    async def test_the_reply_tells_when_a_token_is_back_and_then_it_is(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, 6, MINUTE)
        _, second = await add(storage, limited("api"), limited("api"))
        first = await ask(storage, 10)
        assert len(first.jobs) == 1
        assert (await ask(storage, 10)).next_at == clock.now() + 10 * SECOND
        clock.advance(10 * SECOND - INSTANT)
        assert await claim(storage, 10) == []
        clock.advance(INSTANT)
        assert ids(await claim(storage, 10)) == [second]

    async def test_an_ended_claim_gives_no_token_back(self, storage: Storage) -> None:
        await define(storage, 1, MINUTE)
        running = await started(storage, limited("api"))
        await add(storage, limited("api"))
        await happened(storage, running, Interrupted())
        assert await claim(storage, 10) == []

    async def test_a_retry_needs_another_token(self, storage: Storage, clock: VirtualClock) -> None:
        await define(storage, 1, HOUR)
        running = await started(storage, limited("api"))
        await happened(storage, running, Raised(OOPS))
        clock.advance(2 * MINUTE)
        assert await claim(storage, 10) == []
        clock.advance(HOUR)
        assert ids(await claim(storage, 10)) == [running.claim.job]

    async def test_every_key_has_its_own_bucket(self, storage: Storage) -> None:
        await define(storage, 1, MINUTE)
        first, _, second = await add(storage, limited("api:a"), limited("api:a"), limited("api:b"))
        assert ids(await claim(storage, 10)) == [first, second]

    async def test_a_job_spends_what_it_costs(self, storage: Storage, clock: VirtualClock) -> None:
        await define(storage, 1, SECOND, burst=4)
        await add(storage, a_job(limits=(LimitUse("api", cost=3),)))
        wanted = await add(storage, *(limited("api") for _ in range(4)))
        assert len(await claim(storage, 2)) == 2
        assert await claim(storage, 10) == []
        clock.advance(2 * SECOND)
        assert ids(await claim(storage, 10)) == wanted[1:3]

    async def test_a_cost_above_the_burst_starts_on_a_full_bucket_and_leaves_a_debt(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, 1, SECOND, burst=2)
        (big, small) = await add(storage, a_job(limits=(LimitUse("api", cost=5),)), limited("api"))
        assert ids(await claim(storage, 10)) == [big]
        clock.advance(4 * SECOND - INSTANT)
        assert await claim(storage, 10) == []
        clock.advance(INSTANT)
        assert ids(await claim(storage, 10)) == [small]

    async def test_a_costly_head_is_not_overtaken_within_its_lane(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, 1, SECOND, burst=2)
        await started(storage, limited("api"))
        big, small = await add(storage, a_job(limits=(LimitUse("api", cost=2),)), limited("api"))
        assert await claim(storage, 10) == []
        clock.advance(SECOND)
        assert ids(await claim(storage, 10)) == [big]
        clock.advance(SECOND)
        assert ids(await claim(storage, 10)) == [small]

    async def test_a_lane_without_tokens_does_not_block_jobs_without_limits(
        self, storage: Storage
    ) -> None:
        await define(storage, 1, HOUR)
        await started(storage, limited("api"))
        await add(storage, *(limited("api", priority=-5) for _ in range(20)))
        (plain,) = await add(storage, a_job(priority=5))
        assert ids(await claim(storage)) == [plain]

    async def test_no_token_is_spent_when_another_limit_is_closed(
        self, storage: Storage
    ) -> None:  # all or none
        await define(storage, 1, HOUR)
        await storage.limits.define([LimitSpec(name="db", concurrency=1)])
        running = await started(storage, limited("db"))
        (both,) = await add(storage, limited("api", "db"))
        assert await claim(storage, 10) == []
        await succeeded(storage, running)
        assert ids(await claim(storage, 10)) == [both]

    async def test_a_limit_may_bound_both_how_often_and_how_many(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        both = LimitSpec(name="api", rate=Rate(1, SECOND, 2), concurrency=1)
        await storage.limits.define([both])
        await add(storage, *(limited("api") for _ in range(4)))
        first = await claim_one(storage)
        assert await claim(storage) == []
        await succeeded(storage, first)
        await succeeded(storage, await claim_one(storage))
        assert await claim(storage) == []
        clock.advance(SECOND)
        assert len(await claim(storage, 10)) == 1

    async def test_a_larger_burst_lets_waiting_jobs_through(self, storage: Storage) -> None:
        await define(storage, 1, MINUTE)
        wanted = await add(storage, *(limited("api") for _ in range(4)))
        assert ids(await claim(storage, 10)) == wanted[:1]
        assert await claim(storage, 10) == []
        await define(storage, 1, MINUTE, burst=3)
        assert ids(await claim(storage, 10)) == wanted[1:3]

    async def test_the_state_of_a_limit_tells_when_its_bucket_is_full(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, 6, MINUTE, burst=2)
        await started(storage, limited("api:a"))
        await started(storage, limited("api:a"))
        (state,) = await storage.limits.states("api")
        assert (state.key, state.running) == ("a", 2)
        assert state.spent_until == clock.now() + 20 * SECOND

    async def test_a_cancelled_head_spends_nothing(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, 1, SECOND)
        await started(storage, limited("api"))
        head, behind = await add(storage, limited("api"), limited("api"))
        assert await claim(storage, 10) == []
        await storage.jobs.cancel([head])
        clock.advance(SECOND)
        assert ids(await claim(storage, 10)) == [behind]

    async def test_an_expired_head_spends_nothing(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, 1, SECOND)
        await started(storage, limited("api"))
        head, behind = await add(storage, limited("api", expires=SECOND / 2), limited("api"))
        clock.advance(SECOND)
        assert ids(await claim(storage, 10)) == [behind]
        assert (await look(storage, head)).state is State.DISCARDED

    async def test_claimable_is_never_wrong_about_a_token_that_came_back(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, 1, SECOND)
        await started(storage, limited("api"))
        await add(storage, limited("api"))
        assert await claim(storage, 10) == []
        clock.advance(SECOND)
        assert (await storage.jobs.outlook(["default"])).claimable
