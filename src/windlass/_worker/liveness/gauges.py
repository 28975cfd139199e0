"""Gauges that go with the heartbeat: every worker measures its host, the leader the storage.

A heartbeat carries them once in a minute of the store's clock, so they cost no call to the store.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from windlass._core.stats.gauges import STORAGE, Readings
from windlass._core.stats.rollup import minute_of
from windlass._storage.protocol.admin import QueueCounts
from windlass._storage.protocol.storage import Storage
from windlass._storage.timings import BatchSizes, Durations, timings_of
from windlass._system.seams import monotonic
from windlass._worker.liveness.leader import Leader
from windlass._worker.periodic import run_every

__all__ = ["GaugeReport", "HostMeter", "StorageMeter"]

_MINUTE = timedelta(minutes=1)
_SHARE = 20
"""The pause between two looks at the storage, as a multiple of the time a look took."""
_CAP = 10_000
"""Jobs of one queue and state that are counted."""
_FACTS = (
    "size",
    "wal",
    "free_disk",
    "connections",
    "connections_windlass",
    "live_rows",
    "dead_rows",
)
"""The values of `Storage.health` that change over time."""
_STATES = ("ready", "scheduled", "retrying", "running", "succeeded", "failed")
_FEWEST_TICKS = 50
"""Ticks of all processors that make a share of CPU time worth telling."""


class HostMeter:
    """Measures this host. Values that the system does not tell are left out: outside of Linux, CPU
    and memory.
    """

    def __init__(self, *, proc: Path = Path("/proc"), root: str = os.sep) -> None:
        """``root``: a path on the disk to measure."""
        self._stat, self._meminfo, self._root = proc / "stat", proc / "meminfo", root
        self._ticks = self._cpu_ticks()

    def read(self) -> dict[str, float]:
        """Return CPU use since the last call as a share of all processors, and bytes."""
        return self._cpu() | self._memory() | self._disk()

    def _cpu(self) -> dict[str, float]:
        before, now = self._ticks, self._cpu_ticks()
        if before is None or now is None or now[1] - before[1] < _FEWEST_TICKS:
            return {}
        self._ticks = now
        idle, total = (new - old for new, old in zip(now, before, strict=True))
        return {"cpu": min(max(1 - idle / total, 0.0), 1.0)}

    def _cpu_ticks(self) -> tuple[int, int] | None:
        """Return the idle ticks and all ticks since the system started."""
        with suppress(OSError, ValueError, IndexError):
            line = self._stat.read_text(encoding="ascii").partition("\n")[0]
            # user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in user.
            ticks = [int(word) for word in line.split()[1:9]]
            return ticks[3] + ticks[4], sum(ticks)
        return None

    def _memory(self) -> dict[str, float]:
        with suppress(OSError, ValueError, KeyError):
            lines = self._meminfo.read_text(encoding="ascii").splitlines()
            kib = {name: rest.split()[0] for name, _, rest in (one.partition(":") for one in lines)}
            total, free = int(kib["MemTotal"]) * 1024, int(kib["MemAvailable"]) * 1024
            return {"memory_used": total - free, "memory_total": total}
        return {}

    def _disk(self) -> dict[str, float]:
        with suppress(OSError):
            disk = shutil.disk_usage(self._root)
            # As ``df`` counts: blocks that are reserved for the system are neither used nor free.
            return {"disk_used": disk.used, "disk_total": disk.used + disk.free}
        return {}


class StorageMeter:
    """Measures the storage while this worker leads: its size, jobs by state, and how fast it is."""

    def __init__(self, storage: Storage, leader: Leader) -> None:
        self._storage, self._leader = storage, leader
        self._counted: dict[str, int] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._took = 0.0
        self.values: Mapping[str, float] = {}
        """The last measurement; empty while another worker leads."""

    def pause(self) -> timedelta:
        """Return how long to wait before the next look: a large store is read less often."""
        if not self._leader.leading:
            return timedelta(seconds=1)
        return max(_MINUTE, timedelta(seconds=self._took * _SHARE))

    async def step(self) -> None:
        """Look at the storage, if this worker leads."""
        self.values = {}
        if not self._leader.leading:
            return
        began = monotonic()
        facts = await self._storage.health()
        counts = await self._storage.admin.counts(cap=_CAP)
        self._took = monotonic() - began
        known = {name: facts[name] for name in _FACTS if name in facts}
        numbers = {
            name: float(value) for name, value in known.items() if not isinstance(value, str)
        }
        self.values = numbers | _jobs_by_state(counts) | self._answers()

    def _answers(self) -> dict[str, float]:
        """Return how long 95 % of this worker's reads and writes took since the last look, and how
        many jobs its claims and outcomes carried on average.
        """
        timings = timings_of(self._storage)
        if timings is None:
            return {}
        found: dict[str, float] = {}
        for name, durations in (("read_p95", timings.reads), ("write_p95", timings.writes)):
            found |= self._p95(name, durations)
        for name, sizes in (
            ("jobs_per_claim", timings.claims),
            ("jobs_per_finish", timings.finishes),
        ):
            found |= self._mean_size(name, sizes)
        return found

    def _mean_size(self, name: str, sizes: BatchSizes) -> dict[str, float]:
        before, now = self._sizes.get(name, (0, 0)), (sizes.calls, sizes.jobs)
        self._sizes[name] = now
        calls, jobs = (new - old for new, old in zip(now, before, strict=True))
        return {name: jobs / calls} if calls else {}

    def _p95(self, name: str, durations: Durations) -> dict[str, float]:
        after = self._counted.get(name, 0)
        spread = durations.spread(after=after)
        if spread is None:
            return {}
        self._counted[name] = spread.count
        return {name: spread.p95.total_seconds()}


def _jobs_by_state(counts: Sequence[QueueCounts]) -> dict[str, float]:
    return {f"jobs_{state}": sum(getattr(one, state) for one in counts) for state in _STATES}


class GaugeReport:
    """Gives the heartbeat something to report once in a minute, else nothing."""

    def __init__(self, storage: Storage, leader: Leader, host: HostMeter | None = None) -> None:
        self._host, self._storage = host or HostMeter(), StorageMeter(storage, leader)
        self._name = platform.node() or "localhost"
        self._due = False
        self._reported: datetime | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Measure the storage now and then while this worker leads, on its own loop."""
        meter = self._storage
        await run_every(meter.pause, meter.step, stop=stop, what="measuring the storage")

    def readings(self) -> Readings | None:
        """Measure if it is time to. Called before each heartbeat, on its thread."""
        if not self._due:
            return None
        found = {self._name: self._host.read(), STORAGE: self._storage.values}
        return {source: values for source, values in found.items() if values}

    def answered(self, at: datetime) -> None:
        """Note that a heartbeat was stored at this instant of the store's clock."""
        minute = minute_of(at)
        if self._due:
            self._reported, self._due = minute, False
        elif minute != self._reported:
            self._due = True
