"""`FlowStore.extend`: flows that are stored in several writes start when the last one is done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from windlass._core.flows.flow import FlowState
from windlass._core.job.job import NewJob
from windlass._storage.protocol.actions import ActionResult, Cancel, Requeue
from windlass._storage.protocol.flows import StartedFlow
from windlass._storage.protocol.storage import Storage
from windlass.errors import IdConflict
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import (
    Plan,
    act,
    agree,
    graph,
    members,
    run_all,
    settle,
    start,
    state,
)
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    SECOND,
    a_job,
    a_note,
    add,
    claim,
    obeyed,
    total,
)

__all__ = ["FlowSealConformance", "a_large_flow"]

ALL = ["row", "row", "row", "row", "page", "sum", "tell"]
"""The tasks of `a_large_flow`, as they run."""

Slice = Sequence[tuple[int, NewJob]]


def a_large_flow(**asked: object) -> tuple[Plan, Slice, Slice]:
    """Return a flow with the first of its jobs, and the jobs of two more slices."""
    plan = Plan(sealed=True, **asked)
    rows = plan.part("row", 4)
    (page,) = plan.part("page")
    (last,) = plan.part("sum", after=["row"])
    told = plan.callback("tell")
    plan.jobs = {"row": rows[:2]}
    return plan, [(0, row) for row in rows[2:]], [(1, page), (2, last), (4, told)]


class FlowSealConformance:
    """Nothing of a sealed flow starts before all of it is stored."""

    async def test_a_sealed_flow_starts_nothing_before_its_last_jobs(
        self, storage: Storage
    ) -> None:
        plan, more, last = a_large_flow()
        await start(storage, plan)
        assert await storage.flows.extend(plan.id, more, last=False)
        await settle(storage)
        assert await claim(storage, 10) == []
        flow = await state(storage, plan)
        assert (flow.state, flow.sealed, flow.total) == (FlowState.RUNNING, True, 4)
        assert await agree(storage)
        assert await storage.flows.extend(plan.id, last, last=True)
        assert await run_all(storage) == ALL
        flow = await state(storage, plan)
        assert (flow.state, flow.sealed, flow.total) == (FlowState.SUCCEEDED, False, 6)
        assert await agree(storage)

    async def test_the_jobs_of_all_slices_are_read_in_the_order_given(
        self, storage: Storage
    ) -> None:
        plan, more, last = a_large_flow()
        await start(storage, plan)
        await storage.flows.extend(plan.id, more, last=False)
        await storage.flows.extend(plan.id, last, last=True)
        asked = [job.id for job in plan.jobs["row"]] + [job.id for _, job in more]
        assert [one.id for one in await members(storage, plan, "row")] == asked

    async def test_a_repeated_slice_stores_nothing_more(self, storage: Storage) -> None:
        plan, more, last = a_large_flow()
        await start(storage, plan)
        for _ in range(2):
            assert await storage.flows.extend(plan.id, more, last=False)
        for _ in range(2):
            assert await storage.flows.extend(plan.id, last, last=True)
        assert await run_all(storage) == ALL
        assert await agree(storage)

    async def test_a_slice_is_stored_whole_or_not_at_all(self, storage: Storage) -> None:
        plan, more, _ = a_large_flow()
        await start(storage, plan)
        stored = a_job()
        await add(storage, stored)
        before = await total(storage)
        with pytest.raises(IdConflict):
            await storage.flows.extend(plan.id, [*more, (0, stored)], last=False)
        assert await total(storage) == before
        assert (await graph(storage, plan))["row"].total == 2
        assert await agree(storage)

    async def test_an_empty_last_slice_opens_the_flow(self, storage: Storage) -> None:
        plan, _, _ = a_large_flow()
        await start(storage, plan)
        assert await storage.flows.extend(plan.id, [], last=True)
        assert await run_all(storage) == ["row", "row"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_a_cancelled_sealed_flow_ends_and_takes_no_more_jobs(
        self, storage: Storage
    ) -> None:
        plan, more, last = a_large_flow()
        await start(storage, plan)
        assert await act(storage, plan, "cancel") is ActionResult.DONE
        assert not await storage.flows.extend(plan.id, more, last=False)
        assert not await storage.flows.extend(plan.id, last, last=True)
        flow = await state(storage, plan)
        assert (flow.state, flow.total, flow.open) == (FlowState.CANCELLED, 2, 0)
        assert await agree(storage)

    async def test_a_cancelled_job_of_a_sealed_flow_ends_nothing_before_the_flow_is_whole(
        self, storage: Storage
    ) -> None:
        plan, more, last = a_large_flow()
        await start(storage, plan)
        await obeyed(storage, Cancel(), *(job.id for job in plan.jobs["row"]))
        await settle(storage)
        assert (await state(storage, plan)).state is FlowState.RUNNING
        assert await claim(storage, 10) == []
        assert await storage.flows.extend(plan.id, more, last=False)
        assert await storage.flows.extend(plan.id, last, last=True)
        assert await run_all(storage) == ["row", "row", "page"]
        flow = await state(storage, plan)
        assert (flow.state, flow.open, flow.stopped) == (FlowState.FAILED, 0, 1)
        assert await agree(storage)

    async def test_a_requeued_job_of_a_sealed_flow_waits_for_the_rest(
        self, storage: Storage
    ) -> None:
        plan, more, last = a_large_flow()
        await start(storage, plan)
        job, _ = plan.jobs["row"]
        await obeyed(storage, Cancel(), job.id)
        assert await obeyed(storage, Requeue(), job.id) == [ActionResult.DONE]
        await settle(storage)
        assert await claim(storage, 10) == []
        assert await storage.flows.extend(plan.id, [*more, *last], last=True)
        assert sorted(await run_all(storage)) == sorted(ALL)
        assert await agree(storage)

    async def test_a_flow_that_was_never_whole_is_not_retried(self, storage: Storage) -> None:
        plan, _, _ = a_large_flow()
        await start(storage, plan)
        await act(storage, plan, "cancel")
        assert await act(storage, plan, "retry") is ActionResult.WRONG_STATE
        assert await claim(storage, 10) == []

    async def test_a_sealed_flow_that_gets_no_more_jobs_is_cancelled(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan, more, last = a_large_flow()
        await start(storage, plan)
        clock.advance(HOUR - MINUTE)
        assert await storage.flows.extend(plan.id, more, last=False)
        clock.advance(HOUR - MINUTE)
        await settle(storage)
        assert (await state(storage, plan)).state is FlowState.RUNNING
        clock.advance(2 * MINUTE)
        await settle(storage)
        assert (await state(storage, plan)).state is FlowState.CANCELLED
        assert not await storage.flows.extend(plan.id, last, last=True)

    async def test_the_expiry_of_a_sealed_flow_counts_from_its_last_jobs(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan, _, last = a_large_flow(expires=2 * HOUR)
        await start(storage, plan)
        clock.advance(MINUTE)
        await storage.flows.extend(plan.id, last, last=True)
        assert (await state(storage, plan)).expires_at == clock.now() + 2 * HOUR
        clock.advance(HOUR + MINUTE)
        await settle(storage)
        assert (await state(storage, plan)).state is FlowState.RUNNING

    async def test_a_flow_without_expiry_does_not_expire_once_it_is_whole(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan, _, last = a_large_flow()
        await start(storage, plan)
        await storage.flows.extend(plan.id, last, last=True)
        clock.advance(timedelta(days=2))
        await settle(storage)
        flow = await state(storage, plan)
        assert (flow.state, flow.expires_at) == (FlowState.RUNNING, None)

    async def test_an_unknown_flow_is_not_extended(self, storage: Storage) -> None:
        plan, more, _ = a_large_flow()
        assert not await storage.flows.extend(plan.id, more, last=False)
        assert await total(storage) == 0

    async def test_another_flow_takes_the_key_of_one_that_gets_no_more_jobs(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan, more, _ = a_large_flow(key="night")
        other = Plan(key="night")
        other.part("other")
        await start(storage, plan)
        clock.advance(MINUTE / 2)
        assert await storage.flows.start([other.flow]) == [StartedFlow(plan.id, created=False)]
        clock.advance(MINUTE / 2)
        await start(storage, other)
        assert not await storage.flows.extend(plan.id, more, last=False)
        await settle(storage)
        flow = await state(storage, plan)
        assert (flow.state, flow.total, flow.open) == (FlowState.CANCELLED, 2, 0)
        assert await run_all(storage) == ["other"]
        assert (await state(storage, other)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_the_flow_that_took_the_key_holds_it(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan, _, _ = a_large_flow(key="night")
        other, third = Plan(key="night"), Plan(key="night")
        other.part("other")
        third.part("third")
        await start(storage, plan)
        clock.advance(MINUTE)
        assert await storage.flows.start([other.flow, third.flow]) == [
            StartedFlow(other.id, created=True),
            StartedFlow(other.id, created=False),
        ]
        await settle(storage)
        assert await storage.flows.start([third.flow]) == [StartedFlow(other.id, created=False)]
        assert await run_all(storage) == ["other"]
        await start(storage, third)

    async def test_each_slice_keeps_the_key_for_a_minute(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan, more, last = a_large_flow(key="night")
        other = Plan(key="night")
        other.part("other")
        await start(storage, plan)
        clock.advance(MINUTE - SECOND)
        assert await storage.flows.extend(plan.id, more, last=False)
        clock.advance(MINUTE - SECOND)
        assert await storage.flows.start([other.flow]) == [StartedFlow(plan.id, created=False)]
        assert await storage.flows.extend(plan.id, last, last=True)
        clock.advance(HOUR)
        assert await storage.flows.start([other.flow]) == [StartedFlow(plan.id, created=False)]
        assert await run_all(storage) == ALL

    async def test_a_repeated_start_takes_no_key(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan, more, last = a_large_flow(key="night")
        await start(storage, plan)
        clock.advance(2 * MINUTE)
        again = StartedFlow(plan.id, created=True, repeated=True)
        assert await storage.flows.start([plan.flow]) == [again]
        assert await storage.flows.extend(plan.id, [*more, *last], last=True)
        assert await run_all(storage) == ALL

    async def test_one_that_is_cancelled_gives_its_key_up_at_once(self, storage: Storage) -> None:
        plan, _, _ = a_large_flow(key="night")
        other = Plan(key="night")
        other.part("other")
        await start(storage, plan)
        await storage.flows.act([plan.id], "cancel", a_note(what="flows.cancel"))
        await start(storage, other)
        assert await run_all(storage) == ["other"]
        await settle(storage)
        assert (await state(storage, plan)).state is FlowState.CANCELLED
        assert (await state(storage, other)).state is FlowState.SUCCEEDED
