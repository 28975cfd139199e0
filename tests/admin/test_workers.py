"""``app.admin``: what is asked of workers."""

from __future__ import annotations

import pytest

from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._storage.protocol.workers import Duty
from windlass.errors import InvalidArgument
from windlass.testing.conformance.steps import enlist


async def duties(app: Windlass) -> dict[str, Duty]:
    return {row.start.id: row.duty for row in await app.admin.workers.list()}


async def test_orders_reach_the_workers_that_are_named_and_are_on_record() -> None:
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


async def test_whoever_is_not_live_is_refused_and_nobody_else_is_asked() -> None:
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


async def test_naming_nobody_is_refused() -> None:
    async with Windlass("memory://") as app:
        with pytest.raises(InvalidArgument, match="name a worker"):
            await app.admin.workers.stop()
