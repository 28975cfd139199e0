"""`CopyStore`: flows out of one storage and into another of the same kind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from windlass._core.flows.flow import RETRIED_AT_ONCE, Edge, FlowState
from windlass._core.job.job import NewJob
from windlass._core.job.transition import succeed
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import AddAnswer, FlowGraph, StartedFlow
from windlass._storage.protocol.storage import Storage
from windlass.errors import StorageError
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.copy.dump import dumped, moved, without_numbers
from windlass.testing.conformance.flows.sealed import a_large_flow
from windlass.testing.conformance.flows.steps import (
    Plan,
    act,
    agree,
    finish,
    graph,
    members,
    run,
    run_all,
    settle,
    start,
    state,
)
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    a_job,
    a_note,
    claim,
    end,
    enlist,
    total,
)

__all__ = ["CopyFlowsConformance", "half_done"]


async def flows_of(storage: Storage) -> list[FlowGraph]:
    """Return all flows, one by one."""
    found: list[FlowGraph] = []
    while more := await storage.moving.dump_flows(
        after=found[-1].flow.number if found else 0, limit=1
    ):
        found += more
    return found


async def moved_with_flows(here: Storage, there: Storage) -> None:
    """Take flows and jobs to another storage, where a worker is."""
    flows = await flows_of(here)
    assert await there.moving.restore(flows) == len(flows)
    await moved(here, there)
    await enlist(there)


def ids_of(jobs: Sequence[NewJob]) -> list[str]:
    return [job.id for job in jobs]


def _alike(flows: Sequence[FlowGraph]) -> list[tuple[object, object]]:
    return [(replace(one.flow, number=0), list(one.parts)) for one in flows]


async def half_done(storage: Storage) -> Plan:
    """Return a flow with a part of every kind that has ended, and others that have not."""
    plan = Plan(name="import", key="k", tenant="acme", expires=DAY)
    plan.part("rows", 3)
    plan.part("broken")
    plan.part("stopped", 2, after=["broken"])
    plan.part("anyway", ended=["broken", "rows"])
    plan.part("mended", after=["rows"], when="failed")
    plan.join("both", after=["rows", "anyway"])
    plan.part("later", 2, after=["both"], delay=HOUR, expires=DAY)
    plan.callback("happy")
    plan.callback("sad", when="failed")
    await start(storage, plan)
    first, *others = await claim(storage, 4)
    added = a_job(task="added")
    await end(storage, succeed(first, by=first.worker, result=b"1", then=(added,)))
    await finish(storage, *others, failing=["broken"])
    await settle(storage)
    return plan


class CopyFlowsConformance:
    """Flows go on elsewhere."""

    async def test_flows_are_elsewhere_what_they_were_here(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        plan = await half_done(storage)
        done = Plan(name="done")
        done.part("a")
        done.part("mended", after=["a"], when="failed")
        await start(storage, done)
        await run_all(storage)
        await moved_with_flows(storage, elsewhere)
        assert _alike(await flows_of(elsewhere)) == _alike(await flows_of(storage))
        assert without_numbers(await dumped(elsewhere)) == without_numbers(await dumped(storage))
        parts = await graph(elsewhere, plan)
        assert (parts["stopped"].stopped, parts["later"].blocked) == (2, 0)
        assert (await state(elsewhere, done)).state is FlowState.SUCCEEDED
        assert await agree(elsewhere)

    async def test_a_flow_continues_elsewhere_to_its_end(
        self, storage: Storage, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        plan = await half_done(storage)
        await moved_with_flows(storage, elsewhere)
        for one in (storage, elsewhere):
            assert await run_all(one) == ["added", "anyway"]
        clock.advance(HOUR)
        for one in (storage, elsewhere):
            assert await run_all(one) == ["later", "later", "sad"]
            assert await agree(one)
        assert _alike(await flows_of(elsewhere)) == _alike(await flows_of(storage))
        assert (await state(elsewhere, plan)).state is FlowState.FAILED

    async def test_delay_and_expiry_of_blocked_members_count_from_their_turn_elsewhere(
        self, storage: Storage, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b", after=["a"], delay=HOUR, expires=2 * HOUR)
        await start(storage, plan)
        await moved_with_flows(storage, elsewhere)
        clock.advance(DAY)
        assert await run_all(elsewhere) == ["a"]
        clock.advance(HOUR)
        assert await run_all(elsewhere) == ["b"]

    async def test_jobs_that_members_added_are_told_from_the_others_elsewhere(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        plan = await half_done(storage)
        await moved_with_flows(storage, elsewhere)
        assert [one.result for one in await members(elsewhere, plan, "rows")] == [b"1", None, None]

    async def test_a_flow_that_continued_is_not_set_back(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        plan = await half_done(storage)
        flows = await flows_of(storage)
        await moved_with_flows(storage, elsewhere)
        await run_all(elsewhere)
        there = await graph(elsewhere, plan)
        assert await elsewhere.moving.restore(flows) == 0
        assert await graph(elsewhere, plan) == there
        assert await agree(elsewhere)

    async def test_a_member_without_its_flow_is_refused(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        await half_done(storage)
        with pytest.raises(StorageError, match="which was not copied"):
            await elsewhere.moving.restore(await dumped(storage))
        assert await total(elsewhere) == 0

    async def test_a_flow_is_retried_elsewhere(self, storage: Storage, elsewhere: Storage) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b", 2, after=["a"])
        await start(storage, plan)
        await run_all(storage, "a")
        await moved_with_flows(storage, elsewhere)
        assert await act(elsewhere, plan, "retry") is ActionResult.DONE
        assert await run_all(elsewhere) == ["a", "b", "b"]
        assert (await state(elsewhere, plan)).state is FlowState.SUCCEEDED
        assert await agree(elsewhere)

    async def test_a_retry_reaches_the_rest_elsewhere(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        more = RETRIED_AT_ONCE + 20
        plan = Plan()
        plan.part("a", more)
        plan.part("b", ended=["a"])
        await start(storage, plan)
        await act(storage, plan, "cancel")
        await storage.flows.act([plan.id], "retry", a_note())
        await moved_with_flows(storage, elsewhere)
        assert (await state(elsewhere, plan)).open < more
        while await run(elsewhere):
            assert (await state(elsewhere, plan)).state is FlowState.RUNNING
        await settle(elsewhere)
        assert await run_all(elsewhere) == ["a"] * 20 + ["b"]
        assert (await state(elsewhere, plan)).state is FlowState.SUCCEEDED
        assert await agree(elsewhere)

    async def test_a_flow_that_took_a_key_holds_it_elsewhere(
        self, storage: Storage, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        plan, _, _ = a_large_flow(key="night")
        other, third = Plan(key="night"), Plan(key="night")
        other.part("other")
        await start(storage, plan)
        clock.advance(MINUTE)
        await start(storage, other)
        await moved_with_flows(storage, elsewhere)
        held = StartedFlow(other.id, created=False)
        assert await elsewhere.flows.start([third.flow]) == [held]
        await settle(elsewhere)
        assert await elsewhere.flows.start([third.flow]) == [held]
        assert await run_all(elsewhere) == ["other"]
        assert (await state(elsewhere, plan)).state is FlowState.CANCELLED

    async def test_a_flow_that_waits_for_parts_continues_elsewhere(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        plan, added = Plan(), Plan(name="two steps")
        plan.part("split")
        plan.part("beside")
        added.part("load")
        added.part("store", after=["load"])
        await start(storage, plan)
        edges = (Edge(0), Edge(1, strict=False))
        await storage.flows.add(plan.id, replace(added.flow, after=edges))
        await settle(storage)
        await moved_with_flows(storage, elsewhere)
        assert _alike(await flows_of(storage)) == _alike(await flows_of(elsewhere))
        assert await run_all(elsewhere, "split") == ["split", "beside"]
        assert (await state(elsewhere, plan)).stopped == 2
        assert await act(elsewhere, plan, "retry") is ActionResult.DONE
        assert await run_all(elsewhere) == ["split", "load", "store"]
        assert (await state(elsewhere, plan)).state is FlowState.SUCCEEDED
        assert await agree(elsewhere)

    async def test_a_cancel_reaches_the_rest_elsewhere(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        plan = Plan()
        plan.part("a", 3)
        plan.part("b", after=["a"])
        await start(storage, plan)
        await storage.flows.act([plan.id], "cancel", a_note())
        await moved_with_flows(storage, elsewhere)
        await settle(elsewhere)
        assert (await state(elsewhere, plan)).state is FlowState.CANCELLED
        assert await agree(elsewhere)

    async def test_a_sealed_flow_gets_its_last_jobs_elsewhere(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        plan, more, last = a_large_flow()
        await start(storage, plan)
        await moved_with_flows(storage, elsewhere)
        await settle(elsewhere)
        assert await claim(elsewhere, 10) == []
        assert await elsewhere.flows.extend(plan.id, [*more, *last], last=True)
        assert len(await run_all(elsewhere)) == 7
        assert (await state(elsewhere, plan)).state is FlowState.SUCCEEDED
        assert await agree(elsewhere)

    async def test_a_running_flow_holds_its_key_elsewhere(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        ended, running, late = [Plan(key="k") for _ in range(3)]
        for plan in (ended, running, late):
            plan.part("a")
        await start(storage, ended)
        await run_all(storage)
        await start(storage, running)
        await moved_with_flows(storage, elsewhere)
        answers = await elsewhere.flows.start([late.flow])
        assert list(answers) == [StartedFlow(running.id, created=False)]
        assert await act(elsewhere, running, "cancel") is ActionResult.DONE
        await start(elsewhere, late)

    async def test_an_added_flow_continues_elsewhere(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        plan, added = Plan(), Plan(name="added")
        plan.part("split")
        plan.part("sum", after=["split"])
        rows = added.part("row", 2)
        added.part("store", after=["row"])
        added.callback("stored")
        await start(storage, plan)
        (split,) = await claim(storage)
        more = (a_job(task="more"),)
        ending = succeed(split, by=split.worker, result=None, then=more, flows=(added.flow,))
        await end(storage, ending)
        await settle(storage)
        await moved_with_flows(storage, elsewhere)
        assert _alike(await flows_of(elsewhere)) == _alike(await flows_of(storage))
        for one in (storage, elsewhere):
            assert [row.id for row in await one.flows.members(added.id, 0)] == ids_of(rows)
            ran = await run_all(one)
            assert sorted(ran[:3]) == ["more", "row", "row"]
            assert sorted(ran[3:]) == ["store", "stored", "sum"]
            assert ran[3] == "store"
            assert await agree(one)
        assert _alike(await flows_of(elsewhere)) == _alike(await flows_of(storage))
        assert (await state(elsewhere, plan)).state is FlowState.SUCCEEDED

    async def test_a_flow_that_was_added_from_outside_continues_elsewhere(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        plan, added = Plan(), Plan(name="added")
        plan.part("split")
        plan.callback("good")
        added.part("row")
        added.part("store", after=["row"])
        await start(storage, plan)
        assert await storage.flows.add(plan.id, added.flow) is AddAnswer.ADDED
        await settle(storage)
        await moved_with_flows(storage, elsewhere)
        assert _alike(await flows_of(elsewhere)) == _alike(await flows_of(storage))
        for one in (storage, elsewhere):
            assert await one.flows.add(plan.id, added.flow) is AddAnswer.REPEATED
            ran = await run_all(one)
            assert sorted(ran[:2]) == ["row", "split"]
            assert ran[2:] == ["store", "good"]
            assert await agree(one)
        assert (await state(elsewhere, plan)).state is FlowState.SUCCEEDED

    async def test_a_flow_whose_deletion_has_begun_stays_behind(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = Plan()
        plan.part("a", 5)
        await start(storage, plan)
        await run_all(storage)
        clock.advance(DAY)
        await storage.flows.prune(state=FlowState.SUCCEEDED, older_than=HOUR, limit=1)
        assert await flows_of(storage) == []
        assert await dumped(storage) == []
