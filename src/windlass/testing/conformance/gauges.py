"""Gauges: values that heartbeats bring, by minute and source."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from windlass._core.stats.gauges import STORAGE, Gauge, GaugeRow, add_gauges
from windlass._core.stats.rollup import minute_of
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerState
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import DAY, HOUR, INSTANT, MINUTE, enlist

__all__ = ["GaugeConformance"]

BYTES = 912_345_678_901.0


async def gauges(storage: Storage, **more: str) -> list[GaugeRow]:
    now = await storage.now()
    return list(await storage.admin.gauges(now - 90 * DAY, now + DAY, **more))


def total(rows: list[GaugeRow]) -> Mapping[str, Mapping[str, Gauge]]:
    """Return all rows of each source, added up."""
    sources = {row.source for row in rows}
    return {one: add_gauges(row.gauges for row in rows if row.source == one) for one in sources}


async def measured(storage: Storage, clock: VirtualClock, minutes: int) -> None:
    """A beat in each of as many minutes, with gauges of two hosts and of the storage."""
    await enlist(storage, "w1")
    for number in range(minutes):
        readings = {
            "a": {"cpu": 0.25 * (number % 4), "memory_used": BYTES + number},
            "b": {"cpu": 0.5},
            STORAGE: {"size": 4096.0 * number},
        }
        await storage.workers.beat("w1", readings=readings)
        clock.advance(MINUTE)


async def compacted(storage: Storage, *, older_than: timedelta, limit: int) -> int:
    """Compact as often as it takes. Return the number of rows saved."""
    saved = 0
    for _ in range(200):
        before = len(await gauges(storage))
        more = await storage.maintenance.compact_gauges(older_than=older_than, limit=limit)
        assert before - len(await gauges(storage)) == more
        if not more:
            return saved
        saved += more
    raise AssertionError("there is no end of it")


class GaugeConformance:
    """Gauges of hosts and of the storage."""

    async def test_a_heartbeat_stores_gauges_by_source_and_minute(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # METR-8
        await enlist(storage, "w1")
        readings = {"hôst 'x'": {"cpu": 0.25, "disk_used": BYTES}, STORAGE: {"size": 0.0}}
        assert (await storage.workers.beat("w1", readings=readings)).live
        minute = minute_of(clock.now())
        cpu, disk = Gauge(1, 0.25, 0.25), Gauge(1, BYTES, BYTES)
        assert await gauges(storage) == [
            GaugeRow(minute, STORAGE, {"size": Gauge(1, 0.0, 0.0)}),
            GaugeRow(minute, "hôst 'x'", {"cpu": cpu, "disk_used": disk}),
        ]
        clock.advance(MINUTE)
        await storage.workers.beat("w1", readings={"other": {"cpu": 1.0}})
        assert [row.source for row in await gauges(storage)] == [STORAGE, "hôst 'x'", "other"]
        assert (await gauges(storage))[-1].minute == minute + MINUTE

    async def test_the_heartbeats_own_channel_stores_gauges_too(self, storage: Storage) -> None:
        await enlist(storage, "w1")
        pulse = storage.workers.pulse()
        await pulse.beat("w1", readings={"a": {"cpu": 0.5}})
        await pulse.close()
        assert [row.gauges for row in await gauges(storage)] == [{"cpu": Gauge(1, 0.5, 0.5)}]

    async def test_workers_of_one_host_count_as_one(self, storage: Storage) -> None:  # METR-8
        await enlist(storage, "w1", "w2")
        await storage.workers.beat("w1", readings={"a": {"cpu": 0.25, "memory_used": BYTES}})
        await storage.workers.beat("w2", readings={"a": {"cpu": 0.75}})
        await storage.workers.beat("w2", readings={"a": {"cpu": 0.75}})
        (row,) = await gauges(storage)
        assert row.gauges == {"cpu": Gauge(1, 0.75, 0.75)}

    async def test_a_heartbeat_of_a_dead_worker_stores_no_gauges(self, storage: Storage) -> None:
        await enlist(storage, "w1")
        await storage.workers.bury(["w1"])
        await storage.workers.beat("w1", readings={"a": {"cpu": 0.5}})
        await storage.workers.beat("unknown", readings={"a": {"cpu": 0.5}})
        assert await gauges(storage) == []
        assert [row.state for row in await storage.workers.workers()] == [WorkerState.DEAD]

    async def test_a_heartbeat_without_gauges_keeps_those_that_are_stored(
        self, storage: Storage
    ) -> None:
        await enlist(storage, "w1")
        await storage.workers.beat("w1", readings={"a": {"cpu": 0.5}})
        await storage.workers.beat("w1")
        await storage.workers.beat("w1", memory=1, readings={})
        assert [row.gauges for row in await gauges(storage)] == [{"cpu": Gauge(1, 0.5, 0.5)}]

    async def test_a_range_of_gauges_is_half_open_and_may_be_of_one_source(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        start = minute_of(clock.now())
        await measured(storage, clock, 4)
        read = storage.admin.gauges
        found = await read(start + MINUTE, start + 3 * MINUTE, source="a")
        assert [(row.minute, row.source) for row in found] == [
            (start + MINUTE, "a"),
            (start + 2 * MINUTE, "a"),
        ]
        assert len(await read(start + INSTANT, start + HOUR, source=STORAGE)) == 3
        assert len(await read(start, start + 3 * MINUTE + INSTANT)) == 12
        assert list(await read(start, start + HOUR, source="c")) == []

    async def test_the_gauges_of_an_old_hour_become_one_row(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await measured(storage, clock, 130)
        clock.advance(DAY)
        before = await gauges(storage)
        assert await compacted(storage, older_than=HOUR, limit=1000) > 0
        after = await gauges(storage)
        assert total(after) == total(before)
        assert {row.minute for row in after} == {row.minute.replace(minute=0) for row in before}
        assert {row.source for row in after} == {"a", "b", STORAGE}
        assert max(row.gauges["cpu"].peak for row in after if row.source == "a") == 0.75

    async def test_recent_gauges_keep_their_minutes(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await measured(storage, clock, 61)
        recent = await gauges(storage)
        assert await compacted(storage, older_than=2 * HOUR, limit=1000) == 0
        assert await gauges(storage) == recent

    async def test_gauges_are_compacted_in_chunks(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await measured(storage, clock, 20)
        clock.advance(DAY)
        before = await gauges(storage)
        assert 0 <= await storage.maintenance.compact_gauges(older_than=HOUR, limit=7) <= 7
        assert total(await gauges(storage)) == total(before)
        await compacted(storage, older_than=HOUR, limit=7)
        assert total(await gauges(storage)) == total(before)
        assert len(await gauges(storage)) <= 6

    async def test_old_gauges_are_pruned_in_chunks(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await measured(storage, clock, 3)
        clock.advance(HOUR)
        await storage.workers.beat("w1", readings={"a": {"cpu": 0.5}})
        prune = storage.maintenance.prune_gauges
        assert await prune(older_than=DAY, limit=10) == 0
        assert [await prune(older_than=MINUTE, limit=4) for _ in range(4)] == [4, 4, 1, 0]
        assert [row.source for row in await gauges(storage)] == ["a"]
