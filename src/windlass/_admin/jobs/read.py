"""Jobs: found, counted, looked into."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from windlass._admin.jobs.redaction import (
    find_by_masked_key,
    redacted,
    redacted_attempts,
    redacted_chunks,
    redacted_page,
)
from windlass._admin.session import AdminSession
from windlass._core.job.ids import IdPattern, id_as_stored, id_patterns_of, is_full_id
from windlass._core.job.job import Attempt, JobId, JobRecord
from windlass._core.job.state import State
from windlass._core.values.instants import duration
from windlass._core.values.names import check_text, shown
from windlass._storage.protocol.admin import AdminStore
from windlass._storage.protocol.job_list import JobFilter, Page
from windlass._storage.protocol.journal import LogChunk
from windlass._storage.protocol.list_order import default_order
from windlass._system.seams import monotonic
from windlass.errors import AmbiguousId, InvalidArgument, JobNotFound

__all__ = ["NEWEST", "Count", "JobIdAdmin", "JobReadAdmin", "redacted_filter"]

_PAGE = 1_000
"""Jobs on a page at most."""
_FIRST, _LIGHT = 50, 1024 * 1024
"""Jobs of the first look of a count, and how many bytes these may carry for it to go on by pages: a
thousand jobs of a megabyte each would fill the memory of whoever only asked how many there are."""
_QUICK = timedelta(milliseconds=250)

NEWEST = 100_000
"""Jobs among which the end of an id is looked for: no index knows it."""
_CANDIDATES = 10


class JobIdAdmin(AdminSession):
    """The part of ``app.admin`` that knows jobs by shortened ids."""

    async def resolve(self, job_id: str) -> JobId:
        """The whole id of the job that is meant.

        Takes the shortened form that pages, tables and logs show (``0192f3a1…9c4e07``), with or
        without the dots, and the last eight digits or more, which are looked for among the newest
        100,000 jobs. JobNotFound; AmbiguousId names those it may be. A whole id is not looked up.
        """
        stored = id_as_stored(job_id)
        if is_full_id(stored.lower()):
            return JobId(stored.lower())
        wanted = id_patterns_of(stored)
        if not wanted:
            message = (
                f"No job {job_id} is stored. Give the whole id (32 hex digits), a shortened one as "
                f"in 0192f3a1…9c4e07, or its last eight digits or more."
            )
            raise JobNotFound(job_id, message)
        store = (await self._storage()).admin
        for likeness in wanted:
            found = await _alike(store, likeness)
            if len(found) > 1:
                more = len(found) > _CANDIDATES
                raise AmbiguousId(job_id, found[:_CANDIDATES], more=more)
            if found:
                return found[0]
        if wanted[-1].first:
            raise JobNotFound(job_id)
        message = (
            f"None of the newest {NEWEST:,} jobs has an id that ends with {job_id}. Give the "
            f"first eight digits, too, as in 0192f3a1…9c4e07, or the whole id."
        )
        raise JobNotFound(job_id, message)


async def _alike(store: AdminStore, wanted: IdPattern) -> Sequence[JobId]:
    """Look until there are more than anybody wants to choose from."""
    found: list[JobId] = []
    looked, after = 0, None
    while True:
        named = await store.named(wanted.first, wanted.last, after=after)
        found += named.ids
        looked, after = looked + named.looked, named.after
        far = not wanted.first and looked >= NEWEST
        if after is None or far or len(found) > _CANDIDATES:
            return found


class Count(msgspec.Struct, frozen=True):
    """How many jobs match."""

    number: int
    exact: bool
    """False: so many or more."""


def redacted_filter(wanted: JobFilter) -> JobFilter:
    """Find nothing by what a job hides."""
    return msgspec.structs.replace(wanted, as_shown=True)


class JobReadAdmin(JobIdAdmin):
    """The part of ``app.admin`` that reads jobs. What looks like a secret is never shown."""

    async def get(self, job_id: str) -> JobRecord:
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
            redacted_filter(wanted or JobFilter()), limit, duration(within, "within")
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
        return await self._find(redacted_filter(asked), limit, duration(within, "within"))

    async def _find(self, asked: JobFilter, limit: int, within: timedelta) -> Page:
        """One look of the store is bounded; several of them fill a page where matches are rare."""
        store, enough = (await self._storage()).admin, min(max(limit, 1), _PAGE)
        asked = await self._understood(asked)
        until = monotonic() + within.total_seconds()
        asked = _ordered(asked)
        found: list[JobRecord] = []
        while True:
            page = await find_by_masked_key(self._shades, store, asked, enough - len(found))
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
        asked, number = redacted_filter(await self._understood(wanted or JobFilter())), 0
        if (told := await self._counted(asked, most)) is not None:
            return told
        store, asked = (await self._storage()).admin, _ordered(asked)
        until = None if within is None else monotonic() + duration(within, "within").total_seconds()
        step = _FIRST
        while number < most and (until is None or monotonic() < until):
            page = await find_by_masked_key(self._shades, store, asked, min(step, most - number))
            number += len(page)
            if page.next is None:
                return Count(number, exact=True)
            asked = msgspec.structs.replace(asked, before=page.next)
            if sum(len(job.payload) + len(job.result or b"") for job in page) < _LIGHT:
                step = _PAGE
        return Count(number, exact=False)

    async def _understood(self, wanted: JobFilter) -> JobFilter:
        """With whole ids where shortened ones were given; InvalidArgument for a key no job has."""
        if wanted.key is not None and "/" not in wanted.key:
            message = (
                f"a unique key is looked for as jobs show it, with its task: TASK/KEY, such as "
                f"send_digest/42, or /KEY where its scope is global; got {shown(wanted.key)}"
            )
            raise InvalidArgument(message)
        if wanted.parent is None or is_full_id(wanted.parent):
            return wanted
        if not id_patterns_of(parent := id_as_stored(wanted.parent)) and not is_full_id(parent):
            return wanted  # like no id: no job has such a parent
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
    return msgspec.structs.replace(wanted, order=default_order(wanted))
