"""How long a storage takes to answer. Each backend adds its operations where it runs them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

import msgspec

from windlass._system.seams import monotonic

__all__ = ["BatchSizes", "Durations", "Spread", "Timings", "timings_of"]

T = TypeVar("T")

_MOST = 10_000


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in a few numbers."""

    count: int
    failed: int
    p50: timedelta
    p95: timedelta
    p99: timedelta
    max: timedelta


class Durations:
    """The last durations of one kind of operation, up to 10,000. Any thread may add one."""

    def __init__(self) -> None:
        """Start without measurements."""
        self._last: deque[float] = deque(maxlen=_MOST)
        self._count = self._failed = 0

    def add(self, seconds: float, *, failed: bool = False) -> None:
        """Count an operation, however it ended."""
        self._count += 1
        self._failed += failed
        self._last.append(seconds)

    def spread(self, *, after: int = 0) -> Spread | None:
        """Return what was measured, since this many operations were counted; None: nothing."""
        last = list(self._last)
        ordered = sorted(last[max(len(last) - (self._count - after), 0) :])
        if not ordered:
            return None

        def rank(share: float) -> timedelta:
            return timedelta(seconds=ordered[max(math.ceil(share * len(ordered)), 1) - 1])

        return Spread(
            count=self._count,
            failed=self._failed,
            p50=rank(0.5),
            p95=rank(0.95),
            p99=rank(0.99),
            max=timedelta(seconds=ordered[-1]),
        )


class BatchSizes:
    """How many jobs the calls of one kind have carried."""

    def __init__(self) -> None:
        """Start without measurements."""
        self.calls: int = 0
        self.jobs: int = 0

    def add(self, jobs: int) -> None:
        """Count a call, if it carried any."""
        self.calls += jobs > 0
        self.jobs += jobs


class Timings:
    """The measurements that an app has made of its storages, on any event loop."""

    def __init__(self) -> None:
        """Start without measurements."""
        self.reads: Durations = Durations()
        self.writes: Durations = Durations()
        self.claims: BatchSizes = BatchSizes()
        self.finishes: BatchSizes = BatchSizes()

    async def measure(self, work: Awaitable[T], *, reads: bool) -> T:
        """Await one operation and count it."""
        began, failed = monotonic(), True
        try:
            answer = await work
            failed = False
            return answer
        finally:
            kind = self.reads if reads else self.writes
            kind.add(monotonic() - began, failed=failed)

    def spread(self) -> dict[str, Spread]:
        """Return both kinds in numbers, under ``read`` and ``write``, without what was not
        measured.
        """
        found = {"read": self.reads.spread(), "write": self.writes.spread()}
        return {name: spread for name, spread in found.items() if spread is not None}


def timings_of(storage: object) -> Timings | None:
    """Return the measurements of a storage and of others of the same app; None: it measures
    nothing, as a backend of another package may.
    """
    found = getattr(storage, "timings", None)
    return found if isinstance(found, Timings) else None
