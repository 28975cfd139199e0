"""Actions of people on flows and their members: requeue, retry, cancel, edit, delete, keep."""

from __future__ import annotations

from datetime import timedelta

from windlass._core.flows.flow import FlowState
from windlass._core.job.job import FlowId
from windlass._core.job.state import State
from windlass._core.job.transition import retry, succeed
from windlass._core.job.unique import OnConflict, UniqueKey, Window
from windlass._storage.protocol.actions import (
    ActionResult,
    Cancel,
    Edit,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
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
    OOPS,
    a_job,
    a_note,
    add,
    claim,
    end,
    keyed,
    look,
    obeyed,
)

__all__ = ["FlowCancelConformance", "FlowRetryConformance"]


class FlowRetryConformance:
    """A requeue undoes what the failure did."""

    async def test_a_requeued_member_lets_the_flow_go_on(self, storage: Storage) -> None:
        plan = a_chain()
        await start(storage, plan)
        assert await run_all(storage, "a") == ["a", "bad"]
        assert await obeyed(storage, Requeue(), plan.jobs["a"][0].id) == [ActionResult.DONE]
        flow = await state(storage, plan)
        assert (flow.state, flow.ended_at) == (FlowState.RUNNING, None)
        assert await run_all(storage) == ["a", "b", "c", "good"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_a_callback_that_ran_does_not_run_again(self, storage: Storage) -> None:
        plan = a_chain()
        await start(storage, plan)
        await run_all(storage, "a")
        await obeyed(storage, Requeue(), plan.jobs["a"][0].id)
        assert await run_all(storage, "a") == ["a"]
        assert (await part(storage, plan, "bad")).succeeded == 1

    async def test_retry_requeues_all_that_failed_and_what_that_stopped(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        plan.part("a", 3)
        plan.part("b", after=["a"])
        await start(storage, plan)
        jobs = await claim(storage, 3)
        await finish(storage, *jobs[:2], failing=["a"])
        await finish(storage, jobs[2])
        await settle(storage)
        assert await act(storage, plan, "retry") is ActionResult.DONE
        assert await run_all(storage) == ["a", "a", "b"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_a_flow_that_runs_or_has_succeeded_is_not_retried(self, storage: Storage) -> None:
        plan = a_chain()
        await start(storage, plan)
        assert await act(storage, plan, "retry") is ActionResult.WRONG_STATE
        await run_all(storage)
        assert await act(storage, plan, "retry") is ActionResult.WRONG_STATE
        unknown = [FlowId(new_job_id())]
        assert list(await storage.flows.act(unknown, "retry", a_note())) == [ActionResult.UNKNOWN]

    async def test_a_stopped_member_comes_back_with_the_failed_one_alone(
        self, storage: Storage
    ) -> None:
        plan = a_chain()
        await start(storage, plan)
        await run_all(storage, "a")
        (stopped,) = plan.jobs["b"]
        assert await obeyed(storage, Requeue(), stopped.id) == [ActionResult.WRONG_STATE]
        await obeyed(storage, Requeue(), plan.jobs["a"][0].id)
        await settle(storage)
        job = await look(storage, stopped)
        assert (job.state, job.blocked, job.reason, job.finished_at) == (
            State.WAITING,
            True,
            None,
            None,
        )

    async def test_a_member_is_not_requeued_while_another_flow_holds_the_key(
        self, storage: Storage
    ) -> None:
        plan, other = a_chain(key="one"), a_chain(key="one")
        await start(storage, plan)
        await run_all(storage, "a")
        await start(storage, other)
        assert await obeyed(storage, Requeue(), plan.jobs["a"][0].id) == [ActionResult.CONFLICT]
        assert await act(storage, plan, "retry") is ActionResult.CONFLICT
        assert (await state(storage, plan)).state is FlowState.FAILED

    async def test_a_flow_that_goes_on_holds_its_key_again(self, storage: Storage) -> None:
        plan, other = a_chain(key="one"), a_chain(key="one")
        await start(storage, plan)
        await run_all(storage, "a")
        await act(storage, plan, "retry")
        (answer,) = await storage.flows.start([other.flow])
        assert (answer.id, answer.created) == (plan.id, False)

    async def test_a_stopped_member_whose_key_was_taken_stays_cancelled(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        plan.part("a")
        (job,) = plan.part("b", after=["a"], unique=keyed("mine").unique)
        await start(storage, plan)
        await run_all(storage, "a")
        (holder,) = await add(storage, keyed("mine", queue="other"))
        await act(storage, plan, "retry")
        assert await run_all(storage) == ["a"]
        stored = await look(storage, job)
        assert (stored.state, stored.reason) == (
            State.CANCELLED,
            f"its key is held by job {holder}",
        )
        assert (await part(storage, plan, "b")).cancelled == 1
        assert (await state(storage, plan)).state is FlowState.FAILED
        assert await agree(storage)

    async def test_a_stopped_member_that_still_holds_its_key_comes_back(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        plan.part("a")
        key = UniqueKey("mine", window=Window.FOR_A_TIME, period=HOUR)
        plan.part("b", after=["a"], unique=key)
        await start(storage, plan)
        await run_all(storage, "a")
        await act(storage, plan, "retry")
        assert await run_all(storage) == ["a", "b"]


class FlowCancelConformance:
    """A cancel reaches everything, and no action unblocks a member before its turn."""

    async def test_a_cancelled_flow_starts_nothing(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a", 3)
        plan.part("b", after=["a"])
        plan.callback("bad", "failed")
        plan.callback("any", always=True)
        await start(storage, plan)
        (running,) = await claim(storage)
        note = a_note(what="flows.cancel")
        assert list(await storage.flows.act([plan.id], "cancel", note)) == [ActionResult.DONE]
        assert await claim(storage, 10) == []  # before the members were reached
        await settle(storage)
        assert (await look(storage, running)).cancel_requested
        await end(storage, retry(running, by="w1", error=OOPS, delay=timedelta(0)))
        assert await run_all(storage) == ["any"]
        flow = await state(storage, plan)
        assert (flow.state, flow.cancel_requested, flow.open) == (FlowState.CANCELLED, True, 0)
        assert await agree(storage)

    async def test_what_succeeds_in_a_cancelled_flow_stays_succeeded(
        self, storage: Storage
    ) -> None:
        plan = a_chain()
        await start(storage, plan)
        (running,) = await claim(storage)
        await act(storage, plan, "cancel")
        await end(storage, succeed(running, by="w1", result=None))
        assert await run_all(storage) == []
        flow = await state(storage, plan)
        assert (flow.state, flow.succeeded) == (FlowState.CANCELLED, 1)

    async def test_a_flow_that_has_ended_is_not_cancelled(self, storage: Storage) -> None:
        plan = a_chain()
        await start(storage, plan)
        await run_all(storage)
        assert await act(storage, plan, "cancel") is ActionResult.WRONG_STATE
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_a_cancelled_flow_is_retried_as_a_whole(self, storage: Storage) -> None:
        plan = a_chain()
        await start(storage, plan)
        await act(storage, plan, "cancel")
        (first,) = plan.jobs["a"]
        assert await obeyed(storage, Requeue(), first.id) == [ActionResult.WRONG_STATE]
        assert await act(storage, plan, "retry") is ActionResult.DONE
        assert await run_all(storage) == ["a", "b", "c", "good"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_a_retried_flow_runs_in_the_order_of_its_parts(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b", after=["a"])
        plan.part("c", ended=["b"])
        plan.part("d", ended=["b", "c"])
        await start(storage, plan)
        await act(storage, plan, "cancel")
        await act(storage, plan, "retry")
        assert await run_all(storage) == ["a", "b", "c", "d"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_a_cancel_that_is_not_done_yet_does_not_reach_the_retried_flow(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        (job,) = plan.part("a")
        await start(storage, plan)
        for answered in (
            await storage.flows.act([plan.id], "cancel", a_note()),
            await obeyed(storage, Cancel(), job.id),
            await storage.flows.act([plan.id], "retry", a_note()),
        ):
            assert list(answered) == [ActionResult.DONE]
        assert await run_all(storage) == ["a"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_a_repeated_action_changes_nothing_and_is_recorded_once(
        self, storage: Storage
    ) -> None:
        plan = a_chain()
        await start(storage, plan)
        note = a_note(what="flows.cancel", subject=f"flow {plan.id}")
        answers = [list(await storage.flows.act([plan.id], "cancel", note)) for _ in range(2)]
        assert answers == [[ActionResult.DONE]] * 2
        (record,) = await storage.orders.audits(limit=10)
        assert (record.note, record.count) == (note, 1)

    async def test_an_expired_flow_ends_its_members(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = Plan(expires=HOUR)
        plan.part("a", 2)
        plan.part("b", after=["a"])
        await start(storage, plan)
        (running,) = await claim(storage)
        clock.advance(HOUR)
        await settle(storage)
        assert (await look(storage, running)).cancel_requested
        await end(storage, retry(running, by="w1", error=OOPS, delay=timedelta(0)))
        assert await run_all(storage) == []
        assert (await state(storage, plan)).state is FlowState.CANCELLED

    async def test_a_blocked_member_is_cancelled_at_once(self, storage: Storage) -> None:
        plan = a_chain()
        await start(storage, plan)
        (job,) = plan.jobs["b"]
        assert await obeyed(storage, Cancel(), job.id) == [ActionResult.DONE]
        await settle(storage)
        parts = await graph(storage, plan)
        assert (parts["b"].cancelled, parts["b"].blocked, parts["c"].stopped) == (1, 0, 1)
        assert await run_all(storage) == ["a", "bad"]

    async def test_no_action_unblocks_a_member(self, storage: Storage, clock: VirtualClock) -> None:
        plan = a_chain()
        await start(storage, plan)
        (job,) = plan.jobs["b"]
        assert await obeyed(storage, RunNow(), job.id) == [ActionResult.WRONG_STATE]
        due = Edit(due=clock.now())
        assert await obeyed(storage, due, job.id) == [ActionResult.WRONG_STATE]
        moved = Edit(queue="other", priority=-1)
        assert await obeyed(storage, moved, job.id) == [ActionResult.DONE]
        assert await claim(storage, queue="other") == []
        stored = await look(storage, job)
        assert (stored.queue, stored.priority, stored.blocked) == ("other", -1, True)
        await run(storage)
        assert tasks(await claim(storage, queue="other")) == ["b"]

    async def test_a_blocked_holder_of_a_key_is_not_replaced(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        (held,) = plan.part("b", after=["a"], unique=keyed("mine").unique)
        await start(storage, plan)
        key = UniqueKey("mine", on_conflict=OnConflict.REPLACE)
        (answer,) = await storage.jobs.insert([a_job(task="b", payload=b"[2]", unique=key)])
        assert (answer.id, answer.created, answer.replaced) == (held.id, False, False)
        assert (await look(storage, held)).blocked

    async def test_a_blocked_member_is_not_active(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a", queue="first")
        plan.part("b", after=["a"], queue="second")
        await start(storage, plan)
        assert not await storage.jobs.active(["second"])
        outlook = await storage.jobs.outlook(["second"])
        assert (outlook.claimable, outlook.next_at) == (False, None)
        assert await storage.maintenance.next_due(["second"]) is None
        wants = [Want("second", 1)]
        assert (await storage.jobs.claim("w1", wants, total=1)).next_at is None
