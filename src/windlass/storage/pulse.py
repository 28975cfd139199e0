"""Heartbeats of stores that any event loop may use: there is nothing to open or to close."""

from __future__ import annotations

from typing import Protocol

from windlass.storage.protocol import Beat

__all__ = ["SharedPulse"]


class _Beating(Protocol):
    async def beat(self, worker: str, *, memory: int | None = None) -> Beat: ...


class SharedPulse:
    """A `Pulse` that beats through the store itself."""

    def __init__(self, workers: _Beating) -> None:
        self._workers = workers

    async def beat(self, worker: str, *, memory: int | None = None) -> Beat:
        return await self._workers.beat(worker, memory=memory)

    async def close(self) -> None:
        """Nothing is held."""
