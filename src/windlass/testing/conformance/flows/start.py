"""`FlowStore.start`: whole or not at all, once, and nothing before its turn."""

from __future__ import annotations

import pytest

from windlass._core.flows.flow import FlowState, PartKind
from windlass._core.job.state import Shown, State
from windlass._storage.protocol.flows import StartedFlow
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass.errors import IdConflict, KeyConflict, LimitUnknown
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import (
    Plan,
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
    tasks,
)
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    a_job,
    add,
    at_most,
    claim,
    enlist,
    keyed,
    limited,
    look,
    total,
)
from windlass.testing.conformance.storage import woken

__all__ = ["FlowStartConformance"]


class FlowStartConformance:
    """A flow is stored with all of its parts and jobs, or not at all."""

    async def test_parts_that_wait_for_nothing_start_and_the_others_are_blocked(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        plan.part("a", 2)
        (last,) = plan.part("b", after=["a"])
        await start(storage, plan)
        assert tasks(await claim(storage, 10)) == ["a", "a"]
        job = await look(storage, last)
        assert (job.state, job.blocked) == (State.WAITING, True)
        assert await claim(storage, 10) == []

    async def test_a_started_flow_is_found_with_its_parts_and_counts(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = Plan(name="import", key="import:42", tenant="acme")
        plan.part("rows", 3)
        plan.part("sum", after=["rows"])
        plan.callback("tell")
        await start(storage, plan)
        flow, parts = await state(storage, plan), await graph(storage, plan)
        assert (flow.name, flow.key, flow.tenant) == ("import", "import:42", "acme")
        assert (flow.state, flow.created_at, flow.total, flow.open) == (
            FlowState.RUNNING,
            clock.now(),
            4,
            4,
        )
        assert list(parts) == ["rows", "sum", "end", "tell"]
        assert [one.kind for one in parts.values()] == [
            PartKind.JOBS,
            PartKind.JOBS,
            PartKind.END,
            PartKind.CALLBACK,
        ]
        assert (parts["rows"].total, parts["rows"].blocked) == (3, 0)
        assert (parts["sum"].total, parts["sum"].blocked) == (1, 1)
        assert [edge.part for edge in parts["sum"].after] == [0]
        assert await agree(storage)

    async def test_a_member_knows_its_place(self, storage: Storage) -> None:
        plan = Plan()
        (job,) = plan.part("a")
        (after,) = plan.part("b", after=["a"])
        await start(storage, plan)
        (claimed,) = await claim(storage)
        for place in (claimed.flow, (await look(storage, job)).flow):
            assert place is not None
            assert (place.flow, place.part) == (plan.id, 0)
        blocked = await look(storage, after)
        assert blocked.flow is not None
        assert blocked.flow.part == 1

    async def test_a_repeated_start_stores_nothing_more(self, storage: Storage) -> None:
        plan = Plan(key="one")
        plan.part("a")
        plan.part("b", after=["a"])
        await start(storage, plan)
        (again,) = await storage.flows.start([plan.flow])
        assert again == StartedFlow(plan.id, created=True, repeated=True)
        assert await total(storage) == 2
        assert await run_all(storage) == ["a", "b"]
        (ended,) = await storage.flows.start([plan.flow])
        assert ended.repeated
        assert await claim(storage) == []

    async def test_a_running_flow_with_the_same_key_is_the_answer(self, storage: Storage) -> None:
        first, second = Plan(key="one"), Plan(key="one")
        first.part("a")
        second.part("b")
        await start(storage, first)
        (answer,) = await storage.flows.start([second.flow])
        assert answer == StartedFlow(first.id, created=False)
        assert await run_all(storage) == ["a"]
        assert await storage.flows.graph(second.id) is None
        await start(storage, second)  # the key is free when its flow has ended
        assert await run_all(storage) == ["b"]

    async def test_a_held_key_of_a_job_refuses_the_whole_flow(self, storage: Storage) -> None:
        (holder,) = await add(storage, keyed("taken"))
        plan, other = Plan(), Plan()
        other.part("fine")
        plan.part("a")
        job = keyed("taken")
        plan.part("b", after=["a"], unique=job.unique)
        with pytest.raises(KeyConflict, match=holder):
            await storage.flows.start([other.flow, plan.flow])
        assert await total(storage) == 1
        assert await storage.flows.graph(plan.id) is None
        assert await storage.flows.graph(other.id) is None

    async def test_an_undefined_limit_refuses_the_whole_flow(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b", after=["a"], limits=limited("nowhere").limits)
        with pytest.raises(LimitUnknown):
            await storage.flows.start([plan.flow])
        assert await total(storage) == 0
        assert await storage.flows.graph(plan.id) is None

    async def test_a_stored_job_id_refuses_the_whole_flow(self, storage: Storage) -> None:
        (stored,) = await add(storage, a_job())
        plan = Plan()
        plan.part("a")
        plan.part("b", id=stored)
        with pytest.raises(IdConflict):
            await storage.flows.start([plan.flow])
        assert await total(storage) == 1
        assert await storage.flows.graph(plan.id) is None

    async def test_a_blocked_member_holds_its_key(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        (held,) = plan.part("b", after=["a"], unique=keyed("mine").unique)
        await start(storage, plan)
        (answer,) = await storage.jobs.insert([keyed("mine")])
        assert (answer.id, answer.created) == (held.id, False)

    async def test_workers_are_woken_for_the_first_parts(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a", queue="mail")
        await enlist(storage)
        async with woken(storage, "mail"):
            await storage.flows.start([plan.flow])

    async def test_the_first_parts_keep_delay_priority_and_limits(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await at_most(storage, one=1)
        plan = Plan()
        plan.part("slow", delay=MINUTE)
        plan.part("urgent", priority=-1)
        plan.part("few", 2, limits=limited("one").limits)
        await start(storage, plan)
        assert tasks(await claim(storage, 10)) == ["urgent", "few"]
        clock.advance(MINUTE)
        assert tasks(await claim(storage, 10)) == ["slow"]

    async def test_a_flow_without_jobs_has_ended_when_it_is_stored(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = Plan()
        plan.part("none", 0)
        plan.join("group", after=["none"])
        plan.callback("done")
        await start(storage, plan)
        flow = await state(storage, plan)
        assert (flow.state, flow.ended_at) == (FlowState.SUCCEEDED, clock.now())
        assert await run(storage) == ["done"]

    async def test_a_part_without_jobs_lets_the_next_one_start(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("none", 0, after=["a"])
        plan.part("b", after=["none"])
        await start(storage, plan)
        assert await run_all(storage) == ["a", "b"]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_of_flows_with_one_key_or_id_in_a_call_the_first_is_started(
        self, storage: Storage
    ) -> None:
        first, second = Plan(key="one"), Plan(key="one")
        for plan in (first, second):  # the keys of jobs that are not stored do not matter
            plan.part("a", unique=keyed("mine").unique)
        answers = await storage.flows.start([first.flow, second.flow, first.flow])
        assert list(answers) == [
            StartedFlow(first.id, created=True),
            StartedFlow(first.id, created=False),
            StartedFlow(first.id, created=True, repeated=True),
        ]
        assert await total(storage) == 1

    async def test_members_come_in_pages_in_the_order_in_which_they_were_given(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        plan.part("first")
        jobs = plan.part("rows", 5)
        await start(storage, plan)
        number = (await part(storage, plan, "rows")).number
        page = await storage.flows.members(plan.id, number, limit=3)
        rest = await storage.flows.members(plan.id, number, after=page[-1].seq, limit=3)
        assert [one.id for one in (*page, *rest)] == [job.id for job in jobs]
        assert [len(page), len(rest)] == [3, 2]

    async def test_members_tell_state_result_and_error(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("good")
        plan.part("bad")
        plan.part("after", after=["bad"])
        await start(storage, plan)
        await finish(storage, *await claim(storage, 2), failing=["bad"], result=b"7")
        await settle(storage)
        (good,), (bad,) = await members(storage, plan, "good"), await members(storage, plan, "bad")
        (stopped,) = await members(storage, plan, "after")
        assert (good.state, good.result, good.error_kind) == (State.SUCCEEDED, b"7", "")
        assert (bad.state, bad.error_kind, bad.error_message) == (
            State.FAILED,
            "ValueError",
            "boom",
        )
        assert (stopped.state, stopped.reason) == (State.CANCELLED, "after bad, which failed")

    async def test_the_delay_and_expiry_of_a_blocked_job_count_from_its_turn(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = Plan()
        plan.part("a")
        (job,) = plan.part("b", after=["a"], delay=MINUTE, expires=2 * MINUTE)
        await start(storage, plan)
        clock.advance(HOUR)
        assert await storage.maintenance.expire(10) == []
        await run(storage)
        assert (await look(storage, job)).due == clock.now() + MINUTE
        assert await claim(storage) == []
        clock.advance(MINUTE)
        assert tasks(await claim(storage)) == ["b"]

    async def test_a_member_whose_turn_comes_is_ordered_by_the_start_of_its_flow(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b", after=["a"])
        await start(storage, plan)
        (first,) = await claim(storage)
        clock.advance(MINUTE)
        await add(storage, a_job(task="later"))
        clock.advance(MINUTE)
        await finish(storage, first)
        assert tasks(await claim(storage, 2)) == ["b", "later"]

    async def test_blocked_jobs_are_counted_and_found_as_scheduled(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b", 2, after=["a"])
        await start(storage, plan)
        (counts,) = await storage.admin.counts()
        assert (counts.ready, counts.scheduled) == (1, 2)
        for shown, found in ((Shown.READY, ["a"]), (Shown.SCHEDULED, ["b", "b"])):
            wanted = JobFilter(shown=[shown])
            assert [job.task for job in await storage.admin.find(wanted, limit=9)] == found
