"""Flows that run again after their end."""

from __future__ import annotations

from windlass._core.flows.flow import FlowState
from windlass._core.job.state import State
from windlass._storage.protocol.actions import ActionResult, Cancel, Requeue
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import (
    Plan,
    act,
    agree,
    finish,
    run,
    run_all,
    settle,
    start,
    state,
)
from windlass.testing.conformance.steps import HOUR, a_note, add, claim, keyed, look, obeyed

__all__ = ["FlowAgainConformance"]


def a_pair(**asked: object) -> Plan:
    """Return a flow of two jobs in a row."""
    plan = Plan(**asked)
    plan.part("a")
    plan.part("b", after=["a"])
    return plan


class FlowAgainConformance:
    """An ended flow runs from the write that brings it back, with all its time."""

    async def test_a_flow_whose_members_were_stopped_runs_from_its_retry_on(
        self, storage: Storage
    ) -> None:
        plan, other = a_pair(key="one"), a_pair(key="one")
        await start(storage, plan)
        (running,) = await claim(storage)
        await act(storage, plan, "cancel")
        await finish(storage, running)
        assert (await state(storage, plan)).state is FlowState.CANCELLED
        (answer,) = await storage.flows.act([plan.id], "retry", a_note())
        flow = await state(storage, plan)
        assert (answer, flow.state, flow.ended_at) == (ActionResult.DONE, FlowState.RUNNING, None)
        (held,) = await storage.flows.start([other.flow])
        assert (held.id, held.created) == (plan.id, False)
        assert await run_all(storage) == ["b"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_a_stopped_member_that_is_not_needed_lets_a_retried_flow_succeed(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b", 3, after=["a"], when="failed")
        plan.part("c", after=["b"])
        plan.callback("good")
        await start(storage, plan)
        (running,) = await claim(storage)
        await act(storage, plan, "cancel")
        await finish(storage, running)
        assert (await state(storage, plan)).state is FlowState.CANCELLED
        assert await act(storage, plan, "retry") is ActionResult.DONE
        job = await look(storage, plan.jobs["b"][0])
        assert (job.state, job.reason) == (State.DISCARDED, "not needed")
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await run_all(storage) == ["good"]
        assert await agree(storage)

    async def test_a_flow_does_not_run_if_others_hold_the_keys_of_its_members(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b", after=["a"], unique=keyed("mine").unique)
        await start(storage, plan)
        (running,) = await claim(storage)
        await act(storage, plan, "cancel")
        await finish(storage, running)
        await add(storage, keyed("mine", queue="other"))
        await act(storage, plan, "retry")
        assert (await state(storage, plan)).state is not FlowState.RUNNING
        assert await agree(storage)

    async def test_an_expired_flow_that_is_retried_has_all_its_time_again(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = a_pair(expires=HOUR)
        await start(storage, plan)
        for _ in range(2):
            clock.advance(2 * HOUR)
            await settle(storage)
            assert (await state(storage, plan)).state is FlowState.CANCELLED
            assert await act(storage, plan, "retry") is ActionResult.DONE
            flow = await state(storage, plan)
            assert (flow.state, flow.expires_at) == (FlowState.RUNNING, clock.now() + HOUR)
        assert await run_all(storage) == ["a", "b"]

    async def test_a_requeued_member_gives_its_flow_all_its_time_again(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = a_pair(expires=HOUR)
        await start(storage, plan)
        await run_all(storage, "a")
        clock.advance(2 * HOUR)
        await obeyed(storage, Requeue(), plan.jobs["a"][0].id)
        await settle(storage)
        assert (await state(storage, plan)).expires_at == clock.now() + HOUR
        assert await run_all(storage) == ["a", "b"]

    async def test_a_flow_that_runs_has_no_more_time(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = Plan(expires=HOUR)
        plan.part("a")
        plan.part("b", delay=3 * HOUR)
        await start(storage, plan)
        await run_all(storage, "a")
        clock.advance(HOUR / 2)
        await obeyed(storage, Requeue(), plan.jobs["a"][0].id)
        clock.advance(HOUR / 2)
        assert await run_all(storage) == []
        assert (await state(storage, plan)).state is FlowState.CANCELLED

    async def test_a_requeued_member_waits_for_the_parts_before_it(self, storage: Storage) -> None:
        plan = a_pair()
        await start(storage, plan)
        (running,) = await claim(storage)
        (waiting,) = plan.jobs["b"]
        await obeyed(storage, Cancel(), waiting.id)
        assert await obeyed(storage, Requeue(), waiting.id) == [ActionResult.DONE]
        assert (await look(storage, waiting)).blocked
        assert await claim(storage) == []
        assert await agree(storage)
        await finish(storage, running)
        assert await run_all(storage) == ["b"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_a_retried_flow_runs_each_failed_member_in_its_turn(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        plan.part("a", 2)
        plan.part("b", ended=["a"])
        await start(storage, plan)
        assert await run_all(storage, "a", "b") == ["a", "a", "b"]
        await act(storage, plan, "retry")
        assert await run(storage) == ["a", "a"]
        assert await run_all(storage) == ["b"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_a_requeued_member_after_a_failure_is_stopped_again(
        self, storage: Storage
    ) -> None:
        plan = a_pair()
        await start(storage, plan)
        (running,) = await claim(storage)
        (waiting,) = plan.jobs["b"]
        await obeyed(storage, Cancel(), waiting.id)
        await finish(storage, running, failing=["a"])
        await obeyed(storage, Requeue(), waiting.id)
        await settle(storage)
        job = await look(storage, waiting)
        assert (job.state, job.reason) == (State.CANCELLED, "after a, which failed")
        assert (await state(storage, plan)).state is FlowState.FAILED
        assert await agree(storage)

    async def test_a_requeued_member_that_has_run_does_not_wait_for_its_delay_again(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b", after=["a"], delay=HOUR)
        await start(storage, plan)
        assert await run_all(storage) == ["a"]
        clock.advance(HOUR)
        assert await run_all(storage, "b") == ["b"]
        await obeyed(storage, Requeue(), plan.jobs["b"][0].id)
        assert await run_all(storage) == ["b"]
        assert await agree(storage)
