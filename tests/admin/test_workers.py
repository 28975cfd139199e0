"""``app.admin``: what is asked of workers."""

from __future__ import annotations

import pytest

from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._storage.protocol.workers import Duty
from windlass.errors import InvalidArgument
from windlass.testing import isolated
from windlass.testing.conformance.steps import claim, enlist


async def duties(app: Windlass) -> dict[str, Duty]:
    return {row.start.id: row.duty for row in await app.admin.workers.list()}


async def test_commands_reach_the_named_workers_and_are_recorded() -> None:
    async with Windlass("memory://") as app:
        await enlist(await parts_of(app).storage(), "w1", "w2", "w3")
        admin = app.admin.acting("alice")
        await admin.workers.quiet("w1", "w2")
        await admin.workers.resume("w2")
        await admin.workers.stop("w3")
        assert await duties(app) == {"w1": Duty.QUIET, "w2": Duty.WORK, "w3": Duty.STOP}
        told = [
            (one.note.who, one.note.what, one.note.subject, one.note.detail, one.count)
            for one in await app.admin.audit.list()
        ]
        assert told == [
            ("alice", "workers.stop", "worker w3", "", 1),
            ("alice", "workers.resume", "worker w2", "", 1),
            ("alice", "workers.quiet", "2 workers", "w1, w2", 2),
        ]


async def test_a_worker_that_is_not_live_is_refused_and_no_other_is_changed() -> None:
    async with Windlass("memory://") as app:
        storage = await parts_of(app).storage()
        await enlist(storage, "worker-1", "buried")
        await storage.workers.bury(["buried"])
        said = r"Worker .buried. is dead\. .*windlass workers list"
        with pytest.raises(InvalidArgument, match=said):
            await app.admin.workers.quiet("worker-1", "buried")
        with pytest.raises(InvalidArgument, match=r"not known\. Did you mean 'worker-1'"):
            await app.admin.workers.stop("worker-2")
        assert (await duties(app))["worker-1"] is Duty.WORK


async def test_a_stop_cannot_be_taken_back_and_says_so() -> None:
    async with Windlass("memory://") as app:
        await enlist(await parts_of(app).storage(), "w1")
        await app.admin.workers.stop("w1")
        with pytest.raises(InvalidArgument, match="is stopping, which cannot be undone"):
            await app.admin.workers.resume("w1")
        await app.admin.workers.stop("w1")


async def test_naming_no_worker_is_refused() -> None:
    async with Windlass("memory://") as app:
        with pytest.raises(InvalidArgument, match="name a worker"):
            await app.admin.workers.stop()


# --- a sweep -------------------------------------------------------------------------------------


async def test_a_sweep_releases_the_jobs_of_dead_workers_and_marks_due_jobs_ready() -> None:
    app = Windlass("memory://", lease=30)

    @app.task(name="send")
    async def send() -> None: ...

    with isolated(app) as clock:
        storage = await parts_of(app).storage()
        await enlist(storage, "w1")
        job = await send.enqueue()
        later = await send.options(delay=60).enqueue()
        await claim(storage, 1, worker="w1")
        clock.advance(61)
        await enlist(storage, "w2")
        report = await app.admin.acting("alice").workers.sweep()
        assert (report.dead, report.released, report.promoted) == (["w1"], 1, 1)
        assert [row.state.value for row in await app.admin.workers.list()] == ["live", "dead"]
        released = await app.admin.jobs.get(job.id)
        assert (released.state.value, released.lost) == ("waiting", 1)
        assert released.error is not None
        assert released.error.message == (
            "worker w1: it sent no heartbeat for longer than its lease"
        )
        assert {found.claim.job for found in await claim(storage, 5, worker="w2")} >= {later.id}
        (record,) = await app.admin.audit.list()
        assert (record.note.who, record.note.what, record.note.subject, record.count) == (
            *("alice", "workers.sweep", "all workers", 1),
        )
        assert record.note.detail == "1 dead, 1 released, 1 promoted"


async def test_a_sweep_that_finds_nothing_changes_nothing() -> None:
    app = Windlass("memory://")

    @app.task(name="send")
    async def send() -> None: ...

    with isolated(app):
        storage = await parts_of(app).storage()
        await enlist(storage, "w1")
        await send.enqueue()
        await claim(storage, 1, worker="w1")
        report = await app.admin.workers.sweep()
        assert (list(report.dead), report.released, report.promoted) == ([], 0, 0)
        assert [row.running for row in await app.admin.workers.list()] == [1]
        (record,) = await app.admin.audit.list()
        assert record.note.detail == "0 dead, 0 released, 0 promoted"
