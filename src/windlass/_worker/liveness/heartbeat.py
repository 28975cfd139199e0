"""Heartbeats: renew the worker's lease, on a separate thread and loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from windlass._storage.protocol.workers import HeartbeatAnswer, HeartbeatChannel, WorkerStore
from windlass._worker.liveness.gauges import GaugeReport
from windlass._worker.liveness.loop_watchdog import LoopWatchdog
from windlass._worker.liveness.store_contact import StoreContact
from windlass._worker.periodic import run_every
from windlass._worker.registration import Registration
from windlass.errors import StorageError, StorageReplaced

__all__ = ["Heartbeat"]

log = logging.getLogger("windlass")


class Heartbeat:
    """Renews the lease and carries the store's answers back to the worker's own loop."""

    def __init__(
        self,
        workers: WorkerStore,
        identity: Registration,
        presence: StoreContact,
        *,
        interval: timedelta,
        home: asyncio.AbstractEventLoop,
        on_beat: Callable[[str, HeartbeatAnswer], None],
        watchdog: LoopWatchdog | None,
        on_lost: Callable[[StorageReplaced], None] | None = None,
        memory: Callable[[], int | None] = lambda: None,
        gauges: GaugeReport | None = None,
    ) -> None:
        """``on_beat`` is called on ``home``, the worker's loop, with the id that was beating.

        ``on_lost`` too, once, when the store is gone for good. ``memory``: what the process uses,
        in bytes, for people who look at workers. ``gauges`` measures this host for charts.
        """
        self._gauges = gauges
        self._memory = memory
        self._workers = workers
        self._identity = identity
        self._presence = presence
        self._interval = interval
        self._home = home
        self._on_beat = on_beat
        self._on_lost = on_lost
        self._watchdog = watchdog
        self._pulse: HeartbeatChannel | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Beat, and watch the worker's loop, until told to stop."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat(stop))
            if self._watchdog is not None:
                group.create_task(self._watchdog.run(stop))

    async def _beat(self, stop: asyncio.Event) -> None:
        try:
            await run_every(self._interval, self.step, stop=stop, what="the heartbeat")
        except StorageReplaced as error:
            if self._on_lost is not None:
                self._home.call_soon_threadsafe(self._on_lost, error)
        finally:
            if self._pulse is not None:
                await self._pulse.close()

    async def step(self) -> bool:
        """Send one heartbeat. Return whether the store still has us as live."""
        worker = self._identity.id
        if self._pulse is None:  # made here: it belongs to the loop it beats on
            self._pulse = self._workers.pulse()
        try:
            readings = None if self._gauges is None else self._gauges.readings()
            beat = await self._pulse.beat(worker, memory=self._memory(), readings=readings)
        except StorageError:
            self._presence.missed()
            raise
        self._presence.reached()
        if self._gauges is not None:
            self._gauges.answered(beat.at)
        with suppress(RuntimeError):  # the worker has ended while the store took its time
            self._home.call_soon_threadsafe(self._on_beat, worker, beat)
        return beat.live
