"""``drain`` and ``drain_all``: what is due runs here and now, and what is not stays."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from windlass import (
    Backoff,
    Context,
    GiveUp,
    Limit,
    Rate,
    Retry,
    Snooze,
    Task,
    Throttled,
    Windlass,
)
from windlass._app.parts import parts_of
from windlass._core.job.job import JobId, NewJob
from windlass._core.job.state import State
from windlass.errors import BlockingCallOnLoop, ConfigError, InvalidArgument
from windlass.testing import (
    NeverEmpty,
    RunsFailed,
    StillRunning,
    VirtualClock,
    drain,
    drain_all,
    drain_all_sync,
    drain_sync,
    enqueued,
)


async def test_everything_due_is_run(app: Windlass, clock: VirtualClock) -> None:
    ran: list[int] = []

    @app.task
    async def on_the_loop(number: int) -> None:
        ran.append(number)

    @app.task(queue="other")
    def on_a_thread(number: int) -> None:
        ran.append(number)

    await on_the_loop.enqueue(1)
    await on_a_thread.enqueue(2)
    await on_the_loop.options(queue="nobody-serves-this-one").enqueue(3)
    drained = await drain(app)
    assert sorted(ran) == [1, 2, 3]
    assert (drained.ran, drained.succeeded) == (3, 3)


async def test_a_drain_of_nothing_does_nothing(app: Windlass, clock: VirtualClock) -> None:
    assert (await drain(app)).ran == 0
    assert (await drain_all(app)).ran == 0


async def test_jobs_enqueued_by_jobs_are_run_too(app: Windlass, clock: VirtualClock) -> None:
    order: list[str] = []

    @app.task(queue="children")
    async def child(name: str) -> None:
        order.append(name)

    @app.task
    async def parent(ctx: Context) -> None:
        await child.enqueue("enqueued")
        await ctx.enqueue(child.call("by the context"))
        order.append("parent")

    await parent.enqueue()
    assert (await drain(app)).succeeded == 3
    assert order == ["parent", "enqueued", "by the context"]


async def test_they_run_one_at_a_time_in_the_order_of_claims(
    app: Windlass, clock: VirtualClock
) -> None:
    running: list[str] = []
    order: list[str] = []

    @app.task
    async def work(name: str) -> None:
        running.append(name)
        await asyncio.sleep(0)
        assert running == [name]
        running.remove(name)
        order.append(name)

    await work.enqueue("second")
    await work.enqueue("third")
    await work.options(priority=-1).enqueue("first")
    await drain(app)
    assert order == ["first", "second", "third"]


async def test_jobs_due_later_wait_for_the_clock(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def work() -> None: ...

    await work.options(delay=60).enqueue()
    clock.advance(59)
    assert (await drain(app)).ran == 0
    clock.advance(1)
    assert (await drain(app)).ran == 1


async def test_a_retry_waits_for_its_backoff(app: Windlass, clock: VirtualClock) -> None:
    @app.task(backoff=Backoff.fixed(30))
    async def flaky(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ConnectionError("refused")
        return f"after {ctx.previous_error}"

    job = await flaky.enqueue()
    drained = await drain(app)
    assert (drained.ran, drained.retried, drained.succeeded) == (1, 1, 0)
    assert (await drain(app)).ran == 0
    clock.advance(30)
    assert (await drain(app)).succeeded == 1
    assert await job.result(timeout=30) == "after ConnectionError: refused"


async def test_until_lets_time_pass_from_one_due_time_to_the_next(
    app: Windlass, clock: VirtualClock
) -> None:
    seen: list[timedelta] = []
    start = clock.now()

    @app.task
    async def every_hour() -> None:
        seen.append(clock.now() - start)
        raise Snooze(3600)

    await every_hour.enqueue()
    drained = await drain(app, until=timedelta(hours=2, minutes=30))
    assert seen == [timedelta(hours=n) for n in (0, 1, 2)]
    assert drained.postponed == 3
    assert clock.now() == start + timedelta(hours=2, minutes=30)


async def test_until_may_be_an_instant_and_includes_it(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def work() -> None: ...

    end = clock.now() + timedelta(days=1)
    await work.options(at=end).enqueue()
    assert (await drain(app, until=end)).ran == 1
    assert clock.now() == end


async def test_until_must_be_an_aware_instant(app: Windlass, clock: VirtualClock) -> None:
    with pytest.raises(InvalidArgument, match="naive"):
        await drain(app, until=clock.now().replace(tzinfo=None))


async def test_drain_all_continues_until_nothing_waits(app: Windlass, clock: VirtualClock) -> None:
    start = clock.now()

    @app.task(max_attempts=3, backoff=Backoff.exponential(first=10, factor=10))
    async def hopeless() -> None:
        raise ValueError("always")

    @app.task
    async def late() -> None: ...

    job = await hopeless.enqueue()
    await late.options(delay=timedelta(days=3)).enqueue()
    drained = await drain_all(app)
    assert (drained.ran, drained.retried, drained.failed, drained.succeeded) == (4, 2, 1, 1)
    assert (await job.refresh()).state is State.FAILED
    assert clock.now() == start + timedelta(days=3)


async def test_drain_all_gives_up_on_what_never_ends(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def forever() -> None:
        raise Snooze(1)

    await forever.enqueue()
    with pytest.raises(NeverEmpty, match=r"20 runs and still not empty; .*forever \(snooze\)"):
        await drain_all(app, limit=20)


async def test_drain_all_needs_a_clock_it_can_move() -> None:
    app = Windlass("memory://")
    assert (await drain(app)).ran == 0
    with pytest.raises(ConfigError, match="machine's clock"):
        await drain_all(app)
    with pytest.raises(ConfigError, match="machine's clock"):
        await drain(app, until=1)


async def test_only_the_queues_asked_for_are_drained(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def work(name: str) -> None: ...

    await work.options(queue="mail").enqueue("now")
    await work.options(queue="mail", delay=60).enqueue("later")
    await work.options(queue="other").enqueue("untouched")
    await work.options(queue="other", delay=30).enqueue("untouched too")
    assert (await drain_all(app, queues=["mail"])).ran == 2
    left = [job.arguments["name"] for job in await enqueued(app)]
    assert left == ["untouched", "untouched too"]


async def test_a_paused_queue_is_left_alone(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def work() -> None: ...

    await work.enqueue()
    await work.options(delay=60).enqueue()
    await app.admin.queues.pause("default")
    assert (await drain_all(app)).ran == 0
    await app.admin.queues.resume("default")
    assert (await drain_all(app)).ran == 2


async def test_an_expired_job_is_discarded_not_run(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.options(expires=60).enqueue()
    clock.advance(61)
    assert (await drain(app)).ran == 0
    assert (await job.refresh()).reason == "expired"


async def test_every_way_a_run_can_end_is_counted(app: Windlass, clock: VirtualClock) -> None:
    @app.task(max_attempts=2)
    async def ends(how: str) -> None:
        match how:
            case "retry":
                raise Retry("again", after=10)
            case "raise":
                raise KeyError(how)
            case "give up":
                raise GiveUp("never")
            case "snooze":
                raise Snooze(10)
            case "throttle":
                raise Throttled(10, cool_queue=False)
            case "crash":
                raise SystemExit(3)

    for how in ("well", "retry", "raise", "give up", "snooze", "throttle", "crash"):
        await ends.enqueue(how)
    drained = await drain(app)
    assert drained.ran == 7
    assert (drained.succeeded, drained.retried, drained.failed) == (1, 2, 2)
    assert (drained.postponed, drained.cancelled) == (2, 0)
    assert [run.verb for run in drained.errors] == ["retry", "retry", "fail", "fail"]


async def test_the_runs_of_one_task_can_be_told_apart(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def good() -> None: ...

    @app.task
    async def bad() -> None:
        raise ValueError

    await app.enqueue_many([good.call(), bad.call(), good.call()])
    drained = await drain(app)
    assert drained.of(good).succeeded == 2
    assert drained.of(bad).succeeded == 0
    assert drained.of(good).raise_errors().ran == 2


async def test_errors_are_raised_with_every_traceback(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def bad(name: str) -> None:
        raise ValueError(f"no {name}")

    await bad.enqueue("milk")
    await bad.enqueue("bread")
    drained = await drain(app)
    with pytest.raises(RunsFailed) as caught:
        drained.raise_errors()
    told = str(caught.value)
    assert "2 runs ended in an error" in told
    assert "attempt 1 of 5: ValueError: no milk" in told
    assert 'raise ValueError(f"no {name}")' in told
    assert [run.error.message for run in caught.value.runs if run.error] == ["no milk", "no bread"]


async def test_an_unregistered_task_is_postponed(app: Windlass, clock: VirtualClock) -> None:
    # Stored by a newer version of the program, say.
    job = NewJob(id=JobId("0" * 32), task="of.another.version")
    await (await parts_of(app).storage()).jobs.insert([job])
    assert (await drain(app)).postponed == 1
    assert (await app.admin.jobs.get(job.id)).attempt == 0


async def test_arguments_go_through_the_codec(app: Windlass, clock: VirtualClock) -> None:
    got: list[object] = []

    @app.task
    async def work(pair: tuple[int, int], when: timedelta) -> None:
        got.extend((pair, when))

    pair = (1, 2)
    await work.enqueue(pair, timedelta(seconds=5))
    await drain(app)
    assert got == [(1, 2), timedelta(seconds=5)]
    assert got[0] is not pair


async def test_a_thousand_jobs_are_drained_in_one_go(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def work(number: int) -> None: ...

    await app.enqueue_many([work.call(number) for number in range(1000)])
    assert (await drain(app)).succeeded == 1000


async def test_a_job_that_does_not_end_is_named(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def child() -> str:
        return "too late"

    @app.task
    async def waits_for_another() -> str:
        return await (await child.enqueue()).result()

    job = await waits_for_another.enqueue()
    with pytest.raises(StillRunning, match=r"waits_for_another \(.*app\.worker"):
        await drain(app, patience=0.05)
    record = await job.refresh()
    assert (record.state, record.attempt) == (State.WAITING, 0)  # interrupted: given back


async def test_a_thread_that_does_not_end_is_named_too(app: Windlass, clock: VirtualClock) -> None:
    end = threading.Event()

    @app.task
    def blocks() -> None:
        end.wait(10)

    job = await blocks.enqueue()
    with pytest.raises(StillRunning, match="blocks"):
        await drain(app, patience=0.05)
    end.set()
    assert (await job.refresh()).state is State.WAITING


async def test_a_thread_that_outlives_its_timeout_does_not_hold_up_the_others(
    app: Windlass, clock: VirtualClock
) -> None:
    end = threading.Event()

    @app.task(timeout=0.01, max_attempts=1)
    def slow() -> None:
        end.wait(10)

    @app.task
    def next_one() -> None: ...

    await slow.enqueue()
    await next_one.enqueue()
    drained = await drain(app)
    end.set()
    assert drained.of(slow).failed == 1
    assert drained.of(next_one).succeeded == 1


async def test_a_cancelled_drain_gives_back_what_it_was_running(
    app: Windlass, clock: VirtualClock
) -> None:
    started = asyncio.Event()

    @app.task
    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    job = await work.enqueue()
    draining = asyncio.create_task(drain(app))
    await started.wait()
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining
    record = await job.refresh()
    assert (record.state, record.attempt) == (State.WAITING, 0)


async def test_a_drain_leaves_no_live_worker_behind(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def work() -> None: ...

    await work.enqueue()
    await drain(app)
    assert [worker.state for worker in await app.admin.workers.list()] == ["gone"]


def test_without_an_event_loop(app: Windlass, clock: VirtualClock) -> None:
    seen: list[str] = []

    @app.task
    async def on_the_loop() -> None:
        seen.append("loop")
        await on_a_thread.enqueue()

    @app.task
    def on_a_thread() -> None:
        seen.append(threading.current_thread().name.partition("-")[0])
        later.options(delay=60).enqueue_sync()

    @app.task
    def later() -> None:
        seen.append("later")

    on_the_loop.enqueue_sync()
    assert drain_sync(app).succeeded == 2
    assert drain_all_sync(app).succeeded == 1
    assert seen == ["loop", "windlass", "later"]


async def test_the_blocking_form_is_refused_on_a_running_loop(
    app: Windlass, clock: VirtualClock
) -> None:
    with pytest.raises(BlockingCallOnLoop, match=r"await drain\(app\)"):
        drain_sync(app)
    with pytest.raises(BlockingCallOnLoop, match=r"await drain_all\(app\)"):
        drain_all_sync(app)


async def test_waiting_jobs_show_their_arguments_by_name(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(queue="mail")
    async def send(to: str, *, subject: str, copies: int = 1) -> None: ...

    @app.task
    async def other() -> None: ...

    job = await send.options(tags=["vip"]).enqueue("ada", subject="Hi")
    await other.enqueue()
    (found,) = await enqueued(app, send)
    assert found.id == job.id
    assert found.arguments == {"to": "ada", "subject": "Hi"}
    assert (found.job.queue, found.job.tags) == ("mail", ("vip",))
    assert [one.task for one in await enqueued(app)] == [send.name, other.name]


# --- limits ------------------------------------------------------------------------------------


def limited(app: Windlass) -> Task[[str, float], None]:
    @app.task(limits=Limit("api", Rate(1, per=10), key="{tenant}", cost="{cost}"))
    async def call(tenant: str, cost: float) -> None: ...

    return call


async def test_limits_hold_in_a_drain_and_open_as_its_clock_moves(
    app: Windlass, clock: VirtualClock
) -> None:
    call = limited(app)
    await app.enqueue_many(call.call(tenant, 1) for tenant in ("a", "a", "a", "b"))
    assert (await drain(app)).ran == 2
    assert (await drain(app)).ran == 0
    clock.advance(10)
    assert (await drain(app)).ran == 1
    assert (await drain(app, until=10)).ran == 1


async def test_drain_all_waits_for_limits_to_open(app: Windlass, clock: VirtualClock) -> None:
    call = limited(app)

    @app.task(limits=Limit("seat", concurrency=1))
    async def sit() -> None: ...

    start = clock.now()
    await call.enqueue("a", 3)
    await app.enqueue_many([call.call("a", 1), call.call("a", 1), sit.call(), sit.call()])
    assert (await drain_all(app)).succeeded == 5
    assert clock.now() - start == timedelta(seconds=40)


async def test_a_drain_runs_the_jobs_that_handlers_add(app: Windlass, clock: VirtualClock) -> None:
    ran: list[str] = []

    @app.task(queue="dock")
    async def ship(order: int) -> None:
        ran.append(f"ship {order}")

    @app.task
    async def pay(ctx: Context) -> None:
        ctx.then(ship.call(1), ship.options(delay=60).call(2))
        ran.append("pay")

    await pay.enqueue()
    assert (await drain(app)).raise_errors().ran == 2
    assert ran == ["pay", "ship 1"]
    assert (await drain_all(app)).ran == 1
    assert ran == ["pay", "ship 1", "ship 2"]
