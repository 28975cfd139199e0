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
    """What is known of a queue beyond its jobs."""

    queue: str
    settings: QueueSettings = QueueSettings()
    paused: bool = False
    cool_until: datetime | None = None
    """Nothing of it starts before."""
    cool_downs: int = 0
    """In a row: what the next one's length goes by."""


class QueueStore(Protocol):
    """What holds for whole queues."""

    async def queues(self) -> Sequence[QueueRecord]:
        """Queues with settings, paused or cooled down, by name. Read-only, cheap: every worker
        asks every second.
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
        """Store settings if those stored are still ``old`` (none are those of a plain
        `QueueSettings`); False: they are not. Takes effect at the next claim. Wakes workers.
        """
        ...

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        """End a cool-down and forget those before it. Wakes workers."""
        ...
