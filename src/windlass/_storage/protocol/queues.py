"""`QueueStore`: settings and cool-downs of whole queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.protocol.actions import AuditNote

__all__ = ["QueueRecord", "QueueStore"]


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and the cool-down of a queue."""

    queue: str
    settings: QueueSettings = QueueSettings()
    paused: bool = False
    cool_until: datetime | None = None
    """No job of the queue starts before."""
    cool_downs: int = 0
    """Cool-downs in a row. The length of the next one depends on it."""


class QueueStore(Protocol):
    """Settings and cool-downs of queues."""

    async def queues(self) -> Sequence[QueueRecord]:
        """List the queues that have settings, are paused or cooled down, by name. Read-only and
        cheap: every worker calls it every second.
        """
        ...

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        """Store settings if the stored ones are still ``old`` (none stored: a plain
        `QueueSettings`). Return False if they are not. Takes effect at the next claim. Wakes
        workers.
        """
        ...

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        """End a cool-down and reset the count. Wakes workers."""
        ...
