"""Circuit breakers: a limit that failures shut."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from windlass._core.job.job import ClaimedJob
from windlass._core.job.outcome import (
    Cancelled,
    Crashed,
    GaveUp,
    Interrupted,
    Lost,
    Missing,
    Outcome,
    Raised,
    Snoozed,
    Throttled,
)
from windlass._core.job.transition import fail, succeed
from windlass._core.limits.breaker import Breaker, BreakerState
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.protocol.limits import BreakerLook, LimitState
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    OOPS,
    SECOND,
    a_job,
    add,
    ask,
    claim,
    end,
    ended,
    enlist,
    happened,
    ids,
    limited,
    look,
    started,
    succeeded,
)

__all__ = ["BreakerConformance"]

REST = timedelta(seconds=30)


async def guard(storage: Storage, failures: int = 3, name: str = "shop") -> None:
    """Define a breaker, and workers to claim with."""
    await enlist(storage, "w1", "w2")
    breaker = Breaker(failures, cool_down=REST, longest=4 * REST)
    await storage.limits.define([LimitSpec(name=name, breaker=breaker)])


async def runs(storage: Storage, count: int, *limits: str) -> list[ClaimedJob]:
    """Return this number of running jobs behind the breaker."""
    return [await started(storage, limited(*(limits or ("shop",)))) for _ in range(count)]


async def failed(storage: Storage, *running: ClaimedJob) -> None:
    for job in running:
        await happened(storage, job, GaveUp(OOPS))


async def tripped(storage: Storage, failures: int = 3) -> None:
    """Open a breaker for the first time."""
    await guard(storage, failures)
    await failed(storage, *await runs(storage, failures))


async def state(storage: Storage, name: str = "shop") -> BreakerState:
    """Return the public state of a breaker."""
    (shown,) = await storage.limits.states(name)
    assert (shown.name, shown.key) == (name, "")
    assert shown.breaker is not None
    return shown.breaker


class BreakerConformance:
    """The outcomes that open a breaker, and those that do not."""

    async def test_it_opens_at_its_number_of_failures_and_not_before(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # BRK
        await guard(storage, 3)
        *first, last = await runs(storage, 3)
        (waiting,) = await add(storage, limited("shop", priority=9))
        await failed(storage, *first)
        assert await state(storage) == BreakerState(2, 0, None)
        assert ids(await claim(storage, 1)) == [waiting]
        await failed(storage, last)
        assert await state(storage) == BreakerState(3, 1, clock.now() + REST)
        await add(storage, limited("shop"))
        assert await claim(storage, 10) == []

    async def test_one_failure_is_enough_if_so_asked(self, storage: Storage) -> None:
        await tripped(storage, 1)
        await add(storage, limited("shop"))
        assert await claim(storage, 10) == []

    async def test_a_success_in_between_starts_the_count_again(self, storage: Storage) -> None:
        await guard(storage, 3)
        one, two, good, three, four, five = await runs(storage, 6)
        await failed(storage, one, two)
        await succeeded(storage, good)
        assert await state(storage) == BreakerState()
        await failed(storage, three, four)
        (waiting,) = await add(storage, limited("shop"))
        assert ids(await claim(storage, 10)) == [waiting]
        await failed(storage, five)
        assert (await state(storage)).opened == 1

    async def test_a_job_that_names_it_twice_is_one_failure(self, storage: Storage) -> None:
        await guard(storage, 3)
        await failed(storage, *await runs(storage, 1, "shop", "shop"))
        assert (await state(storage)).failures == 1

    async def test_an_attempt_that_will_be_repeated_is_a_failure_like_the_last_one(
        self, storage: Storage
    ) -> None:
        await guard(storage, 4)
        outcomes: tuple[Outcome, ...] = (Raised(OOPS), GaveUp(OOPS), Crashed(OOPS), Lost(OOPS))
        for count, outcome in enumerate(outcomes, start=1):
            (running,) = await runs(storage, 1)
            await happened(storage, running, outcome, by="reaper")
            assert (await state(storage)).failures == count, outcome
        assert (await state(storage)).opened == 1

    async def test_outcomes_without_an_attempt_are_no_failure_and_no_success(
        self, storage: Storage
    ) -> None:
        await guard(storage, 2)
        (bad,) = await runs(storage, 1)
        await failed(storage, bad)
        outcomes: tuple[Outcome, ...] = (
            Cancelled(OOPS),
            Snoozed(HOUR),
            Throttled(HOUR),
            Interrupted(),
            Missing(OOPS),
        )
        for outcome in outcomes:
            (running,) = await runs(storage, 1)
            await happened(storage, running, outcome)
            assert await state(storage) == BreakerState(1, 0, None), outcome
            await storage.jobs.cancel([running.claim.job])

    async def test_a_failure_that_gives_way_to_a_cancel_request_is_none(
        self, storage: Storage
    ) -> None:
        await guard(storage, 1)
        (running,) = await runs(storage, 1)
        await storage.jobs.cancel([running.claim.job])
        await happened(storage, running, GaveUp(OOPS))
        assert await state(storage) == BreakerState()

    async def test_refused_and_repeated_finishes_count_nothing(self, storage: Storage) -> None:
        await guard(storage, 2)
        one, two = await runs(storage, 2)
        verdict = fail(one, by="w1", error=OOPS)
        await ended(storage, verdict)
        (again,) = await end(storage, verdict)
        assert again.verdict is Verdict.REPEATED
        await happened(storage, two, Interrupted(), by="reaper")
        refused = await end(
            storage, fail(two, by="w1", error=OOPS), succeed(two, by="w1", result=None)
        )
        assert [answer.verdict for answer in refused] == [Verdict.REFUSED] * 2
        assert await state(storage) == BreakerState(1, 0, None)

    async def test_a_success_that_is_not_kept_closes_too(self, storage: Storage) -> None:
        await guard(storage, 2)
        bad, good = await runs(storage, 2)
        await failed(storage, bad)
        await ended(storage, succeed(good, by="w1", result=None, keep=False))
        assert await state(storage) == BreakerState()

    async def test_while_it_is_open_no_attempt_is_spent_and_nothing_else_stops(
        self, storage: Storage
    ) -> None:
        await tripped(storage)
        (held,) = await add(storage, limited("shop", priority=-5))
        (plain,) = await add(storage, a_job())
        assert ids(await claim(storage, 10)) == [plain]
        job = await look(storage, held)
        assert (job.attempt, job.claim_number) == (0, 0)

    async def test_those_that_ran_already_run_on(self, storage: Storage) -> None:
        await guard(storage, 1)
        one, two = await runs(storage, 2)
        await failed(storage, one)
        await succeeded(storage, two)

    async def test_failures_of_all_workers_and_queues_are_counted_together(
        self, storage: Storage
    ) -> None:
        await guard(storage, 2)
        one = await started(storage, limited("shop"))
        await add(storage, limited("shop", queue="b"))
        (two,) = await claim(storage, queue="b", worker="w2")
        await failed(storage, one, two)
        await add(storage, limited("shop"), limited("shop", queue="b"))
        assert await claim(storage, worker="w2") == []
        assert await claim(storage, queue="b") == []

    async def test_every_failure_of_many_concurrent_ones_is_counted(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await guard(storage, 10)
        running = await runs(storage, 20)
        await asyncio.gather(*(failed(storage, job) for job in running))
        assert await state(storage) == BreakerState(20, 1, clock.now() + REST)

    async def test_a_batch_of_failures_counts_each_of_them_in_order(self, storage: Storage) -> None:
        await guard(storage, 3)
        *bad, good, last = await runs(storage, 4)
        failures = [fail(job, by="w1", error=OOPS) for job in (*bad, last)]
        await end(storage, *failures[:2], succeed(good, by="w1", result=None), failures[2])
        assert await state(storage) == BreakerState(1, 0, None)

    async def test_a_job_that_its_breaker_holds_spends_no_token_of_its_rate(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await tripped(storage)
        await storage.limits.define([LimitSpec(name="api", rate=Rate(1, DAY))])
        (held,) = await add(storage, limited("api", "shop"))
        assert await claim(storage, 10) == []
        (other,) = await add(storage, limited("api"))
        assert ids(await claim(storage, 10)) == [other]
        clock.advance(DAY)
        assert ids(await claim(storage, 10)) == [held]

    async def test_a_job_behind_two_breakers_counts_on_both_and_waits_for_both(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await guard(storage, 1, "shop")
        await guard(storage, 2, "mail")
        (both,) = await runs(storage, 1, "shop", "mail")
        await failed(storage, both)
        assert (await state(storage)).opened == 1
        assert await state(storage, "mail") == BreakerState(1, 0, None)
        (mail,) = await add(storage, limited("mail"))
        await add(storage, limited("mail", "shop"))
        (running,) = await claim(storage, 10)
        assert running.claim.job == mail
        clock.advance(REST - SECOND)
        await failed(storage, running)
        clock.advance(SECOND)
        assert await claim(storage, 10) == []
        assert (await ask(storage)).next_at == clock.now() + REST - SECOND

    async def test_a_changed_threshold_holds_at_the_next_claim(self, storage: Storage) -> None:
        await tripped(storage, 3)
        waiting = await add(storage, *(limited("shop") for _ in range(3)))
        assert await claim(storage, 10) == []
        await guard(storage, 4)
        assert ids(await claim(storage, 10)) == waiting

    async def test_a_threshold_lowered_below_what_failed_lets_one_at_a_time_through(
        self, storage: Storage
    ) -> None:
        await guard(storage, 9)
        await failed(storage, *await runs(storage, 3))
        await guard(storage, 3)
        (first, _) = await add(storage, limited("shop"), limited("shop"))
        assert ids(await claim(storage, 10)) == [first]
        assert await claim(storage, 10) == []

    async def test_a_breaker_is_defined_and_listed_like_any_limit(self, storage: Storage) -> None:
        spec = LimitSpec(
            name="shop", breaker=Breaker(7, cool_down=1.5, growth=1.25, longest=HOUR + INSTANT)
        )
        await storage.limits.define([LimitSpec(name="api", concurrency=1), spec])
        assert list(await storage.limits.specs()) == [LimitSpec(name="api", concurrency=1), spec]

    async def test_the_state_of_a_breaker_is_shown_and_of_no_other_limit(
        self, storage: Storage
    ) -> None:
        await guard(storage)
        await storage.limits.define([LimitSpec(name="db", concurrency=1)])
        running = await started(storage, limited("shop", "db"))
        assert list(await storage.limits.states("shop")) == [
            LimitState(name="shop", key="", running=1, breaker=BreakerState())
        ]
        (shown,) = await storage.limits.states("db")
        assert (shown.running, shown.breaker) == (1, None)
        await failed(storage, running)
        (shown,) = await storage.limits.states("shop")
        assert (shown.running, shown.breaker) == (0, BreakerState(1, 0, None))

    async def test_many_breakers_are_read_at_once_in_order(self, storage: Storage) -> None:
        await guard(storage)
        await failed(storage, await started(storage, limited("shop")))
        await started(storage, limited("shop"))
        looks = await storage.limits.breakers(["zebra", "shop", "nobody", "shop"])
        shop = BreakerLook(BreakerState(1, 0, None), running=1)
        assert list(looks) == [BreakerLook(), shop, BreakerLook(), shop]

    async def test_tidying_forgets_no_failure(self, storage: Storage, clock: VirtualClock) -> None:
        await tripped(storage)
        clock.advance(DAY)
        before = await state(storage)
        await storage.maintenance.tidy()
        assert await state(storage) == before
