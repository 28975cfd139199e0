"""Jobs: found, counted, looked into."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from windlass.admin.naming import NamingDesk
from windlass.admin.redact import redacted, redacted_attempts, redacted_chunks, redacted_page
from windlass.admin.shading import find_shaded
from windlass.core.ids import is_whole
from windlass.core.instant import duration
from windlass.core.job import Attempt, Job
from windlass.core.state import State
from windlass.core.text import check_text
from windlass.errors import InvalidArgument, JobNotFound
from windlass.seams import monotonic
from windlass.storage.journal import LogChunk
from windlass.storage.looks import JobFilter, Page
from windlass.storage.sorting import usual_order

__all__ = ["Count", "JobDesk", "as_people_see"]

_PAGE = 1_000
"""Jobs on a page at most."""
_FIRST, _LIGHT = 50, 1024 * 1024
"""Jobs of the first look of a count, and how many bytes these may carry for it to go on by pages: a
thousand jobs of a megabyte each would fill the memory of whoever only asked how many there are."""
_QUICK = timedelta(milliseconds=250)


class Count(msgspec.Struct, frozen=True):
    """How many jobs match."""

    number: int
    exact: bool
    """False: so many or more."""


def as_people_see(wanted: JobFilter) -> JobFilter:
    """Find nothing by what a job hides."""
    return msgspec.structs.replace(wanted, as_shown=True)


class JobDesk(NamingDesk):
    """The part of ``app.admin`` that reads jobs. What looks like a secret is never shown."""

    async def get(self, job_id: str) -> Job:
        """The stored job, whole but for secrets; JobNotFound for an unknown id. Also by a
        shortened one: see `resolve`.
        """
        wanted = await self.resolve(job_id)
        (job,) = await (await self._storage()).admin.get([wanted])
        if job is None:
            raise JobNotFound(job_id)
        (told,) = await self._shades.jobs([await redacted(job)])
        return told

    async def find(
        self,
        wanted: JobFilter | None = None,
        *,
        limit: int = 25,
        within: timedelta | float = _QUICK,
    ) -> Page:
        """Matching jobs, in the order of ``wanted.order``. The next page: the same filter with
        ``before=`` the page's ``next``, until that is None; a page may hold fewer jobs than asked
        for. Where matches are rare it looks for ``within``.

        If no order is given, ended jobs come by the latest end, running ones by the latest start,
        scheduled ones by the next due time, and any other mixture newest first. Ended jobs can be
        listed by ``finished``, running ones by ``started``, scheduled ones by ``due``, and all by
        ``enqueued``; a minus sign puts the latest first. Anything else is InvalidArgument.
        """
        return await self._find(
            as_people_see(wanted or JobFilter()), limit, duration(within, "within")
        )

    async def search(
        self,
        text: str,
        wanted: JobFilter | None = None,
        *,
        limit: int = 25,
        within: timedelta | float = _QUICK,
    ) -> Page:
        """Jobs with ``text`` in their arguments or their last error, as far as these are shown to
        people; in the order that `find` says.

        Looks for ``within`` and then answers what it has found so far: `Page.reached` says
        how far back that was, and ``before=page.next`` goes on from there.
        """
        if not check_text(text, "text"):
            message = "say what to search for: an empty text stands in every job"
            raise InvalidArgument(message)
        asked = msgspec.structs.replace(wanted or JobFilter(), text=text)
        return await self._find(as_people_see(asked), limit, duration(within, "within"))

    async def _find(self, asked: JobFilter, limit: int, within: timedelta) -> Page:
        """One look of the store is bounded; several of them fill a page where matches are rare."""
        store, enough = (await self._storage()).admin, min(max(limit, 1), _PAGE)
        asked = await self._understood(asked)
        until = monotonic() + within.total_seconds()
        asked = _ordered(asked)
        found: list[Job] = []
        while True:
            page = await find_shaded(self._shades, store, asked, enough - len(found))
            found += page
            over = page.next is None or len(found) >= enough
            if over or monotonic() >= until:
                seen = await redacted_page(Page(found))
                return Page(await self._shades.jobs(seen), page.next, page.reached)
            asked = msgspec.structs.replace(asked, before=page.next)

    async def count(
        self,
        wanted: JobFilter | None = None,
        *,
        most: int = 10_000,
        within: timedelta | float | None = None,
    ) -> Count:
        """How many jobs match; no further than ``most``, and no longer than ``within``."""
        asked, number = as_people_see(await self._understood(wanted or JobFilter())), 0
        if (told := await self._counted(asked, most)) is not None:
            return told
        store, asked = (await self._storage()).admin, _ordered(asked)
        until = None if within is None else monotonic() + duration(within, "within").total_seconds()
        step = _FIRST
        while number < most and (until is None or monotonic() < until):
            page = await find_shaded(self._shades, store, asked, min(step, most - number))
            number += len(page)
            if page.next is None:
                return Count(number, exact=True)
            asked = msgspec.structs.replace(asked, before=page.next)
            if sum(len(job.payload) + len(job.result or b"") for job in page) < _LIGHT:
                step = _PAGE
        return Count(number, exact=False)

    async def _understood(self, wanted: JobFilter) -> JobFilter:
        """With whole ids where shortened ones were given."""
        if wanted.parent is None or is_whole(wanted.parent):
            return wanted
        return msgspec.structs.replace(wanted, parent=await self.resolve(wanted.parent))

    async def _counted(self, wanted: JobFilter, most: int) -> Count | None:
        """By the counts of queues, which read no job, where the filter asks for no more."""
        simple = JobFilter(
            states=wanted.states,
            queue=wanted.queue,
            order=wanted.order,
            as_shown=wanted.as_shown,
        )
        if wanted != simple:
            return None
        states = list(State) if wanted.states is None else wanted.states
        number, exact = 0, True
        for counts in await (await self._storage()).admin.counts(cap=most):
            if wanted.queue is not None and counts.queue != wanted.queue:
                continue
            for state in set(states):
                waits = state is State.WAITING
                fields = ("ready", "scheduled") if waits else (state.value,)
                for field in fields:
                    number += getattr(counts, field)
                    exact = exact and getattr(counts, field) < most
        return Count(min(number, most), exact=exact and number < most)

    async def history(self, job_id: str) -> Sequence[Attempt]:
        """The ended attempts of a job that did not succeed, oldest first."""
        store = (await self._storage()).admin
        (job,) = await store.get([await self.resolve(job_id)])
        if job is None:
            return []
        return await redacted_attempts(job, await store.history(job.id))

    async def logs(self, job_id: str, *, after: tuple[int, int] = (0, 0)) -> Sequence[LogChunk]:
        """What its runs have logged, oldest first. Live: ask again with ``after=`` the last one's
        claim number and number.
        """
        storage, wanted = await self._storage(), await self.resolve(job_id)
        chunks = await storage.journal.logs(wanted, after=after)
        if not chunks:
            return []
        (job,) = await storage.admin.get([wanted])
        return await redacted_chunks(chunks, job)


def _ordered(wanted: JobFilter) -> JobFilter:
    """The same in the order that suits it, unless it says which."""
    if wanted.order is not None:
        return wanted
    return msgspec.structs.replace(wanted, order=usual_order(wanted))
