"""Flows that jobs add by their success."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from windlass._core.flows.flow import FlowState, PartKind, PartRecord
from windlass._core.job.job import ClaimedJob, LimitUse
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._storage.protocol.jobs import Applied
from windlass._storage.protocol.storage import Storage
from windlass.errors import LimitUnknown
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import (
    Plan,
    a_chain,
    act,
    agree,
    finish,
    graph,
    part,
    run,
    run_all,
    settle,
    start,
    state,
    tasks,
)
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    a_job,
    add,
    claim,
    look,
    requeue,
    started,
    total,
)

__all__ = ["AddedFlowConformance"]


def a_split(**asked: object) -> Plan:
    """Return a flow whose first part may add flows, and a part that waits for it."""
    plan = Plan(**asked)
    plan.part("split")
    plan.part("sum", after=["split"])
    return plan


def two_steps(**asked: object) -> Plan:
    """Return a flow to be added: one part after the other."""
    plan = Plan(name="two steps", **asked)
    plan.part("load")
    plan.part("store", after=["load"])
    return plan


async def end_with(storage: Storage, job: ClaimedJob, *plans: Plan) -> Applied:
    """End a claim with a success that adds flows."""
    flows = tuple(plan.flow for plan in plans)
    applied = await storage.jobs.apply([succeed(job, by="w1", result=None, flows=flows)])
    assert applied.answers[0].verb is not None
    return applied


async def add_flow(storage: Storage, plan: Plan, *added: Plan) -> None:
    """Start a flow, and let its first job add others."""
    await start(storage, plan)
    (job,) = await claim(storage)
    assert not (await end_with(storage, job, *added)).left_out
    await settle(storage)


class AddedFlowConformance:
    """A flow that a member adds counts like one job of its part."""

    async def test_those_that_wait_for_a_member_wait_for_the_flow_it_adds(
        self, storage: Storage
    ) -> None:
        plan, added = a_split(), two_steps()
        await add_flow(storage, plan, added)
        assert (await state(storage, plan)).total == 4
        assert await run_all(storage) == ["load", "store", "sum"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_a_flow_that_an_added_flow_adds_is_waited_for(self, storage: Storage) -> None:
        plan = a_split()
        await add_flow(storage, plan, two_steps())
        for _ in range(2):
            (job,) = await claim(storage)
            assert job.task == "load"
            await end_with(storage, job, two_steps())
        assert await run_all(storage) == ["load", "store", "store", "store", "sum"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_a_flow_ends_after_the_flow_that_its_last_job_adds(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        plan.part("last")
        plan.callback("good")
        await add_flow(storage, plan, two_steps())
        assert (await state(storage, plan)).state is FlowState.RUNNING
        assert await run(storage) == ["load"]
        assert (await state(storage, plan)).state is FlowState.RUNNING
        assert await run_all(storage) == ["store", "good"]

    async def test_one_success_adds_several_flows(self, storage: Storage) -> None:
        plan = a_split()
        await add_flow(storage, plan, two_steps(), two_steps())
        assert sorted(await run_all(storage)) == ["load", "load", "store", "store", "sum"]
        assert len([one for one in (await _parts(storage, plan)) if one.added]) == 2
        assert await agree(storage)

    async def test_an_empty_flow_is_over_at_once(self, storage: Storage) -> None:
        plan, empty = a_split(), Plan()
        empty.callback("done")
        await add_flow(storage, plan, empty)
        assert sorted(await run_all(storage)) == ["done", "sum"]

    async def test_a_failure_in_an_added_flow_is_one_of_its_part(self, storage: Storage) -> None:
        plan = a_split()
        plan.part("report", ended=["split"])
        plan.part("repair", after=["split"], when="failed")
        await add_flow(storage, plan, two_steps())
        assert sorted(await run_all(storage, "load")) == ["load", "repair", "report"]
        assert (await part(storage, plan, "sum")).stopped == 1
        assert (await state(storage, plan)).state is FlowState.FAILED
        assert await agree(storage)

    async def test_a_failure_that_an_added_flow_tolerates_is_none(self, storage: Storage) -> None:
        plan, added = a_split(), Plan()
        added.part("try")
        added.part("clean", ended=["try"])
        await add_flow(storage, plan, added)
        assert await run_all(storage, "try") == ["try", "clean", "sum"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_callbacks_of_an_added_flow_follow_its_own_end(self, storage: Storage) -> None:
        for failing, expected in (("", ["good"]), ("load", ["bad", "mend"])):
            plan, added = a_split(), two_steps()
            added.part("mend", after=["load"], when="failed")
            added.callback("good")
            added.callback("bad", "failed")
            await add_flow(storage, plan, added)
            ran = await run_all(storage, failing)
            assert sorted(set(ran) - {"load", "store", "sum"}) == expected

    async def test_a_retry_runs_what_failed_in_an_added_flow(self, storage: Storage) -> None:
        plan = a_split()
        await add_flow(storage, plan, two_steps())
        assert await run_all(storage, "load") == ["load"]
        await act(storage, plan, "retry")
        assert (await state(storage, plan)).state is FlowState.RUNNING
        assert await run_all(storage) == ["load", "store", "sum"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_a_requeue_in_an_added_flow_reopens_what_follows(self, storage: Storage) -> None:
        plan, added = a_split(), two_steps()
        await add_flow(storage, plan, added)
        assert await run_all(storage, "store") == ["load", "store"]
        (store,) = added.jobs["store"]
        await requeue(storage, store.id)
        await settle(storage)
        assert (await state(storage, plan)).state is FlowState.RUNNING
        assert (await part(storage, plan, "sum")).blocked == 1
        assert await run_all(storage) == ["store", "sum"]

    async def test_what_an_added_flow_blocks_again_is_not_passed(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("split")
        plan.part("report", ended=["split"])
        await add_flow(storage, plan, two_steps())
        (load,) = await claim(storage)
        await act(storage, plan, "cancel")
        await finish(storage, load)
        assert (await state(storage, plan)).state is FlowState.CANCELLED
        await act(storage, plan, "retry")
        assert await run_all(storage) == ["store", "report"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_a_cancel_reaches_an_added_flow(self, storage: Storage) -> None:
        plan, added = a_split(), two_steps()
        await add_flow(storage, plan, added)
        await act(storage, plan, "cancel")
        states = [(await look(storage, job)).state for (job,) in added.jobs.values()]
        assert states == [State.CANCELLED, State.CANCELLED]
        assert await run_all(storage) == []
        assert (await state(storage, plan)).state is FlowState.CANCELLED
        assert await agree(storage)

    async def test_an_added_flow_expires_with_its_flow(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = a_split(expires=HOUR)
        await add_flow(storage, plan, two_steps())
        clock.advance(HOUR)
        await settle(storage)
        assert await run_all(storage) == []
        assert (await state(storage, plan)).state is FlowState.CANCELLED

    async def test_a_cancelled_flow_takes_no_flow(self, storage: Storage) -> None:
        plan, added = a_split(), two_steps()
        await start(storage, plan)
        (job,) = await claim(storage)
        await act(storage, plan, "cancel")
        applied = await end_with(storage, job, added)
        assert set(applied.left_out) == {job.id for (job,) in added.jobs.values()}
        assert await run_all(storage) == []
        assert await total(storage) == 2

    async def test_a_repeated_success_adds_its_flow_once(self, storage: Storage) -> None:
        plan, added = a_split(), two_steps()
        await start(storage, plan)
        (job,) = await claim(storage)
        for _ in range(2):
            await end_with(storage, job, added)
        assert (await state(storage, plan)).total == 4
        assert await run_all(storage) == ["load", "store", "sum"]

    async def test_a_flow_with_a_stored_job_is_left_out(self, storage: Storage) -> None:
        plan, added = a_split(), two_steps()
        await add(storage, added.jobs["store"][0])
        await start(storage, plan)
        (job, _) = sorted(await claim(storage, 2), key=lambda job: job.task)
        applied = await end_with(storage, job, added)
        assert set(applied.left_out) == {job.id for (job,) in added.jobs.values()}
        assert await run_all(storage) == ["sum"]
        assert len(await graph(storage, plan)) == 3

    async def test_jobs_of_an_added_flow_are_found_by_its_own_id(self, storage: Storage) -> None:
        plan, added = a_split(), Plan()
        rows = added.part("row", 3)
        added.part("total", after=["row"])
        await start(storage, plan)
        (job,) = await claim(storage)
        more = (a_job(task="more"),)
        await storage.jobs.apply(
            [succeed(job, by="w1", result=b"0", then=more, flows=(added.flow,))]
        )
        await settle(storage)
        jobs = await claim(storage, 10)
        assert all(job.flow is not None and job.flow.flow == plan.id for job in jobs)
        await finish(storage, *jobs, result=b"7")
        found = await storage.flows.members(added.id, 0)
        assert [(one.id, one.result) for one in found] == [(row.id, b"7") for row in rows]
        (only,) = await storage.flows.members(plan.id, 0)
        assert only.id == plan.jobs["split"][0].id

    async def test_a_part_tells_what_it_was_added_as(self, storage: Storage) -> None:
        plan, added = a_split(), two_steps()
        await add_flow(storage, plan, added)
        (join,) = [one for one in await _parts(storage, plan) if one.kind is PartKind.ADDED]
        assert join.name == "two steps"
        assert join.added is not None
        assert (join.added.id, join.added.first, join.added.counts_for) == (added.id, 3, 0)
        assert [edge.part for edge in join.after] == [3, 4]

    async def test_an_added_flow_is_deleted_with_its_flow(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan, added = a_split(), two_steps()
        await add_flow(storage, plan, added)
        await run_all(storage)
        clock.advance(HOUR)
        pruned = await storage.flows.prune(state=FlowState.SUCCEEDED, older_than=MINUTE, limit=100)
        assert (pruned, await total(storage)) == (4, 0)
        assert await storage.flows.members(added.id, 0) == []

    async def test_outside_a_flow_a_success_starts_one(self, storage: Storage) -> None:
        job = await started(storage, a_job(task="alone"))
        added = a_chain(key="nightly")
        assert not (await end_with(storage, job, added)).left_out
        assert (await state(storage, added)).key == "nightly"
        assert await run_all(storage) == ["a", "b", "c", "good"]
        assert (await state(storage, added)).state is FlowState.SUCCEEDED

    async def test_a_flow_whose_key_is_held_is_left_out(self, storage: Storage) -> None:
        await start(storage, a_chain(key="nightly"))
        await add(storage, a_job(task="alone", priority=-1))
        (job,) = await claim(storage)
        added = a_chain(key="nightly")
        applied = await end_with(storage, job, added)
        given = {job.id for jobs in added.jobs.values() for job in jobs}
        assert set(applied.left_out) == given
        assert await storage.flows.graph(added.id) is None

    async def test_a_callback_starts_a_flow_of_its_own(self, storage: Storage) -> None:
        plan, added = Plan(), two_steps()
        plan.part("only")
        plan.callback("good")
        await start(storage, plan)
        await run(storage)
        await settle(storage)
        (good,) = await claim(storage)
        await end_with(storage, good, added)
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert tasks(await claim(storage)) == ["load"]
        assert (await state(storage, added)).state is FlowState.RUNNING

    async def test_a_flow_with_an_undefined_limit_is_refused_with_the_success(
        self, storage: Storage
    ) -> None:
        plan, added = a_split(), Plan()
        added.part("row", limits=(LimitUse("nobody"),))
        await start(storage, plan)
        (job,) = await claim(storage)
        with pytest.raises(LimitUnknown):
            await end_with(storage, job, added)
        assert (await look(storage, plan.jobs["split"][0])).state is State.RUNNING
        assert await total(storage) == 2


async def _parts(storage: Storage, plan: Plan) -> Sequence[PartRecord]:
    """Return the stored parts by number."""
    found = await storage.flows.graph(plan.id)
    assert found is not None
    return found.parts
