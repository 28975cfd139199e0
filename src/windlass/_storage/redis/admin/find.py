"""Looking for jobs: newest first, a bounded number of them looked at by one call.

Jobs of states that few are in are gathered from the lines of those states; else the numbers of all
jobs are walked downwards. Either way one script looks at a few hundred jobs, so that the server
does something else in between.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from windlass._core.job.job import JobRecord
from windlass._core.job.state import TERMINAL, Shown, State
from windlass._core.values.instants import instant_of, to_us
from windlass._storage.protocol.lists.job_list import Cursor, JobFilter, ListOrder, Page, sought_of
from windlass._storage.protocol.lists.list_order import order_of, seq_of, sort_field_of
from windlass._storage.redis.admin.listed_jobs import shown_job
from windlass._storage.redis.admin.sort import (
    ScorePosition,
    SortedJobs,
    cursor_after,
    cursor_after_job,
    id_at,
)
from windlass._storage.redis.io.database import Argument, RedisDatabase
from windlass._storage.redis.io.layout import CODES
from windlass._storage.redis.io.scripts import script
from windlass._storage.shared.filter_values import filter_values
from windlass._storage.shared.text_search import search_jobs

__all__ = ["RedisFinder"]

_FIND, _LOOK, _GATHER = script("find"), script("look"), script("gather")
_KEY_HOLDER = script("key_holder")

_AT_ONCE = 50
"""Jobs one script shows: each may carry a large payload and a large result."""
_LOOKED_AT = 500
"""Jobs one script looks at."""
SORTABLE_JOBS = 10_000
"""Up to this number of jobs of the wanted states are gathered."""
JOBS_PER_SCAN = 5_000
"""Jobs that one call reads: a caller with little time must be able to stop often."""
_BYTES = 64_000_000
"""Bytes of records that one call reads, for any number of them."""
_GATHERED = struct.Struct(">16sd")
_WAITS: Final = {Shown.SCHEDULED, Shown.READY, Shown.RETRYING}

_pack = msgspec.msgpack.Encoder().encode


class _FindChunk(NamedTuple):
    """The result of one script."""

    jobs: list[JobRecord]
    looked: int
    read: int
    before: Cursor | None
    """The cursor of the next step; None: it was the last."""
    reached: datetime
    """When the last job it looked at was made, or its place in a list by time."""


class _ScanBudget:
    """The jobs that may still be read.

    One for all steps of a search by words that a job may hide. If each step had its own, a hidden
    match would move the end of the search, and so tell of itself.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self.shared = shared
        self._looks, self._size = JOBS_PER_SCAN, _BYTES

    @property
    def looks(self) -> int:
        """Jobs that one script may look at."""
        return max(min(self._looks, _LOOKED_AT), 1)

    def spend(self, chunk: _FindChunk) -> None:
        self._looks, self._size = self._looks - chunk.looked, self._size - chunk.read

    @property
    def spent(self) -> bool:
        return self._looks <= 0 or self._size <= 0


class RedisFinder:
    """`AdminStore.find`."""

    def __init__(self, database: RedisDatabase) -> None:
        self._db = database

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        order, sought = order_of(wanted), sought_of(wanted)
        if sought is None:
            return await self._find(wanted, limit, _ScanBudget())
        shared = _ScanBudget(shared=True) if sought.compares_whole else None

        async def step(asked: JobFilter, many: int) -> Page:
            return await self._find(asked, many, shared or _ScanBudget())

        return await search_jobs(
            step, wanted, sought, limit, lambda job: cursor_after_job(job, order)
        )

    async def _find(self, wanted: JobFilter, limit: int, budget: _ScanBudget) -> Page:
        states, order = _states(wanted), order_of(wanted)
        if limit <= 0 or not states:
            return Page(())
        said = _said(wanted, states)
        if sort_field_of(order) != "enqueued" or wanted.flow is not None:
            chunks = self._ordered(wanted, order, said, limit, budget)
            return await _paged(chunks, wanted, limit, budget)
        few, before = await self._few(wanted, states), seq_of(wanted)
        if order is ListOrder.OLDEST:
            chunks = self._ordered(wanted, order, said, limit, budget, few=few)
            return await _paged(chunks, wanted, limit, budget)
        if few is not None:
            chunks = self._among(few, said, before, limit, budget)
            return await _paged(chunks, wanted, limit, budget)
        far = await self._far_holder(wanted, said)
        chunks = self._walk(said, before, limit, budget)
        return await _paged(chunks, wanted, limit, budget, far)

    async def _few(self, wanted: JobFilter, states: list[State]) -> list[tuple[int, bytes]] | None:
        """Return number and id of all jobs in the wanted states, where they are few; else None.

        A handful of failed jobs among a million others is then found without reading those.
        """
        if len(states) == len(State):
            return None
        kinds: list[Argument] = [CODES[state] for state in states]
        if State.WAITING in states and _WAITS & set(wanted.shown or ()) == {Shown.RETRYING}:
            kinds[states.index(State.WAITING)] = "r"
        since = "-inf" if wanted.finished_from is None else to_us(wanted.finished_from)
        until = "+inf" if wanted.finished_until is None else f"({to_us(wanted.finished_until)}"
        place = (wanted.queue or "", wanted.worker or "", since, until)
        found = await self._db.run_aside(_GATHER, SORTABLE_JOBS, *place, *kinds)
        if found is None:
            return None
        return [(int(number), job) for job, number in _GATHERED.iter_unpack(found)]

    async def _among(
        self,
        few: list[tuple[int, bytes]],
        said: bytes,
        before: int | None,
        limit: int,
        budget: _ScanBudget,
    ) -> AsyncIterator[_FindChunk]:
        few.sort(reverse=True)
        rows = [row for row in few if before is None or row[0] < before]
        at = 0
        while at < len(rows) and limit > 0:
            some = rows[at : at + budget.looks]
            looked, read, made, *found = await self._db.run_aside(
                _LOOK, said, min(limit, _AT_ONCE), *(job for _, job in some)
            )
            at += looked
            limit -= len(found)
            further = rows[at - 1][0] if at < len(rows) else None
            yield _FindChunk(
                [shown_job(row) for row in found], looked, read, further, instant_of(made)
            )

    async def _ordered(
        self,
        wanted: JobFilter,
        order: ListOrder,
        said: bytes,
        limit: int,
        budget: _ScanBudget,
        *,
        few: Sequence[tuple[int, bytes]] | None = None,
    ) -> AsyncIterator[_FindChunk]:
        """Along the lines that have the order. ``few``: as `_few` says."""
        following = SortedJobs(self._db, wanted, order).following(few)
        size = min(limit + 1, _LOOKED_AT)
        last: ScorePosition | None = None
        while True:
            spots = await following(last, size)
            at = 0
            while at < len(spots) and limit > 0:
                looked, read, made, *found = await self._db.run_aside(
                    *(_LOOK, said, min(limit, _AT_ONCE)),
                    *map(id_at, spots[at : at + budget.looks]),
                )
                at, last = at + looked, spots[at + looked - 1]
                limit -= len(found)
                more = at < len(spots) or len(spots) == size
                further = cursor_after(last, order) if more else None
                reached = instant_of(made if sort_field_of(order) == "enqueued" else last[0])
                yield _FindChunk([shown_job(row) for row in found], looked, read, further, reached)
            if len(spots) < size or limit <= 0:
                return
            size = _LOOKED_AT

    async def _walk(
        self, said: bytes, before: int | None, limit: int, budget: _ScanBudget
    ) -> AsyncIterator[_FindChunk]:
        """Newest first through all jobs."""
        at: Argument = "" if before is None else before
        while limit > 0:
            at, looked, read, made, *found = await self._db.run_aside(
                _FIND, said, at, min(limit, _AT_ONCE), budget.looks
            )
            limit -= len(found)
            further = int(at) if at else None
            yield _FindChunk(
                [shown_job(row) for row in found], looked, read, further, instant_of(made)
            )
            if further is None:
                return

    async def _far_holder(self, wanted: JobFilter, said: bytes) -> JobRecord | None:
        """Return the job that holds the wanted key, where it is so old that the first page would
        not reach it. It belongs to that page, so on the pages behind it is left out.
        """
        if wanted.key is None:
            return None
        holder = await self._db.run_aside(_KEY_HOLDER, wanted.key)
        if holder is None or holder[2] <= JOBS_PER_SCAN:
            return None
        _, _, _, *found = await self._db.run_aside(_LOOK, said, 1, holder[0])
        return shown_job(found[0]) if found else None


async def _paged(
    chunks: AsyncIterator[_FindChunk],
    wanted: JobFilter,
    limit: int,
    budget: _ScanBudget,
    far: JobRecord | None = None,
) -> Page:
    """Read in chunks until enough jobs are found, or enough were read. ``far``: see
    `_far_holder`.
    """
    jobs: list[JobRecord] = []
    room = limit - 1 if far is not None and wanted.before is None else limit
    before: Cursor | None = None
    reached: datetime | None = None
    async for chunk in chunks:
        jobs += [job for job in chunk.jobs if far is None or job.id != far.id]
        before = chunk.before
        budget.spend(chunk)
        full = len(jobs) >= room
        if before is not None and budget.spent and (budget.shared or not full):
            reached = chunk.reached
        if before is None or full or budget.spent:
            break
    if len(jobs) > room:
        before = jobs[room - 1].seq if room else jobs[0].seq + 1
        jobs = jobs[:room]
    if far is not None and wanted.before is None:
        jobs.append(far)
    return Page(jobs, before, reached)


def _states(wanted: JobFilter) -> list[State]:
    """Return the states that a wanted job may be in."""
    states = set(State) if wanted.states is None else set(wanted.states)
    if wanted.shown is not None:
        states &= {State.WAITING if one in _WAITS else State(one.value) for one in wanted.shown}
    if wanted.finished_from is not None or wanted.finished_until is not None:
        states &= TERMINAL
    return [state for state in State if state in states]


def _said(wanted: JobFilter, states: Sequence[State]) -> bytes:
    """Return the filter as shared/matching.lua takes it."""
    given = filter_values(wanted)
    given["states"] = "".join(str(CODES[state]) for state in states)
    if wanted.shown is not None:
        given["shown"] = {one.value: True for one in wanted.shown}
    if wanted.flow is not None:
        given["flow"] = wanted.flow
    return _pack({name: value for name, value in given.items() if value is not None})
