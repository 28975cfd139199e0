"""`MaintenanceStore.compact_rollups`: old minutes become hours, and no number changes."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from windlass._core.job.outcome import Raised
from windlass._core.stats.rollup import Rollup
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    claim,
    enlist,
    happened,
    succeeded,
)

__all__ = ["CompactionConformance"]

Hours = dict[tuple[datetime, str, str], tuple[Counter[str], Counter[int], Counter[int]]]


async def rollups(storage: Storage) -> list[Rollup]:
    now = await storage.now()
    return list(await storage.admin.rollups(now - 9 * DAY, now + DAY))


def by_hour(minutes: list[Rollup]) -> Hours:
    """Return the counts of each hour, queue and task."""
    hours: Hours = {}
    for one in minutes:
        key = (one.minute.replace(minute=0), one.queue, one.task)
        counts, wait, run = hours.setdefault(key, (Counter(), Counter(), Counter()))
        counts.update(one.counts)
        wait.update(one.wait)
        run.update(one.run)
    return hours


async def worked(storage: Storage, clock: VirtualClock, minutes: int, every: timedelta) -> None:
    """Finishes of two workers, queues, tasks and kinds, in as many minutes."""
    await enlist(storage, "w1", "w2")
    for number in range(minutes):
        for queue, task, worker in (("a", "x", "w1"), ("a", "x", "w2"), ("b", "y", "w1")):
            await add(storage, a_job(queue=queue, task=task, max_attempts=9))
            clock.advance(0.01 * (number + 1))
            (running,) = await claim(storage, queue=queue, worker=worker)
            if number % 3:
                await succeeded(storage, running)
            else:
                await happened(storage, running, Raised(OOPS, 30 * DAY))
        clock.advance(every)


async def compacted(storage: Storage, *, older_than: timedelta, limit: int) -> int:
    """Compact as often as it takes. Return the number of rows saved."""
    saved = 0
    for _ in range(100):
        more = await storage.maintenance.compact_rollups(older_than=older_than, limit=limit)
        if not more:
            return saved
        saved += more
    raise AssertionError("there is no end of it")


class CompactionConformance:
    """Minutes of whole hours."""

    async def test_the_minutes_of_an_old_hour_become_one(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # METR-7
        await worked(storage, clock, 5, 7 * MINUTE)
        clock.advance(DAY)
        before = await rollups(storage)
        assert await compacted(storage, older_than=HOUR, limit=1000) >= len(before) - 4
        after = await rollups(storage)
        assert by_hour(after) == by_hour(before)
        assert len(after) == len(by_hour(before))

    async def test_recent_rollups_keep_their_minutes(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await worked(storage, clock, 3, MINUTE)
        clock.advance(HOUR)
        recent = await rollups(storage)
        assert await compacted(storage, older_than=HOUR, limit=1000) == 0
        assert await rollups(storage) == recent
        clock.advance(DAY)
        await worked(storage, clock, 2, MINUTE)
        young = [one for one in await rollups(storage) if one not in recent]
        assert await compacted(storage, older_than=HOUR, limit=1000) > 0
        assert [one for one in await rollups(storage) if one.minute >= young[0].minute] == young

    async def test_it_is_done_in_chunks(self, storage: Storage, clock: VirtualClock) -> None:
        await worked(storage, clock, 6, 25 * MINUTE)
        clock.advance(DAY)
        before = await rollups(storage)
        first = await storage.maintenance.compact_rollups(older_than=HOUR, limit=3)
        assert 0 < first < len(before)
        assert by_hour(await rollups(storage)) == by_hour(before)
        assert await compacted(storage, older_than=HOUR, limit=3) > 0
        after = await rollups(storage)
        assert by_hour(after) == by_hour(before)
        assert len(after) == len(by_hour(before))

    async def test_compacted_rollups_are_pruned_like_all_others(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await worked(storage, clock, 3, MINUTE)
        clock.advance(DAY)
        await compacted(storage, older_than=HOUR, limit=1000)
        while await storage.maintenance.prune_rollups(older_than=HOUR, limit=10):
            pass
        assert await rollups(storage) == []
