"""What is promised of failures and events, by an engine that is stepped, on every backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from tests.worker.fixtures import register
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, JobEnqueued, JobMoved
from windlass._core.job.job import FollowUp, JobId, JobRecord, LimitUse, NewJob
from windlass._core.job.state import State
from windlass._core.limits.limit import LimitSpec
from windlass._core.schedule.rules import Manual
from windlass._storage.protocol.jobs import Inserted, Want
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass._worker.engine import Engine
from windlass._worker.liveness.maintenance import Pruner
from windlass._worker.liveness.reaper import Reaper
from windlass._worker.liveness.store_contact import StoreContact


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/jobs.db"
        case name:
            return str(request.getfixturevalue(f"{name}_url"))


@asynccontextmanager
async def stepping(app: Windlass) -> AsyncIterator[Engine]:
    """An engine that moves only when it is stepped."""
    around = await parts_of(app).workers.dependencies()
    engine = Engine(around, parts_of(app).workers.settings(slots=10))
    await engine.identity.register()
    yield engine
    await around.storage.workers.leave(engine.identity.id, [])
    engine.runner.close()


def reaper_of(app: Windlass, engine: Engine) -> Reaper:
    lease = timedelta(seconds=30)
    presence = StoreContact(beat=2 * lease, lease=lease, clock=lambda: 100.0)
    return Reaper(
        engine._around.storage,
        engine.identity,
        presence,
        decisions=engine.decisions,
        bus=parts_of(app).hooks.bus,
    )


def doomed(follow: FollowUp) -> NewJob:
    return NewJob(id=new_job_id(), task="pay", max_attempts=1, on_lost="fail", on_failure=follow)


async def test_a_limit_that_was_never_defined_costs_no_failure_its_follow_up(url: str) -> None:
    app = Windlass(url)

    @app.task(name="pay", max_attempts=1)
    async def pay() -> None:
        raise ValueError("no money")

    async def told_of(ids: list[JobId]) -> list[JobRecord]:
        found = await app.admin.jobs.find(JobFilter(task="tell"))
        return [job for job in found if job.parent in ids]

    async with app, stepping(app) as engine:
        storage = await parts_of(app).storage()
        await storage.limits.define([LimitSpec(name="known", concurrency=1)])
        good = FollowUp(task="tell", queue="alerts", limits=(LimitUse("known"),))
        bad = FollowUp(task="tell", queue="alerts", limits=(LimitUse("nowhere"), LimitUse("known")))
        failing = [doomed(follow) for follow in (good, bad, good)]
        await storage.jobs.insert(failing)
        await engine.step()
        lost = [doomed(follow) for follow in (good, bad, good)]
        await storage.jobs.insert(lost)
        await register(storage, "doomed")
        await storage.jobs.claim("doomed", [Want("default", 3)], total=3)
        await storage.workers.bury(["doomed"])
        assert await reaper_of(app, engine).reap() == 3
        for batch in (failing, lost):
            ids = [job.id for job in batch]
            ended = [await parts_of(app).producer.refresh(job) for job in ids]
            assert [job.state for job in ended] == [State.FAILED] * 3
            followers = await told_of(ids)
            assert sorted(str(job.parent) for job in followers) == sorted(ids)
            assert {use.name for job in followers for use in job.limits} == {"known"}


async def test_every_end_of_a_waiting_job_is_published_once(url: str) -> None:
    app = Windlass(url, keep_succeeded=0)
    events: list[Event] = []
    app.on_transition(events.append)

    @app.task(name="report", unique=True, expires=0.001)
    async def report() -> None: ...

    @app.task(name="mail")
    async def mail() -> None: ...

    def told() -> list[tuple[str, JobId]]:
        heard = [
            ("enqueued", one.job) if isinstance(one, JobEnqueued) else (one.verb.value, one.job)
            for one in events
            if isinstance(one, JobEnqueued | JobMoved)
        ]
        events.clear()
        return heard

    async with app, stepping(app) as engine:
        storage = await parts_of(app).storage()
        first = await report.enqueue()
        await past(storage, first.id)
        assert told() == [("enqueued", first.id)]
        second = await report.enqueue()
        assert told() == [("enqueued", second.id), ("expire", first.id)], "at an insert"
        await past(storage, second.id)
        (third,) = await app.enqueue_many([report.call()])
        assert told() == [("enqueued", third.id), ("expire", second.id)], "at an insert of many"
        await past(storage, third.id)
        made = await app.admin.jobs.enqueue(report.call())
        assert told() == [("enqueued", made.id), ("expire", third.id)], "by a person's order"
        await app.admin.schedules.create("reports", Manual(), report.call(), overlap="allow")
        await past(storage, made.id)
        run = await app.admin.schedules.trigger("reports")
        assert run is not None
        assert told() == [("enqueued", run.id), ("expire", made.id)], "by a schedule"
        await past(storage, run.id)
        pruner = Pruner(storage, app.settings, engine.decisions.queues, parts_of(app).hooks.bus)
        await pruner.step()
        assert told() == [("expire", run.id)], "by retention"
        await app.admin.schedules.create("mails", Manual(), mail.call(), overlap="allow")
        last = await app.admin.schedules.trigger("mails")
        assert last is not None
        await app.admin.schedules.remove("mails", cancel_runs=True)
        assert told() == [("enqueued", last.id), ("cancel", last.id)], "with its schedule"


async def test_a_trigger_whose_key_is_held_answers_with_the_holder(url: str) -> None:
    app = Windlass(url)
    events: list[Event] = []

    @app.task(name="report", unique=True)
    async def report() -> None: ...

    async with app:
        holder = await report.enqueue()
        await app.admin.schedules.create("reports", Manual(), report.call(), overlap="allow")
        app.on_transition(events.append)
        answer = await app.admin.schedules.trigger("reports")
        assert answer == Inserted(holder.id, created=False)
        schedule = await app.admin.schedules.get("reports")
        assert (schedule.fired, list(schedule.runs)) == (0, [])
        assert events == []


async def past(storage: Storage, job: JobId) -> None:
    """Wait until the store's clock is past the expiry of a job."""
    (stored,) = await storage.admin.get([job])
    assert stored is not None
    assert stored.expires_at is not None
    async with asyncio.timeout(10):
        while await storage.now() <= stored.expires_at:  # noqa: ASYNC110 -- the store's clock
            await asyncio.sleep(0.001)
