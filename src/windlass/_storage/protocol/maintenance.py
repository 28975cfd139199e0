"""`MaintenanceStore`: promotion, expiry, retention and compaction in bounded steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from windlass._core.job.job import JobId
from windlass._core.job.state import State

__all__ = ["MaintenanceStore"]


class MaintenanceStore(Protocol):
    """Chores in bounded bites; each returns how much it did, so callers can go on until less."""

    async def promote(self, limit: int) -> int:
        """Mark up to ``limit`` due jobs ready, so that claims need not; wake the workers. Those
        with ``missed_at`` are left to claims, which know who could not run them.
        """
        ...

    async def next_due(self, queues: Sequence[str] | None = None) -> datetime | None:
        """When the next waiting job of these queues that is not ready falls due; None: of all.

        Read-only, and cheap however many jobs and queues there are.
        """
        ...

    async def expire(self, limit: int) -> Sequence[JobId]:
        """Discard up to ``limit`` waiting jobs past their expiry; which."""
        ...

    async def prune(
        self,
        *,
        state: State,
        older_than: timedelta,
        limit: int,
        apart: Mapping[str, timedelta] | None = None,
    ) -> int:
        """Delete up to ``limit`` jobs, with history, that reached this state longer ago; those of
        the queues in ``apart`` longer ago than it says there. Flat, whoever keeps how much.
        """
        ...

    async def prune_rollups(self, *, older_than: timedelta, limit: int) -> int:
        """Delete old rollups."""
        ...

    async def compact_rollups(self, *, older_than: timedelta, limit: int) -> int:
        """Merge the minutes of each whole hour that ended longer ago into its first minute, for
        all workers together; at most about ``limit`` rows in one call. How many rows that saved.
        What `AdminStore.rollups` says of whole hours stays the same but for the minute.
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
        """Whatever the backend needs now and then: checkpoints, vacuum, statistics."""
        ...
