"""Lanes: jobs that need the same limits wait in one line, and delay no other job."""

from __future__ import annotations

from windlass._core.job.outcome import (
    GaveUp,
    Raised,
)
from windlass._core.job.state import State
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    ask,
    at_most,
    claim,
    claim_one,
    happened,
    ids,
    limited,
    look,
    requeue,
    run_now,
    started,
    succeeded,
)

__all__ = ["LaneConformance"]


class LaneConformance:
    """A closed lane closes itself and nothing else; what returns, returns into its lane."""

    async def test_a_closed_lane_does_not_block_jobs_without_limits(
        self, storage: Storage
    ) -> None:  # guarantee 6
        await at_most(storage, db=1)
        await started(storage, limited("db"))
        await add(storage, *(limited("db", priority=-5) for _ in range(20)))
        (plain,) = await add(storage, a_job(priority=5))
        assert ids(await claim(storage)) == [plain]

    async def test_a_closed_lane_does_not_block_other_lanes(self, storage: Storage) -> None:
        await at_most(storage, db=1, api=1)
        await started(storage, limited("db"))
        await add(storage, limited("db", priority=-5))
        (other,) = await add(storage, limited("api"))
        assert ids(await claim(storage, 10)) == [other]

    async def test_a_refused_job_does_not_change_the_order_of_those_behind_it(
        self, storage: Storage
    ) -> None:
        await at_most(storage, db=1, own=1)
        await started(storage, limited("db"))
        _, *others = await add(
            storage,
            limited("own:1", "db", priority=1),
            a_job(priority=2),
            a_job(priority=3),
            limited("own:2", priority=4),
        )
        assert ids(await claim(storage, 2)) == others[:2]
        assert ids(await claim(storage, 2)) == others[2:]

    async def test_limited_and_unlimited_jobs_share_one_order(self, storage: Storage) -> None:
        await at_most(storage, db=9)
        wanted = await add(
            storage,
            a_job(priority=1),
            limited("db", priority=2),
            a_job(priority=3),
            limited("db:x", priority=4),
        )
        assert ids(await claim(storage, 10)) == wanted

    async def test_within_a_lane_the_order_holds(self, storage: Storage) -> None:
        await at_most(storage, db=1)
        late, soon = await add(storage, limited("db", priority=1), limited("db", priority=0))
        first = await claim_one(storage)
        await succeeded(storage, first)
        assert (first.claim.job, *ids(await claim(storage))) == (soon, late)

    async def test_a_job_with_several_limits_takes_from_all_of_them(self, storage: Storage) -> None:
        await at_most(storage, db=1, api=1)
        both = await started(storage, limited("db", "api"))
        db, api = await add(storage, limited("db"), limited("api"))
        assert await claim(storage, 10) == []
        await succeeded(storage, both)
        assert set(ids(await claim(storage, 10))) == {db, api}

    async def test_a_job_with_several_limits_takes_all_or_none(self, storage: Storage) -> None:
        await at_most(storage, db=1, api=1)
        await started(storage, limited("db"))
        await add(storage, limited("api", "db", priority=-1))
        (api,) = await add(storage, limited("api"))
        assert ids(await claim(storage, 10)) == [api]

    async def test_limits_in_another_order_are_the_same_limits(self, storage: Storage) -> None:
        await at_most(storage, db=1, api=2)
        await add(storage, limited("db", "api"), limited("api", "db"))
        assert len(await claim(storage, 10)) == 1

    async def test_a_retry_counts_again_and_waits_in_its_lane(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await at_most(storage, db=1)
        retried = await started(storage, limited("db"))
        await happened(storage, retried, Raised(OOPS))
        await started(storage, limited("db"))
        clock.advance(HOUR)
        assert await claim(storage, 10) == []

    async def test_a_scheduled_job_is_limited_once_it_is_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await at_most(storage, db=1)
        await add(storage, limited("db", delay=MINUTE))
        await started(storage, limited("db"))
        clock.advance(MINUTE)
        assert await storage.maintenance.promote(10) <= 1
        assert await claim(storage, 10) == []

    async def test_a_requeued_job_counts_again(self, storage: Storage) -> None:
        await at_most(storage, db=1)
        failed = await started(storage, limited("db"))
        await happened(storage, failed, GaveUp(OOPS))
        await started(storage, limited("db"))
        await requeue(storage, failed.claim.job)
        assert await claim(storage, 10) == []

    async def test_a_job_made_due_now_waits_in_its_lane(self, storage: Storage) -> None:
        await at_most(storage, db=1)
        (later,) = await add(storage, limited("db", delay=HOUR))
        running = await started(storage, limited("db"))
        await run_now(storage, later)
        assert await claim(storage, 10) == []
        await succeeded(storage, running)
        assert ids(await claim(storage, 10)) == [later]

    async def test_raising_a_limit_lets_waiting_jobs_through(self, storage: Storage) -> None:
        await at_most(storage, db=1)
        wanted = await add(storage, *(limited("db") for _ in range(4)))
        assert ids(await claim(storage, 10)) == wanted[:1]
        assert await claim(storage, 10) == []
        await at_most(storage, db=3)
        assert ids(await claim(storage, 10)) == wanted[1:3]

    async def test_lowering_a_limit_stops_new_starts_and_no_running_ones(
        self, storage: Storage
    ) -> None:
        await at_most(storage, db=3)
        running = [await started(storage, limited("db")) for _ in range(3)]
        await add(storage, limited("db"))
        await at_most(storage, db=1)
        for job in running[:2]:
            assert (await look(storage, job)).state is State.RUNNING
            await succeeded(storage, job)
            assert await claim(storage) == []
        await succeeded(storage, running[2])
        assert len(await claim(storage)) == 1

    async def test_limits_are_listed_by_name(self, storage: Storage) -> None:
        await at_most(storage, db=1, api=2)
        await at_most(storage, db=5)
        assert list(await storage.limits.specs()) == [
            LimitSpec(name="api", concurrency=2),
            LimitSpec(name="db", concurrency=5),
        ]

    async def test_a_lane_closed_by_running_jobs_has_no_next_instant(
        self, storage: Storage
    ) -> None:
        await at_most(storage, db=1)
        await started(storage, limited("db"))
        await add(storage, limited("db"))
        assert (await ask(storage, 10)).next_at is None

    async def test_claimable_is_never_wrong_about_a_lane_that_opened(
        self, storage: Storage
    ) -> None:
        await at_most(storage, db=1)
        running = await started(storage, limited("db"))
        await add(storage, limited("db"))
        assert await claim(storage, 10) == []
        await succeeded(storage, running)
        assert (await storage.jobs.outlook(["default"])).claimable
