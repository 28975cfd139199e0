"""Promotion of due jobs, settling of flows and retention of what has ended, all in chunks.

Chunks are short transactions, so that claims get their turn between two of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from windlass._client.job_events import publish_expired_events
from windlass._core.flows.flow import FlowState
from windlass._core.job.state import State
from windlass._observe.bus import Bus
from windlass._settings.settings import Settings
from windlass._storage.protocol.storage import Storage
from windlass._worker.claim.queue_settings import QueueSettingsCache
from windlass._worker.liveness.leader import Leader

__all__ = ["CHUNK_SIZE", "Promoter", "Pruner", "run_in_chunks", "run_until_done"]

_KEEP_WORKERS = timedelta(days=1)
_KEEP_MINUTES = timedelta(hours=48)
"""Older rollups and gauges are kept by the hour: what charts of days and weeks show."""
_ROUNDS = 100

CHUNK_SIZE = 500


class Promoter:
    """Marks due jobs ready, and settles flows, ahead of the claims that would.

    For due jobs it only shortens the wait. Idle workers do not claim: a flow that a cancel or its
    expiry ends has only the promoter.
    """

    def __init__(self, storage: Storage, leader: Leader) -> None:
        """Works only while leading."""
        self._storage = storage
        self._leader = leader

    async def step(self) -> int:
        """Promote what is due and settle what a flow has opened or ended; how many jobs."""
        if not self._leader.leading:
            return 0
        promoted = await run_in_chunks(self._storage.maintenance.promote)
        return promoted + await run_until_done(self._storage.flows.settle)


async def run_in_chunks(chunk: Callable[[int], Awaitable[int]]) -> int:
    """Repeat until a chunk comes back short: no single transaction holds the store for long."""
    total = 0
    while True:
        done = await chunk(CHUNK_SIZE)
        total += done
        if done < CHUNK_SIZE:
            return total


async def run_until_done(chunk: Callable[[int], Awaitable[int]]) -> int:
    """Repeat until a chunk does nothing: of flows a short one may leave something."""
    total = 0
    while done := await chunk(CHUNK_SIZE):
        total += done
    return total


class Pruner:
    """Retention: deletes old records, in chunks."""

    def __init__(
        self, storage: Storage, settings: Settings, queues: QueueSettingsCache, bus: Bus
    ) -> None:
        """``queues`` knows which of them keep their jobs otherwise."""
        self._storage = storage
        self._store = storage.maintenance
        self._bus = bus
        self._queues = queues
        self._settings = settings

    async def tidy(self) -> str:
        """Run the backend's own housekeeping: checkpoints, vacuum, statistics."""
        await self._store.tidy()
        return "done"

    async def retention(self) -> str:
        """Run one round. Return its result in words."""
        removed = await self.step()
        return f"{removed:,} job{'' if removed == 1 else 's'} removed"

    async def step(self) -> int:
        """Run one round of expiry and retention. Return the number of deleted jobs."""
        settings, store = self._settings, self._store
        removed = await run_in_chunks(self._expire)
        quiet = settings.keep_succeeded, self._queues.keep_succeeded
        failed = settings.keep_failed, self._queues.keep_failed
        keep = {
            State.SUCCEEDED: quiet,
            State.CANCELLED: quiet,
            State.DISCARDED: quiet,
            State.FAILED: failed,
        }
        for state, (age, apart) in keep.items():
            removed += await self._prune(state, age, apart)
        removed += await self._prune_flows(FlowState.SUCCEEDED, settings.keep_succeeded)
        removed += await self._prune_flows(FlowState.CANCELLED, settings.keep_succeeded)
        removed += await self._prune_flows(FlowState.FAILED, settings.keep_failed)
        await run_in_chunks(
            lambda n: store.prune_rollups(older_than=settings.keep_rollups, limit=n)
        )
        await run_in_chunks(lambda n: store.prune_gauges(older_than=settings.keep_rollups, limit=n))
        await self._compact(store.compact_rollups)
        await self._compact(store.compact_gauges)
        await run_in_chunks(lambda n: store.prune_events(older_than=settings.keep_events, limit=n))
        await run_in_chunks(lambda n: store.prune_audits(older_than=settings.keep_audit, limit=n))
        await run_in_chunks(lambda n: store.prune_workers(older_than=_KEEP_WORKERS, limit=n))
        return removed

    async def _expire(self, limit: int) -> int:
        """Told of at once: retention may delete them in the same round."""
        expired = await self._store.expire(limit)
        await publish_expired_events(self._storage, self._bus, expired)
        return len(expired)

    async def _compact(self, compact: Callable[..., Awaitable[int]]) -> None:
        """Compact until a chunk saves nothing: the saving of one chunk says little
        about the rest.
        """
        for _ in range(_ROUNDS):
            if not await compact(older_than=_KEEP_MINUTES, limit=CHUNK_SIZE):
                return

    async def _prune(self, state: State, age: timedelta, apart: Mapping[str, timedelta]) -> int:
        async def chunk(limit: int) -> int:
            return await self._store.prune(
                state=state, older_than=age, limit=limit, apart=apart or None
            )

        return await run_in_chunks(chunk)

    async def _prune_flows(self, state: FlowState, age: timedelta) -> int:
        """Delete flows with all their jobs, by when the flow has ended."""

        async def chunk(limit: int) -> int:
            return await self._storage.flows.prune(state=state, older_than=age, limit=limit)

        return await run_until_done(chunk)
