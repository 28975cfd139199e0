"""``app.admin.jobs``: jobs as operators see them, and their actions on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from windlass._admin.explain.explain import Explanation, explain_job
from windlass._admin.jobs.actions import act, edit_of, flow_refusal, try_action
from windlass._admin.jobs.bulk import BulkAction, BulkProgress, BulkReport
from windlass._admin.jobs.descendants import cancel_descendants
from windlass._admin.jobs.enqueue import enqueue_copy, enqueue_new
from windlass._admin.jobs.ids import resolve_id
from windlass._admin.jobs.read import QUICK, Count, check_filter, count_jobs, find_jobs
from windlass._admin.jobs.redaction import redacted, redacted_attempts, redacted_chunks
from windlass._admin.session import AdminSession
from windlass._client.client import note_ids
from windlass._core.job.ids import job_id_of
from windlass._core.job.job import Attempt, JobId, JobRecord
from windlass._core.values.instants import duration
from windlass._core.values.names import check_text
from windlass._storage.protocol.actions import (
    ActionResult,
    Cancel,
    Delete,
    Discard,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.jobs import CancelAnswer, Inserted
from windlass._storage.protocol.journal import LogChunk
from windlass._storage.protocol.lists.job_list import JobFilter, Page
from windlass._tasks.task import Call
from windlass.errors import InvalidArgument, JobNotFound, WrongState

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["JobAdmin"]


class JobAdmin:
    """``app.admin.jobs``: find, inspect, explain and change jobs.

    Every ``job_id`` may be shortened: see `resolve`. No answer shows a secret.
    """

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    # --- reading ---

    async def get(self, job_id: str) -> JobRecord:
        """Return a stored job, whole but for secrets; JobNotFound."""
        wanted = await resolve_id(self._session, job_id)
        (job,) = await (await self._session.storage()).admin.get([wanted])
        if job is None:
            raise JobNotFound(job_id)
        (told,) = await self._session.masks.jobs([await redacted(job)])
        return told

    async def find(
        self,
        wanted: JobFilter | None = None,
        *,
        limit: int = 25,
        within: timedelta | float = QUICK,
    ) -> Page:
        """List matching jobs, in the order of ``wanted.order``. For the next page, give the same
        filter with ``before=`` the page's ``next``, until that is None.

        A page may hold fewer jobs than ``limit``. Where matches are rare, the search ends after
        ``within``.

        If no order is given, ended jobs come by the latest end, running ones by the latest start,
        scheduled ones by the next due time, and any other mixture newest first. Ended jobs can be
        listed by ``finished``, running ones by ``started``, scheduled ones by ``due``, and all by
        ``enqueued``; a minus sign puts the latest first. Anything else is InvalidArgument.
        """
        time = duration(within, "within")
        return await find_jobs(self._session, wanted or JobFilter(), limit, time)

    async def search(
        self,
        text: str,
        wanted: JobFilter | None = None,
        *,
        limit: int = 25,
        within: timedelta | float = QUICK,
    ) -> Page:
        """List jobs with ``text`` in their arguments or their last error, as far as people may see
        these; in the order of `find`.

        The search ends after ``within`` with the jobs found so far. `Page.reached` says how far
        back it came, and ``before=page.next`` continues there.
        """
        if not check_text(text, "text"):
            message = "give a text to search for: an empty text matches every job"
            raise InvalidArgument(message)
        asked = msgspec.structs.replace(wanted or JobFilter(), text=text)
        return await find_jobs(self._session, asked, limit, duration(within, "within"))

    async def count(
        self,
        wanted: JobFilter | None = None,
        *,
        most: int = 10_000,
        within: timedelta | float | None = None,
    ) -> Count:
        """Count matching jobs, up to ``most`` and for as long as ``within``."""
        time = None if within is None else duration(within, "within")
        return await count_jobs(self._session, wanted or JobFilter(), most, time)

    async def resolve(self, job_id: str) -> JobId:
        """Return the whole id of a job for a shortened one.

        Takes the form that pages, tables and logs show (``0192f3a1…9c4e07``), with or without the
        dots. Takes also the last eight digits or more, which are looked for among the newest
        100,000 jobs. JobNotFound; AmbiguousId names the candidates. A whole id is not looked up.
        """
        return await resolve_id(self._session, job_id)

    async def history(self, job_id: str) -> Sequence[Attempt]:
        """List the ended attempts of a job that did not succeed, oldest first."""
        store = (await self._session.storage()).admin
        (job,) = await store.get([await resolve_id(self._session, job_id)])
        if job is None:
            return []
        return await redacted_attempts(job, await store.history(job.id))

    async def logs(self, job_id: str, *, after: tuple[int, int] = (0, 0)) -> Sequence[LogChunk]:
        """Read the log lines of a job's runs, oldest first. To follow a running job, ask again
        with ``after=`` the claim number and the number of the last chunk.
        """
        storage, wanted = await self._session.storage(), await resolve_id(self._session, job_id)
        chunks = await storage.journal.logs(wanted, after=after)
        if not chunks:
            return []
        (job,) = await storage.admin.get([wanted])
        return await redacted_chunks(chunks, job)

    async def explain(self, job_id: str) -> Explanation:
        """Explain why a job is not running now, what would have to change, and when it is expected
        to run; JobNotFound. Nothing is changed.
        """
        return await explain_job(self._session, job_id)

    # --- acting ---

    async def enqueue(self, call: Call[Any], *, id: str | UUID | None = None) -> Inserted:  # noqa: A002
        """Store a call made by ``task.call(…)`` or ``task.options(…).call(…)``, with an audit
        record. Application code uses ``task.enqueue``, which is faster.

        ``id``: the job's id. The same call with the same id is stored once.
        """
        job_id = self._session.new_ids(1)[0] if id is None else job_id_of(id)
        try:
            return await enqueue_new(self._session, call, job_id)
        except BaseException as error:
            note_ids(error, (job_id,))
            raise

    async def requeue(
        self, job_id: str, *, as_new: bool = False, key: str | None = None
    ) -> JobRecord:
        """Run a failed, cancelled or discarded job again, with all its attempts. If several
        operators requeue one job at once, one succeeds.

        ``as_new``: enqueue a copy with a new id and leave the old job as it is, which may also
        have succeeded. One copy is made at a time: while the last one has not ended, it is the
        answer. With a ``key``, one copy is made for each key, whether it has ended or not. Give the
        same key to repeat a call whose answer was lost, and another key for another copy.
        """
        if key is not None and not as_new:
            raise InvalidArgument("key= needs as_new=True: give both, or leave key= out")
        wanted = await resolve_id(self._session, job_id)
        if as_new:
            return await self.get(await enqueue_copy(self._session, wanted, key))
        await act(self._session, Requeue(), wanted)
        return await self.get(wanted)

    async def cancel(self, job_id: str, *, children: bool = False) -> CancelAnswer:
        """Cancel a waiting job at once. A running one is asked to stop.

        ``children``: cancel also the jobs below it, as `cancel_children` does. The answer is about
        the job itself.
        """
        wanted = await resolve_id(self._session, job_id)
        done = await try_action(self._session, Cancel(), wanted)
        if children and done is not ActionResult.UNKNOWN:
            await self.cancel_children(wanted)
        match done:
            case ActionResult.DONE:
                return CancelAnswer.CANCELLED
            case ActionResult.REQUESTED:
                return CancelAnswer.REQUESTED
            case ActionResult.UNKNOWN:
                return CancelAnswer.UNKNOWN
            case _:
                return CancelAnswer.TOO_LATE

    async def cancel_children(self, job_id: str) -> BulkReport:
        """Cancel the jobs that a job has enqueued, and the jobs that those have enqueued.

        The job itself is not changed. While a job runs it may enqueue more: call this again when it
        has ended.
        """
        wanted = await resolve_id(self._session, job_id)
        (job,) = await (await self._session.storage()).admin.get([wanted])
        if job is None:
            raise JobNotFound(job_id)
        return await cancel_descendants(self._session, job)

    async def discard(self, job_id: str, *, reason: str = "discarded by an operator") -> None:
        """Give up on a failed job for good."""
        await act(self._session, Discard(reason), await resolve_id(self._session, job_id))

    async def run_now(self, job_id: str) -> bool:
        """Make a waiting job due now; False if it is not waiting. WrongState if it waits for other
        jobs of its flow.
        """
        wanted = await resolve_id(self._session, job_id)
        answer = await try_action(self._session, RunNow(), wanted)
        if answer is ActionResult.WRONG_STATE:
            (job,) = await (await self._session.storage()).admin.get([wanted])
            if job is not None and (why := flow_refusal(RunNow(), job, answer)) is not None:
                raise WrongState(wanted, job.state, "run-now", why=why)
        return answer is ActionResult.DONE

    async def delete(self, job_id: str) -> bool:
        """Delete a job with its history and logs. A running job is asked to stop instead: the
        answer is False, and you delete it again when it has ended.
        """
        wanted = await resolve_id(self._session, job_id)
        return await act(self._session, Delete(), wanted) is ActionResult.DONE

    async def edit(
        self,
        job_id: str,
        *,
        due: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
    ) -> JobRecord:
        """Change the due time, priority or queue of a waiting job."""
        action = edit_of(due=due, priority=priority, queue=queue)
        wanted = await resolve_id(self._session, job_id)
        await act(self._session, action, wanted)
        return await self.get(wanted)

    async def bulk(
        self,
        action: JobAction,
        wanted: JobFilter,
        *,
        dry_run: bool = False,
        most: int | None = None,
        progress: Callable[[BulkProgress], None] | None = None,
        within: timedelta | float | None = None,
    ) -> BulkReport:
        """Apply ``action`` to every matching job, at most the newest ``most``.

        It runs in chunks, each with its audit record. You can interrupt it; run it again to
        continue. Requeued jobs and jobs made due now run in the order they were stored in. Jobs
        that are stored meanwhile are left out. ``dry_run`` only counts, for as long as ``within``.
        """
        checked = await check_filter(self._session, wanted)
        bulk = BulkAction(self._session, action, checked)
        if dry_run:
            return await bulk.count(most, None if within is None else duration(within, "within"))
        return await bulk.run(most, progress)
