"""Jobs that members add to their flow by their success."""

from __future__ import annotations

from msgspec.structs import replace

from windlass._core.flows.flow import FlowState
from windlass._core.job.state import State
from windlass._core.job.transition import fail, succeed
from windlass._storage.protocol.actions import ActionResult, Requeue
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import (
    Plan,
    act,
    agree,
    finish,
    members,
    part,
    run,
    run_all,
    settle,
    start,
    state,
    tasks,
)
from windlass.testing.conformance.steps import (
    MINUTE,
    OOPS,
    a_job,
    add,
    claim,
    end,
    keyed,
    look,
    obeyed,
    total,
)

__all__ = ["FlowAddedConformance"]


def a_split() -> Plan:
    """Return a flow whose first part may add jobs, and a part that waits for it."""
    plan = Plan()
    plan.part("split")
    plan.part("sum", after=["split"])
    return plan


class FlowAddedConformance:
    """Only a running member adds to what others wait for, and only with its success."""

    async def test_those_that_wait_for_a_member_wait_for_what_it_adds(
        self, storage: Storage
    ) -> None:
        plan = a_split()
        await start(storage, plan)
        (job,) = await claim(storage)
        rows = tuple(a_job(task="row") for _ in range(3))
        await end(storage, succeed(job, by="w1", result=None, then=rows))
        jobs = await claim(storage, 10)
        assert tasks(jobs) == ["row"] * 3
        split = await part(storage, plan, "split")
        assert (split.total, split.open, split.succeeded) == (4, 3, 1)
        await finish(storage, *jobs)
        assert await run_all(storage) == ["sum"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_what_an_added_job_adds_is_waited_for_at_any_depth(
        self, storage: Storage
    ) -> None:
        plan = a_split()
        await start(storage, plan)
        for depth in range(3):
            (job,) = await claim(storage)
            assert job.task == ("row" if depth else "split")
            assert job.flow is not None
            assert (job.flow.flow, job.flow.part, job.flow.added) == (plan.id, 0, depth > 0)
            then = (a_job(task="row"),)
            await end(storage, succeed(job, by="w1", result=None, then=then))
        assert await run_all(storage) == ["row", "sum"]

    async def test_a_failed_added_job_is_a_failure_of_its_part(self, storage: Storage) -> None:
        plan = a_split()
        await start(storage, plan)
        (job,) = await claim(storage)
        await end(storage, succeed(job, by="w1", result=None, then=(a_job(task="row"),)))
        assert await run_all(storage, "row") == ["row"]
        assert (await part(storage, plan, "sum")).stopped == 1
        assert (await state(storage, plan)).state is FlowState.FAILED

    async def test_a_repeated_success_adds_once(self, storage: Storage) -> None:
        plan = a_split()
        await start(storage, plan)
        (job,) = await claim(storage)
        ending = succeed(job, by="w1", result=None, then=(a_job(task="row"),))
        for _ in range(2):
            await end(storage, ending)
        assert (await part(storage, plan, "split")).total == 2
        assert await run_all(storage) == ["row", "sum"]
        assert await agree(storage)

    async def test_an_added_job_whose_key_is_held_counts_for_nothing(
        self, storage: Storage
    ) -> None:
        plan = a_split()
        await add(storage, keyed("taken", delay=MINUTE))
        await start(storage, plan)
        (job,) = await claim(storage)
        await end(storage, succeed(job, by="w1", result=None, then=(keyed("taken"),)))
        assert await run_all(storage) == ["sum"]
        assert (await part(storage, plan, "split")).total == 1
        assert await agree(storage)

    async def test_an_added_job_whose_id_is_stored_counts_for_nothing(
        self, storage: Storage
    ) -> None:
        plan = a_split()
        row, stored = a_job(task="row"), a_job(task="stored", delay=MINUTE)
        await add(storage, stored)
        await start(storage, plan)
        (job,) = await claim(storage)
        then = (row, row, stored)
        await end(storage, succeed(job, by="w1", result=None, then=then))
        assert (await look(storage, stored)).flow is None
        assert (await part(storage, plan, "split")).total == 2
        assert await run_all(storage) == ["row", "sum"]
        assert await agree(storage)

    async def test_a_cancelled_flow_takes_no_more_jobs(self, storage: Storage) -> None:
        plan = a_split()
        await start(storage, plan)
        (job,) = await claim(storage)
        await act(storage, plan, "cancel")
        await end(storage, succeed(job, by="w1", result=None, then=(a_job(task="row"),)))
        assert await run_all(storage) == []
        assert await total(storage) == 2
        assert (await state(storage, plan)).state is FlowState.CANCELLED

    async def test_the_answer_names_the_jobs_that_were_not_stored(self, storage: Storage) -> None:
        await add(storage, keyed("taken", delay=MINUTE))
        for cancelled in (False, True):
            plan = a_split()
            await start(storage, plan)
            (job,) = await claim(storage)
            if cancelled:
                await act(storage, plan, "cancel")
            then = (a_job(task="row"), keyed("taken"))
            ending = succeed(job, by="w1", result=None, then=then)
            applied = await storage.jobs.apply([ending])
            left_out = then if cancelled else then[1:]
            assert set(applied.left_out) == {one.id for one in left_out}
            await run_all(storage)

    async def test_an_added_job_that_comes_back_keeps_its_delay_and_its_expiry(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan, row = Plan(), a_job(task="row", delay=MINUTE, expires=3 * MINUTE)
        plan.part("first")
        plan.part("split", after=["first"])
        await start(storage, plan)
        await run(storage)
        await settle(storage)
        (job,) = await claim(storage)
        await end(storage, succeed(job, by="w1", result=None, then=(row,)))
        clock.advance(MINUTE / 2)
        await act(storage, plan, "cancel")
        await act(storage, plan, "retry")
        back = await look(storage, row)
        assert back.state is State.WAITING
        assert (back.due, back.expires_at) == (clock.now() + MINUTE, clock.now() + 3 * MINUTE)
        clock.advance(MINUTE)
        assert await run_all(storage, "row") == ["row"]
        assert await obeyed(storage, Requeue(), row.id) == [ActionResult.DONE]
        await settle(storage)
        assert (await look(storage, row)).expires_at == clock.now() + 3 * MINUTE
        assert await run_all(storage) == ["row"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED
        assert await agree(storage)

    async def test_the_follow_up_of_a_failure_is_no_member(self, storage: Storage) -> None:
        plan = a_split()
        await start(storage, plan)
        (job,) = await claim(storage)
        sorry = a_job(task="sorry")
        await end(storage, replace(fail(job, by="w1", error=OOPS), then=(sorry,)))
        assert (await look(storage, sorry)).flow is None
        assert await run(storage) == ["sorry"]
        assert (await state(storage, plan)).state is FlowState.FAILED
        assert await agree(storage)

    async def test_results_of_a_part_are_those_of_the_jobs_that_were_given(
        self, storage: Storage
    ) -> None:
        plan = a_split()
        (given,) = plan.jobs["split"]
        await start(storage, plan)
        (job,) = await claim(storage)
        await end(storage, succeed(job, by="w1", result=b"7", then=(a_job(task="row"),)))
        assert [one.id for one in await members(storage, plan, "split")] == [given.id]
