"""Flows that are added to a running one from outside."""

from __future__ import annotations

import asyncio

import pytest

from windlass._core.flows.flow import FlowState, PartKind
from windlass._core.job.job import FlowId, LimitUse
from windlass._storage.protocol.flows import AddAnswer
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.errors import IdConflict, LimitUnknown
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import (
    Plan,
    act,
    agree,
    finish,
    part,
    run,
    run_all,
    settle,
    start,
    state,
)
from windlass.testing.conformance.steps import HOUR, a_note, add, claim, requeue, total

__all__ = ["AddedOutsideConformance"]


def a_night(**asked: object) -> Plan:
    """Return a flow of two steps with a callback for each end."""
    plan = Plan(**asked)
    plan.part("split")
    plan.part("sum", after=["split"])
    plan.callback("good")
    plan.callback("bad", "failed")
    return plan


def two_steps() -> Plan:
    """Return a flow to be added: one part after the other."""
    plan = Plan(name="two steps")
    plan.part("load")
    plan.part("store", after=["load"])
    return plan


async def add_outside(storage: Storage, plan: Plan, added: Plan) -> AddAnswer:
    """Add a flow to a running one, and settle all that follows."""
    answer = await storage.flows.add(plan.id, added.flow)
    await settle(storage)
    return answer


async def a_growing(storage: Storage, added: Plan) -> Plan:
    """Start a flow, and add another one to it."""
    plan = a_night()
    await start(storage, plan)
    assert await add_outside(storage, plan, added) is AddAnswer.ADDED
    return plan


class AddedOutsideConformance:
    """A flow that is added from outside counts for the end of the running one alone."""

    async def test_the_end_and_its_callbacks_wait_for_it(self, storage: Storage) -> None:
        plan = await a_growing(storage, two_steps())
        assert (await state(storage, plan)).total == 4
        jobs = {job.task: job for job in await claim(storage, 10)}
        await finish(storage, jobs["split"])
        await settle(storage)
        assert await run_all(storage) == ["sum"]
        assert (await state(storage, plan)).state is FlowState.RUNNING
        await finish(storage, jobs["load"])
        await settle(storage)
        assert await run_all(storage) == ["store", "good"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_its_first_jobs_are_placed_by_settling(self, storage: Storage) -> None:
        plan, added = a_night(), two_steps()
        await start(storage, plan)
        assert await storage.flows.add(plan.id, added.flow) is AddAnswer.ADDED
        assert (await part(storage, plan, "load")).blocked == 1
        await settle(storage)
        assert (await part(storage, plan, "load")).blocked == 0
        assert (await part(storage, plan, "store")).blocked == 1
        assert sorted(await run(storage)) == ["load", "split"]
        assert await agree(storage)

    async def test_nothing_that_is_there_waits_for_it(self, storage: Storage) -> None:
        await a_growing(storage, two_steps())
        jobs = {job.task: job for job in await claim(storage, 10)}
        await finish(storage, jobs["split"])
        await settle(storage)
        assert await run(storage) == ["sum"]

    async def test_a_failure_of_it_fails_the_flow(self, storage: Storage) -> None:
        plan = await a_growing(storage, two_steps())
        ran = await run_all(storage, "load")
        assert sorted(ran[:2]) == ["load", "split"]
        assert ran[2:] == ["sum", "bad"]
        assert (await state(storage, plan)).state is FlowState.FAILED
        assert await agree(storage)

    async def test_a_failure_elsewhere_is_told_after_its_end(self, storage: Storage) -> None:
        plan = await a_growing(storage, two_steps())
        jobs = {job.task: job for job in await claim(storage, 10)}
        await finish(storage, jobs["split"], failing=["split"])
        await settle(storage)
        assert await run_all(storage) == []
        assert (await state(storage, plan)).state is FlowState.RUNNING
        await finish(storage, jobs["load"])
        await settle(storage)
        assert await run_all(storage) == ["store", "bad"]
        assert (await state(storage, plan)).state is FlowState.FAILED

    async def test_an_empty_one_is_over_at_once(self, storage: Storage) -> None:
        plan = await a_growing(storage, Plan())
        assert await run_all(storage) == ["split", "sum", "good"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_several_are_waited_for(self, storage: Storage) -> None:
        plan = await a_growing(storage, two_steps())
        assert await add_outside(storage, plan, two_steps()) is AddAnswer.ADDED
        ran = await run_all(storage)
        assert sorted(ran[:-1]) == ["load", "load", "split", "store", "store", "sum"]
        assert ran[-1] == "good"
        assert await agree(storage)

    async def test_a_retry_runs_what_failed_in_it(self, storage: Storage) -> None:
        plan = await a_growing(storage, two_steps())
        await run_all(storage, "load")
        await act(storage, plan, "retry")
        assert (await state(storage, plan)).state is FlowState.RUNNING
        assert await run_all(storage) == ["load", "store", "good"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_a_requeue_in_it_lets_the_flow_run_again(self, storage: Storage) -> None:
        added = two_steps()
        plan = await a_growing(storage, added)
        await run_all(storage, "store")
        assert (await state(storage, plan)).state is FlowState.FAILED
        await requeue(storage, added.jobs["store"][0].id)
        await settle(storage)
        assert (await state(storage, plan)).state is FlowState.RUNNING
        assert await run_all(storage) == ["store", "good"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_a_cancel_reaches_it(self, storage: Storage) -> None:
        plan = await a_growing(storage, two_steps())
        await act(storage, plan, "cancel")
        assert await run_all(storage) == []
        record = await state(storage, plan)
        assert (record.state, record.open) == (FlowState.CANCELLED, 0)
        assert await agree(storage)

    async def test_a_flow_that_has_ended_takes_none(self, storage: Storage) -> None:
        plan = a_night()
        await start(storage, plan)
        await run_all(storage)
        assert await add_outside(storage, plan, two_steps()) is AddAnswer.ENDED
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await total(storage) == 4

    async def test_one_that_meets_the_end_is_counted_or_refused(self, storage: Storage) -> None:
        for _ in range(5):
            plan, added = Plan(), two_steps()
            plan.part("only")
            await start(storage, plan)
            (only,) = await claim(storage)
            answer, _ = await asyncio.gather(
                storage.flows.add(plan.id, added.flow), finish(storage, only)
            )
            await settle(storage)
            counted = answer is AddAnswer.ADDED
            assert (await state(storage, plan)).state is (
                FlowState.RUNNING if counted else FlowState.SUCCEEDED
            )
            assert await run_all(storage) == (["load", "store"] if counted else [])
            assert (await state(storage, plan)).state is FlowState.SUCCEEDED
            assert await agree(storage)

    async def test_a_flow_that_is_being_cancelled_takes_none(self, storage: Storage) -> None:
        plan = a_night()
        await start(storage, plan)
        (split,) = await claim(storage)
        await storage.flows.act([plan.id], "cancel", a_note(what="flows.cancel"))
        assert await storage.flows.add(plan.id, two_steps().flow) is AddAnswer.ENDED
        await settle(storage)
        await finish(storage, split)
        assert await total(storage) == 4

    async def test_a_flow_past_its_expiry_takes_none(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = a_night(expires=HOUR)
        await start(storage, plan)
        clock.advance(HOUR)
        assert await storage.flows.add(plan.id, two_steps().flow) is AddAnswer.ENDED
        assert await total(storage) == 4

    async def test_a_sealed_flow_takes_none(self, storage: Storage) -> None:
        plan = a_night(sealed=True)
        await start(storage, plan)
        assert await add_outside(storage, plan, two_steps()) is AddAnswer.SEALED
        assert await total(storage) == 4

    async def test_a_flow_that_is_not_stored_takes_none(self, storage: Storage) -> None:
        nowhere = FlowId(new_job_id())
        assert await storage.flows.add(nowhere, two_steps().flow) is AddAnswer.UNKNOWN
        assert await total(storage) == 0

    async def test_a_repeated_call_adds_it_once(self, storage: Storage) -> None:
        added = two_steps()
        plan = await a_growing(storage, added)
        assert await add_outside(storage, plan, added) is AddAnswer.REPEATED
        assert (await state(storage, plan)).total == 4
        await run_all(storage)
        assert await add_outside(storage, plan, added) is AddAnswer.REPEATED
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_one_that_is_added_to_two_flows_at_once_joins_one_of_them(
        self, storage: Storage
    ) -> None:
        for _ in range(5):
            plans, added = [a_night(), a_night()], two_steps()
            for plan in plans:
                await start(storage, plan)
            first, second = await asyncio.gather(
                *(storage.flows.add(plan.id, added.flow) for plan in plans), return_exceptions=True
            )
            assert AddAnswer.ADDED in (first, second)
            assert isinstance(first, IdConflict) or isinstance(second, IdConflict)
            assert sorted([(await state(storage, plan)).total for plan in plans]) == [2, 4]
            await settle(storage)
            await run_all(storage)
            assert await agree(storage)

    async def test_an_id_that_is_stored_is_refused(self, storage: Storage) -> None:
        plan, other, alone = a_night(), two_steps(), two_steps()
        await start(storage, plan)
        await start(storage, other)
        with pytest.raises(IdConflict):
            await storage.flows.add(plan.id, other.flow)
        await add(storage, alone.jobs["store"][0])
        with pytest.raises(IdConflict):
            await storage.flows.add(plan.id, alone.flow)
        assert (await state(storage, plan)).total == 2
        assert await total(storage) == 7
        assert await agree(storage)

    async def test_an_undefined_limit_is_refused(self, storage: Storage) -> None:
        plan, added = a_night(), Plan()
        added.part("row", limits=(LimitUse("nobody"),))
        await start(storage, plan)
        with pytest.raises(LimitUnknown):
            await storage.flows.add(plan.id, added.flow)
        assert await total(storage) == 4

    async def test_its_jobs_are_found_by_its_own_id(self, storage: Storage) -> None:
        added = two_steps()
        plan = await a_growing(storage, added)
        (load,) = await storage.flows.members(added.id, 0)
        assert load.id == added.jobs["load"][0].id
        join = await part(storage, plan, "two steps")
        end = await part(storage, plan, "end")
        assert join.kind is PartKind.ADDED
        assert join.added is not None
        assert (join.added.id, join.added.counts_for) == (added.id, end.number)
