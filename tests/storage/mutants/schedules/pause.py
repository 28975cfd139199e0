"""Stores that go wrong when all schedules are paused."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._storage.memory.schedules import MemorySchedules
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.schedules import (
    DueSchedules,
    ScheduleAnswer,
    ScheduleWrite,
    Written,
)
from windlass.testing.conformance import SchedulePauseConformance


@fails(SchedulePauseConformance.test_while_all_are_paused_none_is_due)
class SaysNothingOfThePause(MemorySchedules):
    """Nothing is due, as if there were no schedules."""

    async def due(self, limit: int) -> DueSchedules:
        return replace(await super().due(limit), paused=False)


@fails(SchedulePauseConformance.test_resumed_schedules_are_due_as_they_were)
class LeavesOutWhatWasMissed(MemorySchedules):
    """A schedule whose slot came during the pause is due from now on."""

    async def resume(self, *, audit: AuditNote | None = None) -> None:
        with self._db.moment() as now:
            for name, row in self._db.schedules.items():
                if row.next_at is not None and row.next_at < now:
                    self._db.schedules[name] = replace(row, next_at=now)
        await super().resume(audit=audit)


@fails(SchedulePauseConformance.test_paused_schedules_can_be_read_and_written)
class RefusesWrites(MemorySchedules):
    """While all are paused none can be changed."""

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        if await self.paused() is not None:
            return [ScheduleAnswer(Written.STALE) for _ in writes]
        return await super().write(writes)


@fails(SchedulePauseConformance.test_it_says_since_when_they_are_paused)
class PausesAnew(MemorySchedules):
    """A second pause begins when it is said."""

    async def pause(self, *, audit: AuditNote | None = None) -> None:
        with self._db.moment():
            self._db.switches.clear()
        await super().pause(audit=audit)


@fails(SchedulePauseConformance.test_pausing_and_resuming_are_recorded)
class ResumesAllInSilence(MemorySchedules):
    """Who resumed them is not recorded."""

    async def resume(self, *, audit: AuditNote | None = None) -> None:
        await super().resume()
