"""Every job a filter means, however many pages they take."""

from __future__ import annotations

from msgspec.structs import replace

from windlass.core.job import Job
from windlass.storage.protocol import AdminStore, JobFilter

__all__ = ["every_job"]

_PAGE = 10_000


async def every_job(admin: AdminStore, wanted: JobFilter) -> list[Job]:
    """Newest first."""
    page = await admin.find(wanted, limit=_PAGE)
    jobs = [*page]
    while page.next is not None:
        page = await admin.find(replace(wanted, before=page.next), limit=_PAGE)
        jobs += page
    return jobs
