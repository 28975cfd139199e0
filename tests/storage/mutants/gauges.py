"""Stores that keep gauges wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from tests.storage.mutants.table import fails
from windlass._core.stats.gauges import GaugeRow, Readings, first_gauges
from windlass._core.stats.rollup import minute_of
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.memory.maintenance import MemoryMaintenance
from windlass._storage.memory.workers import MemoryWorkers
from windlass._storage.protocol.workers import HeartbeatAnswer
from windlass._storage.shared.heartbeat_channel import SharedHeartbeatChannel
from windlass.testing.conformance import GaugeConformance


class _Beats(MemoryWorkers):
    """Another way to take readings."""

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        return await super().beat(worker, memory=memory, readings=self.taken(worker, readings))

    def taken(self, worker: str, readings: Readings | None) -> Readings | None:
        raise AssertionError("say which")


@fails(GaugeConformance.test_a_heartbeat_stores_gauges_by_source_and_minute)
class KeepsHostsOnly(_Beats):
    """The storage is no source."""

    def taken(self, worker: str, readings: Readings | None) -> Readings | None:
        return {source: values for source, values in (readings or {}).items() if source}


class _WithoutReadings(SharedHeartbeatChannel):
    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        return await super().beat(worker, memory=memory)


@fails(GaugeConformance.test_the_heartbeats_own_channel_stores_gauges_too)
class ChannelForgetsReadings(MemoryWorkers):
    """The heartbeat's own channel brings no readings."""

    def pulse(self) -> SharedHeartbeatChannel:
        return _WithoutReadings(self)


@fails(GaugeConformance.test_workers_of_one_host_count_as_one)
class SourcesByWorker(_Beats):
    """Each worker is a source."""

    def taken(self, worker: str, readings: Readings | None) -> Readings | None:
        return {f"{source} {worker}": values for source, values in (readings or {}).items()}


@fails(GaugeConformance.test_a_heartbeat_of_a_dead_worker_stores_no_gauges)
class HearsTheDead(_Beats):
    """Readings of dead workers are stored."""

    def taken(self, worker: str, readings: Readings | None) -> Readings | None:
        with self._db.moment() as now:
            for source, values in (readings or {}).items():
                self._db.gauges[minute_of(now), source] = first_gauges(values)
        return None


@fails(GaugeConformance.test_a_heartbeat_without_gauges_keeps_those_that_are_stored)
class ClearsTheMinute(_Beats):
    """A heartbeat without readings removes those of its minute."""

    def taken(self, worker: str, readings: Readings | None) -> Readings | None:
        if not readings:
            self._db.gauges.clear()
        return readings


@fails(GaugeConformance.test_a_range_of_gauges_is_half_open_and_may_be_of_one_source)
class ReadsTheLastMinuteToo(MemoryAdmin):
    """The end of a range belongs to it."""

    async def gauges(
        self, since: datetime, until: datetime, *, source: str | None = None
    ) -> Sequence[GaugeRow]:
        return await super().gauges(since, until + timedelta(microseconds=1), source=source)


@fails(GaugeConformance.test_the_gauges_of_an_old_hour_become_one_row)
class KeepsTheLastMinute(MemoryMaintenance):
    """Of an hour the last minute is kept, and the others are forgotten."""

    async def compact_gauges(self, *, older_than: timedelta, limit: int) -> int:
        last = dict(self._db.gauges)
        saved = await super().compact_gauges(older_than=older_than, limit=limit)
        for (minute, source), gauges in last.items():
            if (key := (minute.replace(minute=0), source)) in self._db.gauges:
                self._db.gauges[key] = gauges
        return saved


@fails(GaugeConformance.test_recent_gauges_keep_their_minutes)
class CompactsAllGauges(MemoryMaintenance):
    """Young minutes are merged, too."""

    async def compact_gauges(self, *, older_than: timedelta, limit: int) -> int:
        return await super().compact_gauges(older_than=older_than - timedelta(days=9), limit=limit)


@fails(GaugeConformance.test_gauges_are_compacted_in_chunks)
class CompactsAllGaugesAtOnce(MemoryMaintenance):
    """The limit is not heard."""

    async def compact_gauges(self, *, older_than: timedelta, limit: int) -> int:
        return await super().compact_gauges(older_than=older_than, limit=1000)


@fails(GaugeConformance.test_old_gauges_are_pruned_in_chunks)
class PrunesAllGaugesAtOnce(MemoryMaintenance):
    """Pruning knows no bounds."""

    async def prune_gauges(self, *, older_than: timedelta, limit: int) -> int:
        return await super().prune_gauges(older_than=older_than, limit=1000)
