"""Flows that are added from outside, and wait for parts of the running flow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from windlass._core.flows.flow import Edge, FlowState
from windlass._core.job.state import State
from windlass._storage.protocol.flows import AddAnswer
from windlass._storage.protocol.storage import Storage
from windlass.testing.conformance.flows.steps import (
    Plan,
    act,
    agree,
    finish,
    graph,
    members,
    part,
    run,
    run_all,
    settle,
    start,
    state,
)
from windlass.testing.conformance.steps import claim, requeue

__all__ = ["AddedAfterConformance"]


def a_night() -> Plan:
    """Return a flow of two steps, with a part beside them and a callback for each end."""
    plan = Plan()
    plan.part("split", 2)
    plan.part("sum", after=["split"])
    plan.part("beside")
    plan.callback("good")
    plan.callback("bad", "failed")
    return plan


def two_steps() -> Plan:
    """Return a flow to be added: two parts, one of which is the first."""
    plan = Plan(name="two steps")
    plan.part("load")
    plan.part("store", after=["load"])
    return plan


async def add_after(
    storage: Storage, plan: Plan, added: Plan, after: Sequence[str] = (), ended: Sequence[str] = ()
) -> AddAnswer:
    """Add a flow that waits for parts. A failure of those in ``ended`` does not matter to it."""
    parts = await graph(storage, plan)
    edges = [Edge(parts[name].number) for name in after]
    edges += [Edge(parts[name].number, strict=False) for name in ended]
    return await storage.flows.add(plan.id, replace(added.flow, after=tuple(edges)))


async def a_growing(
    storage: Storage, added: Plan, after: Sequence[str] = (), ended: Sequence[str] = ()
) -> Plan:
    """Start a flow, and add another one that waits for parts of it."""
    plan = a_night()
    await start(storage, plan)
    assert await add_after(storage, plan, added, after, ended) is AddAnswer.ADDED
    await settle(storage)
    return plan


async def end_split(storage: Storage, *failing: str) -> None:
    """Run the first part of `a_night`. The part beside it stays open."""
    jobs = [job for job in await claim(storage, 10) if job.task == "split"]
    await finish(storage, *jobs, failing=failing)
    await settle(storage)


class AddedAfterConformance:
    """An added flow may wait for parts that are there, whatever has become of them."""

    async def test_its_first_jobs_wait_for_parts_that_are_there(self, storage: Storage) -> None:
        plan = await a_growing(storage, two_steps(), ["split"])
        assert (await part(storage, plan, "load")).blocked == 1
        assert await run(storage, limit=1) == ["split"]
        await settle(storage)
        assert (await part(storage, plan, "load")).blocked == 1
        assert sorted(await run(storage)) == ["beside", "split"]
        await settle(storage)
        assert sorted(await run(storage)) == ["load", "sum"]
        await settle(storage)
        assert await run_all(storage) == ["store", "good"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_a_part_that_has_ended_is_not_waited_for(self, storage: Storage) -> None:
        plan = a_night()
        await start(storage, plan)
        await end_split(storage)
        assert await add_after(storage, plan, two_steps(), ["split"]) is AddAnswer.ADDED
        await settle(storage)
        assert sorted(await run(storage)) == ["load", "sum"]
        await settle(storage)
        assert await run(storage) == ["store"]
        assert await agree(storage)

    async def test_a_part_that_has_failed_stops_its_jobs(self, storage: Storage) -> None:
        plan, added = a_night(), two_steps()
        await start(storage, plan)
        await end_split(storage, "split")
        assert await add_after(storage, plan, added, ["split"]) is AddAnswer.ADDED
        await settle(storage)
        (load,) = await storage.flows.members(added.id, 0)
        assert (load.state, load.reason) == (State.CANCELLED, "after split, which failed")
        record = await state(storage, plan)
        assert (record.state, record.open, record.stopped) == (FlowState.RUNNING, 1, 3)
        assert await agree(storage)

    async def test_a_later_failure_stops_its_jobs(self, storage: Storage) -> None:
        plan = await a_growing(storage, two_steps(), ["split"])
        await end_split(storage, "split")
        parts = await graph(storage, plan)
        assert [parts[name].stopped for name in ("sum", "load", "store")] == [1, 1, 1]
        assert (await state(storage, plan)).state is FlowState.RUNNING
        assert await agree(storage)

    async def test_where_only_the_end_counts_a_failure_does_not_matter(
        self, storage: Storage
    ) -> None:
        plan = await a_growing(storage, two_steps(), ended=["split"])
        await end_split(storage, "split")
        assert await add_after(storage, plan, two_steps(), ended=["split"]) is AddAnswer.ADDED
        await settle(storage)
        assert await run(storage) == ["load", "load"]
        await settle(storage)
        assert await run(storage) == ["store", "store"]
        assert await agree(storage)

    async def test_it_waits_for_each_of_several(self, storage: Storage) -> None:
        plan = await a_growing(storage, two_steps(), ["split"], ended=["beside"])
        jobs = await claim(storage, 10)
        await finish(storage, *(job for job in jobs if job.task == "split"))
        await settle(storage)
        assert await run(storage) == ["sum"]
        await finish(storage, *(job for job in jobs if job.task == "beside"), failing=["beside"])
        await settle(storage)
        assert await run_all(storage) == ["load", "store", "bad"]
        assert (await state(storage, plan)).state is FlowState.FAILED
        assert await agree(storage)

    async def test_it_waits_for_a_group_as_one(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("one")
        plan.part("other")
        plan.join("both", after=["one", "other"])
        plan.part("last")
        await start(storage, plan)
        assert await add_after(storage, plan, two_steps(), ["both"]) is AddAnswer.ADDED
        await settle(storage)
        assert await run(storage, limit=1) == ["one"]
        await settle(storage)
        assert sorted(await run(storage)) == ["last", "other"]
        await settle(storage)
        assert await run_all(storage) == ["load", "store"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_all_its_first_parts_wait(self, storage: Storage) -> None:
        added = Plan(name="wide")
        added.part("left")
        added.part("right", 2)
        added.part("both", after=["left", "right"])
        plan = await a_growing(storage, added, ["split"])
        assert sorted(await run(storage)) == ["beside", "split", "split"]
        await settle(storage)
        assert sorted(await run(storage)) == ["left", "right", "right", "sum"]
        await settle(storage)
        assert await run_all(storage) == ["both", "good"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_one_without_jobs_ends_with_what_it_waits_for(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("only")
        plan.callback("good")
        await start(storage, plan)
        assert await add_after(storage, plan, Plan(), ["only"]) is AddAnswer.ADDED
        assert await run_all(storage) == ["only", "good"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_after_a_part_that_is_not_needed_it_is_not_needed(self, storage: Storage) -> None:
        plan, added = a_night(), two_steps()
        plan.part("mend", after=["split"], when="failed")
        await start(storage, plan)
        await end_split(storage)
        assert (await part(storage, plan, "mend")).skipped == 1
        assert await add_after(storage, plan, added, ["mend"]) is AddAnswer.ADDED
        await settle(storage)
        (load,) = await storage.flows.members(added.id, 0)
        assert (load.state, load.reason) == (State.DISCARDED, "not needed")
        assert (await part(storage, plan, "store")).skipped == 1
        assert await agree(storage)

    async def test_a_retry_runs_it_behind_what_it_waits_for(self, storage: Storage) -> None:
        plan = await a_growing(storage, two_steps(), ["split"])
        assert await run_all(storage, "split") == ["split", "split", "beside", "bad"]
        assert (await state(storage, plan)).stopped == 3
        await act(storage, plan, "retry")
        assert await run(storage) == ["split", "split"]
        await settle(storage)
        assert sorted(await run(storage)) == ["load", "sum"]
        await settle(storage)
        assert await run_all(storage) == ["store", "good"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_a_requeue_of_what_it_waits_for_brings_it_back(self, storage: Storage) -> None:
        plan = await a_growing(storage, two_steps(), ["beside"])
        assert await run_all(storage, "beside") == ["split", "split", "beside", "sum", "bad"]
        await requeue(storage, plan.jobs["beside"][0].id)
        await settle(storage)
        assert (await part(storage, plan, "load")).blocked == 1
        assert await run_all(storage) == ["beside", "load", "store", "good"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_a_requeued_job_of_it_waits_again(self, storage: Storage) -> None:
        added = two_steps()
        plan = await a_growing(storage, added, ["beside"])
        jobs = await claim(storage, 10)
        await finish(storage, *(job for job in jobs if job.task == "beside"))
        await settle(storage)
        assert await run(storage, "load") == ["load"]
        await requeue(storage, added.jobs["load"][0].id)
        await settle(storage)
        assert await run_all(storage) == ["load", "store"]
        assert (await state(storage, plan)).state is FlowState.RUNNING
        assert await agree(storage)

    async def test_a_cancel_reaches_it(self, storage: Storage) -> None:
        plan = await a_growing(storage, two_steps(), ["split"])
        await act(storage, plan, "cancel")
        assert await run_all(storage) == []
        record = await state(storage, plan)
        assert (record.state, record.open, record.stopped) == (FlowState.CANCELLED, 0, 3)
        assert await agree(storage)

    async def test_the_graph_shows_what_it_waits_for(self, storage: Storage) -> None:
        added = two_steps()
        plan = await a_growing(storage, added, ["split"], ended=["beside"])
        parts = await graph(storage, plan)
        split, beside, load = (parts[name].number for name in ("split", "beside", "load"))
        assert parts["load"].after == (Edge(split), Edge(beside, strict=False))
        assert parts["store"].after == (Edge(load),)
        assert [one.id for one in await members(storage, plan, "load")] == [
            job.id for job in added.jobs["load"]
        ]

    async def test_one_that_meets_the_end_of_what_it_waits_for_runs(self, storage: Storage) -> None:
        for _ in range(5):
            plan = Plan()
            plan.part("first")
            plan.part("last")
            await start(storage, plan)
            jobs = {job.task: job for job in await claim(storage, 10)}
            await asyncio.gather(
                add_after(storage, plan, two_steps(), ["first"]), finish(storage, jobs["first"])
            )
            await settle(storage)
            assert await run_all(storage) == ["load", "store"]
            await finish(storage, jobs["last"])
            assert (await state(storage, plan)).state is FlowState.SUCCEEDED
            assert await agree(storage)
