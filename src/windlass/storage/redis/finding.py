"""Looking for jobs: newest first, a bounded number of them looked at by one call.

Jobs of states that few are in are gathered from the lines of those states; else the numbers of all
jobs are walked downwards. Either way one script looks at a few hundred jobs, so that the server
does something else in between.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from windlass.core.instant import to_us
from windlass.core.job import Job
from windlass.core.state import TERMINAL, Shown, State
from windlass.storage.calendar import instant_of
from windlass.storage.looks import Cursor, JobFilter, ListOrder, Page, sought_of
from windlass.storage.redis.database import Argument, Database
from windlass.storage.redis.layout import CODES
from windlass.storage.redis.scripts import script
from windlass.storage.redis.shown import shown_job
from windlass.storage.redis.sorting import Spot, Spots, cursor_at, cursor_of, id_at
from windlass.storage.searching import search
from windlass.storage.sorting import order_of, seq_of, time_of

__all__ = ["Finder"]

_FIND, _LOOK, _GATHER = script("find"), script("look"), script("gather")
_KEY_HOLDER = script("key_holder")

_AT_ONCE = 50
"""Jobs one script shows: each may carry a large payload and a large result."""
_LOOKED_AT = 500
"""Jobs one script looks at."""
FEW = 10_000
"""Up to so many jobs of the wanted states are gathered."""
LOOKS = 5_000
"""Jobs one call looks at: whoever has little time must be asked often whether it is over."""
_BYTES = 64_000_000
"""What one call reads of records, however few they are."""

_TOP = 1 << 53
"""Above every job's number."""
_GATHERED = struct.Struct(">16sd")
_WAITS: Final = {Shown.SCHEDULED, Shown.READY, Shown.RETRYING}

_pack = msgspec.msgpack.Encoder().encode


class _Bite(NamedTuple):
    """What one script saw."""

    jobs: list[Job]
    looked: int
    read: int
    before: Cursor | None
    """Where to go on; None: it was the last."""
    reached: datetime
    """When the last job it looked at was made, or its place in a list by time."""


class Finder:
    """`AdminStore.find`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        order, sought = order_of(wanted), sought_of(wanted)
        if sought is None:
            return await self._find(wanted, limit)
        return await search(self._find, wanted, sought, limit, lambda job: cursor_of(job, order))

    async def _find(self, wanted: JobFilter, limit: int) -> Page:
        states, order = _states(wanted), order_of(wanted)
        if limit <= 0 or not states:
            return Page(())
        said = _said(wanted, states)
        if time_of(order) != "enqueued":
            return await _paged(self._ordered(wanted, order, said, limit), wanted, limit)
        few, before = await self._few(wanted, states), seq_of(wanted)
        if order is ListOrder.OLDEST:
            return await _paged(self._ordered(wanted, order, said, limit, few), wanted, limit)
        if few is not None:
            return await _paged(self._among(few, said, before, limit), wanted, limit)
        far = await self._far_holder(wanted, said)
        return await _paged(self._walk(said, before, limit), wanted, limit, far)

    async def _few(self, wanted: JobFilter, states: list[State]) -> list[tuple[int, bytes]] | None:
        """Number and id of all jobs in the wanted states, where they are few; else None.

        A handful of failed jobs among a million others is then found without looking at those.
        """
        if len(states) == len(State):
            return None
        kinds: list[Argument] = [CODES[state] for state in states]
        if State.WAITING in states and _WAITS & set(wanted.shown or ()) == {Shown.RETRYING}:
            kinds[states.index(State.WAITING)] = "r"
        since = "-inf" if wanted.finished_from is None else to_us(wanted.finished_from)
        until = "+inf" if wanted.finished_until is None else f"({to_us(wanted.finished_until)}"
        place = (wanted.queue or "", wanted.worker or "", since, until)
        found = await self._db.run_aside(_GATHER, FEW, *place, *kinds)
        if found is None:
            return None
        return [(int(number), job) for job, number in _GATHERED.iter_unpack(found)]

    async def _among(
        self, few: list[tuple[int, bytes]], said: bytes, before: int | None, limit: int
    ) -> AsyncIterator[_Bite]:
        few.sort(reverse=True)
        rows = [row for row in few if before is None or row[0] < before]
        at = 0
        while at < len(rows) and limit > 0:
            some = rows[at : at + _LOOKED_AT]
            looked, read, made, *found = await self._db.run_aside(
                _LOOK, said, min(limit, _AT_ONCE), *(job for _, job in some)
            )
            at += looked
            limit -= len(found)
            further = rows[at - 1][0] if at < len(rows) else None
            yield _Bite([shown_job(row) for row in found], looked, read, further, instant_of(made))

    async def _ordered(
        self,
        wanted: JobFilter,
        order: ListOrder,
        said: bytes,
        limit: int,
        few: Sequence[tuple[int, bytes]] | None = None,
    ) -> AsyncIterator[_Bite]:
        """Along the lines that have the order. ``few``: as `_few` says."""
        following = Spots(self._db, wanted, order).following(few)
        size = min(limit + 1, _LOOKED_AT)
        last: Spot | None = None
        while True:
            spots = await following(last, size)
            at = 0
            while at < len(spots) and limit > 0:
                looked, read, made, *found = await self._db.run_aside(
                    _LOOK, said, min(limit, _AT_ONCE), *map(id_at, spots[at:])
                )
                at, last = at + looked, spots[at + looked - 1]
                limit -= len(found)
                more = at < len(spots) or len(spots) == size
                further = cursor_at(last, order) if more else None
                reached = instant_of(made if order is ListOrder.OLDEST else last[0])
                yield _Bite([shown_job(row) for row in found], looked, read, further, reached)
            if len(spots) < size or limit <= 0:
                return
            size = _LOOKED_AT

    async def _walk(self, said: bytes, before: int | None, limit: int) -> AsyncIterator[_Bite]:
        """Newest first through all jobs."""
        at: Argument = "" if before is None else before
        while limit > 0:
            at, looked, read, made, *found = await self._db.run_aside(
                _FIND, said, at, min(limit, _AT_ONCE)
            )
            limit -= len(found)
            further = int(at) if at else None
            yield _Bite([shown_job(row) for row in found], looked, read, further, instant_of(made))
            if further is None:
                return

    async def _far_holder(self, wanted: JobFilter, said: bytes) -> Job | None:
        """The job that holds the wanted key, where it is so old that the first page would not
        reach it. It belongs to that page, so on the pages behind it is left out.
        """
        if wanted.key is None:
            return None
        holder = await self._db.run_aside(_KEY_HOLDER, wanted.key)
        if holder is None or holder[2] <= LOOKS:
            return None
        _, _, _, *found = await self._db.run_aside(_LOOK, said, 1, holder[0])
        return shown_job(found[0]) if found else None


async def _paged(
    bites: AsyncIterator[_Bite], wanted: JobFilter, limit: int, far: Job | None = None
) -> Page:
    """Bites until there are enough, or until enough was looked at. ``far``: see `_far_holder`."""
    jobs: list[Job] = []
    looks, size = LOOKS, _BYTES
    room = limit - 1 if far is not None and wanted.before is None else limit
    before: Cursor | None = None
    reached: datetime | None = None
    async for bite in bites:
        jobs += [job for job in bite.jobs if far is None or job.id != far.id]
        looks, size, before = looks - bite.looked, size - bite.read, bite.before
        if before is None or len(jobs) >= room:
            break
        if looks <= 0 or size <= 0:
            reached = bite.reached
            break
    if len(jobs) > room:
        jobs = jobs[:room]
        before = jobs[-1].seq if jobs else _TOP
    if far is not None and wanted.before is None:
        jobs.append(far)
    return Page(jobs, before, reached)


def _states(wanted: JobFilter) -> list[State]:
    """The states that a wanted job may be in."""
    states = set(State) if wanted.states is None else set(wanted.states)
    if wanted.shown is not None:
        states &= {State.WAITING if one in _WAITS else State(one.value) for one in wanted.shown}
    if wanted.finished_from is not None or wanted.finished_until is not None:
        states &= TERMINAL
    return [state for state in State if state in states]


def _said(wanted: JobFilter, states: Sequence[State]) -> bytes:
    """What is wanted, as shared/matching.lua takes it."""
    given: dict[str, Any] = {
        "states": "".join(str(CODES[state]) for state in states),
        "queue": wanted.queue,
        "task": wanted.task,
        "tenant": wanted.tenant,
        "principal": wanted.principal,
        "tag": wanted.tag,
        "key": wanted.key,
        "correlation_id": wanted.correlation_id,
        "parent": wanted.parent,
        "worker": wanted.worker,
        "error": wanted.error,
        "frame": wanted.frame,
        "created_from": _us(wanted.created_from),
        "created_until": _us(wanted.created_until),
        "finished_from": _us(wanted.finished_from),
        "finished_until": _us(wanted.finished_until),
    }
    if wanted.shown is not None:
        given["shown"] = {one.value: True for one in wanted.shown}
    return _pack({name: value for name, value in given.items() if value is not None})


def _us(instant: datetime | None) -> int | None:
    return None if instant is None else to_us(instant)
