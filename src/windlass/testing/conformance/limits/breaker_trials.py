"""Circuit breakers that have opened: the rest, the trial, and what closes them."""

from __future__ import annotations

import asyncio

import pytest

from windlass._core.job.outcome import (
    Cancelled,
    Interrupted,
    Lost,
    Outcome,
    Raised,
    Snoozed,
    Throttled,
)
from windlass._core.limits.breaker import BreakerState
from windlass._storage.protocol.storage import Storage
from windlass.errors import LimitUnknown
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.jobs.solo_runs import suspected
from windlass.testing.conformance.limits.breakers import REST, failed, guard, runs, state, tripped
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    SECOND,
    add,
    ask,
    claim,
    claim_one,
    enlist,
    happened,
    ids,
    limited,
    succeeded,
)
from windlass.testing.conformance.storage import woken

__all__ = ["BreakerTrialConformance"]


class BreakerTrialConformance:
    """After its rest a breaker lets one run through, and goes by its outcome."""

    async def test_nothing_starts_before_the_rest_is_over_and_then_one_job_does(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await tripped(storage)
        first, _ = await add(storage, limited("shop"), limited("shop"))
        assert (await ask(storage, 10)).next_at == clock.now() + REST
        clock.advance(REST - INSTANT)
        assert await claim(storage, 10) == []
        clock.advance(INSTANT)
        assert (await storage.jobs.outlook(["default"])).claimable
        assert ids(await claim(storage, 10)) == [first]
        assert await claim(storage, 10, worker="w2") == []

    async def test_a_clock_that_is_set_back_keeps_no_trial_waiting(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # also by less than the run took whose failure has opened it
        await guard(storage, 1)
        (running,) = await runs(storage, 1)
        clock.advance(HOUR)
        await failed(storage, running)
        clock.jump(clock.now() - 10 * MINUTE)
        first, _ = await add(storage, limited("shop"), limited("shop"))
        assert (await storage.jobs.outlook(["default"])).claimable
        assert (await ask(storage, 10)).next_at == clock.now() + REST
        outlook = await storage.jobs.outlook(["default"])
        assert (outlook.claimable, outlook.next_at) == (False, clock.now() + REST)
        clock.advance(REST - INSTANT)
        assert await claim(storage, 10) == []
        clock.advance(INSTANT)
        assert ids(await claim(storage, 10)) == [first]
        assert (await state(storage)).opened == 1

    async def test_a_failure_after_the_clock_was_set_back_opens_it_for_the_whole_rest(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await guard(storage, 1)
        (running,) = await runs(storage, 1)
        clock.jump(clock.now() - HOUR)
        await failed(storage, running)
        (waiting,) = await add(storage, limited("shop"))
        assert (await ask(storage, 10)).next_at == clock.now() + REST
        clock.advance(REST)
        assert ids(await claim(storage, 10)) == [waiting]

    async def test_of_many_concurrent_claimers_one_gets_the_trial(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await tripped(storage)
        workers = [f"x{n}" for n in range(10)]
        await enlist(storage, *workers)
        await add(storage, *(limited("shop") for _ in range(20)))
        clock.advance(REST)
        replies = await asyncio.gather(*(claim(storage, 2, worker=w) for w in workers))
        assert sum(len(jobs) for jobs in replies) == 1

    async def test_a_trial_that_succeeds_closes_it_for_everybody(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await tripped(storage)
        _, *others = await add(storage, *(limited("shop") for _ in range(4)))
        clock.advance(REST)
        await succeeded(storage, await claim_one(storage))
        assert await state(storage) == BreakerState()
        assert (await storage.jobs.outlook(["default"])).claimable
        assert ids(await claim(storage, 10, worker="w2")) == others

    async def test_each_trial_that_fails_prolongs_the_next_rest_up_to_the_longest(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await tripped(storage)
        rest = REST
        for opened, following in enumerate((2 * REST, 4 * REST, 4 * REST), start=2):
            clock.advance(rest)
            (trial,) = await runs(storage, 1)
            await happened(storage, trial, Raised(OOPS))
            rest = following
            assert await state(storage) == BreakerState(2 + opened, opened, clock.now() + rest)
            await storage.jobs.cancel([trial.claim.job])

    async def test_after_it_closed_the_waits_begin_at_the_first_again(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await tripped(storage)
        clock.advance(REST)
        await failed(storage, *await runs(storage, 1))
        clock.advance(2 * REST)
        await succeeded(storage, *await runs(storage, 1))
        await failed(storage, *await runs(storage, 3))
        assert await state(storage) == BreakerState(3, 1, clock.now() + REST)

    async def test_late_failures_count_while_it_is_open_without_prolonging_it(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await guard(storage, 3)
        *first, late, later = await runs(storage, 5)
        await failed(storage, *first)
        until = clock.now() + REST
        clock.advance(SECOND)
        await failed(storage, late)
        assert await state(storage) == BreakerState(4, 1, until)
        clock.advance(until - clock.now() - INSTANT)
        await failed(storage, later)
        assert await state(storage) == BreakerState(5, 1, until)

    async def test_a_failure_at_the_very_end_of_the_rest_opens_it_again(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await guard(storage, 3)
        *first, late = await runs(storage, 4)
        await failed(storage, *first)
        clock.advance(REST)
        await failed(storage, late)
        assert await state(storage) == BreakerState(4, 2, clock.now() + 2 * REST)

    async def test_a_late_success_closes_it(self, storage: Storage) -> None:
        await guard(storage, 3)
        *first, late = await runs(storage, 4)
        await failed(storage, *first)
        (waiting,) = await add(storage, limited("shop"))
        assert await claim(storage, 10) == []
        await succeeded(storage, late)
        assert await state(storage) == BreakerState()
        assert ids(await claim(storage, 10)) == [waiting]

    async def test_no_trial_starts_while_an_older_run_is_under_way(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await guard(storage, 3)
        *first, old = await runs(storage, 4)
        await failed(storage, *first)
        (waiting,) = await add(storage, limited("shop"))
        clock.advance(REST)
        assert (await ask(storage, 10)).next_at is None
        await happened(storage, old, Snoozed(DAY))
        assert ids(await claim(storage, 10)) == [waiting]

    async def test_a_trial_that_proves_nothing_makes_way_for_another(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await tripped(storage)
        clock.advance(REST)
        before = await state(storage)
        outcomes: tuple[Outcome, ...] = (Snoozed(DAY), Throttled(DAY), Cancelled(), Interrupted())
        for outcome in outcomes:
            (trial,) = await runs(storage, 1)
            await happened(storage, trial, outcome)
            assert await state(storage) == before, outcome
        assert len(await claim(storage, 10)) == 1

    async def test_a_trial_whose_worker_dies_blocks_until_it_is_reaped_and_counts_as_failed(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await tripped(storage)
        clock.advance(REST)
        await runs(storage, 1)
        await add(storage, limited("shop"))
        await storage.workers.bury(["w1"])
        assert await claim(storage, 10, worker="w2") == []
        (orphan,) = await storage.workers.orphans(10)
        await happened(storage, orphan, Lost(OOPS), by="w2")
        assert await state(storage) == BreakerState(4, 2, clock.now() + 2 * REST)

    async def test_a_job_to_run_alone_waits_for_the_breaker(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await guard(storage, 2)
        alone = await suspected(storage, limited("shop"))
        await failed(storage, *await runs(storage, 1))
        assert not (await ask(storage)).solo_due
        assert not (await storage.jobs.outlook(["default"])).claimable
        assert await claim(storage, solo=True) == []
        clock.advance(REST)
        assert (await ask(storage)).solo_due
        assert ids(await claim(storage, solo=True)) == [alone.claim.job]
        await add(storage, limited("shop"))
        assert await claim(storage, 10) == []

    async def test_a_retrying_trial_waits_like_the_others(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await tripped(storage)
        clock.advance(REST)
        (trial,) = await runs(storage, 1)
        await happened(storage, trial, Raised(OOPS, 0 * MINUTE))
        assert await claim(storage, 10) == []
        clock.advance(2 * REST)
        assert ids(await claim(storage, 10)) == [trial.claim.job]

    async def test_resetting_a_breaker_closes_it_at_once(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await tripped(storage)
        waiting = await add(storage, limited("shop"), limited("shop"))
        assert await claim(storage, 10) == []
        await storage.limits.reset("shop")
        assert await state(storage) == BreakerState()
        assert ids(await claim(storage, 10)) == waiting
        await failed(storage, *await runs(storage, 3))
        assert await state(storage) == BreakerState(3, 1, clock.now() + REST)

    async def test_resetting_a_breaker_wakes(self, storage: Storage) -> None:
        await tripped(storage)
        async with woken(storage):
            await storage.limits.reset("shop")

    async def test_resetting_an_undefined_limit_is_an_error(self, storage: Storage) -> None:
        await guard(storage)
        with pytest.raises(LimitUnknown):
            await storage.limits.reset("shoop")

    async def test_resetting_one_breaker_leaves_others_open(self, storage: Storage) -> None:
        await guard(storage, 1, "mail")
        await failed(storage, *await runs(storage, 1, "mail"))
        await tripped(storage)
        await storage.limits.reset("shop")
        assert (await state(storage, "mail")).opened == 1

    async def test_draining_a_breaker_does_nothing(self, storage: Storage) -> None:
        await guard(storage)
        await storage.limits.drain("shop")
        (waiting,) = await add(storage, limited("shop"))
        assert ids(await claim(storage, 10)) == [waiting]
