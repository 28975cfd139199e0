"""`FlowStore`: flows are listed, counted and deleted as a whole."""

from __future__ import annotations

from windlass._core.flows.flow import FlowState
from windlass._core.job.job import FlowId
from windlass._core.job.state import State
from windlass._storage.protocol.actions import (
    ActionResult,
    Delete,
    Requeue,
)
from windlass._storage.protocol.flows import FlowFilter
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import (
    a_chain,
    members,
    run,
    run_all,
    start,
    state,
)
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    enlist,
    obeyed,
    total,
)

__all__ = ["FlowKeepConformance"]


class FlowKeepConformance:
    """A flow is kept and deleted as one."""

    async def test_a_member_is_not_deleted_alone(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = a_chain()
        await start(storage, plan)
        await run(storage)
        for name in "ab":
            (job,) = plan.jobs[name]
            assert await obeyed(storage, Delete(), job.id) == [ActionResult.WRONG_STATE]
        clock.advance(DAY)
        pruned = await storage.maintenance.prune(state=State.SUCCEEDED, older_than=HOUR, limit=100)
        assert pruned == 0
        assert await total(storage) == 5

    async def test_an_ended_flow_is_pruned_with_all_its_jobs(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        old, new, open_ = a_chain(), a_chain(), a_chain()
        await start(storage, old)
        await run_all(storage)
        clock.advance(HOUR)
        await start(storage, new)
        await run_all(storage)
        await start(storage, open_)
        clock.advance(MINUTE)
        pruned = await storage.flows.prune(state=FlowState.SUCCEEDED, older_than=HOUR, limit=100)
        assert pruned == 5
        assert await storage.flows.graph(old.id) is None
        assert (await state(storage, new)).state is FlowState.SUCCEEDED
        assert await storage.flows.prune(state=FlowState.FAILED, older_than=HOUR, limit=9) == 0
        assert await total(storage) == 10
        assert await run_all(storage) == ["a", "b", "c", "good"]

    async def test_a_flow_is_not_pruned_before_its_callbacks_have_run(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = a_chain()
        await start(storage, plan)
        for name in "abc":
            assert await run(storage) == [name]
        clock.advance(DAY)
        pruned = await storage.flows.prune(state=FlowState.SUCCEEDED, older_than=HOUR, limit=100)
        assert pruned == 0
        assert await run_all(storage) == ["good"]

    async def test_the_states_of_flows_are_answered_in_order(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        good, bad, again, open_, gone = (a_chain() for _ in range(5))
        for plan, failing in ((gone, "none"), (good, "none"), (bad, "b"), (again, "a")):
            await start(storage, plan)
            await run_all(storage, failing)
            if plan is gone:  # its deletion has begun
                clock.advance(DAY)
                await storage.flows.prune(state=FlowState.SUCCEEDED, older_than=HOUR, limit=2)
        await obeyed(storage, Requeue(), again.jobs["a"][0].id)
        await start(storage, open_)
        ids = [open_.id, FlowId("0" * 32), bad.id, good.id, gone.id, FlowId("none"), again.id]
        running, failed = FlowState.RUNNING, FlowState.FAILED
        wanted = [running, None, failed, FlowState.SUCCEEDED, None, None, running]
        assert await storage.flows.states(ids) == wanted
        assert await storage.flows.states([]) == []

    async def test_flows_are_listed_newest_first_in_pages(self, storage: Storage) -> None:
        plans = [
            a_chain(name=name, tenant="acme" if name == "one" else None)
            for name in ("one", "two", "three")
        ]
        for plan in plans:
            await start(storage, plan)
        page = await storage.flows.find(FlowFilter(), limit=2)
        rest = await storage.flows.find(FlowFilter(), before=page[-1].number, limit=2)
        assert [flow.name for flow in (*page, *rest)] == ["three", "two", "one"]
        (one,) = await storage.flows.find(FlowFilter(tenant="acme"))
        (two,) = await storage.flows.find(FlowFilter(name="two"))
        assert [one.name, two.name] == ["one", "two"]
        await run_all(storage)
        assert await storage.flows.find(FlowFilter(states=[FlowState.RUNNING])) == []
        ended = await storage.flows.find(FlowFilter(states=[FlowState.SUCCEEDED]))
        assert len(ended) == 3

    async def test_a_recount_of_untouched_counts_finds_nothing(self, storage: Storage) -> None:
        await enlist(storage)
        for _ in range(3):
            await start(storage, a_chain())
        await run(storage, "a", limit=2)
        first = await storage.flows.recount(limit=2)
        assert first.next is not None
        rest = await storage.flows.recount(after=first.next, limit=2)
        assert (list(first.wrong), list(rest.wrong), rest.next) == ([], [], None)

    async def test_members_of_an_unknown_flow_are_none(self, storage: Storage) -> None:
        plan = a_chain()
        assert list(await storage.flows.members(plan.id, 0)) == []
        await start(storage, plan)
        assert list(await storage.flows.members(plan.id, 99)) == []
        assert len(await members(storage, plan, "a")) == 1
