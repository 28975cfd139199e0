"""``on_success=``: a job that has succeeded is followed by another, in the same write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.plugins.fakes import EVERYTHING, Some
from tests.worker.fixtures import Hook, bench, logged
from windlass import Context, Failure, Registrar, Retry, Snooze, Success, Unique, Windlass, testing
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, JobEnqueued
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._core.job.transition import Transition
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._tasks.task import Task
from windlass.errors import DefinitionError, StorageUnavailable


def telling(app: Windlass, told: list[Success], **options: Any) -> Task[..., None]:
    @app.task(name="tell", **options)
    async def tell(success: Success) -> None:
        told.append(success)

    return tell


def paying(app: Windlass, on_success: Any, **options: Any) -> Task[..., Any]:
    @app.task(name="pay", on_success=on_success, **options)
    async def pay(order: int, note: str = "") -> dict[str, int]:
        return {"paid": order}

    return pay


async def followers(app: Windlass, task: str = "tell") -> Sequence[JobRecord]:
    return await app.admin.jobs.find(JobFilter(task=task))


# --- when it follows -----------------------------------------------------------------------------


async def test_the_task_gets_the_job_and_its_result() -> None:
    async with bench() as it:
        told: list[Success] = []
        tell = telling(it.app, told, queue="mail", priority=-3, tags=["receipt"])
        bound = paying(it.app, tell, tags=["vip"]).options(
            tenant="acme", principal="ann", correlation_id="r-1"
        )
        job = await it.run(bound.call(7, note="now"))
        assert (job.state, job.result) == (State.SUCCEEDED, b'{"paid":7}')
        (then,) = await followers(it.app)
        assert (then.queue, then.priority, then.tags) == ("mail", -3, ("receipt",))
        assert (then.state, then.parent) == (State.WAITING, job.id)
        assert (then.tenant, then.principal, then.correlation_id) == ("acme", "ann", "r-1")
        async with it.app.worker(queues=["mail"]):
            await it.app.job(then.id).result(timeout=30)
        assert told == [
            Success(
                job_id=job.id,
                task="pay",
                queue="default",
                arguments={"order": 7, "note": "now"},
                result={"paid": 7},
                attempt=1,
                max_attempts=5,
                started_at=job.started_at or it.clock.now(),
                tenant="acme",
                principal="ann",
                correlation_id="r-1",
                tags=("vip",),
            )
        ]


async def test_jobs_that_end_otherwise_are_not_followed() -> None:
    async with bench() as it:

        @it.app.task(name="pay", on_success=telling(it.app, []), max_attempts=2)
        async def pay(how: str) -> None:
            if how == "cancel":
                await it.app.admin.jobs.cancel(job.id)
            raise {"snooze": Snooze(60), "retry": Retry(after=60)}.get(how, ValueError(how))

        for how in ("snooze", "retry", "fail", "cancel"):
            job = await pay.options(max_attempts=1 if how == "fail" else 2).enqueue(how)
            await it.engine.step()
        assert await followers(it.app) == []


async def test_a_task_without_the_option_is_not_followed() -> None:
    async with bench() as it:
        telling(it.app, [])
        assert (await it.run(paying(it.app, None).call(1))).state is State.SUCCEEDED
        assert await followers(it.app) == []


async def test_a_task_and_a_job_may_be_known_by_former_names() -> None:
    async with bench() as it:
        telling(it.app, [], aliases=["told"])
        paying(it.app, "told", aliases=["charge"])
        job = await it.app.enqueue("pay", {"order": 1})
        await it.engine.step()
        assert [then.parent for then in await followers(it.app)] == [job.id]


async def test_a_result_that_is_not_stored_is_not_passed_on() -> None:
    async with bench() as it:
        told: list[Success] = []
        await it.run(paying(it.app, telling(it.app, told), store_result=False).call(1))
        await it.engine.step()
        assert [success.result for success in told] == [None]


async def test_a_chain_of_tasks_runs_to_its_end() -> None:
    async with bench() as it:
        told: list[Success] = []
        last = telling(it.app, told)

        @it.app.task(name="book", on_success=last)
        async def book(success: Success) -> str:
            return f"booked {success.result['paid']}"

        await it.run(paying(it.app, book).call(7))
        for _ in range(2):
            await it.engine.step()
        assert [(success.task, success.result) for success in told] == [("book", "booked 7")]


async def test_the_job_that_follows_has_an_on_failure_of_its_own() -> None:
    async with bench() as it:
        failures: list[Failure] = []

        @it.app.task(name="mourn")
        async def mourn(failure: Failure) -> None:
            failures.append(failure)

        @it.app.task(name="book", on_failure=mourn, max_attempts=1)
        async def book(success: Success) -> None:
            raise ValueError("no room")

        await it.run(paying(it.app, book).call(7))
        for _ in range(2):
            await it.engine.step()
        assert [failure.task for failure in failures] == ["book"]


async def test_listeners_hear_of_the_job_that_follows() -> None:
    async with bench() as it:
        events: list[Event] = []
        it.app.on_transition(events.append)
        await it.run(paying(it.app, telling(it.app, [])).call(1))
        (then,) = await followers(it.app)
        told = [one for one in events if isinstance(one, JobEnqueued) and one.job == then.id]
        assert [(one.task, one.queue) for one in told] == [("tell", "default")]


async def test_a_plugins_task_is_followed_by_another_of_its_own() -> None:
    async with bench() as it:

        async def pay() -> int:
            return 5

        async def tell(success: Success) -> None: ...

        def bring(registrar: Registrar) -> None:
            registrar.task(name="tell")(tell)
            registrar.task(name="pay", on_success="tell")(pay)

        it.app.install(Some(bring), grants=EVERYTHING)
        await it.run(it.app.tasks["some.pay"].call())
        assert len(await followers(it.app, "some.tell")) == 1


@pytest.mark.parametrize(
    ("note", "size", "cut"),
    [(100, 100, ()), (9_900, 100, ("arguments",)), (9_900, 12_000, ("arguments", "result"))],
)
async def test_a_success_too_large_for_a_payload_says_what_was_left_out(
    note: int, size: int, cut: tuple[str, ...]
) -> None:
    async with bench(payload_limit=10_000, result_limit=64_000) as it:
        told: list[Success] = []

        @it.app.task(name="pay", on_success=telling(it.app, told))
        async def pay(note: str) -> str:
            return "r" * size

        await it.run(pay.call("n" * note))
        (then,) = await followers(it.app)
        assert len(then.payload) <= 10_000
        await it.engine.step()
        assert [success.shortened for success in told] == [cut]
        assert (told[0].arguments is None, told[0].result is None) == (
            "arguments" in cut,
            "result" in cut,
        )


# --- stored in the same write --------------------------------------------------------------------


async def test_a_success_whose_answer_was_lost_is_followed_once() -> None:
    async with bench() as it:
        lost = 0

        async def lose(call: Hook, transitions: Sequence[Transition]) -> Any:
            nonlocal lost
            answer = await call(transitions)
            if lost == 0:
                lost += 1
                raise StorageUnavailable("the answer was lost")
            return answer

        it.store.on("jobs.apply", lose)
        pay = paying(it.app, telling(it.app, []))
        with pytest.raises(StorageUnavailable):
            await it.run(pay.call(1))
        await it.engine.finisher.flush()
        assert len(await followers(it.app)) == 1


async def test_a_success_stays_one_although_what_follows_cannot_be_stored() -> None:
    async with bench() as it:

        async def refuse(call: Hook, transitions: Sequence[Transition]) -> Any:
            if any(one.then for one in transitions):
                raise ValueError("no room")
            return await call(transitions)

        it.store.on("jobs.apply", refuse)
        with logged() as lines:
            job = await it.run(paying(it.app, telling(it.app, [])).call(1))
        assert (job.state, job.result, job.error) == (State.SUCCEEDED, b'{"paid":1}', None)
        assert lines.having("cannot be stored unchanged: no room")


async def test_a_store_that_takes_only_a_plain_follow_up_gets_one() -> None:
    async with bench() as it:
        told: list[Success] = []

        async def refuse(call: Hook, transitions: Sequence[Transition]) -> Any:
            if any(job.tenant for one in transitions for job in one.then):
                raise ValueError("no tenants here")
            return await call(transitions)

        it.store.on("jobs.apply", refuse)
        job = await it.run(paying(it.app, telling(it.app, told)).options(tenant="acme").call(1))
        await it.engine.step()
        assert [success.job_id for success in told] == [job.id]
        assert told[0].shortened == ("arguments", "result")


async def test_a_result_that_cannot_be_stored_is_a_failure_with_no_success_job() -> None:
    async with bench() as it:

        async def refuse(call: Hook, transitions: Sequence[Transition]) -> Any:
            if any(one.result is not None for one in transitions):
                raise ValueError("no such result")
            return await call(transitions)

        it.store.on("jobs.apply", refuse)
        job = await it.run(paying(it.app, telling(it.app, [])).call(1))
        assert job.state is State.FAILED
        assert await followers(it.app) == []


# --- in tests of users ---------------------------------------------------------------------------


async def test_inline_jobs_are_followed_before_the_call_returns() -> None:
    app = Windlass("memory://")
    told: list[Success] = []
    pay = paying(app, telling(app, told, queue="mail"))
    with testing.inline(app):
        await pay.enqueue(1)
        assert [success.result for success in told] == [{"paid": 1}]


async def test_a_drain_runs_what_follows() -> None:
    app = Windlass("memory://")
    told: list[Success] = []
    pay = paying(app, telling(app, told, queue="mail"))
    with testing.isolated(app):
        await pay.enqueue(1)
        drained = await testing.drain(app)
    assert (drained.ran, drained.succeeded, len(told)) == (2, 2, 1)


# --- refusals ------------------------------------------------------------------------------------


async def no_argument() -> None: ...
async def takes_failure(failure: Failure) -> None: ...
async def too_many(success: Success, more: int) -> None: ...
async def with_context(ctx: Context, success: Success, more: int = 3) -> None: ...


@pytest.mark.parametrize("taker", [no_argument, takes_failure, too_many])
def test_a_task_that_cannot_take_a_success_is_refused_where_it_is_given(taker: Any) -> None:
    app = Windlass("memory://")
    with pytest.raises(DefinitionError, match=r"on_success of task 'pay'.*`success: Success`"):
        paying(app, app.task(name="tell")(taker))


def test_a_context_and_defaults_are_no_hindrance() -> None:
    app = Windlass("memory://")
    paying(app, app.task(name="tell")(with_context))


def test_a_unique_task_would_lose_successes_and_is_refused() -> None:
    app = Windlass("memory://")
    tell = telling(app, [], unique=Unique())
    with pytest.raises(DefinitionError, match="a second success with the same key would be lost"):
        paying(app, tell)


def test_a_task_of_another_app_is_refused() -> None:
    tell = telling(Windlass("memory://"), [])
    with pytest.raises(DefinitionError, match="another app"):
        paying(Windlass("memory://"), tell)


async def test_a_named_task_is_checked_when_a_worker_starts() -> None:
    async with Windlass("memory://") as app:
        paying(app, "tel")
        telling(app, [])
        with pytest.raises(DefinitionError, match=r"no task of this app\. Did you mean 'tell'"):
            await parts_of(app).workers.dependencies()


async def test_a_circle_of_successes_and_failures_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the task itself"):
        paying(Windlass("memory://"), "pay")
    async with Windlass("memory://") as app:

        @app.task(name="undo", on_success="tell")
        async def undo(failure: Failure) -> None: ...

        telling(app, [], on_failure=undo)
        with pytest.raises(DefinitionError, match="undo → tell → undo"):
            await parts_of(app).workers.dependencies()
