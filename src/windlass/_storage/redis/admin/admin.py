"""Reads of operators, and pausing queues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from windlass._core.job.job import Attempt, JobId, JobRecord
from windlass._core.job.state import State
from windlass._core.stats.gauges import GaugeRow
from windlass._core.stats.rollup import Rollup, merge
from windlass._core.values.instants import instant_of, to_us
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.admin import ErrorLook, Named, QueueCounts, TaskLook
from windlass._storage.protocol.lists.job_list import JobFilter, Page
from windlass._storage.redis.admin.audit import note_bytes
from windlass._storage.redis.admin.error_groups import RedisErrorGroups
from windlass._storage.redis.admin.find import RedisFinder
from windlass._storage.redis.admin.gauges import read_gauges
from windlass._storage.redis.admin.listed_jobs import pairs, shown_job
from windlass._storage.redis.io.database import RedisDatabase
from windlass._storage.redis.io.layout import STATES
from windlass._storage.redis.io.records import attempt_of, rollup_of
from windlass._storage.redis.io.scripts import script
from windlass._storage.shared.job_ids import known_id
from windlass._storage.shared.task_counts import task_look

__all__ = ["IDS_PER_SCAN", "RedisAdmin", "named"]

_GET, _HISTORY, _COUNTS, _ROLLUPS = (
    script("get"),
    script("history"),
    script("counts"),
    script("rollups"),
)
_PAUSE, _RESUME = script("pause"), script("resume")
_SECRET, _KEEP_SECRET = script("secret"), script("keep_secret")

_AT_ONCE = 50
"""Jobs one script reads for people: each may carry a large payload and a large result."""
_MINUTES = 60

_NAMED, _TASKS = script("named"), script("tasks")
IDS_PER_SCAN = 5_000
"""Ids that one script meets."""
_DIGITS = 32


async def named(database: RedisDatabase, first: str, last: str, after: str | None) -> Named:
    """`AdminStore.named`."""
    low, high = first.ljust(_DIGITS, "0"), first.ljust(_DIGITS, "f")
    # Whole bytes are compared there; half a byte more, here.
    end = bytes.fromhex(last[len(last) % 2 :])
    place = after or ("odd" if first else "all")
    where, _, at = place.partition(":")
    behind = bytes.fromhex(at) if where == "odd" else at
    further, looked, *found = await database.run_aside(
        _NAMED, bytes.fromhex(low), bytes.fromhex(high), end, where, behind, IDS_PER_SCAN
    )
    ids = [JobId(job.hex()) for job in found]
    return Named(
        [job for job in ids if low <= job <= high and job.endswith(last)],
        int(looked),
        further.decode() or None,
    )


class RedisAdmin:
    """An `AdminStore`. Long answers are put together from several scripts, so that the server
    does something else in between; each job in them is whole.
    """

    def __init__(self, database: RedisDatabase) -> None:
        self._db = database
        self._finder, self._faults = RedisFinder(database), RedisErrorGroups(database)

    # --- reading ------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> Sequence[JobRecord | None]:
        return [job async for job in self._each([known_id(job) for job in ids])]

    async def _each(self, ids: Sequence[bytes]) -> AsyncIterator[JobRecord | None]:
        for start in range(0, len(ids), _AT_ONCE):
            for row in await self._db.run_aside(_GET, *ids[start : start + _AT_ONCE]):
                yield shown_job(row) if row else None

    async def named(self, first: str, last: str, *, after: str | None = None) -> Named:
        return await named(self._db, first, last, after)

    async def secret(self, new: str = "", *, old: str = "") -> str:
        script = _KEEP_SECRET if new else _SECRET
        stored = await self._db.run_aside(script, new, old)
        return str(stored.decode())

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        return await self._finder.find(wanted, limit=limit)

    async def errors(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: datetime | None = None,
        look: int = 10_000,
    ) -> ErrorLook:
        return await self._faults.look(queue, task, since, look)

    async def history(self, job: JobId) -> Sequence[Attempt]:
        return [attempt_of(row) for row in await self._db.run_aside(_HISTORY, known_id(job))]

    async def counts(self, *, cap: int | None = None) -> Sequence[QueueCounts]:
        # Exact in any case: the store counts as jobs come and go.
        counts, paused, with_settings, waiting = await self._db.run_aside(_COUNTS)
        queues: dict[bytes, dict[str, int]] = {queue: {} for queue in (*paused, *with_settings)}
        for field, number in pairs(counts):
            queues.setdefault(field[1:], {})[STATES[int(field[:1])].value] = int(number)
        oldest: dict[bytes, datetime] = {}
        for queue, later, retrying, due in zip(*(iter(waiting),) * 4, strict=True):
            places = queues[queue]
            places |= {"scheduled": later, "retrying": retrying}
            places["ready"] = places.pop(State.WAITING.value) - later
            if due != b"":
                oldest[queue] = instant_of(due)
        return [
            QueueCounts(
                queue=queue.decode(),
                paused=queue in paused,
                oldest_due=oldest.get(queue),
                cap=cap,
                **{where: n if cap is None else min(n, cap) for where, n in places.items()},
            )
            for queue, places in sorted(queues.items())
        ]

    async def tasks(self, *, look: int = 5_000) -> TaskLook:
        complete, waiting, running = await self._db.run_aside(_TASKS, look)
        counts = [
            {task.decode(): int(number) for task, number in pairs(found)}
            for found in (waiting, running)
        ]
        return task_look(*counts, complete=bool(complete))

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        start, end = to_us(since), to_us(until)
        rollups: list[Rollup] = []
        while True:
            found = await self._db.run_aside(_ROLLUPS, start, end, _MINUTES)
            for minute, *counted in zip(found[::3], found[1::3], found[2::3], strict=True):
                both = [rollup_of(int(minute), dict(pairs(fields))) for fields in counted]
                rollups += merge([*both[0], *both[1]]) if both[1] else both[0]
                start = int(minute) + 1
            if len(found) < 3 * _MINUTES:
                return rollups

    async def gauges(
        self, since: datetime, until: datetime, *, source: str | None = None
    ) -> Sequence[GaugeRow]:
        return await read_gauges(self._db, to_us(since), to_us(until), source)

    # --- switching ----------------------------------------------------------------------------

    async def pause(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await self._db.run_aside(_PAUSE, queue, note_bytes(audit))

    async def resume(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await self._db.run_aside(_RESUME, queue, note_bytes(audit))
        self._db.wake({queue})
