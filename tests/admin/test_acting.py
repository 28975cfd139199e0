"""The audit records every action under exactly the name that ``acting`` was given."""

from __future__ import annotations

import inspect

import pytest

from tests.admin.fixtures import admin_of
from windlass import Every, Limit, Rate, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.outcome import GaveUp
from windlass._storage.protocol.storage import Storage
from windlass.admin import Admin, Discard, JobFilter
from windlass.errors import InvalidArgument
from windlass.testing.conformance.steps import OOPS, claim, enlist, happened

NAME = "dashboard: Ada O’Hara <ada@example.org>"

ACTIONS = [
    *("jobs.enqueue", "jobs.enqueue", "jobs.edit", "jobs.run-now", "jobs.requeue", "jobs.requeue"),
    *("jobs.discard", "jobs.cancel", "jobs.delete"),
    *("queues.set", "queues.pause", "queues.resume", "queues.warm"),
    *("limits.set", "limits.drain", "limits.reset", "breakers.set", "breakers.reset"),
    *("schedules.create", "schedules.change", "schedules.pause", "schedules.resume"),
    *("schedules.trigger", "schedules.remove", "schedules.delete"),
    *("workers.quiet", "workers.resume", "workers.stop"),
]


async def everything(app: Windlass, admin: Admin) -> None:
    """Do all there is to do, in the order of `ACTIONS`."""

    @app.task
    async def work() -> None: ...

    @app.task(name="call", queue="api", limits=[Limit("api", rate=Rate(9, 1))], breaker=True)
    async def call() -> None: ...

    storage = await parts_of(app).storage()
    await enlist(storage, "w1")
    await call.enqueue()  # brings in the limit and the breaker
    failed = (await admin.jobs.enqueue(work.call())).id
    spare = (await admin.jobs.enqueue(work.options(delay=60).call())).id
    await admin.jobs.edit(spare, priority=1)
    await admin.jobs.run_now(spare)
    for job in await claim(storage, 10):
        await happened(storage, job, GaveUp(OOPS))
    await admin.jobs.requeue(failed)
    copy = await admin.jobs.requeue(spare, as_new=True)
    await admin.jobs.bulk(Discard("no use"), JobFilter(task=work.name))
    await admin.jobs.cancel(copy.id)
    await admin.jobs.delete(copy.id)
    await admin.queues.set("mail", max_running=1)
    await admin.queues.pause("mail")
    await admin.queues.resume("mail")
    await admin.queues.warm("mail")
    await admin.limits.set("api", concurrency=3)
    await admin.limits.drain("api")
    await admin.limits.reset("api")
    await admin.breakers.set("call", failures=5)
    await admin.breakers.reset("call")
    await admin.schedules.create("daily", Every(3600), work.call())
    await admin.schedules.change("daily", rule=Every(60))
    await admin.schedules.pause("daily")
    await admin.schedules.resume("daily")
    await admin.schedules.trigger("daily")
    report = await admin.schedules.get("daily")
    assert (report.changed_by, report.runs[0].by) == (NAME, NAME)
    await admin.schedules.remove("daily")
    await admin.schedules.delete("daily")
    await admin.workers.quiet("w1")
    await admin.workers.resume("w1")
    await admin.workers.stop("w1")


async def test_every_action_is_recorded_under_exactly_the_name_that_acts() -> None:
    async with Windlass("memory://") as app:
        await everything(app, app.admin.acting(NAME))
        records = [one.note for one in reversed(await app.admin.audit.list(limit=100))]
        assert [note.what for note in records] == ACTIONS
        assert {note.who for note in records} == {NAME}


async def test_a_name_holds_for_that_admin_only(storage: Storage) -> None:
    admin = admin_of(storage)
    ada = admin.acting("ada")
    await ada.acting("ben").queues.pause("mail")
    await ada.queues.pause("post")
    await admin.queues.pause("sms")
    told = [(one.note.who, one.note.subject) for one in await admin.audit.list()]
    assert told == [("api", "queue sms"), ("ada", "queue post"), ("ben", "queue mail")]


async def test_a_name_that_cannot_be_stored_is_refused(storage: Storage) -> None:
    with pytest.raises(InvalidArgument, match="who"):
        admin_of(storage).acting("a\x00b")


def test_acting_is_the_only_way_to_say_who() -> None:
    """`StatsAdmin.activity` groups by queue or task."""
    parts = vars(Windlass("memory://").admin)
    takes_by = [
        f"{name}.{method}"
        for name, part in parts.items()
        for method, function in inspect.getmembers(part, inspect.iscoroutinefunction)
        if {"by", "who"} & inspect.signature(function).parameters.keys()
    ]
    assert takes_by == ["stats.activity"]
