"""What people ask and order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from windlass.core.instant import to_us
from windlass.core.job import Attempt, Job, JobId
from windlass.core.rollup import Rollup
from windlass.core.state import State
from windlass.errors import JobNotFound, KeyConflict, WindlassError, WrongState
from windlass.storage.protocol import JobFilter, QueueCounts
from windlass.storage.redis.database import Database
from windlass.storage.redis.layout import CODES, STATES
from windlass.storage.redis.records import attempt_of, job_of, known_id, rollup_of
from windlass.storage.redis.scripts import script

__all__ = ["RedisAdmin"]

_GET, _FIND, _NUMBERS, _HISTORY = (
    script("get"),
    script("find"),
    script("numbers"),
    script("history"),
)
_COUNTS, _ROLLUPS = script("counts"), script("rollups")
_REQUEUE, _DISCARD, _RUN_NOW = script("requeue"), script("discard"), script("run_now")
_PAUSE, _RESUME = script("pause"), script("resume")

_AT_ONCE = 50
"""Jobs one script reads for people: each may carry a large payload and a large result."""
_FEW = 5000
"""Up to so many jobs of a state are looked for by their state; more by going through all."""
_MINUTES = 60
_DUE_LATER, _DUE = "scheduled", "ready"


class RedisAdmin:
    """An `AdminStore`. Long answers are put together from several scripts, so that the server
    does something else in between; each job in them is whole.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    # --- reading ------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        return [job async for job in self._each([known_id(job) for job in ids])]

    async def _each(self, ids: Sequence[bytes]) -> AsyncIterator[Job | None]:
        for start in range(0, len(ids), _AT_ONCE):
            for row in await self._db.run_aside(_GET, *ids[start : start + _AT_ONCE]):
                yield _shown(row) if row else None

    async def find(self, wanted: JobFilter, *, limit: int) -> Sequence[Job]:
        if limit <= 0 or (wanted.states is not None and not wanted.states):
            return []
        few = await self._few(wanted)
        return await (self._scan(wanted, limit) if few is None else self._among(few, wanted, limit))

    async def _few(self, wanted: JobFilter) -> list[tuple[bytes, int]] | None:
        """Id and number of all jobs in the wanted states, where they are few; else None.

        A handful of failed jobs among a million others is then found without looking at those.
        """
        if wanted.states is None or State.WAITING in wanted.states:
            return None
        digits = (CODES[state] for state in dict.fromkeys(wanted.states))
        found = await self._db.run_aside(_NUMBERS, _FEW, *digits)
        return None if found is None else [(row[0], row[1]) for row in found]

    async def _among(
        self, few: list[tuple[bytes, int]], wanted: JobFilter, limit: int
    ) -> list[Job]:
        few.sort(key=lambda row: -row[1])
        before = wanted.before
        ids = [job for job, number in few if before is None or number < before]
        jobs: list[Job] = []
        async for job in self._each(ids):
            if job is not None and _matches(job, wanted):
                jobs.append(job)
                if len(jobs) == limit:
                    break
        return jobs

    async def _scan(self, wanted: JobFilter, limit: int) -> list[Job]:
        """Newest first through all jobs, a few hundred of them looked at by one script."""
        states = "".join(str(CODES[state]) for state in wanted.states or ())
        before: str | bytes | int = "" if wanted.before is None else wanted.before
        jobs: list[Job] = []
        while True:
            bite = min(limit - len(jobs), _AT_ONCE)
            before, *rows = await self._db.run_aside(
                _FIND, before, states, wanted.queue or "", wanted.task or "", bite
            )
            jobs += [_shown(row) for row in rows]
            if not before or len(jobs) >= limit:
                return jobs

    async def history(self, job: JobId) -> Sequence[Attempt]:
        return [attempt_of(row) for row in await self._db.run_aside(_HISTORY, known_id(job))]

    async def counts(self) -> Sequence[QueueCounts]:
        counts, paused, scheduled = await self._db.run_aside(_COUNTS)
        later = dict(_pairs(scheduled))
        queues: dict[bytes, dict[str, int]] = {queue: {} for queue in paused}
        for field, text in _pairs(counts):
            state, queue, number = STATES[int(field[:1])], field[1:], int(text)
            places = queues.setdefault(queue, {})
            if state is State.WAITING:
                places[_DUE_LATER] = later[queue]
                places[_DUE] = number - later[queue]
            else:
                places[state.value] = number
        return [
            QueueCounts(queue=queue.decode(), paused=queue in paused, **places)
            for queue, places in sorted(queues.items())
        ]

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        start, end = to_us(since), to_us(until)
        rollups: list[Rollup] = []
        while True:
            found = await self._db.run_aside(_ROLLUPS, start, end, _MINUTES)
            for minute, fields in _pairs(found):
                rollups += rollup_of(int(minute), dict(_pairs(fields)))
                start = int(minute) + 1
            if len(found) < 2 * _MINUTES:
                return rollups

    # --- ordering -----------------------------------------------------------------------------

    async def requeue(self, ids: Sequence[JobId]) -> Sequence[Job]:
        found = await self._db.run_aside(_REQUEUE, *dict.fromkeys(map(known_id, ids)))
        if found[0] != b"done":
            raise _refusal(found, ids, "requeue", "failed, cancelled or discarded")
        self._db.wake()
        return [_shown(row) for row in found[1:]]

    async def discard(self, ids: Sequence[JobId], *, reason: str) -> None:
        found = await self._db.run_aside(_DISCARD, reason, *dict.fromkeys(map(known_id, ids)))
        if found[0] != b"done":
            raise _refusal(found, ids, "discard", "failed")
        self._db.wake()

    async def run_now(self, ids: Sequence[JobId]) -> Sequence[bool]:
        answers = await self._db.run_aside(_RUN_NOW, *map(known_id, ids))
        self._db.wake()
        return [bool(answer) for answer in answers]

    async def pause(self, queue: str) -> None:
        await self._db.run_aside(_PAUSE, queue)

    async def resume(self, queue: str) -> None:
        await self._db.run_aside(_RESUME, queue)
        self._db.wake()


def _shown(row: Sequence[Any]) -> Job:
    """A job from what shown.lua says of it."""
    asked, kept, error, traceback, progress, held, throttled = row
    return job_of(
        asked,
        kept,
        key_held=bool(held),
        error=error,
        traceback=traceback,
        progress=progress,
        throttled=throttled,
    )


def _pairs(flat: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(islice(flat, 0, None, 2), islice(flat, 1, None, 2), strict=True)


def _matches(job: Job, wanted: JobFilter) -> bool:
    return (
        (wanted.states is None or job.state in wanted.states)
        and (wanted.queue is None or job.queue == wanted.queue)
        and (wanted.task is None or job.task == wanted.task)
    )


def _refusal(
    found: Sequence[Any], ids: Sequence[JobId], operation: str, needs: str
) -> WindlassError:
    """What stood in the way, as requeue.lua and discard.lua say it."""
    match found[0]:
        case b"key":
            return KeyConflict(found[1].decode(), found[2].hex())
        case b"state":
            return WrongState(found[1].hex(), STATES[found[2]], operation, needs)
        case _:
            asked = {known_id(job): job for job in ids}
            return JobNotFound(asked[found[1]])
