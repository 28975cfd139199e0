"""Background work in bounded steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from windlass._core.job.job import JobId
from windlass._core.job.state import TERMINAL, State
from windlass._core.values.instants import instant_of, span_us
from windlass._storage.redis.io.database import Argument, RedisDatabase
from windlass._storage.redis.io.durability import DurabilityWatch
from windlass._storage.redis.io.layout import CODES
from windlass._storage.redis.io.scripts import Script, script
from windlass._storage.shared.worker_locks import WorkerLocks
from windlass._system.seams import SYSTEM_CLOCK

__all__ = ["RedisMaintenance"]

_PROMOTE, _EXPIRE, _NEXT_DUE = script("promote"), script("expire"), script("next_due")
_PRUNE, _PRUNE_ROLLUPS = script("prune"), script("prune_rollups")
_COMPACT_ROLLUPS, _PRUNE_AUDITS, _PRUNE_EVENTS = (
    script("compact_rollups"),
    script("prune_audits"),
    script("prune_events"),
)
_PRUNE_GAUGES, _COMPACT_GAUGES = script("prune_gauges"), script("compact_gauges")
_ENDED_NUMBER = script("ended_number")
_PRUNE_WORKERS, _LIVE = script("prune_workers"), script("live")
_LIMIT_NAMES, _FORGET_GATES = script("limit_names"), script("forget_gates")

_AT_ONCE = 100
"""The most that one script moves or deletes: the server does nothing else meanwhile."""
_MOST_KEPT = 1_000_000
"""Ended jobs of one state that stay, however young: they live in memory, 600 bytes or more each."""
_SURPLUS = 1_000
"""The part of the surplus that is deleted before it is counted again: others may delete, too."""


class RedisMaintenance:
    """A `MaintenanceStore`."""

    def __init__(
        self, database: RedisDatabase, locks: WorkerLocks, watch: DurabilityWatch | None = None
    ) -> None:
        """``watch``: whether the server still is as durable as it must be."""
        self._db, self._locks, self._watch = database, locks, watch

    async def promote(self, limit: int) -> int:
        moved = await self._in_chunks(limit, _PROMOTE)
        if moved:
            self._db.wake()
        return moved

    async def next_due(self, queues: Sequence[str] | None = None) -> datetime | None:
        if queues is not None and not queues:
            return None
        due = await self._db.run_aside(_NEXT_DUE, *(queues or ()))
        return None if due is None else instant_of(due)

    async def expire(self, limit: int) -> Sequence[JobId]:
        ended: list[JobId] = []
        while len(ended) < limit:
            chunk = min(limit - len(ended), _AT_ONCE)
            some = await self._db.run_aside(_EXPIRE, chunk)
            ended += [JobId(job.hex()) for job in some]
            if len(some) < chunk:
                break
        if ended:
            self._db.wake()
        return ended

    async def _in_chunks(self, limit: int, script: Script, *args: Argument) -> int:
        """Do up to ``limit``, a few by one script; how many were done."""
        done = 0
        while done < limit:
            chunk = min(limit - done, _AT_ONCE)
            some = int(await self._db.run_aside(script, *args, chunk))
            done += some
            if some < chunk:
                break
        return done

    async def prune(
        self,
        *,
        state: State,
        older_than: timedelta,
        limit: int,
        apart: Mapping[str, timedelta] | None = None,
    ) -> int:
        if state not in TERMINAL:
            return 0
        ages: list[Argument] = [span_us(older_than)]
        for queue, kept in (apart or {}).items():
            ages += (queue, span_us(kept))
        return await self._in_chunks(limit, _PRUNE, CODES[state], "age", *ages)

    async def prune_rollups(self, *, older_than: timedelta, limit: int) -> int:
        return int(await self._db.run_aside(_PRUNE_ROLLUPS, span_us(older_than), limit))

    async def compact_rollups(self, *, older_than: timedelta, limit: int) -> int:
        return await self._compact(_COMPACT_ROLLUPS, older_than, limit)

    async def _compact(self, script: Script, older_than: timedelta, limit: int) -> int:
        """Merge up to ``limit`` rows, a few by one script; how many that saved."""
        saved = 0
        while limit > 0:
            chunk = min(limit, _AT_ONCE)
            moved, some = await self._db.run_aside(script, span_us(older_than), chunk)
            limit, saved = limit - moved, saved + some
            if moved < chunk:
                break
        return saved

    async def prune_gauges(self, *, older_than: timedelta, limit: int) -> int:
        return await self._in_chunks(limit, _PRUNE_GAUGES, span_us(older_than))

    async def compact_gauges(self, *, older_than: timedelta, limit: int) -> int:
        return await self._compact(_COMPACT_GAUGES, older_than, limit)

    async def prune_audits(self, *, older_than: timedelta, limit: int) -> int:
        return await self._in_chunks(limit, _PRUNE_AUDITS, span_us(older_than))

    async def prune_events(self, *, older_than: timedelta, limit: int) -> int:
        return await self._in_chunks(limit, _PRUNE_EVENTS, span_us(older_than))

    async def prune_workers(self, *, older_than: timedelta, limit: int) -> int:
        return int(await self._db.run_aside(_PRUNE_WORKERS, span_us(older_than), limit))

    async def _surplus(self, state: State) -> int:
        return int(await self._db.run_aside(_ENDED_NUMBER, CODES[state])) - _MOST_KEPT

    async def tidy(self) -> None:
        if self._watch is not None:
            await self._watch.look()
        for state in TERMINAL:
            # One chunk now and then is not enough where thousands end every second.
            while (surplus := min(await self._surplus(state), _SURPLUS)) > 0:
                if await self._in_chunks(surplus, _PRUNE, CODES[state], "number") < surplus:
                    break
        for name in await self._db.run_aside(_LIMIT_NAMES):
            cursor: bytes | None = b"0"
            while cursor is not None:
                found = await self._db.run_aside(_FORGET_GATES, name, cursor)
                cursor = None if found == b"0" else found
        _, *live = await self._db.run_aside(_LIVE)
        self._locks.sweep({worker.decode() for worker in live}, SYSTEM_CLOCK.now())
