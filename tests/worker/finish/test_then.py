"""``ctx.then``: jobs that are stored with the success of a run, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Self

import pytest

from tests.plugins.fakes import EVERYTHING, Some
from tests.worker.fixtures import Bench, Hook, bench, logged
from windlass import (
    Context,
    Limit,
    Registrar,
    Retry,
    Snooze,
    Success,
    Throttled,
    Unique,
    Windlass,
)
from windlass._app.parts import parts_of
from windlass._core.flows.flow import Addition
from windlass._core.job.event import Event, JobEnqueued
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._core.job.transition import Transition, retry
from windlass._storage.protocol.jobs import Applied
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._tasks.cancel_token import CancelToken
from windlass._tasks.context import CallNext
from windlass._tasks.task import Task
from windlass.errors import (
    InvalidArgument,
    LimitUnknown,
    PayloadTooLarge,
    StorageUnavailable,
    UnknownTask,
    WindlassError,
)
from windlass.testing._enqueued import all_jobs
from windlass.testing.conformance.steps import OOPS, a_job


def shipping(app: Windlass, **options: Any) -> Task[[int], None]:
    @app.task(name="ship", **{"queue": "later", **options})
    async def ship(order: int) -> None: ...

    return ship


def adding(app: Windlass, add: Callable[[Context], object], **options: Any) -> Task[[], Any]:
    @app.task(**{"name": "pay", **options})
    async def pay(ctx: Context) -> Any:
        return add(ctx)

    return pay


async def added(app: Windlass, task: str = "ship") -> list[JobRecord]:
    jobs = await all_jobs((await parts_of(app).storage()).admin, JobFilter(task=task))
    return jobs[::-1]


# --- when they are stored ------------------------------------------------------------------------


async def test_the_jobs_are_stored_with_the_success() -> None:
    async with bench() as it:
        ship = shipping(it.app)
        during: list[int] = []

        @it.app.task
        async def pay(ctx: Context) -> str:
            ctx.then(ship.call(1), ship.call(2))
            ctx.then(ship.options(delay=60, priority=-2, tags=["vip"]).call(3))
            ctx.then()
            during.append(len(await added(it.app)))
            return "paid"

        bound = pay.options(tenant="acme", principal="ann", correlation_id="r-1")
        job = await it.run(bound.call())
        assert (job.state, job.result, during) == (State.SUCCEEDED, b'"paid"', [0])
        jobs = await added(it.app)
        assert [one.payload for one in jobs] == [b'{"order":%d}' % n for n in (1, 2, 3)]
        assert {one.parent for one in jobs} == {job.id}
        assert {one.tenant for one in jobs} == {"acme"}
        assert {one.principal for one in jobs} == {"ann"}
        assert {one.correlation_id for one in jobs} == {"r-1"}
        last = jobs[-1]
        assert (last.priority, last.tags) == (-2, ("vip",))
        assert (last.due - last.created_at).total_seconds() == 60


async def test_runs_that_do_not_succeed_add_nothing() -> None:
    async with bench() as it:
        ship = shipping(it.app)

        @it.app.task(max_attempts=2)
        async def pay(ctx: Context, how: str) -> None:
            ctx.then(ship.call(1))
            if how == "cancel":
                await it.app.admin.jobs.cancel(ctx.job_id)
                await asyncio.sleep(0)
            if how == "wish":
                ctx.snooze(60)
                return
            errors = {"snooze": Snooze(60), "retry": Retry(after=60), "throttle": Throttled(60)}
            raise errors.get(how, ValueError(how))

        for how in ("snooze", "wish", "retry", "throttle", "fail", "cancel"):
            await it.run(pay.options(max_attempts=1 if how == "fail" else 2).call(how))
        assert await added(it.app) == []


async def test_a_retry_adds_anew() -> None:
    async with bench() as it:
        ship = shipping(it.app)

        def add(ctx: Context) -> None:
            ctx.then(ship.call(ctx.attempt))
            if ctx.attempt == 1:
                raise Retry(after=1)

        job = await it.again(await it.run(adding(it.app, add).call()), after=1)
        assert job.state is State.SUCCEEDED
        assert [one.payload for one in await added(it.app)] == [b'{"order":2}']


async def test_a_run_that_has_lost_its_claim_adds_nothing() -> None:
    async with bench() as it:
        ship = shipping(it.app)

        @it.app.task
        async def pay(ctx: Context) -> None:
            ctx.then(ship.call(1))
            lost = retry(ctx.claimed, by="reaper", error=OOPS, delay=timedelta(hours=1))
            await it.store.storage.jobs.apply([lost])

        with logged() as lines:
            await it.run(pay.call())
        assert lines.having("the claim was lost")
        assert await added(it.app) == []


async def test_on_success_and_then_are_stored_together() -> None:
    async with bench() as it:
        ship = shipping(it.app)

        @it.app.task(name="tell", queue="later")
        async def tell(success: Success) -> None: ...

        pay = adding(it.app, lambda ctx: ctx.then(ship.call(1)), on_success=tell)
        job = await it.run(pay.call())
        assert [one.parent for one in await added(it.app)] == [job.id]
        assert [one.parent for one in await added(it.app, "tell")] == [job.id]


async def test_retention_of_no_time_does_not_matter() -> None:
    async with bench(keep_succeeded=0) as it:
        ship = shipping(it.app)
        pay = adding(it.app, lambda ctx: ctx.then(ship.call(1)))
        await pay.enqueue()
        await it.engine.step()
        assert len(await added(it.app)) == 1
        assert await added(it.app, "pay") == []


async def test_plain_functions_add_from_their_thread() -> None:
    async with bench() as it:
        ship = shipping(it.app)

        @it.app.task
        def pay(ctx: Context) -> int:
            ctx.then(ship.call(1))
            other = threading.Thread(target=ctx.then, args=(ship.call(2),))
            other.start()
            other.join()
            return 3

        assert (await it.run(pay.call())).result == b"3"
        assert len(await added(it.app)) == 2


async def test_middleware_adds_too() -> None:
    async with bench() as it:
        ship = shipping(it.app)

        @it.app.middleware
        async def layer(ctx: Context, call_next: CallNext) -> Any:
            value = await call_next()
            ctx.then(ship.call(2))
            return value

        await it.run(adding(it.app, lambda ctx: ctx.then(ship.call(1))).call())
        assert [one.payload for one in await added(it.app)] == [b'{"order":1}', b'{"order":2}']


async def test_hooks_see_the_calls_once() -> None:
    async with bench() as it:
        ship = shipping(it.app)
        seen: list[str] = []

        @it.app.before_enqueue
        def hook(call: Any) -> Any:
            seen.append(call.task.name)
            return call.with_options(priority=-7)

        await it.run(adding(it.app, lambda ctx: ctx.then(ship.call(1))).call())
        assert seen == ["pay", "ship"]
        assert [one.priority for one in await added(it.app)] == [-7]


async def test_listeners_hear_of_each_job() -> None:
    async with bench() as it:
        events: list[Event] = []
        it.app.on_transition(events.append)
        ship = shipping(it.app)
        await it.run(adding(it.app, lambda ctx: ctx.then(*map(ship.call, range(3)))).call())
        heard = [one.job for one in events if isinstance(one, JobEnqueued) and one.task == "ship"]
        assert heard == [one.id for one in await added(it.app)]


async def test_listeners_hear_nothing_of_a_job_that_was_left_out() -> None:
    async with bench() as it:
        events: list[Event] = []
        it.app.on_transition(events.append)
        ship = shipping(it.app, unique=Unique())
        await it.run(adding(it.app, lambda ctx: ctx.then(ship.call(1), ship.call(1))).call())
        heard = [one.job for one in events if isinstance(one, JobEnqueued) and one.task == "ship"]
        assert heard == [one.id for one in await added(it.app)]
        assert len(heard) == 1


async def test_workers_are_woken_for_them() -> None:
    async with Windlass("memory://", poll=60) as app, app.worker(slots=2):
        ran = asyncio.Event()

        @app.task
        async def ship() -> None:
            ran.set()

        @app.task
        async def pay(ctx: Context) -> None:
            ctx.then(ship.call())

        await pay.enqueue()
        # Long before the next poll.
        assert await asyncio.wait_for(ran.wait(), timeout=10)


async def test_a_held_key_leaves_a_job_out() -> None:
    async with bench() as it:
        ship = shipping(it.app)
        keyed = ship.options(key="k", delay=3600)
        await keyed.enqueue(1)
        calls = [keyed.call(2), ship.options(key="k", on_conflict="raise").call(3), ship.call(4)]
        job = await it.run(adding(it.app, lambda ctx: ctx.then(*calls)).call())
        assert job.state is State.SUCCEEDED
        assert [one.payload for one in await added(it.app)] == [b'{"order":1}', b'{"order":4}']


# --- stores in trouble ---------------------------------------------------------------------------


async def test_a_lost_answer_stores_them_once() -> None:
    async with bench() as it:
        ship = shipping(it.app)
        lost: list[Applied] = []

        async def lose(call: Hook, transitions: Sequence[Transition]) -> Any:
            answer = await call(transitions)
            if not lost:
                lost.append(answer)
                raise StorageUnavailable("gone")
            return answer

        it.store.on("jobs.apply", lose)
        job = await adding(it.app, lambda ctx: ctx.then(ship.call(1), ship.call(2))).enqueue()
        with pytest.raises(StorageUnavailable):
            await it.engine.step()
        await it.engine.finisher.flush()
        assert (await job.refresh()).state is State.SUCCEEDED
        assert len(await added(it.app)) == 2


async def test_a_success_whose_jobs_cannot_be_stored_is_none() -> None:
    async with bench() as it:
        ship = shipping(it.app)

        @it.app.task(name="tell", queue="later")
        async def tell(success: Success) -> None: ...

        async def refuse(call: Hook, transitions: Sequence[Transition]) -> Any:
            if any(job.task == "ship" for one in transitions for job in one.then):
                raise LimitUnknown("api", ())
            return await call(transitions)

        it.store.on("jobs.apply", refuse)
        pay = adding(it.app, lambda ctx: ctx.then(ship.call(1)), on_success=tell)
        with logged() as lines:
            job = await it.run(pay.call())
        assert job.state is State.FAILED
        assert job.error is not None
        assert job.error.kind == "OutcomeNotStorable"
        assert lines.having("cannot be stored unchanged")
        assert await added(it.app) == await added(it.app, "tell") == []


async def test_jobs_are_stored_without_an_on_success_job_that_cannot_be() -> None:
    async with bench() as it:
        ship = shipping(it.app)

        @it.app.task(name="tell", queue="later")
        async def tell(success: Success) -> None: ...

        async def refuse(call: Hook, transitions: Sequence[Transition]) -> Any:
            if any(job.task == "tell" for one in transitions for job in one.then):
                raise ValueError("no room")
            return await call(transitions)

        it.store.on("jobs.apply", refuse)
        pay = adding(it.app, lambda ctx: ctx.then(ship.call(1)), on_success=tell)
        assert (await it.run(pay.call())).state is State.SUCCEEDED
        assert len(await added(it.app)) == 1


async def test_a_success_with_many_jobs_is_written_alone() -> None:
    async with bench() as it:
        ship = shipping(it.app)
        sizes: list[list[int]] = []

        async def note(call: Hook, transitions: Sequence[Transition]) -> Any:
            sizes.append([len(one.then) for one in transitions])
            return await call(transitions)

        it.store.on("jobs.apply", note)

        @it.app.task
        async def pay(ctx: Context, number: int) -> None:
            ctx.then(*(ship.call(n) for n in range(number)))

        await it.app.enqueue_many([pay.call(number) for number in (0, 101, 100, 150, 1)])
        await it.engine.step()
        assert sizes == [[0, 100, 1], [101], [150]]
        assert len(await added(it.app)) == 352
        assert it.engine.finisher.idle


# --- what is refused -----------------------------------------------------------------------------


async def refused(it: Bench, add: Callable[[Context], object], name: str) -> Exception:
    """The error of ``ctx.then``; the run succeeds without the jobs."""
    errors: list[Exception] = []

    def attempt(ctx: Context) -> None:
        try:
            add(ctx)
        except Exception as error:  # noqa: BLE001 -- it is what the test looks at
            errors.append(error)

    job = await it.run(adding(it.app, attempt, name=name).call())
    assert job.state is State.SUCCEEDED
    assert await added(it.app) == []
    return errors[0]


async def test_bad_calls_are_refused_where_they_are_made() -> None:
    async with bench(payload_limit=1000) as it, Windlass("memory://") as other:
        ship = shipping(it.app)
        connection: Any = object()

        @it.app.task(name="pack", queue="later")
        async def pack(text: str) -> None: ...

        cases: list[tuple[Callable[[Context], object], type[Exception], str]] = [
            (lambda ctx: ctx.then(shipping(other).call(1)), UnknownTask, "ship"),
            (lambda ctx: ctx.then(pack.call("x" * 2000)), PayloadTooLarge, "above the limit"),
            (lambda ctx: ctx.then(ship), InvalidArgument, "ctx.then takes calls"),  # type: ignore[arg-type]
            (
                lambda ctx: ctx.then(ship.call(1), *[ship.call(2)] * 10_000),
                InvalidArgument,
                "10,001 jobs with one success, and at most 10,000",
            ),
            (
                lambda ctx: ctx.then(ship.options(connection=connection).call(1)),
                InvalidArgument,
                "ctx.finish",
            ),
        ]
        for number, (add, kind, text) in enumerate(cases):
            error = await refused(it, add, f"pay{number}")
            assert isinstance(error, kind), error
            assert text in str(error)


async def test_one_run_adds_at_most_ten_thousand_jobs_in_all() -> None:
    async with bench() as it:
        ship = shipping(it.app)

        def add(ctx: Context) -> None:
            ctx.then(*[ship.call(1)] * 9_999)
            ctx.then(ship.call(2))
            with pytest.raises(InvalidArgument, match="at most 10,000"):
                ctx.then(ship.call(3))

        await it.run(adding(it.app, add).call())
        assert len(await added(it.app)) == 10_000


async def test_a_run_that_has_ended_adds_nothing() -> None:
    async with bench() as it:
        ship = shipping(it.app)
        kept: list[Context] = []

        @it.app.task
        async def pay(ctx: Context, number: int | None) -> None:
            kept.append(ctx)
            if number is not None:
                ctx.then(*map(ship.call, range(number)))

        for number in (None, 0, 1):
            await it.run(pay.call(number))
        for ctx in kept:
            with pytest.raises(WindlassError, match="after the run had ended"):
                ctx.then(ship.call(2))
        assert [one.payload for one in await added(it.app)] == [b'{"order":0}']


def test_a_run_that_ends_while_a_thread_adds_stores_all_or_raises() -> None:
    token = CancelToken()

    class EndsMeanwhile(list[Addition]):
        def __iadd__(self, jobs: Iterable[Addition]) -> Self:  # type: ignore[misc,override]
            self.extend(jobs)
            token.closed = True
            return self

    token.added = EndsMeanwhile()
    with pytest.raises(WindlassError, match="after the run had ended"):
        token.add([a_job()])
    assert token.take_added() == ()


async def test_limits_of_the_jobs_hold() -> None:
    async with bench() as it:
        ship = shipping(it.app, limits=[Limit("dock", concurrency=1)], queue="default")
        # Defined after the worker has started: it defines the limit when it meets it.
        await it.run(adding(it.app, lambda ctx: ctx.then(ship.call(1), ship.call(2))).call())
        assert [[use.name for use in one.limits] for one in await added(it.app)] == [["dock"]] * 2
        await it.engine.step()
        assert [one.state for one in await added(it.app)].count(State.SUCCEEDED) == 1


async def test_a_plugin_adds_its_own_tasks_only() -> None:
    async with bench() as it:
        ship = shipping(it.app)
        errors: list[Exception] = []

        def plan(to: Registrar) -> None:
            @to.task(name="mine", queue="mail")
            async def mine() -> None: ...

            @to.task(name="work")
            async def work(ctx: Context) -> None:
                ctx.then(mine.call())
                try:
                    ctx.then(ship.call(1))
                except WindlassError as error:
                    errors.append(error)

        it.app.install(Some(plan), grants=EVERYTHING)
        work = next(task for task in it.app.tasks if task.name.endswith("work"))
        assert (await it.run(work.call())).state is State.SUCCEEDED
        assert "its own tasks only" in str(errors[0])
        assert await added(it.app) == []
        mine = next(task for task in it.app.tasks if task.name.endswith("mine"))
        assert len(await added(it.app, mine.name)) == 1
