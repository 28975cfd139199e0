"""``on_failure=``: a job that has failed for good is told of by another, in the same write."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.worker.fixtures import Bench, Hook, bench, logged, make_suspect, register
from windlass import (
    Backoff,
    Breaker,
    Context,
    Failure,
    GiveUp,
    Limit,
    Rate,
    Unique,
    Windlass,
    testing,
)
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, JobEnqueued
from windlass._core.job.job import FollowUp, JobId, JobRecord, LimitUse
from windlass._core.job.state import State
from windlass._core.job.transition import Transition
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._tasks.task import Task
from windlass._worker.liveness.reaper import Reaper
from windlass._worker.liveness.store_contact import StoreContact
from windlass.errors import DefinitionError, InvalidArgument, JobFailed, LimitUnknown


def telling(app: Windlass, told: list[Failure], **options: Any) -> Task[..., None]:
    @app.task(name="tell", **options)
    async def tell(failure: Failure) -> None:
        told.append(failure)

    return tell


def failing(app: Windlass, on_failure: Any, **options: Any) -> Task[..., None]:
    said: dict[str, Any] = {
        "max_attempts": 1,
        "backoff": Backoff.none(),
        "on_lost": "fail",
        **options,
    }

    @app.task(name="pay", on_failure=on_failure, **said)
    async def pay(order: int, note: str = "") -> None:
        raise ValueError("no money")

    return pay


async def followers(app: Windlass, task: str = "tell") -> Sequence[JobRecord]:
    return await app.admin.jobs.find(JobFilter(task=task))


# --- when it follows -----------------------------------------------------------------------------


async def test_the_on_failure_task_gets_the_job_and_the_error() -> None:
    async with bench() as it:
        told: list[Failure] = []
        tell = telling(it.app, told, queue="alerts", priority=-3, tags=["page"])
        pay = failing(it.app, tell, tags=["vip"])
        bound = pay.options(tenant="acme", principal="ann", correlation_id="r-1")
        job = await it.run(bound.call(7, note="now"))
        assert job.state is State.FAILED
        (then,) = await followers(it.app)
        assert (then.queue, then.priority, then.tags) == ("alerts", -3, ("page",))
        assert (then.state, then.parent, then.on_failure) == (State.WAITING, job.id, None)
        assert (then.tenant, then.principal, then.correlation_id) == ("acme", "ann", "r-1")
        async with it.app.worker(queues=["alerts"]):
            await it.app.job(then.id).result(timeout=30)
        (failure,) = told
        assert failure == Failure(
            job_id=job.id,
            task="pay",
            queue="default",
            arguments={"order": 7, "note": "now"},
            attempt=1,
            max_attempts=1,
            error_kind="ValueError",
            error_message="no money",
            traceback=failure.traceback,
            started_at=job.started_at or it.clock.now(),
            tenant="acme",
            principal="ann",
            correlation_id="r-1",
            tags=("vip",),
        )
        assert 'raise ValueError("no money")' in failure.traceback


async def test_only_the_last_attempt_calls_on_failure() -> None:
    async with bench() as it:
        pay = failing(it.app, telling(it.app, []), max_attempts=3)
        job = await it.run(pay.call(1))
        job = await it.again(job)
        assert await followers(it.app) == []
        job = await it.again(job)
        assert job.state is State.FAILED
        assert len(await followers(it.app)) == 1


async def test_jobs_that_do_not_fail_call_no_on_failure() -> None:
    async with bench() as it:

        @it.app.task(name="good", on_failure=telling(it.app, []))
        async def good(*, cancel: bool) -> None:
            if cancel:
                await it.app.admin.jobs.cancel(job.id)
                raise GiveUp("no")

        job = await good.enqueue(cancel=True)
        await it.engine.step()
        assert (await job.refresh()).state is State.CANCELLED
        assert (await it.run(good.call(cancel=False))).state is State.SUCCEEDED
        assert await followers(it.app) == []


async def test_listeners_hear_of_the_job_that_follows() -> None:
    async with bench() as it:
        events: list[Event] = []
        it.app.on_transition(events.append)
        await it.run(failing(it.app, telling(it.app, [])).call(1))
        (then,) = await followers(it.app)
        told = [one for one in events if isinstance(one, JobEnqueued) and one.job == then.id]
        assert [(one.task, one.queue) for one in told] == [("tell", "default")]


async def test_a_requeued_job_that_fails_again_calls_on_failure_again() -> None:
    async with bench() as it:
        job = await it.run(failing(it.app, telling(it.app, [])).call(1))
        await it.app.admin.jobs.requeue(job.id)
        await it.engine.step()
        assert len([one for one in await followers(it.app) if one.parent == job.id]) == 2


async def test_on_failure_gets_invalid_arguments_as_they_are_stored() -> None:
    async with bench() as it:
        told: list[Failure] = []
        pay = failing(it.app, telling(it.app, told))
        job = await pay.enqueue(1)
        it.app.tasks.remove("pay")

        @it.app.task(name="pay")
        async def changed(amount: int) -> None: ...

        await it.engine.step()
        await it.engine.step()
        (failure,) = told
        assert (failure.job_id, failure.arguments) == (job.id, {"order": 1})
        assert failure.error_kind == "windlass.errors.PayloadError"


# --- how it is stored ----------------------------------------------------------------------------


async def test_every_way_to_enqueue_stores_the_follow_up_with_the_job() -> None:
    async with bench() as it:
        api = Limit("api", rate=Rate(5, per=1), cost=2)
        tell = telling(
            it.app, [], queue="alerts", limits=[api], breaker=Breaker(), timeout=9, max_attempts=2
        )
        pay = failing(it.app, tell)
        wanted = FollowUp(
            task="tell",
            queue="alerts",
            max_attempts=2,
            timeout=timedelta(seconds=9),
            limits=(LimitUse("api", cost=2.0), LimitUse("tell (breaker)")),
        )
        jobs = [await pay.enqueue(1), *await it.app.enqueue_many([pay.call(2), pay.call(3)])]
        assert [(await job.refresh()).on_failure for job in jobs] == [wanted] * 3
        await it.engine.step()
        assert {job.limits for job in await followers(it.app)} == {wanted.limits}


async def test_the_expiry_of_a_follow_up_counts_from_the_failure() -> None:
    async with bench() as it:
        pay = failing(it.app, telling(it.app, [], expires=60))
        await pay.enqueue(1)
        await it.engine.step()
        (follower,) = await followers(it.app)
        assert follower.expires_at == follower.created_at + timedelta(seconds=60)


async def test_a_task_is_named_before_it_exists_and_checked_when_a_worker_starts() -> None:
    async with Windlass("memory://") as app:
        pay = failing(app, "tell")
        told: list[Failure] = []
        telling(app, told, queue="default")
        job = await pay.enqueue(1)
        with testing.isolated(app):
            pass
        async with app.worker(until_empty=True) as worker:
            await worker.wait()
        assert [failure.job_id for failure in told] == [job.id]


async def test_a_producer_that_does_not_know_the_named_task_stores_its_name() -> None:
    async with Windlass("memory://", default_queue="main", max_attempts=3) as app:
        job = await failing(app, "elsewhere.tell").enqueue(1)
        wanted = FollowUp(task="elsewhere.tell", queue="main", max_attempts=3)
        assert (await job.refresh()).on_failure == wanted


async def test_an_on_failure_task_may_have_its_own_on_failure() -> None:
    async with bench() as it:
        told: list[Failure] = []
        last = telling(it.app, told)

        @it.app.task(name="first", on_failure=last, max_attempts=1)
        async def first(failure: Failure) -> None:
            raise KeyError(failure.task)

        job = await it.run(failing(it.app, first).call(1))
        for _ in range(2):
            await it.engine.step()
        (failure,) = told
        assert (failure.task, failure.error_kind) == ("first", "KeyError")
        assert failure.arguments is not None
        assert failure.arguments["failure"]["job_id"] == job.id


# --- large failures ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("note", "text", "cut"),
    [
        (100, 100, ()),
        (100, 30_000, ("traceback",)),
        (9_900, 100, ("arguments",)),
        (9_900, 30_000, ("traceback", "arguments")),
    ],
)
async def test_a_failure_too_large_for_a_payload_says_what_was_left_out(
    note: int, text: int, cut: tuple[str, ...]
) -> None:
    async with bench(payload_limit=10_000, error_limit=64_000) as it:
        told: list[Failure] = []

        @it.app.task(name="pay", on_failure=telling(it.app, told), max_attempts=1)
        async def pay(note: str) -> None:
            raise ValueError("x") from KeyError("y" * text)

        await it.run(pay.call("n" * note))
        (then,) = await followers(it.app)
        assert len(then.payload) <= 10_000
        await it.engine.step()
        (failure,) = told
        assert failure.error_message == "x"
        assert failure.shortened == cut
        assert (failure.arguments is None) == ("arguments" in cut)
        assert failure.traceback.endswith("ValueError: x\n"), "its end says most"


# --- jobs that are found lost --------------------------------------------------------------------


def reaper_of(it: Bench) -> Reaper:
    presence = StoreContact(
        beat=timedelta(seconds=60), lease=timedelta(seconds=30), clock=lambda: 100.0
    )
    return Reaper(
        it.store.storage,
        it.engine.identity,
        presence,
        decisions=it.engine.decisions,
        bus=parts_of(it.app).hooks.bus,
    )


async def lose(it: Bench, job: str) -> None:
    storage = it.store.storage
    await register(storage, "doomed")
    reply = await storage.jobs.claim("doomed", [Want("default", 1)], total=1, solo=False)
    assert [one.claim.job for one in reply.jobs] == [job]
    await storage.workers.bury(["doomed"])


async def test_a_worker_death_on_the_last_attempt_calls_on_failure_with_the_arguments() -> None:
    async with bench() as it:
        told: list[Failure] = []
        job = await failing(it.app, telling(it.app, told)).options(tenant="acme").enqueue(5)
        await lose(it, job.id)
        assert await reaper_of(it).reap() == 1
        assert (await job.refresh()).state is State.FAILED
        await it.engine.step()
        (failure,) = told
        assert (failure.job_id, failure.arguments) == (job.id, {"order": 5})
        assert (failure.error_kind, failure.tenant) == ("WorkerLost", "acme")


async def test_the_reaper_calls_on_failure_for_a_quarantined_job() -> None:
    async with bench() as it:
        told: list[Failure] = []
        job = await failing(it.app, telling(it.app, told), max_attempts=10).enqueue(5)
        storage = it.store.storage
        await make_suspect(storage, job.id)
        await register(storage, "doomed")
        reply = await storage.jobs.claim("doomed", [Want("default", 1)], total=1, solo=True)
        assert len(reply.jobs) == 1
        await storage.workers.bury(["doomed"])
        it.app.tasks.remove("pay")  # it need not know the task
        assert await reaper_of(it).reap() == 1
        await it.engine.step()
        assert [failure.error_kind for failure in told] == ["Quarantined"]


async def test_a_lost_job_with_attempts_left_calls_no_on_failure() -> None:
    async with bench() as it:
        job = await failing(it.app, telling(it.app, []), max_attempts=2, on_lost="retry").enqueue(5)
        await lose(it, job.id)
        assert await reaper_of(it).reap() == 1
        assert await followers(it.app) == []


# --- what cannot be stored -----------------------------------------------------------------------


async def refuse_limits(call: Hook, transitions: Sequence[Transition]) -> Any:
    if any(one.then for one in transitions):
        raise LimitUnknown("api", ())
    return await call(transitions)


async def test_a_failure_is_stored_although_what_follows_cannot_be() -> None:
    async with bench() as it:
        it.store.on("jobs.apply", refuse_limits)
        with logged() as lines:
            job = await it.run(failing(it.app, telling(it.app, [])).call(1))
        assert job.state is State.FAILED
        assert job.error is not None
        assert job.error.kind == "ValueError", "why it failed is not lost"
        assert lines.having("No limit named 'api'")


async def test_lost_jobs_are_given_back_although_what_follows_cannot_be_stored() -> None:
    async with bench() as it:
        job = await failing(it.app, telling(it.app, [])).enqueue(5)
        await lose(it, job.id)
        it.store.on("jobs.apply", refuse_limits)
        with logged() as lines:
            assert await reaper_of(it).reap() == 1
        assert (await job.refresh()).state is State.FAILED
        assert lines.having("cannot be stored")


async def test_a_store_that_takes_only_a_plain_follow_up_gets_one() -> None:
    async with bench() as it:

        async def refuse(call: Hook, transitions: Sequence[Transition]) -> Any:
            if any(job.tenant for one in transitions for job in one.then):
                raise ValueError("no tenants here")
            return await call(transitions)

        it.store.on("jobs.apply", refuse)
        told: list[Failure] = []
        pay = failing(it.app, telling(it.app, told, queue="alerts"))
        kept = await it.run(pay.options(tenant="acme").call(1))
        lost = await pay.options(tenant="acme").enqueue(2)
        await lose(it, lost.id)
        assert await reaper_of(it).reap() == 1
        for job in (kept, await lost.refresh()):
            assert job.state is State.FAILED
            assert job.error is not None
            assert "on_failure" not in job.error.message
        it.store.hooks.clear()
        async with it.app.worker(queues=["alerts"]):
            for then in await followers(it.app):
                await it.app.job(then.id).result(timeout=30)
        assert {failure.job_id for failure in told} == {kept.id, lost.id}
        assert all("arguments" in failure.shortened for failure in told)


async def test_a_failure_whose_follow_up_can_never_be_stored_says_so() -> None:
    async with bench() as it:
        it.store.on("jobs.apply", refuse_limits)
        job = await it.run(failing(it.app, telling(it.app, [])).call(1))
        assert job.error is not None
        assert job.error.message == "no money Its on_failure job (task tell) could not be stored."


async def test_one_follow_up_that_cannot_be_stored_costs_no_other_lost_job_its_own() -> None:
    async with bench() as it:
        pay = failing(it.app, telling(it.app, []))
        jobs = [await pay.options(tenant=str(n)).enqueue(n) for n in range(8)]
        await register(it.store.storage, "doomed")
        await it.store.storage.jobs.claim("doomed", [Want("default", 8)], total=8)
        await it.store.storage.workers.bury(["doomed"])

        async def refuse(call: Hook, transitions: Sequence[Transition]) -> Any:
            if any(job.parent == jobs[5].id for one in transitions for job in one.then):
                raise LimitUnknown("api", ())
            return await call(transitions)

        it.store.on("jobs.apply", refuse)
        assert await reaper_of(it).reap() == 8
        told = {then.parent for then in await followers(it.app)}
        assert told == {job.id for job in jobs} - {jobs[5].id}


async def test_a_bad_on_failure_of_the_on_failure_task_does_not_prevent_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as it:

        @it.app.task(name="tell", on_failure="page")
        async def tell(failure: Failure) -> None: ...

        def broken(*_: object) -> FollowUp:
            raise RuntimeError("no")

        job = await failing(it.app, tell).enqueue(1)
        monkeypatch.setattr(Task, "follow_up", broken)
        await it.engine.step()
        assert [then.parent for then in await followers(it.app)] == [job.id]


async def test_an_outcome_that_cannot_be_stored_calls_on_failure() -> None:
    async with bench() as it:

        @it.app.task(name="pay", on_failure=telling(it.app, []))
        async def pay() -> int:
            return 5

        async def refuse(call: Hook, transitions: Sequence[Transition]) -> Any:
            if any(one.result is not None for one in transitions):
                raise ValueError("no such result")
            return await call(transitions)

        it.store.on("jobs.apply", refuse)
        job = await it.run(pay.call())
        assert job.state is State.FAILED
        assert [then.parent for then in await followers(it.app)] == [JobId(job.id)]


# --- in tests of users ---------------------------------------------------------------------------


async def test_inline_jobs_are_followed_before_the_failure_is_raised() -> None:
    app = Windlass("memory://")
    told: list[Failure] = []
    slow = Limit("slow", rate=Rate(1, per=3600))
    pay = failing(app, telling(app, told, limits=[slow], queue="alerts"))
    with testing.inline(app):
        for _ in range(3):
            with pytest.raises(JobFailed):
                await pay.enqueue(1)
    assert len(told) == 3


async def test_a_drain_runs_what_follows() -> None:
    app = Windlass("memory://")
    told: list[Failure] = []
    pay = failing(app, telling(app, told, queue="alerts"))
    with testing.isolated(app):
        await pay.enqueue(1)
        drained = await testing.drain(app)
    assert (drained.ran, drained.failed, len(told)) == (2, 1, 1)


# --- refusals ------------------------------------------------------------------------------------


async def no_argument() -> None: ...
async def other_name(problem: Failure) -> None: ...
async def other_type(failure: dict[str, Any]) -> None: ...
async def untyped(failure) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001
async def too_many(failure: Failure, more: int) -> None: ...
async def with_default(failure: Failure, more: int = 3) -> None: ...
async def with_context(ctx: Context, failure: Failure) -> None: ...


@pytest.mark.parametrize("taker", [no_argument, other_name, other_type, untyped, too_many])
def test_an_on_failure_task_with_wrong_parameters_is_refused(taker: Any) -> None:
    app = Windlass("memory://")
    with pytest.raises(DefinitionError, match="`failure: Failure`"):
        failing(app, app.task(name="tell")(taker))


@pytest.mark.parametrize("taker", [with_default, with_context])
def test_a_context_and_defaults_are_no_hindrance(taker: Any) -> None:
    app = Windlass("memory://")
    failing(app, app.task(name="tell")(taker))


async def test_a_named_task_is_checked_when_a_worker_starts() -> None:
    async with Windlass("memory://") as app:
        failing(app, "tel")
        telling(app, [])
        with pytest.raises(DefinitionError, match=r"no task of this app. Did you mean 'tell'"):
            async with app.worker():
                pass
    async with Windlass("memory://") as app:
        failing(app, "tell")
        app.task(name="tell")(no_argument)
        with pytest.raises(DefinitionError, match="`failure: Failure`"):
            async with app.worker():
                pass


async def test_tasks_that_tell_each_other_in_a_circle_are_refused() -> None:
    with pytest.raises(DefinitionError, match="the task itself"):
        failing(Windlass("memory://"), "pay")
    async with Windlass("memory://") as app:
        telling(app, [], on_failure="again")

        @app.task(name="again", on_failure="tell")
        async def again(failure: Failure) -> None: ...

        with pytest.raises(DefinitionError, match="tell → again → tell"):
            async with app.worker():
                pass


@pytest.mark.parametrize(
    "options",
    [
        {"limits": [Limit("api", concurrency=1, key="{failure}")]},
        {"limits": [Limit("api", rate=Rate(1, per=1), cost=lambda failure: 1)]},
    ],
    ids=["key", "cost"],
)
def test_limits_by_argument_are_refused(options: dict[str, Any]) -> None:
    app = Windlass("memory://")
    tell = telling(app, [], **options)
    with pytest.raises(DefinitionError, match="use a limit without key= and cost="):
        failing(app, tell)


def test_a_unique_task_would_lose_failures_and_is_refused() -> None:
    app = Windlass("memory://")
    tell = telling(app, [], unique=Unique())
    with pytest.raises(DefinitionError, match="Remove unique= from it"):
        failing(app, tell)


def test_a_task_of_another_app_is_refused() -> None:
    tell = telling(Windlass("memory://"), [])
    with pytest.raises(DefinitionError, match="another app"):
        failing(Windlass("memory://"), tell)


@pytest.mark.parametrize(
    ("given", "error"), [(5, DefinitionError), (print, DefinitionError), ("a b", InvalidArgument)]
)
def test_an_on_failure_that_is_neither_task_nor_name_is_refused(
    given: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="on_failure of task 'pay'"):
        failing(Windlass("memory://"), given)
