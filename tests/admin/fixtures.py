"""An admin over a storage that is open already."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from windlass._admin.jobs.redaction import KeyMasks
from windlass._admin.session import AdminSession
from windlass._core.job.job import JobId, JobRecord
from windlass._core.job.outcome import GaveUp
from windlass._observe.bus import Bus
from windlass._settings.load import load_settings
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import Seams
from windlass._tasks.task import TaskRegistry
from windlass.admin import Admin, SweepReport
from windlass.testing.conformance.steps import OOPS, a_job, claim, enlist, happened

BOOM = GaveUp(OOPS)


def admin_of(storage: Storage | Callable[[], Awaitable[Storage]], bus: Bus | None = None) -> Admin:
    """Make ``app.admin`` without the app, over an open storage or something that opens one."""

    async def opened() -> Storage:
        return await storage() if callable(storage) else storage

    return Admin(
        AdminSession(
            storage=opened,
            bus=bus or Bus(),
            settings=load_settings("memory://", {}),
            new_ids=Seams().new_job_ids,
            masks=KeyMasks(opened),
            tasks=TaskRegistry(),
            plugins={},
            sweep=_no_sweep,
        )
    )


async def _no_sweep() -> SweepReport:
    return SweepReport()


async def fail_all(storage: Storage, queue: str = "default") -> list[JobId]:
    """Run whatever is ready on a queue, to its failure."""
    await enlist(storage)
    failed = []
    for job in await claim(storage, 100, queue=queue):
        await happened(storage, job, BOOM)
        failed.append(job.claim.job)
    return failed


async def a_failed_job(storage: Storage, **asked: object) -> JobId:
    """One that waits for a person."""
    new = a_job(**asked)
    await storage.jobs.insert([new])
    await fail_all(storage, new.queue)
    return new.id


async def stored(storage: Storage, job: str) -> JobRecord:
    (found,) = await storage.admin.get([JobId(job)])
    assert found is not None
    return found
