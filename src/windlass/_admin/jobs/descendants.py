"""The jobs below a job: those that it has enqueued, and those that they have enqueued."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from windlass._admin.jobs.actions import audit_name_of, carry_out
from windlass._admin.jobs.bulk import CHUNK, BulkReport
from windlass._admin.session import AdminSession
from windlass._core.job.job import JobId, JobRecord
from windlass._core.job.state import State
from windlass._storage.protocol.actions import ActionResult, Cancel
from windlass._storage.protocol.admin import AdminStore
from windlass._storage.protocol.lists.job_list import JobFilter

__all__ = ["cancel_descendants"]

_UNENDED = JobFilter(states=(State.WAITING, State.RUNNING))
_PASSES = 20
"""Looks for jobs that running ones have enqueued meanwhile. A job may ignore its cancel request."""


async def cancel_descendants(session: AdminSession, root: JobRecord) -> BulkReport:
    """Cancel every job below ``root`` that has not ended, in chunks, and look again for new ones.

    Running jobs are asked to stop. One that enqueues after the last look is not caught.
    """
    family = _Family((await session.storage()).admin, root)
    tally: Counter[ActionResult] = Counter()
    for _ in range(_PASSES):
        found = [job async for job in family.new_members()]
        if not found:
            break
        for start in range(0, len(found), CHUNK):
            ids = found[start : start + CHUNK]
            note = session.note(audit_name_of(Cancel()), f"jobs below job {root.id}", "")
            tally += Counter(await carry_out(session, Cancel(), ids, note))
    return BulkReport(
        matched=tally.total(),
        done=tally[ActionResult.DONE],
        requested=tally[ActionResult.REQUESTED],
        skipped=tally[ActionResult.WRONG_STATE] + tally[ActionResult.UNKNOWN],
    )


class _Family:
    """A job and the jobs below it.

    Jobs that have not ended are few, compared with all that are stored. So each of them is followed
    up to the job that began it, and no index of parents is needed.
    """

    def __init__(self, store: AdminStore, root: JobRecord) -> None:
        self._store = store
        self._root = root.id
        self._seen = root.seq
        """A child is stored after its parent: its number is higher."""
        self._parents: dict[JobId, JobId | None] = {}

    async def new_members(self) -> AsyncIterator[JobId]:
        """Find the jobs below the root that were stored since the last look and have not ended."""
        asked: JobFilter | None = _UNENDED
        before, newest = self._seen, self._seen
        while asked is not None:
            page = await self._store.find(asked, limit=CHUNK)
            jobs = [job for job in page if job.seq > before]
            newest = max([newest, *(job.seq for job in jobs)])
            for job in await self._members(jobs):
                yield job
            older = page.next is None or len(jobs) < len(page)
            asked = None if older else msgspec.structs.replace(asked, before=page.next)
        self._seen = newest

    async def _members(self, jobs: Sequence[JobRecord]) -> list[JobId]:
        self._parents.update({job.id: job.parent for job in jobs})
        unread = self._unread(job.id for job in jobs)
        while unread:
            for start in range(0, len(unread), CHUNK):
                part = unread[start : start + CHUNK]
                found = await self._store.get(part)
                # A job that was deleted has no parent that can be known.
                parents = {job.id: job.parent for job in found if job is not None}
                self._parents.update({job: parents.get(job) for job in part})
            unread = self._unread(job.id for job in jobs)
        return [job.id for job in jobs if self._top(job.id) == self._root]

    def _unread(self, jobs: Iterable[JobId]) -> list[JobId]:
        """List the ancestors of these jobs that must be read first."""
        tops = {self._top(job) for job in jobs}
        return [job for job in tops if job not in self._parents and job != self._root]

    def _top(self, job: JobId) -> JobId:
        """Return the farthest known ancestor of a job, or the root where it passes it."""
        for _ in range(len(self._parents) + 1):  # a damaged store may have a circle
            parent = self._parents.get(job)
            if job == self._root or parent is None:
                break
            job = parent
        return job
