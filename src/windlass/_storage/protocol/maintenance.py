"""`MaintenanceStore`: promotion, expiry, retention and compaction in bounded steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from windlass._core.job.job import JobId
from windlass._core.job.state import State

__all__ = ["MaintenanceStore"]


class MaintenanceStore(Protocol):
    """Background work in bounded steps. Each call returns how much it did: callers repeat until
    that is less than the limit.
    """

    async def promote(self, limit: int) -> int:
        """Mark up to ``limit`` due jobs ready, so that claims need not; wake the workers. Jobs with
        ``missed_at`` are left to claims, which know the worker that could not run them.
        """
        ...

    async def next_due(self, queues: Sequence[str] | None = None) -> datetime | None:
        """Return the next due time of a waiting job of these queues that is not ready; None: of
        all.

        Read-only, and cheap for any number of jobs and queues.
        """
        ...

    async def expire(self, limit: int) -> Sequence[JobId]:
        """Discard up to ``limit`` waiting jobs past their expiry. Return their ids."""
        ...

    async def prune(
        self,
        *,
        state: State,
        older_than: timedelta,
        limit: int,
        apart: Mapping[str, timedelta] | None = None,
    ) -> int:
        """Delete up to ``limit`` jobs, with history, that reached this state longer ago. ``apart``
        has other ages for the queues it names. The cost does not depend on the number of kept jobs.
        """
        ...

    async def prune_rollups(self, *, older_than: timedelta, limit: int) -> int:
        """Delete old rollups."""
        ...

    async def compact_rollups(self, *, older_than: timedelta, limit: int) -> int:
        """Merge the minutes of each whole hour that ended longer ago into its first minute. Return
        the number of rows saved.

        It merges all workers' rows, at most about ``limit`` in one call. The sums that
        `AdminStore.rollups` returns for whole hours stay the same, except for the minute.
        """
        ...

    async def prune_gauges(self, *, older_than: timedelta, limit: int) -> int:
        """Delete old gauges."""
        ...

    async def compact_gauges(self, *, older_than: timedelta, limit: int) -> int:
        """Merge the minutes of gauges as `compact_rollups` does. Return the number of rows saved.

        Samples and totals are added, and the highest peak stays.
        """
        ...

    async def prune_audits(self, *, older_than: timedelta, limit: int) -> int:
        """Delete old audit records."""
        ...

    async def prune_events(self, *, older_than: timedelta, limit: int) -> int:
        """Delete old events."""
        ...

    async def prune_workers(self, *, older_than: timedelta, limit: int) -> int:
        """Delete rows of workers that ended longer ago than that and hold no claim."""
        ...

    async def tidy(self) -> None:
        """Run the backend's own housekeeping: checkpoints, vacuum, statistics."""
        ...
