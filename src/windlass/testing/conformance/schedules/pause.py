"""`ScheduleStore.pause`: no schedule is due until all are resumed."""

from __future__ import annotations

from windlass._storage.protocol.schedules import Written
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.actions.audit import records
from windlass.testing.conformance.schedules.schedules import (
    a_write,
    made,
    names_due,
    stored,
    written,
)
from windlass.testing.conformance.steps import HOUR, MINUTE, a_note
from windlass.testing.conformance.storage import woken

__all__ = ["SchedulePauseConformance"]


class SchedulePauseConformance:
    """All schedules at once, and since when."""

    async def test_while_all_are_paused_none_is_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # SCHED-17
        await made(storage, "now", next_at=clock.now())
        await made(storage, "later", next_at=clock.now() + HOUR)
        assert not (await storage.schedules.due(10)).paused
        await storage.schedules.pause()
        due = await storage.schedules.due(10)
        assert (due.at, list(due.rows), due.next_at) == (clock.now(), [], None)
        assert due.paused

    async def test_resumed_schedules_are_due_as_they_were(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # SCHED-17
        await made(storage, next_at=clock.now())
        await storage.schedules.pause()
        clock.advance(HOUR)
        async with woken(storage):
            await storage.schedules.resume()
        assert await names_due(storage) == ["s"]
        assert (await stored(storage)).next_at == clock.now() - HOUR

    async def test_paused_schedules_can_be_read_and_written(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await storage.schedules.pause()
        await made(storage, next_at=clock.now())
        changed = a_write(revision=1, body=b"second")
        assert await written(storage, changed) == [Written.WRITTEN]
        assert (await stored(storage)).body == b"second"

    async def test_it_says_since_when_they_are_paused(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        assert await storage.schedules.paused() is None
        await storage.schedules.resume()  # without effect
        first = clock.now()
        await storage.schedules.pause()
        clock.advance(MINUTE)
        await storage.schedules.pause()
        assert await storage.schedules.paused() == first
        await storage.schedules.resume()
        assert await storage.schedules.paused() is None

    async def test_pausing_and_resuming_are_recorded(self, storage: Storage) -> None:
        pause, resume = a_note(what="schedules.pause_all"), a_note(what="schedules.resume_all")
        await storage.schedules.pause(audit=pause)
        await storage.schedules.resume(audit=resume)
        told = [(record.note, record.count) for record in await records(storage)]
        assert told == [(resume, 1), (pause, 1)]
