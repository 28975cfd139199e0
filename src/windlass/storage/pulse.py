"""Heartbeats of stores that any event loop may use: there is nothing to open or to close."""

from __future__ import annotations

from typing import Protocol

from windlass.storage.protocol import Beat

__all__ = ["SharedPulse"]


class _Beating(Protocol):
    async def beat(self, worker: str) -> Beat: ...


class SharedPulse:
    """A `Pulse` that beats through the store itself."""

    def __init__(self, workers: _Beating) -> None:
        self._workers = workers

    async def beat(self, worker: str) -> Beat:
        return await self._workers.beat(worker)

    async def close(self) -> None:
        """Nothing is held."""
