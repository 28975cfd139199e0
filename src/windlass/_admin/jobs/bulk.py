"""One order for everything that matches a filter, in bites that let workers through."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from windlass._admin.jobs.actions import (
    JobActionAdmin,
    action_name_of,
    audit_detail_of,
    audit_name_of,
)
from windlass._admin.jobs.read import redacted_filter
from windlass._admin.jobs.redaction import find_by_masked_key
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
from windlass._storage.protocol.job_list import JobFilter, ListOrder
from windlass.errors import InvalidArgument

__all__ = ["BulkActionAdmin", "BulkProgress", "BulkReport", "filter_in_words"]

CHUNK = 100
"""Jobs in one transaction: it must not keep a claim waiting for long."""

_STATES: Mapping[type[Any], Sequence[State]] = {
    Requeue: (State.FAILED, State.CANCELLED, State.DISCARDED),
    Discard: (State.FAILED,),
    Cancel: (State.WAITING, State.RUNNING),
    RunNow: (State.WAITING,),
    Delete: tuple(State),
    Edit: (State.WAITING,),
}
_LINING_UP = (Requeue, RunNow)
"""Orders that put jobs at the end of their queue: those of an earlier bite run before."""


class BulkProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an order for many has come."""

    seen: int
    """Matching jobs met so far."""
    done: int
    total: int
    """As many as were counted before, if ``exact``; else at least so many."""
    exact: bool


class BulkReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order for many."""

    matched: int
    """Jobs that the filter and the order are for."""
    exact: bool = True
    """False, of a dry run: so many or more."""
    done: int = 0
    requested: int = 0
    """Running ones, whose workers were asked."""
    conflicts: int = 0
    """Left as they are: other jobs hold their keys."""
    skipped: int = 0
    """They had moved on before their turn came."""
    dry_run: bool = False


class BulkActionAdmin(JobActionAdmin):
    """The part of ``app.admin`` that orders something for many jobs at once."""

    async def order_all(
        self,
        order: JobAction,
        wanted: JobFilter,
        *,
        dry_run: bool = False,
        most: int | None = None,
        progress: Callable[[BulkProgress], None] | None = None,
        within: timedelta | float | None = None,
    ) -> BulkReport:
        """Carry out ``order`` for every job that matches, at most the newest ``most``.

        Bite by bite, each with its audit record; whoever breaks it off keeps what is done, and
        may say it again. Jobs that are requeued or made due now run in the order they were stored
        in: these orders begin with the oldest. Jobs that are stored meanwhile are not met.
        ``dry_run`` only counts, and no longer than ``within``.
        """
        wanted = await self._understood(wanted)
        asked = self._narrowed(order, wanted)
        if asked is None:
            return BulkReport(matched=0, dry_run=dry_run)
        if dry_run:
            counted = await self.count(asked, most=most or 10_000, within=within)
            return BulkReport(matched=counted.number, exact=counted.exact, dry_run=True)
        whole = await self.count(asked) if progress is not None else None
        (bulk,) = self._new_ids(1)
        tally: Counter[ActionResult] = Counter()
        lining_up = isinstance(order, _LINING_UP)
        async for ids in (self._oldest_first if lining_up else self._pages)(asked, most):
            tally += Counter(await self._bite(order, ids, wanted, bulk))
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

    async def _pages(self, asked: JobFilter, most: int | None) -> AsyncIterator[Sequence[JobId]]:
        """Find the jobs, the newest first."""
        found = 0
        while most is None or found < most:
            room = CHUNK if most is None else min(CHUNK, most - found)
            store = (await self._storage()).admin
            page = await find_by_masked_key(self._shades, store, asked, room)
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
                f"before= is the seq of a job here, for these jobs are met by their number, got "
                f"{asked.before!r}: say finished_until=… for jobs that ended before, or take a seq"
            )
            raise InvalidArgument(message)
        first, last = await self._ends(asked, most)
        asked = msgspec.structs.replace(asked, order=ListOrder.OLDEST, before=first - 1)
        found = 0
        while last >= first and (most is None or found < most):
            room = CHUNK if most is None else min(CHUNK, most - found)
            store = (await self._storage()).admin
            page = await find_by_masked_key(self._shades, store, asked, room)
            ids = [job.id for job in page if job.seq <= last]
            found += len(ids)
            yield ids
            if not isinstance(page.next, int) or page.next >= last:
                return
            asked = msgspec.structs.replace(asked, before=page.next)

    async def _ends(self, asked: JobFilter, most: int | None) -> tuple[int, int]:
        """The numbers between which the jobs are: those that are stored later have higher ones."""
        admin = (await self._storage()).admin
        asked = msgspec.structs.replace(asked, order=ListOrder.NEWEST)
        if most is None:
            newest = await admin.find(JobFilter(before=asked.before), limit=1)
            return 1, newest[0].seq if newest else 0
        first, last, found = 1, 0, 0
        while found < most:
            page = await find_by_masked_key(self._shades, admin, asked, min(CHUNK, most - found))
            found += len(page)
            last = max(last, *(job.seq for job in page), 0)
            if found >= most:
                first = page[-1].seq
            if page.next is None:
                break
            asked = msgspec.structs.replace(asked, before=page.next)
        return first, last

    async def _bite(
        self, order: JobAction, ids: Sequence[JobId], wanted: JobFilter, bulk: str
    ) -> Sequence[ActionResult]:
        if not ids:
            return ()
        said = " ".join(filter(None, [audit_detail_of(order), f"(bulk {bulk[-8:]})"]))
        note = self._note(audit_name_of(order), f"jobs with {filter_in_words(wanted)}", said)
        return await self._carry_out(order, ids, note)

    def _narrowed(self, order: JobAction, wanted: JobFilter) -> JobFilter | None:
        """Only the states the order is for; None: it asks for none of them."""
        bare = JobFilter(before=wanted.before, order=wanted.order, as_shown=wanted.as_shown)
        if wanted == bare:
            message = (
                f"this would {action_name_of(order)} every job there is: say which, for example "
                f"JobFilter(queue='mail') or JobFilter(states=list(State))"
            )
            raise InvalidArgument(message)
        able = _STATES[type(order)]
        states = [state for state in able if wanted.states is None or state in wanted.states]
        return redacted_filter(msgspec.structs.replace(wanted, states=states)) if states else None


def filter_in_words(wanted: JobFilter) -> str:
    """A filter as people read it: ``state failed, queue mail``."""
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
