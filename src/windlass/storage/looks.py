"""What people ask the stores for, and how the answers look. Part of the contract: `protocol`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from windlass.core.breaker import BreakerState
from windlass.core.queue import QueueSettings
from windlass.core.state import State

__all__ = ["JobFilter", "LimitState", "QueueCounts", "QueueRecord"]


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list; what is left out does not narrow."""

    states: Sequence[State] | None = None
    queue: str | None = None
    task: str | None = None
    before: int | None = None
    """Only jobs with a ``seq`` below this: the cursor of the next page."""


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are where. ``scheduled``: due strictly after now."""

    queue: str
    ready: int = 0
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    discarded: int = 0
    paused: bool = False


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a queue beyond its jobs."""

    queue: str
    settings: QueueSettings = QueueSettings()
    paused: bool = False
    cool_until: datetime | None = None
    """Nothing of it starts before."""
    cool_downs: int = 0
    """In a row: what the next one's length goes by."""


class LimitState(msgspec.Struct, frozen=True, kw_only=True):
    """One budget (limit and key) as it is now."""

    name: str
    key: str
    running: int
    """Claims that count against it."""
    spent_until: datetime | None = None
    """Rate: when the bucket is full again."""
    breaker: BreakerState | None = None
    """For the gate of a breaker."""
    parked: int = 0
    """Lanes that wait for it; 0 where the backend parks none."""
