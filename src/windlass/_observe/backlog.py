"""Numbers of jobs and flows for metrics: read when a scraper asks, and not often."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, NamedTuple

from windlass._system.seams import monotonic
from windlass.errors import WindlassError

__all__ = ["FLOW_STATES", "STATES", "Backlog", "Look", "Rows", "Start", "StoreNumbers"]

log = logging.getLogger("windlass")

STATES = ("ready", "scheduled", "running", "succeeded", "failed", "cancelled", "discarded")
FLOW_STATES = ("running", "succeeded", "failed", "cancelled")
_FRESH = 5.0
"""Seconds that a look at the store is good for, and …"""
_SHARE = 20.0
"""The pause between two reads, as a multiple of the time a read took: a large store is read less
often.
"""
_STALE = 60.0
"""Older numbers are not shown: a gap says that the store cannot be read, a flat line does not."""
_PATIENCE = 1.0

Rows = Sequence[Mapping[str, Any]]
"""Per queue: its name, its jobs by state, and what holds it back."""


class StoreNumbers(NamedTuple):
    """The result of one read."""

    queues: Rows
    flows: Mapping[str, float]
    """Flows by state, ``blocked`` jobs, and how many seconds the ``oldest`` flow has run."""


Look = Callable[[], Coroutine[Any, Any, StoreNumbers]]
Start = Callable[[Coroutine[Any, Any, object]], None]


class Backlog:
    """The counts of the store, at most a few seconds old."""

    def __init__(self, look: Look, start: Start) -> None:
        """``look`` reads the store, ``start`` runs that in background."""
        self._look = look
        self._start = start
        self._numbers = StoreNumbers((), {})
        self._read_at = -_STALE
        self._next_at = -_STALE
        self._reading: Future[None] | None = None

    @property
    def rows(self) -> Rows:
        """Nothing, when the last answer is too old to be believed."""
        return self._numbers.queues if self._is_known else ()

    @property
    def flows(self) -> Mapping[str, float]:
        """Nothing, when the last answer is too old to be believed."""
        return self._numbers.flows if self._is_known else {}

    @property
    def _is_known(self) -> bool:
        return monotonic() - self._read_at < _STALE

    def look_at(self) -> None:
        """Look again if it is time to, and wait a moment for it, unless that would stop a loop."""
        reading = self._refresh()
        if reading is not None and not _on_a_loop():
            wait([reading], _PATIENCE)

    async def looked_at(self) -> None:
        """Read the same on an event loop."""
        reading = self._refresh()
        if reading is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await asyncio.shield(asyncio.wrap_future(reading))

    def _refresh(self) -> Future[None] | None:
        """Return a future that never fails. A program that ends reads the store no more: metrics
        are collected once again then, when no thread may start.
        """
        if not threading.main_thread().is_alive():
            return None
        if self._reading is None and monotonic() >= self._next_at:
            reading: Future[None] = Future()
            self._reading = reading
            self._start(self._read(reading))
        return self._reading

    async def _read(self, reading: Future[None]) -> None:
        began = monotonic()
        try:
            self._numbers = await self._look()
            self._read_at = monotonic()
        except WindlassError as error:
            log.debug("cannot read the backlog for a scrape: %s", error)
        finally:
            now = monotonic()
            self._next_at = now + max(_FRESH, _SHARE * (now - began))
            self._reading = None
            reading.set_result(None)


def _on_a_loop() -> bool:
    """Return whether waiting here would stop an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
