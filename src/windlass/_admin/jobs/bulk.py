"""One action on every job that matches a filter, in chunks that let workers claim in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from windlass._admin.jobs.actions import (
    action_name_of,
    audit_detail_of,
    audit_name_of,
    carry_out,
)
from windlass._admin.jobs.read import count_jobs, redacted_filter
from windlass._admin.jobs.redaction import find_by_masked_key
from windlass._admin.session import AdminSession
from windlass._core.job.job import JobId
from windlass._core.job.state import State
from windlass._storage.protocol.actions import (
    ActionResult,
    Cancel,
    Delete,
    Discard,
    Edit,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder, Page
from windlass.errors import InvalidArgument

__all__ = ["BulkAction", "BulkProgress", "BulkReport", "filter_in_words"]

CHUNK = 50
"""Jobs in one transaction: it must not keep a claim waiting for long."""
_COUNTED = 10_000
"""Jobs that a count before a bulk action reaches."""

_STATES: Mapping[type[Any], Sequence[State]] = {
    Requeue: (State.FAILED, State.CANCELLED, State.DISCARDED),
    Discard: (State.FAILED,),
    Cancel: (State.WAITING, State.RUNNING),
    RunNow: (State.WAITING,),
    Delete: tuple(State),
    Edit: (State.WAITING,),
}
_OLDEST_FIRST = (Requeue, RunNow)
"""Actions that put jobs at the end of their queue: those of an earlier chunk run before."""


class BulkProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a bulk action."""

    seen: int
    """Matching jobs that were read so far."""
    done: int
    total: int
    """The number that was counted before, if ``exact``; else at least that many."""
    exact: bool


class BulkReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a bulk action."""

    matched: int
    """Jobs that match the filter and have a state that the action is for."""
    exact: bool = True
    """False, of a dry run: there are at least that many."""
    done: int = 0
    requested: int = 0
    """Running jobs, whose workers were asked."""
    conflicts: int = 0
    """Left as they are: other jobs hold their keys."""
    skipped: int = 0
    """Their state, or their flow, did not allow the action when their turn came."""
    dry_run: bool = False


class BulkAction:
    """An action on every job that matches a filter."""

    def __init__(self, session: AdminSession, action: JobAction, wanted: JobFilter) -> None:
        """``wanted`` comes from `check_filter`."""
        self._session = session
        self._action = action
        self._wanted = wanted
        self._matching = _narrowed(action, wanted)

    async def count(self, most: int | None, within: timedelta | None) -> BulkReport:
        """Count the jobs that the action would change. No job is changed."""
        if self._matching is None:
            return BulkReport(matched=0, dry_run=True)
        counted = await count_jobs(self._session, self._matching, most or _COUNTED, within)
        return BulkReport(matched=counted.number, exact=counted.exact, dry_run=True)

    async def run(
        self, most: int | None, progress: Callable[[BulkProgress], None] | None
    ) -> BulkReport:
        """Carry it out chunk by chunk, each with its audit record."""
        if self._matching is None:
            return BulkReport(matched=0)
        whole = None
        if progress is not None:
            whole = await count_jobs(self._session, self._matching, _COUNTED, None)
        (bulk,) = self._session.new_ids(1)
        tally: Counter[ActionResult] = Counter()
        oldest_first = isinstance(self._action, _OLDEST_FIRST)
        chunks = self._oldest_first if oldest_first else self._newest_first
        async for ids in chunks(self._matching, most):
            tally += Counter(await self._run_chunk(ids, bulk))
            if progress is not None and whole is not None:
                total = max(whole.number, tally.total())
                done = tally[ActionResult.DONE] + tally[ActionResult.REQUESTED]
                seen = tally.total()
                progress(BulkProgress(seen=seen, done=done, total=total, exact=whole.exact))
        return BulkReport(
            matched=tally.total(),
            done=tally[ActionResult.DONE],
            requested=tally[ActionResult.REQUESTED],
            conflicts=tally[ActionResult.CONFLICT],
            skipped=tally[ActionResult.WRONG_STATE] + tally[ActionResult.UNKNOWN],
        )

    async def _run_chunk(self, ids: Sequence[JobId], bulk: JobId) -> Sequence[ActionResult]:
        if not ids:
            return ()
        said = " ".join(filter(None, [audit_detail_of(self._action), f"(bulk {bulk[-8:]})"]))
        subject = f"jobs with {filter_in_words(self._wanted)}"
        note = self._session.note(audit_name_of(self._action), subject, said)
        return await carry_out(self._session, self._action, ids, note)

    async def _newest_first(
        self, asked: JobFilter, most: int | None
    ) -> AsyncIterator[Sequence[JobId]]:
        """Find the jobs, the newest first."""
        found = 0
        while most is None or found < most:
            page = await self._find(asked, CHUNK if most is None else min(CHUNK, most - found))
            ids = [job.id for job in page]
            found += len(ids)
            yield ids
            if page.next is None:
                return
            asked = msgspec.structs.replace(asked, before=page.next)

    async def _oldest_first(
        self, asked: JobFilter, most: int | None
    ) -> AsyncIterator[Sequence[JobId]]:
        """Find the same jobs the other way round, and keep no more than a page of them."""
        if isinstance(asked.before, str):
            message = (
                f"before= must be the seq of a job for this action, got {asked.before!r}: give a "
                f"seq, or finished_until=… for jobs that ended before a time"
            )
            raise InvalidArgument(message)
        first, last = await self._ends(asked, most)
        asked = msgspec.structs.replace(asked, order=ListOrder.OLDEST, before=first - 1)
        found = 0
        while last >= first and (most is None or found < most):
            page = await self._find(asked, CHUNK if most is None else min(CHUNK, most - found))
            ids = [job.id for job in page if job.seq <= last]
            found += len(ids)
            yield ids
            if not isinstance(page.next, int) or page.next >= last:
                return
            asked = msgspec.structs.replace(asked, before=page.next)

    async def _ends(self, asked: JobFilter, most: int | None) -> tuple[int, int]:
        """Find the first and last seq of the jobs. Jobs that are stored later have higher ones."""
        asked = msgspec.structs.replace(asked, order=ListOrder.NEWEST)
        if most is None:
            store = (await self._session.storage()).admin
            newest = await store.find(JobFilter(before=asked.before), limit=1)
            return 1, newest[0].seq if newest else 0
        first, last, found = 1, 0, 0
        while found < most:
            page = await self._find(asked, min(CHUNK, most - found))
            found += len(page)
            last = max(last, *(job.seq for job in page), 0)
            if found >= most:
                first = page[-1].seq
            if page.next is None:
                break
            asked = msgspec.structs.replace(asked, before=page.next)
        return first, last

    async def _find(self, asked: JobFilter, limit: int) -> Page:
        store = (await self._session.storage()).admin
        return await find_by_masked_key(self._session.masks, store, asked, limit)


def _narrowed(action: JobAction, wanted: JobFilter) -> JobFilter | None:
    """Keep only the states that the action is for; None: the filter has none of them."""
    bare = JobFilter(before=wanted.before, order=wanted.order, as_shown=wanted.as_shown)
    if wanted == bare:
        message = (
            f"this would {action_name_of(action)} every job: give a filter, for example "
            f"JobFilter(queue='mail') or JobFilter(states=list(State))"
        )
        raise InvalidArgument(message)
    able = _STATES[type(action)]
    states = [state for state in able if wanted.states is None or state in wanted.states]
    return redacted_filter(msgspec.structs.replace(wanted, states=states)) if states else None


def filter_in_words(wanted: JobFilter) -> str:
    """Describe a filter as people read it: ``state failed, queue mail``."""
    words: list[str] = []
    for field in JobFilter.__struct_fields__:
        value = getattr(wanted, field)
        if value is None or field in {"before", "order", "as_shown"}:
            continue
        if field in ("states", "shown"):
            value = " or ".join(state.value for state in value)
            field = "state"  # noqa: PLW2901 -- as people call it
        shown = value.isoformat() if hasattr(value, "isoformat") else str(value)
        words.append(f"{field.replace('_', ' ')} {shown}")
    return ", ".join(words)[:500] or "any state"
