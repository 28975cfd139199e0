"""The limits' definitions, and background work in bounded steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from windlass._core.job.job import JobId, LimitUse
from windlass._core.job.state import State
from windlass._core.limits.breaker import BreakerState
from windlass._core.limits.limit import LimitSpec
from windlass._core.stats.gauges import add_gauges
from windlass._core.stats.rollup import minute_of
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rollups import RollupRow, RollupRows
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.limits import BreakerLook, LimitState
from windlass.errors import LimitUnknown

__all__ = ["MemoryLimits", "MemoryMaintenance"]

HOUR = timedelta(hours=1)
_NEVER = datetime.min.replace(tzinfo=UTC)


class MemoryLimits:
    """A `LimitStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def define(self, specs: Sequence[LimitSpec], *, audit: AuditNote | None = None) -> None:
        with self._db.moment() as now:
            for spec in specs:
                self._db.gates.define(spec, now)
            self._db.audits.keep(audit, len(specs), now)
        self._db.wake()

    async def drain(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        with self._db.moment() as now:
            self._db.gates.drain([self._use(name, key)], now)
            if self._db.gates.specs[name].rate is not None:
                self._db.audits.keep(audit, 1, now)

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        with self._db.moment() as now:
            self._db.gates.reset(self._use(name, key).gate)
            self._db.audits.keep(audit, 1, now)
        self._db.wake()

    def _use(self, name: str, key: str) -> LimitUse:
        if name not in self._db.gates.specs:
            raise LimitUnknown(name, self._db.gates.specs)
        return LimitUse(name, key)

    async def specs(self) -> Sequence[LimitSpec]:
        with self._db.view():
            return [spec for _, spec in sorted(self._db.gates.specs.items())]

    async def states(self, name: str) -> Sequence[LimitState]:
        with self._db.view():
            usage = self._db.gates.usage(self._db.running.values())
            gates = self._db.gates
            met = {*gates.spent, *gates.breakers, *usage}
            budgets = sorted(gate.partition(":") for gate in met)
            return [
                LimitState(
                    name=limit,
                    key=key,
                    running=usage[limit + colon + key],
                    spent_until=gates.spent.get(limit + colon + key),
                    breaker=gates.state(limit, limit + colon + key),
                )
                for limit, colon, key in budgets
                if limit == name
            ]

    async def breakers(self, names: Sequence[str]) -> Sequence[BreakerLook]:
        with self._db.view():
            gates, usage = self._db.gates, self._db.gates.usage(self._db.running.values())
            return [
                BreakerLook(gates.breakers.get(name, BreakerState()), usage[name]) for name in names
            ]


class MemoryMaintenance:
    """A `MaintenanceStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def promote(self, limit: int) -> int:
        with self._db.moment() as now:
            moved = 0
            for queue in self._due_queues(now):
                moved += self._db.promote(queue, now, limit - moved, missed_until=_NEVER)
        self._db.wake()
        return moved

    async def next_due(self, queues: Sequence[str] | None = None) -> datetime | None:
        with self._db.view():
            due = [at for at, queue in self._due_times() if queues is None or queue in queues]
            return min(due, default=None)

    def _due_queues(self, now: datetime) -> list[str]:
        """Return the queues with due jobs that are not ready, that of the longest due one first."""
        return [queue for due, queue in sorted(self._due_times()) if due <= now]

    def _due_times(self) -> list[tuple[datetime, str]]:
        due = [(self._db.next_due(queue), queue) for queue in self._db.later]
        return [(at, queue) for at, queue in due if at is not None]

    async def expire(self, limit: int) -> Sequence[JobId]:
        with self._db.moment() as now:
            expired = [
                row
                for row in self._db.rows.values()
                if row.state is State.WAITING and not row.blocked and row.is_expired(now)
            ][:limit]
            for row in expired:
                self._db.expire(row, now)
        self._db.wake()
        return [row.asked.id for row in expired]

    async def prune(
        self,
        *,
        state: State,
        older_than: timedelta,
        limit: int,
        apart: Mapping[str, timedelta] | None = None,
    ) -> int:
        with self._db.moment() as now:
            kept = apart or {}
            old = [
                row
                for row in self._db.rows.values()
                if row.state is state
                and row.flow is None
                and row.finished_at is not None
                and row.finished_at < now - kept.get(row.asked.queue, older_than)
            ][:limit]
            for row in old:
                self._db.remove(row)
            return len(old)

    async def prune_rollups(self, *, older_than: timedelta, limit: int) -> int:
        with self._db.moment() as now:
            old = [
                (tallies, key)
                for tallies in (self._db.tallies, self._db.copied)
                for key in tallies
                if key[0] < now - older_than
            ][:limit]
            for tallies, key in old:
                del tallies[key]
            return len(old)

    async def compact_rollups(self, *, older_than: timedelta, limit: int) -> int:
        with self._db.moment() as now:
            return sum(
                self._compact(tallies, now - older_than, limit)
                for tallies in (self._db.tallies, self._db.copied)
            )

    def _compact(self, tallies: RollupRows, before: datetime, limit: int) -> int:
        hours: defaultdict[tuple[datetime, str, str], list[datetime]] = defaultdict(list)
        for minute, queue, task in sorted(tallies):
            hours[hour_of(minute), queue, task].append(minute)
        met = saved = 0
        for (hour, queue, task), minutes in hours.items():
            if len(minutes) == 1 or hour + HOUR >= before or met >= limit:
                continue
            whole = RollupRow(Counter(), Counter(), Counter())
            for minute in minutes:
                whole.add(tallies.pop((minute, queue, task)))
            tallies[hour, queue, task] = whole
            met += len(minutes)
            saved += len(minutes) - 1
        return saved

    async def prune_gauges(self, *, older_than: timedelta, limit: int) -> int:
        with self._db.moment() as now:
            old = [key for key in sorted(self._db.gauges) if key[0] < now - older_than][:limit]
            for key in old:
                del self._db.gauges[key]
            return len(old)

    async def compact_gauges(self, *, older_than: timedelta, limit: int) -> int:
        with self._db.moment() as now:
            rows, end = self._db.gauges, hour_of(minute_of(now - older_than))
            old = [key for key in sorted(rows) if key[0] < end and key[0] != hour_of(key[0])]
            before = len(rows)
            for minute, source in old[:limit]:
                hour = hour_of(minute), source
                rows[hour] = add_gauges([rows.get(hour, {}), rows.pop((minute, source))])
            return before - len(rows)

    async def prune_audits(self, *, older_than: timedelta, limit: int) -> int:
        with self._db.moment() as now:
            return self._db.audits.prune(now - older_than, limit)

    async def prune_events(self, *, older_than: timedelta, limit: int) -> int:
        with self._db.moment() as now:
            return self._db.diary.prune_events(now - older_than, limit)

    async def prune_workers(self, *, older_than: timedelta, limit: int) -> int:
        with self._db.moment() as now:
            busy = {row.worker for row in self._db.running.values()}
            old = [
                worker
                for worker, row in self._db.workers.items()
                if row.ended_at is not None
                and row.ended_at < now - older_than
                and worker not in busy
            ][:limit]
            for worker in old:
                del self._db.workers[worker]
            return len(old)

    async def tidy(self) -> None:
        with self._db.moment() as now:
            self._db.gates.forget(self._db.gates.usage(self._db.running.values()), now)


def hour_of(minute: datetime) -> datetime:
    """Return the first minute of its hour."""
    return minute.replace(minute=0)
