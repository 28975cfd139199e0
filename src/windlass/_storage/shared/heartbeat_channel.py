"""Heartbeats of stores that any event loop may use: there is nothing to open or to close."""

from __future__ import annotations

from typing import Protocol

from windlass._core.stats.gauges import Readings
from windlass._storage.protocol.workers import HeartbeatAnswer

__all__ = ["SharedHeartbeatChannel"]


class _HeartbeatStore(Protocol):
    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer: ...


class SharedHeartbeatChannel:
    """A `HeartbeatChannel` that beats through the store itself."""

    def __init__(self, workers: _HeartbeatStore) -> None:
        self._workers = workers

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        return await self._workers.beat(worker, memory=memory, readings=readings)

    async def close(self) -> None:
        """Do nothing: no resource is held."""
