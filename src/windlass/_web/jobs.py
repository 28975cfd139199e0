"""Pages of jobs, of which each may carry a megabyte."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass._core.job.job import JobId, JobRecord
from windlass._storage.protocol.lists.job_list import JobFilter, Page
from windlass._system.seams import monotonic
from windlass._web.request import PageRequest

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["find_page", "resolve_job"]

_FIRST, _NEXT = 16, 4
"""Jobs of the first step, and of those after it where they are large."""
_LARGE = 32 * 1024
"""Bytes that a job carries."""
_WITHIN = 0.5
"""Seconds. To look through what large jobs carry for secrets takes the time of everybody else."""
_MOST = 32 * 1024 * 1024
"""Bytes of all jobs of a page."""


async def resolve_job(visit: PageRequest) -> JobId:
    """Return the whole id of the job in the address, where it may be shortened. A text that cannot
    be an id is not looked up.
    """
    job: str = visit.request.path_params["job"]
    return await visit.admin.jobs.resolve(job[:64])


async def find_page(
    admin: Admin, wanted: JobFilter, limit: int, *, within: timedelta | float = 0.25
) -> Page:
    """List matching jobs, newest first, searched for at most ``within``.

    A page of large jobs holds fewer: the next page continues where this one ends.
    """
    begun, carried = monotonic(), 0
    jobs: list[JobRecord] = []
    step = min(_FIRST, limit)
    while True:
        page = await _step(admin, wanted, step, within)
        jobs += page
        carried += sum(_weight(job) for job in page)
        spent = carried > _MOST or (carried > _LARGE * len(jobs) and monotonic() - begun > _WITHIN)
        if page.next is None or len(page) < step or len(jobs) >= limit or spent:
            return Page(jobs, page.next, page.reached)
        left = limit - len(jobs)
        step = min(_NEXT, left) if carried > _LARGE * len(jobs) else left
        wanted = msgspec.structs.replace(wanted, before=page.next)


async def _step(admin: Admin, wanted: JobFilter, limit: int, within: timedelta | float) -> Page:
    if wanted.text is None:
        return await admin.jobs.find(wanted, limit=limit, within=within)
    rest = msgspec.structs.replace(wanted, text=None)
    return await admin.jobs.search(wanted.text, rest, limit=limit, within=within)


def _weight(job: JobRecord) -> int:
    error = 0 if job.error is None else len(job.error.message) + len(job.error.traceback)
    return len(job.payload) + len(job.result or b"") + error
