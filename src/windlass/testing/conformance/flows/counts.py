"""`FlowStore.counts`: flows by state and blocked jobs, no further than is asked."""

from __future__ import annotations

from windlass._core.flows.flow import FlowState
from windlass._storage.protocol.actions import Requeue
from windlass._storage.protocol.flows import FlowCounts
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import Plan, a_chain, act, run, run_all, settle, start
from windlass.testing.conformance.steps import DAY, HOUR, obeyed

__all__ = ["FlowCountConformance"]

CAP = 100


class FlowCountConformance:
    """Counts of flows."""

    async def test_flows_are_counted_by_state(self, storage: Storage) -> None:
        assert await storage.flows.counts(cap=CAP) == FlowCounts(cap=CAP)
        for failing, cancels in (("none", False), ("b", False), ("b", False), ("none", True)):
            plan = a_chain()
            await start(storage, plan)
            if cancels:
                await act(storage, plan, "cancel")
            await run_all(storage, failing)
        await start(storage, a_chain())
        counts = await storage.flows.counts(cap=CAP)
        by_state = counts.running, counts.succeeded, counts.failed, counts.cancelled
        assert by_state == (1, 1, 2, 1)

    async def test_a_flow_that_runs_again_counts_as_running(self, storage: Storage) -> None:
        plan = a_chain()
        await start(storage, plan)
        await run_all(storage, "a")
        await obeyed(storage, Requeue(), plan.jobs["a"][0].id)
        counts = await storage.flows.counts(cap=CAP)
        assert (counts.running, counts.failed) == (1, 0)

    async def test_blocked_jobs_are_counted_until_they_are_placed(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b", 5, after=["a"])
        plan.callback("good")
        await start(storage, plan)
        assert (await storage.flows.counts(cap=CAP)).blocked == 6
        await run(storage)
        await settle(storage)
        assert (await storage.flows.counts(cap=CAP)).blocked == 1
        await run_all(storage)
        assert (await storage.flows.counts(cap=CAP)).blocked == 0

    async def test_the_oldest_flow_is_the_running_one_that_was_started_first(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = a_chain()
        await start(storage, plan)
        await run_all(storage)
        assert (await storage.flows.counts(cap=CAP)).oldest is None
        clock.advance(HOUR)
        first = clock.now()
        await start(storage, a_chain())
        clock.advance(HOUR)
        await start(storage, a_chain())
        assert (await storage.flows.counts(cap=CAP)).oldest == first

    async def test_no_number_of_flows_is_counted_further_than_the_cap(
        self, storage: Storage
    ) -> None:
        for _ in range(4):
            await start(storage, a_chain())
        await run_all(storage)
        for _ in range(4):
            await start(storage, a_chain())
        counts = await storage.flows.counts(cap=3)
        assert (counts.running, counts.succeeded, counts.blocked, counts.cap) == (3, 3, 3, 3)

    async def test_a_flow_whose_deletion_has_begun_is_not_counted(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await start(storage, a_chain())
        await run_all(storage)
        clock.advance(DAY)
        await storage.flows.prune(state=FlowState.SUCCEEDED, older_than=HOUR, limit=2)
        assert (await storage.flows.counts(cap=CAP)).succeeded == 0
