"""`FlowStore`: large retries and many expired flows are handled in portions."""

from __future__ import annotations

from datetime import timedelta

from windlass._core.flows.flow import RETRIED_AT_ONCE, FlowState
from windlass._core.job.job import LimitUse
from windlass._core.job.transition import succeed
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import FlowAction, FlowFilter
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import (
    Plan,
    a_chain,
    act,
    agree,
    graph,
    run,
    run_all,
    settle,
    start,
    state,
)
from windlass.testing.conformance.steps import (
    HOUR,
    a_note,
    add,
    claim,
    claim_one,
    end,
    limited,
)

__all__ = ["FlowPortionConformance"]

MANY = RETRIED_AT_ONCE + 50


async def a_cancelled_flow(storage: Storage) -> Plan:
    """Return a cancelled flow with more members than a retry brings back at once."""
    plan = Plan()
    plan.part("a", MANY)
    plan.part("b", ended=["a"])
    plan.callback("bad", "failed")
    await start(storage, plan)
    await act(storage, plan, "cancel")
    assert (await state(storage, plan)).state is FlowState.CANCELLED
    return plan


async def just_act(storage: Storage, plan: Plan, action: FlowAction) -> ActionResult:
    """Act on a flow, and settle nothing."""
    (answer,) = await storage.flows.act([plan.id], action, a_note(what=f"flows.{action}"))
    return answer


def a_load(jobs: int) -> Plan:
    """Return a flow to be added."""
    plan = Plan(name="loads")
    plan.part("load", jobs)
    plan.part("store", after=["load"])
    return plan


async def end_with(storage: Storage, added: Plan) -> None:
    """End the next job with a success that adds a flow."""
    job = await claim_one(storage)
    await end(storage, succeed(job, by=job.worker, result=None, flows=(added.flow,)))
    await settle(storage)


class FlowPortionConformance:
    """No write grows with the size of a flow, or with the number of flows."""

    async def test_a_retry_brings_a_bounded_number_of_members_back_at_once(
        self, storage: Storage
    ) -> None:
        plan = await a_cancelled_flow(storage)
        assert await just_act(storage, plan, "retry") is ActionResult.DONE
        flow = await state(storage, plan)
        assert (flow.state, flow.cancel_requested) == (FlowState.RUNNING, False)
        assert 0 < flow.open <= RETRIED_AT_ONCE
        assert await just_act(storage, plan, "retry") is ActionResult.WRONG_STATE

    async def test_settling_brings_the_rest_of_a_retried_flow_back(self, storage: Storage) -> None:
        plan = await a_cancelled_flow(storage)
        await act(storage, plan, "retry")
        parts = await graph(storage, plan)
        assert (parts["a"].open, parts["a"].cancelled) == (MANY, 0)
        assert (parts["b"].blocked, parts["b"].stopped) == (1, 0)
        assert await agree(storage)

    async def test_nothing_of_a_retried_flow_ends_before_all_its_members_are_back(
        self, storage: Storage
    ) -> None:
        plan = await a_cancelled_flow(storage)
        await just_act(storage, plan, "retry")
        ran: list[str] = []
        while some := await run(storage):
            ran += some
        assert ran == ["a"] * RETRIED_AT_ONCE
        assert (await state(storage, plan)).state is FlowState.RUNNING
        await settle(storage)
        assert await run_all(storage) == ["a"] * (MANY - RETRIED_AT_ONCE) + ["b"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_a_retry_reaches_all_members_of_an_added_flow(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("split")
        plan.part("sum", after=["split"])
        plan.part("report", ended=["split"])
        await start(storage, plan)
        await end_with(storage, a_load(MANY))
        failed = ["load"] * MANY + ["report"]
        assert await run_all(storage, "load", "report") == failed
        assert (await state(storage, plan)).state is FlowState.FAILED
        assert await just_act(storage, plan, "retry") is ActionResult.DONE
        ran: list[str] = []
        while some := await run(storage):
            ran += some
        assert ran == ["load"] * RETRIED_AT_ONCE
        assert (await state(storage, plan)).state is FlowState.RUNNING
        await settle(storage)
        ran += await run_all(storage)
        assert sorted(ran) == sorted([*failed, "store", "sum"])
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_a_retry_reaches_an_added_flow_before_the_parts_that_wait_for_it(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        plan.part("split")
        (sum_,) = plan.part("sum", after=["split"])
        await start(storage, plan)
        await end_with(storage, a_load(MANY))
        await storage.jobs.cancel([sum_.id])
        await run_all(storage, "load")
        assert (await state(storage, plan)).state is FlowState.FAILED
        await just_act(storage, plan, "retry")
        await storage.flows.settle(1)
        parts = await graph(storage, plan)
        assert (parts["sum"].cancelled, parts["sum"].stopped) == (1, 0)
        await settle(storage)
        assert await run_all(storage) == ["load"] * MANY + ["store", "sum"]
        assert await agree(storage)

    async def test_a_flow_that_is_added_during_a_retry_leaves_the_retry_alone(
        self, storage: Storage
    ) -> None:
        plan = await a_cancelled_flow(storage)
        await just_act(storage, plan, "retry")
        await end_with(storage, a_load(1))
        await settle(storage)
        ran = await run_all(storage)
        assert sorted(ran) == ["a"] * (MANY - 1) + ["b", "load", "store"]
        assert ran[-1] == "b"
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_a_cancel_ends_a_retry_that_is_under_way(self, storage: Storage) -> None:
        plan = await a_cancelled_flow(storage)
        await just_act(storage, plan, "retry")
        assert await act(storage, plan, "cancel") is ActionResult.DONE
        flow = await state(storage, plan)
        assert (flow.state, flow.open) == (FlowState.CANCELLED, 0)
        assert await agree(storage)

    async def test_a_cancel_ends_limited_members_in_portions_and_none_starts(
        self, storage: Storage
    ) -> None:
        await storage.limits.define([LimitSpec(name="printer", concurrency=1_000)])
        plan, many = Plan(), 700
        plan.part("page", many, limits=(LimitUse("printer"),))
        await start(storage, plan)
        (other,) = await add(storage, limited("printer", priority=1))
        await just_act(storage, plan, "cancel")
        await storage.flows.settle(10)
        assert many - 10 <= (await state(storage, plan)).open < many
        # Each claim ends a portion of the members that it meets. Stores differ in its size.
        claimed = [job for _ in range(30) for job in await claim(storage, 50)]
        assert [job.claim.job for job in claimed] == [other]
        await settle(storage)
        flow = await state(storage, plan)
        assert (flow.state, flow.open, flow.cancelled) == (FlowState.CANCELLED, 0, many)
        assert await agree(storage)

    async def test_expired_flows_are_cancelled_in_portions(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        for _ in range(3):
            await start(storage, a_chain(expires=timedelta(minutes=1)))
        clock.advance(HOUR)
        await storage.flows.settle(1)
        found = await storage.flows.find(FlowFilter())
        assert sum(flow.cancel_requested for flow in found) == 1
        await settle(storage)
        found = await storage.flows.find(FlowFilter(states=[FlowState.CANCELLED]))
        assert len(found) == 3
