"""The queues of the overview: what is in each, and how it went in the last hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass._core.stats.rollup import Rollup, count_runs, minute_of
from windlass._storage.protocol.admin import QueueCounts

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["OverviewQueueRow", "QueueTotal", "busiest", "overview_rows_of", "totals"]

_HOUR = timedelta(hours=1)
_STEP = timedelta(minutes=2)
_SHOWN = 50
_COUNTED = ("ready", "scheduled", "running", "succeeded", "failed", "cancelled", "discarded")


class QueueTotal(msgspec.Struct, frozen=True):
    """A number that may be a lower bound: counting stops where a page needs no more."""

    value: int
    more: bool = False


class OverviewQueueRow(msgspec.Struct, frozen=True):
    """One queue as its row shows it."""

    counts: QueueCounts
    spark: Sequence[int] = ()
    """Runs that ended, in steps of two minutes, oldest first."""
    succeeded: int = 0
    """In the last hour …"""
    failed: int = 0

    @property
    def name(self) -> str:
        return self.counts.queue

    def count(self, name: str) -> QueueTotal:
        """Return how many of them are ready, running …."""
        value: int = getattr(self.counts, name)
        cap = self.counts.cap
        return QueueTotal(value, more=cap is not None and value >= cap)


async def overview_rows_of(admin: Admin, now: datetime) -> list[OverviewQueueRow]:
    """Return every queue that has jobs, or had some in the last hour."""
    # The minute that is under way stays out: it would always look like a fall.
    until = minute_of(now)
    since = until - _HOUR
    ran: dict[str, list[Rollup]] = {}
    for rollup in await admin.stats.rollups(since, now):
        ran.setdefault(rollup.queue, []).append(rollup)
    counts = {one.queue: one for one in await admin.queues.counts()}
    return [
        _line(counts.get(name) or QueueCounts(queue=name), ran.get(name, ()), since)
        for name in sorted({*counts, *ran})
    ]


def _line(counts: QueueCounts, ran: Sequence[Rollup], since: datetime) -> OverviewQueueRow:
    spark = [0] * int(_HOUR / _STEP)
    for rollup in ran:
        at = int((rollup.minute - since) / _STEP)
        if at < len(spark):
            spark[at] += count_runs(rollup.counts)
    return OverviewQueueRow(
        counts,
        spark,
        succeeded=sum(rollup.counts.get("succeed", 0) for rollup in ran),
        failed=sum(rollup.counts.get("fail", 0) for rollup in ran),
    )


def busiest(rows: Sequence[OverviewQueueRow]) -> Sequence[OverviewQueueRow]:
    """Return those that an overview has room for, by name; the page of queues has all."""
    if len(rows) <= _SHOWN:
        return rows
    kept = sorted(rows, key=_bustle, reverse=True)[:_SHOWN]
    return sorted(kept, key=lambda row: row.name)


def _bustle(row: OverviewQueueRow) -> int:
    counts = row.counts
    return counts.ready + counts.running + counts.failed + row.succeeded + row.failed


def totals(rows: Sequence[OverviewQueueRow]) -> Mapping[str, QueueTotal]:
    """Return all queues together."""
    summed: dict[str, QueueTotal] = {}
    for name in _COUNTED:
        counts = [row.count(name) for row in rows]
        summed[name] = QueueTotal(sum(one.value for one in counts), any(one.more for one in counts))
    return summed
