"""Flows in tests: `drain` runs them to their end on the virtual clock, `inline` before the start
returns.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from windlass import Backoff, Context, Flow, FlowRun, Results, Task, Windlass
from windlass._core.flows.flow import FlowState
from windlass.errors import JobFailed
from windlass.testing import VirtualClock, drain, drain_all, enqueued, inline


class Shop:
    """Tasks that fail twice, add jobs, and wait."""

    def __init__(self, app: Windlass) -> None:
        self.ran: list[str] = []

        @app.task(max_attempts=3, backoff=Backoff.fixed(60))
        async def flaky(ctx: Context, number: int) -> int:
            if number < 0 or ctx.attempt < 3:
                raise ValueError(number)
            return number

        @app.task
        async def total(numbers: Results[int]) -> int:
            return sum(await numbers.list())

        @app.task
        async def tell(what: str) -> None:
            self.ran.append(what)

        @app.task
        async def split(ctx: Context, number: int) -> None:
            ctx.then(*[tell.options(delay=30).call(f"part {n}") for n in range(number)])

        self.flaky: Task[[int], int] = flaky
        self.total: Task[[Results[int]], int] = total
        self.tell: Task[[str], None] = tell
        self.split: Task[[int], None] = split

    def flow(self, *, expires: str | None = None) -> Flow:
        """Delays, retries, results, jobs that a job adds, and callbacks: over after an hour, two
        retries, a day and half a minute.
        """
        flow = Flow(
            "all",
            on_succeeded=self.tell.call("good"),
            on_ended=self.tell.call("over"),
            expires=expires,
        )
        rows = flow.map(self.flaky.options(delay="1h"), [1, 2])
        total = flow.add(self.total.options(delay="1d").call(rows.results))
        split = flow.add(self.split.call(2), after=total)
        flow.add(self.tell.call("last"), after=split)
        return flow


ALL = ["part 0", "part 1", "last", "good", "over"]


@pytest.fixture
def shop(app: Windlass, clock: VirtualClock) -> Shop:
    del clock  # the app is isolated
    return Shop(app)


async def ended(run: FlowRun) -> FlowState:
    return (await run.refresh()).state


async def test_drain_all_moves_the_clock_to_the_end_of_a_flow(
    app: Windlass, shop: Shop, clock: VirtualClock
) -> None:
    before = clock.now()
    run = await app.start(shop.flow())
    assert (await drain(app)).ran == 0
    drained = await drain_all(app)
    assert (await ended(run), shop.ran) == (FlowState.SUCCEEDED, ALL)
    assert drained.retried == 4
    assert clock.now() - before == timedelta(days=1, hours=1, minutes=2, seconds=30)


async def test_a_flow_expires_at_its_instant(
    app: Windlass, shop: Shop, clock: VirtualClock
) -> None:
    before = clock.now()
    run = await app.start(shop.flow(expires="30m"))
    await drain(app, until=timedelta(hours=2))
    record = await run.refresh()
    assert (record.state, shop.ran) == (FlowState.CANCELLED, ["over"])
    assert record.ended_at == before + timedelta(minutes=30)


async def test_blocked_jobs_of_a_paused_queue_do_not_move_the_clock(
    app: Windlass, shop: Shop, clock: VirtualClock
) -> None:
    flow = Flow("paused")
    flow.add(shop.tell.call("after"), after=flow.add(shop.tell.options(queue="off").call("first")))
    await app.start(flow)
    await app.admin.queues.pause("off")
    before = clock.now()
    assert (await drain_all(app)).ran == 0
    assert clock.now() == before


async def test_enqueued_lists_blocked_jobs_with_the_arguments_that_are_known(
    app: Windlass, shop: Shop
) -> None:
    await app.start(shop.flow())
    (waiting,) = await enqueued(app, shop.total)
    assert waiting.job.blocked
    assert "known when the flow runs" in repr(waiting.arguments["numbers"])


async def test_inline_runs_a_flow_with_what_its_jobs_add(app: Windlass, shop: Shop) -> None:
    with inline(app):
        run = await app.start(shop.flow())
        assert (await ended(run), shop.ran) == (FlowState.SUCCEEDED, ALL)


async def test_inline_raises_the_failure_of_a_member_after_the_callbacks(
    app: Windlass, shop: Shop
) -> None:
    flow = Flow("fails", on_failed=shop.tell.call("bad"))
    flow.add(shop.tell.call("never"), after=flow.add(shop.flaky.call(-1)))
    with inline(app):
        with pytest.raises(JobFailed, match="ValueError"):
            await app.start(flow)
        assert shop.ran == ["bad"]
