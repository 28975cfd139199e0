"""Looking for words above a store's own `find`, which reads whole jobs anyway.

For servers. They are asked only for what no job hides, and in steps that do not depend on the
words: what people may see of a job is decided here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from windlass._core.job.job import JobRecord
from windlass._core.values.text_search import SearchWords, texts_of
from windlass._storage.protocol.lists.job_list import Cursor, JobFilter, Page
from windlass._storage.protocol.lists.list_order import order_of, sort_time_of
from windlass._storage.shared.reader_thread import run_on_reader_thread

__all__ = ["JOBS_PER_SEARCH", "search_jobs"]

JOBS_PER_SEARCH = 2_000
"""Jobs that one call looks into …"""
_BYTES = 512 * 1024
"""… and what they carry, at most. Texts full of addresses and tokens take half a second for each
megabyte, and other readers wait for that long."""
_FIRST, _LIGHT = 50, 4 * 1024
"""Jobs of the first step. Later ones are larger where the jobs are smaller than this, in bytes."""
_MOST = 500
_ON_THE_LOOP = 32 * 1024
"""Bytes of arguments."""

_Find = Callable[[JobFilter, int], Awaitable[Page]]
_After = Callable[[JobRecord], Cursor]
"""Where the page behind a job begins."""


async def search_jobs(
    find: _Find, wanted: JobFilter, sought: SearchWords, limit: int, after: _After
) -> Page:
    """`AdminStore.find` for filters that `sought_of` says something about."""
    asked = msgspec.structs.replace(wanted, text=None, as_shown=False)
    found: list[JobRecord] = []
    looked = read = 0
    while limit > 0:
        page = await find(asked, _step(wanted, looked, read, limit - len(found)))
        shown = await _judged(sought, page)
        for job, fits in zip(page, shown, strict=True):
            looked, read = looked + 1, read + _weight(job)
            if fits:
                if len(found) == limit:
                    return Page(found, after(found[-1]))
                found.append(job)
        if page.next is None or page.reached is not None:
            return Page(found, page.next, None if len(found) == limit else page.reached)
        if looked >= JOBS_PER_SEARCH or read > _BYTES:
            full = len(found) == limit or not page
            return Page(
                found, page.next, None if full else sort_time_of(page[-1], order_of(wanted))
            )
        asked = msgspec.structs.replace(asked, before=page.next)
    return Page(())


async def _judged(sought: SearchWords, page: Page) -> list[bool]:
    """Return which of the jobs show it; of many or large ones off the event loop."""

    def work() -> list[bool]:
        return sought.shown_among([texts_of(job) for job in page])

    return (
        await run_on_reader_thread(work)
        if sum(len(job.payload) for job in page) > _ON_THE_LOOP
        else work()
    )


def _step(wanted: JobFilter, looked: int, read: int, room: int) -> int:
    if wanted.key is not None:
        # The holder of a key is on the first page, out of its order: no page boundary divides it.
        return max(room, 1)
    small = looked > 0 and read < _LIGHT * looked
    return min(_MOST, JOBS_PER_SEARCH - looked) if small else _FIRST


def _weight(job: JobRecord) -> int:
    return len(job.payload) + len(job.result or b"")
