"""`AdminStore.find` with a flow: its jobs, and no others."""

from __future__ import annotations

import msgspec

from windlass._core.flows.flow import FlowState
from windlass._core.job.job import FlowId, JobId
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import Plan, a_chain, finish, run_all, settle, start
from windlass.testing.conformance.steps import DAY, HOUR, a_job, add, claim, end, every, failed

__all__ = ["FlowJobConformance"]


def a_fan(parts: int = 3) -> Plan:
    """Return a flow of two jobs in each part, all but the first after the first."""
    plan = Plan()
    for number in range(parts):
        plan.part(f"p{number}", 2, after=["p0"] if number else [])
    return plan


def ids(plan: Plan) -> list[JobId]:
    return [job.id for jobs in plan.jobs.values() for job in jobs]


class FlowJobConformance:
    """A flow narrows a list of jobs."""

    async def test_the_jobs_of_a_flow_are_listed_by_their_flow(self, storage: Storage) -> None:
        plan, other = a_fan(), a_chain()
        await add(storage, a_job())
        await start(storage, plan)
        await start(storage, other)
        await add(storage, a_job())
        wanted = JobFilter(flow=plan.id)
        for limit in (1, 4, 100):
            found = await every(storage, wanted, limit=limit)
            assert sorted(found) == sorted(ids(plan))
            oldest = msgspec.structs.replace(wanted, order=ListOrder.OLDEST)
            assert await every(storage, oldest, limit=limit) == found[::-1]
        assert await every(storage, JobFilter(flow=FlowId(new_job_id()))) == []

    async def test_a_flow_narrows_together_with_other_fields(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await failed(storage, a_job(task="p0"))
        plan = a_fan()
        await start(storage, plan)
        jobs = await claim(storage, 2)
        await finish(storage, jobs[0], failing=["p0"])
        await finish(storage, jobs[1])
        await settle(storage)
        bad, good = jobs[0].claim.job, jobs[1].claim.job
        clock.advance(HOUR)
        await failed(storage, a_job(task="p0"))
        for order in (ListOrder.NEWEST, ListOrder.OLDEST, ListOrder.FINISHED_LAST):
            wanted = JobFilter(flow=plan.id, states=[State.FAILED], order=order)
            assert await every(storage, wanted, limit=1) == [bad]
        assert await every(storage, JobFilter(flow=plan.id, task="p0", error="ValueError")) == [bad]
        assert await every(storage, JobFilter(flow=plan.id, states=[State.SUCCEEDED])) == [good]

    async def test_a_job_that_a_member_added_is_a_job_of_the_flow(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        await start(storage, plan)
        (job,) = await claim(storage, 1)
        added = a_job(task="added")
        await end(storage, succeed(job, by=job.worker, result=None, then=(added,)))
        assert await every(storage, JobFilter(flow=plan.id)) == [added.id, job.claim.job]

    async def test_the_jobs_of_a_flow_whose_deletion_has_begun_are_not_listed_by_it(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = a_chain()
        await start(storage, plan)
        await run_all(storage)
        clock.advance(DAY)
        await storage.flows.prune(state=FlowState.SUCCEEDED, older_than=HOUR, limit=2)
        assert await every(storage, JobFilter(flow=plan.id)) == []
