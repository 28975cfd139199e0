"""The effect of a member's end on the parts after it, and on the flow."""

from __future__ import annotations

from datetime import timedelta

from windlass._core.flows.flow import FlowState
from windlass._core.job.outcome import Raised
from windlass._core.job.state import State
from windlass._core.job.transition import fail, retry, succeed
from windlass._storage.protocol.actions import Cancel, Discard
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.protocol.storage import Storage
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
    OOPS,
    at_most,
    claim,
    end,
    happened,
    limited,
    look,
    obeyed,
)

__all__ = ["FlowEndConformance", "FlowFailureConformance"]


class FlowEndConformance:
    """A part opens when all that it waits for has ended, and the flow ends with its last part."""

    async def test_the_last_end_opens_the_next_part(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("rows", 3)
        plan.part("sum", after=["rows"])
        await start(storage, plan)
        jobs = await claim(storage, 3)
        for job in jobs[:2]:
            await finish(storage, job)
            assert await claim(storage) == []
        await finish(storage, jobs[2])
        assert tasks(await claim(storage, 5)) == ["sum"]
        assert await agree(storage)

    async def test_a_chain_runs_link_by_link(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        for before, name in (("a", "b"), ("b", "c"), ("c", "d")):
            plan.part(name, after=[before])
        await start(storage, plan)
        for name in "abcd":
            assert await run(storage) == [name]
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_a_part_waits_for_every_part_before_it(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b")
        plan.part("c", after=["a", "b"])
        await start(storage, plan)
        first, second = await claim(storage, 2)
        await finish(storage, first)
        assert await claim(storage) == []
        await finish(storage, second)
        assert tasks(await claim(storage)) == ["c"]

    async def test_a_join_stands_for_all_parts_of_a_group(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b")
        plan.join("group", after=["a", "b"])
        plan.part("c", after=["group"])
        plan.part("d", after=["group"])
        await start(storage, plan)
        assert sorted(await run(storage)) == ["a", "b"]
        assert sorted(await run(storage)) == ["c", "d"]

    async def test_the_flow_ends_with_its_last_member(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = Plan()
        plan.part("a", 2)
        await start(storage, plan)
        first, second = await claim(storage, 2)
        clock.advance(MINUTE)
        await finish(storage, first)
        assert (await state(storage, plan)).state is FlowState.RUNNING
        clock.advance(MINUTE)
        await finish(storage, second)
        flow = await state(storage, plan)
        assert (flow.state, flow.ended_at) == (FlowState.SUCCEEDED, clock.now())
        assert (flow.open, flow.succeeded) == (0, 2)

    async def test_callbacks_wait_for_the_end_and_are_not_counted(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        plan.callback("good")
        plan.callback("bad", "failed")
        plan.callback("any", always=True)
        await start(storage, plan)
        assert await run(storage) == ["a"]
        flow = await state(storage, plan)
        assert (flow.state, flow.total) == (FlowState.SUCCEEDED, 1)
        await settle(storage)
        assert await run_all(storage, "any") == ["good", "any"]
        (bad,) = await members(storage, plan, "bad")
        assert (bad.state, bad.reason) == (State.DISCARDED, "not needed")
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_a_retry_is_no_end(self, storage: Storage, clock: VirtualClock) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b", after=["a"])
        await start(storage, plan)
        (job,) = await claim(storage)
        await happened(storage, job, Raised(OOPS))
        await settle(storage)
        assert (await part(storage, plan, "a")).open == 1
        assert await claim(storage) == []
        clock.advance(HOUR)
        assert await run(storage) == ["a"]
        assert await run(storage) == ["b"]

    async def test_a_repeated_end_counts_once(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a", 2)
        plan.part("b", after=["a"])
        await start(storage, plan)
        first, _ = await claim(storage, 2)
        for _ in range(2):
            await end(storage, succeed(first, by="w1", result=None))
        assert (await part(storage, plan, "a")).open == 1
        assert await claim(storage) == []
        assert await agree(storage)

    async def test_an_end_that_is_refused_counts_nothing(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b", after=["a"])
        await start(storage, plan)
        (late,) = await claim(storage)
        await end(storage, retry(late, by="reaper", error=OOPS, delay=timedelta(0)))
        (answer,) = await end(storage, succeed(late, by="w1", result=None))
        assert answer.verdict is Verdict.REFUSED
        waiting = await part(storage, plan, "a")
        assert (waiting.open, waiting.succeeded) == (1, 0)
        assert await agree(storage)
        assert await run_all(storage) == ["a", "b"]

    async def test_a_member_that_is_not_kept_stays_until_its_flow_goes(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        (job,) = plan.part("a")
        plan.part("b", after=["a"])
        await start(storage, plan)
        (running,) = await claim(storage)
        await end(storage, succeed(running, by="w1", result=b"7", keep=False))
        assert (await look(storage, job)).result == b"7"
        assert await run(storage) == ["b"]

    async def test_many_jobs_open_in_portions(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("first")
        plan.part("rows", 250, after=["first"])
        plan.part("sum", after=["rows"])
        await start(storage, plan)
        ran = await run_all(storage)
        assert ran == ["first", *["rows"] * 250, "sum"]
        assert await agree(storage)

    async def test_settling_is_bounded_and_says_how_much_it_did(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("first")
        plan.part("rows", 300, after=["first"])
        await start(storage, plan)
        (job,) = await claim(storage)
        await end(storage, fail(job, by="w1", error=OOPS))
        left = (await part(storage, plan, "rows")).blocked
        assert left == 200  # `apply` has settled some of them
        assert await storage.flows.settle(150) == 150
        assert (await part(storage, plan, "rows")).blocked == 50
        assert await storage.flows.settle(150) == 50
        assert await storage.flows.settle(150) == 0

    async def test_an_opened_job_counts_against_its_limits(self, storage: Storage) -> None:
        await at_most(storage, one=1)
        plan = Plan()
        plan.part("a")
        plan.part("b", 2, after=["a"], limits=limited("one").limits)
        await start(storage, plan)
        await run(storage)
        (job,) = await claim(storage, 5)
        assert job.task == "b"
        assert await claim(storage, 5) == []
        await finish(storage, job)
        assert tasks(await claim(storage, 5)) == ["b"]

    async def test_the_end_of_a_lost_run_counts(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        plan = Plan()
        plan.part("a", on_lost="fail")
        plan.part("b", ended=["a"])
        await start(storage, plan)
        (job,) = await claim(storage)
        await end(storage, fail(job, by="reaper", error=OOPS))
        assert (await part(storage, plan, "a")).failed == 1
        clock.advance(MINUTE)
        assert await run(storage) == ["b"]


class FlowFailureConformance:
    """Nothing waits for ever: a failure ends what strictly follows it, with the reason."""

    async def test_a_failure_cancels_what_waits_for_it_at_once(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a", 2)
        (after,) = plan.part("b", after=["a"])
        plan.part("c", after=["b"])
        await start(storage, plan)
        first, _ = await claim(storage, 2)
        await finish(storage, first, failing=["a"])
        await settle(storage)
        job = await look(storage, after)
        assert (job.state, job.reason) == (State.CANCELLED, "after a, which failed")
        (settled,) = await storage.jobs.settled([job.id])
        assert settled.reason == job.reason
        (last,) = await members(storage, plan, "c")
        assert (last.state, last.reason) == (State.CANCELLED, "after b, which failed")
        assert (await state(storage, plan)).state is FlowState.RUNNING  # the other one runs
        assert await agree(storage)

    async def test_the_flow_fails_when_all_has_ended(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b", after=["a"])
        plan.callback("good")
        plan.callback("bad", "failed")
        await start(storage, plan)
        assert await run_all(storage, "a") == ["a", "bad"]
        flow = await state(storage, plan)
        assert (flow.state, flow.failed, flow.stopped) == (FlowState.FAILED, 1, 1)
        (good,) = await members(storage, plan, "good")
        assert (good.state, good.reason) == (State.DISCARDED, "not needed")

    async def test_a_lenient_part_runs_when_the_failed_one_has_ended(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        plan.part("a", 2)
        plan.part("b", ended=["a"])
        await start(storage, plan)
        first, second = await claim(storage, 2)
        await finish(storage, first, failing=["a"])
        await settle(storage)
        assert await claim(storage) == []
        await finish(storage, second)
        assert await run_all(storage) == ["b"]
        # All that follows tolerates the failure.
        assert (await state(storage, plan)).state is FlowState.SUCCEEDED

    async def test_a_part_for_failures_runs_after_one_and_is_skipped_otherwise(
        self, storage: Storage
    ) -> None:
        for failing, ran, ended in (
            (["a"], ["a", "undo", "after"], FlowState.FAILED),
            ([], ["a"], FlowState.SUCCEEDED),
        ):
            plan = Plan()
            plan.part("a")
            plan.part("undo", after=["a"], when="failed")
            plan.part("after", after=["undo"])
            await start(storage, plan)
            assert await run_all(storage, *failing) == ran
            assert (await state(storage, plan)).state is ended
            assert (await part(storage, plan, "after")).skipped == (0 if failing else 1)

    async def test_the_cancel_of_a_member_is_a_failure_to_those_that_wait(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        (job,) = plan.part("a")
        plan.part("b", after=["a"])
        await start(storage, plan)
        await obeyed(storage, Cancel(), job.id)
        await settle(storage)
        parts = await graph(storage, plan)
        assert (parts["a"].cancelled, parts["b"].stopped) == (1, 1)
        assert (await state(storage, plan)).state is FlowState.FAILED

    async def test_the_expiry_of_a_member_is_a_failure_to_those_that_wait(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        for by_claim in (True, False):
            plan = Plan()
            plan.part("a", expires=MINUTE)
            plan.part("b", after=["a"])
            await start(storage, plan)
            clock.advance(HOUR)
            if by_claim:
                assert await claim(storage) == []
            else:
                await storage.maintenance.expire(10)
            await settle(storage)
            assert (await state(storage, plan)).state is FlowState.FAILED
            assert await agree(storage)

    async def test_a_failed_member_that_is_discarded_does_not_count_again(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        (job,) = plan.part("a")
        plan.part("b", 2, after=["a"])
        await start(storage, plan)
        await run_all(storage, "a")
        await obeyed(storage, Discard("no use"), job.id)
        parts = await graph(storage, plan)
        assert (parts["a"].failed, parts["a"].cancelled, parts["a"].open) == (0, 1, 0)
        assert (await state(storage, plan)).state is FlowState.FAILED
        assert await agree(storage)

    async def test_a_lenient_follower_waits_for_the_end_of_a_whole_group(
        self, storage: Storage
    ) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b")
        plan.join("group", after=["a", "b"])
        plan.part("c", ended=["group"])
        await start(storage, plan)
        first, second = await claim(storage, 2)
        await finish(storage, first, failing=["a"])
        await settle(storage)
        assert await claim(storage) == []
        await finish(storage, second)
        assert await run_all(storage) == ["c"]
        assert await agree(storage)

    async def test_a_failed_group_stops_what_waits_for_the_group(self, storage: Storage) -> None:
        plan = Plan()
        plan.part("a")
        plan.part("b")
        plan.join("group", after=["a", "b"])
        plan.part("c", after=["group"])
        await start(storage, plan)
        assert sorted(await run_all(storage, "b")) == ["a", "b"]
        assert (await part(storage, plan, "c")).stopped == 1
        assert (await state(storage, plan)).state is FlowState.FAILED
