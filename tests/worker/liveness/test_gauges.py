"""Workers measure their host, the leader the storage, and a heartbeat a minute carries both."""

from __future__ import annotations

import asyncio
import platform
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._core.stats.gauges import STORAGE, GaugeRow
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.protocol.storage import Storage
from windlass._storage.timings import Durations
from windlass._worker.liveness.gauges import GaugeReport, HostMeter, StorageMeter
from windlass._worker.liveness.leader import Leader

NOON = datetime(2030, 5, 4, 12, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
STAT = "cpu  {user} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3 4\n"
MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n"


class Leads(Leader):
    """A leader that leads when the test says so."""

    def __init__(self) -> None:
        self.leading = True


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "stat").write_text(STAT.format(user=1000, idle=9000))
    (tmp_path / "meminfo").write_text(MEMINFO)
    return tmp_path


def test_cpu_is_the_share_of_busy_ticks_since_the_last_reading(proc: Path) -> None:  # METR-8
    meter = HostMeter(proc=proc)
    assert "cpu" not in meter.read()
    (proc / "stat").write_text(STAT.format(user=1000 + 300, idle=9000 + 100))
    assert meter.read()["cpu"] == 0.75
    (proc / "stat").write_text(STAT.format(user=1000 + 400, idle=9000 + 500))
    assert meter.read()["cpu"] == pytest.approx(0.2)


def test_memory_in_use_is_what_no_program_could_get(proc: Path) -> None:
    found = HostMeter(proc=proc).read()
    assert (found["memory_used"], found["memory_total"]) == (600 * 1024, 1000 * 1024)
    assert 0 < found["disk_used"] < found["disk_total"]


def test_a_system_that_tells_nothing_leaves_values_out(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("nothing of use")
    (tmp_path / "meminfo").write_text("MemTotal: many kB\n")
    assert set(HostMeter(proc=tmp_path).read()) == {"disk_used", "disk_total"}
    assert HostMeter(proc=tmp_path / "no", root=str(tmp_path / "no")).read() == {}


def test_a_heartbeat_reports_once_in_a_minute_of_the_stores_clock() -> None:
    report = GaugeReport(MemoryStorage(MemoryDatabase()), Leads())
    told = []
    for second in range(0, 150, 5):
        told.append(report.readings() is not None)
        report.answered(NOON + second * SECOND)
    reported = [second for second, yes in zip(range(0, 150, 5), told, strict=True) if yes]
    # Not with the first heartbeat: it has measured no CPU time yet.
    assert reported == [5, 65, 125]


async def test_only_the_leader_measures_the_storage() -> None:
    async with Windlass("memory://") as app:

        @app.task(name="t")
        async def nothing() -> None: ...

        await nothing.enqueue()
        await nothing.enqueue()
        leader = Leads()
        meter = StorageMeter(await parts_of(app).storage(), leader)
        await meter.step()
        assert (meter.values["jobs_ready"], meter.values["jobs_failed"]) == (2, 0)
        assert meter.values["write_p95"] > 0
        assert meter.pause() == MINUTE
        leader.leading = False
        await meter.step()
        assert meter.values == {}
        assert meter.pause() == SECOND


def test_durations_since_a_count_leave_out_earlier_ones() -> None:
    durations = Durations()
    durations.add(5.0)
    durations.add(1.0)
    before = durations.spread()
    assert before is not None
    assert durations.spread(after=before.count) is None
    durations.add(2.0)
    spread = durations.spread(after=before.count)
    assert spread is not None
    assert (spread.p95, spread.max) == (2 * SECOND, 2 * SECOND)


async def _rows(storage: Storage, count: int) -> list[GaugeRow]:
    """Wait until this many sources are stored."""
    while True:
        now = await storage.now()
        rows = list(await storage.admin.gauges(now - MINUTE, now + MINUTE))
        if len({row.source for row in rows}) >= count:
            return rows
        await asyncio.sleep(0.02)


async def test_a_worker_stores_its_hosts_gauges_and_the_leader_those_of_the_storage() -> None:
    async with Windlass("memory://", heartbeat=0.05, lease=1.0) as app, app.worker():
        async with asyncio.timeout(20):
            rows = await _rows(await parts_of(app).storage(), 2)
    by_source = {row.source: row.gauges for row in rows}
    assert set(by_source) == {STORAGE, platform.node() or "localhost"}
    assert "jobs_ready" in by_source[STORAGE]
    assert "disk_used" in by_source[platform.node() or "localhost"]
