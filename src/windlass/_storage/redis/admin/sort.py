"""Jobs in the order of a time: which are next, by the lines that have it.

Jobs that wait for their time, and ended ones, stand in sorted sets by that time, one for each
queue. They are merged. Jobs of one instant come in the order of the set's members.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial

from windlass._core.job.job import FlowId, JobId, JobRecord
from windlass._core.job.state import TERMINAL, Shown, State
from windlass._core.values.instants import to_us
from windlass._storage.protocol.lists.job_list import Cursor, JobFilter, ListOrder
from windlass._storage.protocol.lists.list_order import (
    ListPosition,
    is_descending,
    position_of,
    seq_of,
    sort_field_of,
    sort_time_of,
    visible_states_of,
)
from windlass._storage.redis.io.database import Argument, RedisDatabase
from windlass._storage.redis.io.layout import CODES
from windlass._storage.redis.io.scripts import script
from windlass._storage.shared.job_ids import known_id

__all__ = [
    "FetchScoresAfter",
    "ScorePosition",
    "SortedJobs",
    "cursor_after",
    "cursor_after_job",
    "id_at",
]

_LISTED, _RUNS, _FLOW_JOBS = script("listed"), script("runs"), script("flow_jobs")
_RUN = struct.Struct(">16sd")
_SEQ = struct.Struct(">d")
_FRONT = struct.Struct(">Bdd")
"""How a place begins: see `layout`. What is due after now is due after 1970."""
_LAST_ID = b"\xff" * 16

ScorePosition = tuple[int, bytes]
"""A score and the member of a line: a job's place in the list."""
FetchScoresAfter = Callable[[ScorePosition | None, int], Awaitable[Sequence[ScorePosition]]]
"""The spots after one (None: after the cursor), at most this number."""


def id_at(spot: ScorePosition) -> bytes:
    """Return the job's id; for waiting jobs it is part of the place."""
    member = spot[1]
    return member if len(member) == 16 else member[17:33]


def cursor_after(spot: ScorePosition, order: ListOrder) -> Cursor:
    """Return where the page behind this spot begins."""
    score, member = spot
    match sort_field_of(order):
        case "enqueued":
            return score
        case "due":
            return ListPosition(score, str(int(_SEQ.unpack_from(member, 9)[0]))).cursor()
        case _:
            return ListPosition(score, member.hex()).cursor()


def cursor_after_job(job: JobRecord, order: ListOrder) -> Cursor:
    """Return where the page behind this job begins."""
    if sort_field_of(order) == "enqueued":
        return job.seq
    score = int(float(to_us(sort_time_of(job, order))))  # as a set has it
    tail = str(job.seq) if sort_field_of(order) == "due" else job.id
    return ListPosition(score, tail).cursor()


class SortedJobs:
    """The wanted jobs in their order, and others among them."""

    def __init__(self, database: RedisDatabase, wanted: JobFilter, order: ListOrder) -> None:
        self._db, self._wanted, self._order = database, wanted, order
        self._back = is_descending(order)

    def following(self, few: Sequence[tuple[int, bytes]] | None) -> FetchScoresAfter:
        """``few``: the jobs of a list by number, where they are few."""
        match sort_field_of(self._order):
            case "due":
                return self._due
            case "started":
                return self._started
            case "finished":
                return self._ended
            case _ if self._wanted.flow is not None:
                return partial(self._of_flow, self._wanted.flow)
            case _ if few is None:
                return self._numbered
            case _:
                rest = sorted(few)

                async def among(after: ScorePosition | None, most: int) -> Sequence[ScorePosition]:
                    edge = (seq_of(self._wanted) or 0) if after is None else after[0]
                    return [spot for spot in rest if spot[0] > edge][:most]

                return among

    async def _numbered(self, after: ScorePosition | None, most: int) -> Sequence[ScorePosition]:
        edge = (seq_of(self._wanted) or 0) if after is None else after[0]
        return await self._listed((edge + 1, b""), most, "all")

    async def _of_flow(
        self, flow: FlowId, after: ScorePosition | None, most: int
    ) -> Sequence[ScorePosition]:
        """Return jobs of a flow by number."""
        edge: Argument | None = seq_of(self._wanted) if after is None else after[0]
        if edge is None:
            edge = "+inf" if self._back else 0
        uid = known_id(JobId(flow))
        found = await self._db.run_aside(_FLOW_JOBS, uid, edge, int(self._back), most)
        return [(int(found[at]), found[at + 1]) for at in range(0, len(found), 2)]

    async def _due(self, after: ScorePosition | None, most: int) -> Sequence[ScorePosition]:
        cursor = position_of(self._wanted)
        place: tuple[Argument, bytes] = ("+inf" if self._back else "now", b"")
        if after is not None:
            place = after
        elif cursor is not None:
            # The job's own member lies between these two: it is behind neither.
            front = _FRONT.pack(1, cursor.at, cursor.seq)
            place = cursor.at, front if self._back else front + _LAST_ID
        return await self._listed(place, most, "later", self._queue)

    async def _ended(self, after: ScorePosition | None, most: int) -> Sequence[ScorePosition]:
        since, until = self._wanted.finished_from, self._wanted.finished_until
        place = after or self._cursor() or (_score(until if self._back else since, self._back), b"")
        states = [CODES[state] for state in State if state in _states(self._wanted)]
        spots = await self._listed(place, most, "ended", self._queue, *states)
        if self._back:
            return [spot for spot in spots if since is None or spot[0] >= to_us(since)]
        return [spot for spot in spots if until is None or spot[0] < to_us(until)]

    async def _started(self, after: ScorePosition | None, most: int) -> Sequence[ScorePosition]:
        """Return the running jobs: no more than the slots of all workers, so they are
        sorted here.
        """
        packed = await self._db.run_aside(_RUNS, self._wanted.worker or "")
        spots = [(int(at), job) for job, at in _RUN.iter_unpack(packed)]
        spots.sort(reverse=self._back)
        place = after or self._cursor()
        if place is not None:
            spots = [spot for spot in spots if (spot < place if self._back else spot > place)]
        return spots[:most]

    async def _listed(
        self, place: tuple[Argument, bytes], most: int, *lines: Argument
    ) -> Sequence[ScorePosition]:
        found = await self._db.run_aside(_LISTED, *place, int(self._back), most, *lines)
        return [(int(found[at]), found[at + 1]) for at in range(0, len(found), 2)]

    @property
    def _queue(self) -> str:
        return self._wanted.queue or ""

    def _cursor(self) -> ScorePosition | None:
        place = position_of(self._wanted)
        return None if place is None else (place.at, place.id)


def _score(instant: datetime | None, back: bool) -> Argument:  # noqa: FBT001 -- one of two ends
    if instant is None:
        return "+inf" if back else "-inf"
    return to_us(instant)


def _states(wanted: JobFilter) -> set[State]:
    return {state for state in TERMINAL if Shown(state.value) in visible_states_of(wanted)}
