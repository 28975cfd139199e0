"""Lists and counts of jobs, in bounded reads."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from windlass._admin.flows.ids import resolve_flow
from windlass._admin.jobs.ids import resolve_id
from windlass._admin.jobs.redaction import find_by_masked_key, redacted_page
from windlass._admin.session import AdminSession
from windlass._core.job.ids import id_as_stored, id_patterns_of, is_full_id
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._core.values.names import shown
from windlass._storage.protocol.admin import AdminStore
from windlass._storage.protocol.lists.job_list import JobFilter, Page
from windlass._storage.protocol.lists.list_order import default_order
from windlass._system.seams import monotonic
from windlass.errors import InvalidArgument

__all__ = ["QUICK", "Count", "check_filter", "count_jobs", "find_jobs", "redacted_filter"]

_PAGE = 1_000
"""Jobs on a page at most."""
_FIRST, _LIGHT = 50, 1024 * 1024
"""Jobs of the first read of a count, and how many bytes these may hold for it to continue by pages.
A thousand jobs of a megabyte each would fill the memory, only to be counted."""
QUICK = timedelta(milliseconds=250)
"""How long a list looks for rare matches, unless the caller says."""


class Count(msgspec.Struct, frozen=True):
    """The number of matching jobs."""

    number: int
    exact: bool
    """False: there are at least that many."""


def redacted_filter(wanted: JobFilter) -> JobFilter:
    """Match only what people may see of a job."""
    return msgspec.structs.replace(wanted, as_shown=True)


async def find_jobs(
    session: AdminSession, wanted: JobFilter, limit: int, within: timedelta
) -> Page:
    """Fill a page. One read of the store is bounded; several fill a page where matches are rare."""
    store, enough = (await session.storage()).admin, min(max(limit, 1), _PAGE)
    asked = _ordered(redacted_filter(await check_filter(session, wanted)))
    until = monotonic() + within.total_seconds()
    found: list[JobRecord] = []
    while True:
        page = await find_by_masked_key(session.masks, store, asked, enough - len(found))
        found += page
        over = page.next is None or len(found) >= enough
        if over or monotonic() >= until:
            seen = await redacted_page(Page(found))
            return Page(await session.masks.jobs(seen), page.next, page.reached)
        asked = msgspec.structs.replace(asked, before=page.next)


async def count_jobs(
    session: AdminSession, wanted: JobFilter, most: int, within: timedelta | None
) -> Count:
    """Count matching jobs, up to ``most`` and for as long as ``within``."""
    asked, number = redacted_filter(await check_filter(session, wanted)), 0
    store = (await session.storage()).admin
    if (told := await _count_by_queues(store, asked, most)) is not None:
        return told
    asked = _ordered(asked)
    until = None if within is None else monotonic() + within.total_seconds()
    step = _FIRST
    while number < most and (until is None or monotonic() < until):
        page = await find_by_masked_key(session.masks, store, asked, min(step, most - number))
        number += len(page)
        if page.next is None:
            return Count(number, exact=True)
        asked = msgspec.structs.replace(asked, before=page.next)
        if sum(len(job.payload) + len(job.result or b"") for job in page) < _LIGHT:
            step = _PAGE
    return Count(number, exact=False)


async def check_filter(session: AdminSession, wanted: JobFilter) -> JobFilter:
    """Resolve shortened ids in a filter; InvalidArgument for a key that no job can have."""
    if wanted.key is not None and "/" not in wanted.key:
        message = (
            f"give a unique key as jobs show it, with its task: TASK/KEY, such as "
            f"send_digest/42, or /KEY if its scope is global; got {shown(wanted.key)}"
        )
        raise InvalidArgument(message)
    if wanted.flow is not None:
        flow = await resolve_flow(session, wanted.flow)
        wanted = msgspec.structs.replace(wanted, flow=flow)
    if wanted.parent is None or is_full_id(wanted.parent):
        return wanted
    if not id_patterns_of(parent := id_as_stored(wanted.parent)) and not is_full_id(parent):
        return wanted  # like no id: no job has such a parent
    return msgspec.structs.replace(wanted, parent=await resolve_id(session, wanted.parent))


async def _count_by_queues(store: AdminStore, wanted: JobFilter, most: int) -> Count | None:
    """Count by the counters of queues, which read no job; None if the filter asks for more."""
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
    for counts in await store.counts(cap=most):
        if wanted.queue is not None and counts.queue != wanted.queue:
            continue
        for state in set(states):
            waits = state is State.WAITING
            fields = ("ready", "scheduled") if waits else (state.value,)
            for field in fields:
                number += getattr(counts, field)
                exact = exact and getattr(counts, field) < most
    return Count(min(number, most), exact=exact and number < most)


def _ordered(wanted: JobFilter) -> JobFilter:
    """Choose the order that suits the filter, unless it names one."""
    if wanted.order is not None:
        return wanted
    return msgspec.structs.replace(wanted, order=default_order(wanted))
