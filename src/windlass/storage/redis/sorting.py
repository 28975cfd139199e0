"""Jobs in the order of a time: which are next, by the lines that have it.

Jobs that wait for their time, and ended ones, stand in sorted sets by that time, one for each
queue. They are merged. Jobs of one instant come in the order of the set's members.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from windlass.core.instant import to_us
from windlass.core.job import Job
from windlass.core.state import TERMINAL, Shown, State
from windlass.storage.looks import Cursor, JobFilter, ListOrder
from windlass.storage.redis.database import Argument, Database
from windlass.storage.redis.layout import CODES
from windlass.storage.redis.scripts import script
from windlass.storage.sorting import (
    Place,
    is_backwards,
    moment_of,
    place_of,
    seen_of,
    seq_of,
    time_of,
)

__all__ = ["Next", "Spot", "Spots", "cursor_at", "cursor_of", "id_at"]

_LISTED, _RUNS = script("listed"), script("runs")
_RUN = struct.Struct(">16sd")
_SEQ = struct.Struct(">d")
_FRONT = struct.Struct(">Bdd")
"""How a place begins: see `layout`. What is due after now is due after 1970."""
_LAST_ID = b"\xff" * 16

Spot = tuple[int, bytes]
"""A score and the member of a line: a job's place in the list."""
Next = Callable[[Spot | None, int], Awaitable[Sequence[Spot]]]
"""The spots behind one (None: behind the cursor), at most so many."""


def id_at(spot: Spot) -> bytes:
    """The job's id; in the line of those that wait it stands within the place."""
    member = spot[1]
    return member if len(member) == 16 else member[17:33]


def cursor_at(spot: Spot, order: ListOrder) -> Cursor:
    """Where the page behind this spot begins."""
    score, member = spot
    match time_of(order):
        case "enqueued":
            return score
        case "due":
            return Place(score, str(int(_SEQ.unpack_from(member, 9)[0]))).cursor()
        case _:
            return Place(score, member.hex()).cursor()


def cursor_of(job: Job, order: ListOrder) -> Cursor:
    """Where the page behind this job begins."""
    if time_of(order) == "enqueued":
        return job.seq
    score = int(float(to_us(moment_of(job, order))))  # as a set has it
    tail = str(job.seq) if time_of(order) == "due" else job.id
    return Place(score, tail).cursor()


class Spots:
    """What gives the wanted jobs in their order, and others among them."""

    def __init__(self, database: Database, wanted: JobFilter, order: ListOrder) -> None:
        self._db, self._wanted, self._order = database, wanted, order
        self._back = is_backwards(order)

    def following(self, few: Sequence[tuple[int, bytes]] | None) -> Next:
        """``few``: the jobs of a list by number, where they are few."""
        match time_of(self._order):
            case "due":
                return self._due
            case "started":
                return self._started
            case "finished":
                return self._ended
            case _ if few is None:
                return self._numbered
            case _:
                rest = sorted(few)

                async def among(after: Spot | None, most: int) -> Sequence[Spot]:
                    edge = (seq_of(self._wanted) or 0) if after is None else after[0]
                    return [spot for spot in rest if spot[0] > edge][:most]

                return among

    async def _numbered(self, after: Spot | None, most: int) -> Sequence[Spot]:
        edge = (seq_of(self._wanted) or 0) if after is None else after[0]
        return await self._listed((edge + 1, b""), most, "all")

    async def _due(self, after: Spot | None, most: int) -> Sequence[Spot]:
        cursor = place_of(self._wanted)
        place: tuple[Argument, bytes] = ("+inf" if self._back else "now", b"")
        if after is not None:
            place = after
        elif cursor is not None:
            # The job's own member lies between these two: it is behind neither.
            front = _FRONT.pack(1, cursor.at, cursor.seq)
            place = cursor.at, front if self._back else front + _LAST_ID
        return await self._listed(place, most, "later", self._queue)

    async def _ended(self, after: Spot | None, most: int) -> Sequence[Spot]:
        since, until = self._wanted.finished_from, self._wanted.finished_until
        place = after or self._cursor() or (_score(until if self._back else since, self._back), b"")
        states = [CODES[state] for state in State if state in _states(self._wanted)]
        spots = await self._listed(place, most, "ended", self._queue, *states)
        if self._back:
            return [spot for spot in spots if since is None or spot[0] >= to_us(since)]
        return [spot for spot in spots if until is None or spot[0] < to_us(until)]

    async def _started(self, after: Spot | None, most: int) -> Sequence[Spot]:
        """No more than the slots of all workers, so they are sorted here."""
        packed = await self._db.run_aside(_RUNS, self._wanted.worker or "")
        spots = [(int(at), job) for job, at in _RUN.iter_unpack(packed)]
        spots.sort(reverse=self._back)
        place = after or self._cursor()
        if place is not None:
            spots = [spot for spot in spots if (spot < place if self._back else spot > place)]
        return spots[:most]

    async def _listed(
        self, place: tuple[Argument, bytes], most: int, *lines: Argument
    ) -> Sequence[Spot]:
        found = await self._db.run_aside(_LISTED, *place, int(self._back), most, *lines)
        return [(int(found[at]), found[at + 1]) for at in range(0, len(found), 2)]

    @property
    def _queue(self) -> str:
        return self._wanted.queue or ""

    def _cursor(self) -> Spot | None:
        place = place_of(self._wanted)
        return None if place is None else (place.at, place.id)


def _score(instant: datetime | None, back: bool) -> Argument:  # noqa: FBT001 -- one of two ends
    if instant is None:
        return "+inf" if back else "-inf"
    return to_us(instant)


def _states(wanted: JobFilter) -> set[State]:
    return {state for state in TERMINAL if Shown(state.value) in seen_of(wanted)}
