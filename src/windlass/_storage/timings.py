"""How long a storage takes to answer: a thin glass in front of it, and the last samples."""

from __future__ import annotations

import inspect
import math
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, cast

import msgspec

from windlass._storage.protocol.storage import Storage
from windlass._system.seams import monotonic

__all__ = [
    "READ_METHODS",
    "TIMED_STORES",
    "Samples",
    "Spread",
    "Timings",
    "timings_of",
    "with_timings",
    "without_timings",
]

_MOST = 10_000

TIMED_STORES = frozenset(
    {
        *("jobs", "workers", "leader", "limits", "maintenance", "queues", "schedules", "admin"),
        *("orders", "journal", "moving"),
    }
)
READ_METHODS = frozenset(
    {
        *("outlook", "active", "settled", "overdue", "orphans", "cancel_requests"),
        *("live", "workers", "specs", "states", "next_due", "queues", "rows", "due", "get"),
        *("find", "errors", "history", "counts", "rollups", "audits", "logs", "events", "dump"),
        *("now", "health", "named", "secret", "page", "breakers"),
    }
)
"""Operations that change nothing; all others write."""

_Operation = Callable[..., Coroutine[Any, Any, Any]]


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured since the last time somebody took it."""

    seconds: Sequence[float] = ()
    """The last ones, oldest first."""
    dropped: int = 0
    """Older ones, for which there was no room."""
    failed: int = 0
    """How many of all ended in an error; they are timed like the others."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The same in a few numbers."""

    count: int
    failed: int
    p50: timedelta
    p95: timedelta
    p99: timedelta
    max: timedelta


class _Kind:
    def __init__(self) -> None:
        self.last: deque[float] = deque(maxlen=_MOST)
        self.count = self.failed = 0


class Timings:
    """The last samples of reads and of writes, up to 10,000 each. Any thread may add some."""

    def __init__(self) -> None:
        """Nothing was measured yet."""
        self._kinds = {"read": _Kind(), "write": _Kind()}

    def around(self, operation: _Operation, *, reads: bool) -> _Operation:
        """``operation``, timed, however it ends."""
        which = "read" if reads else "write"
        kinds = self._kinds

        async def measured(*args: Any, **named: Any) -> Any:
            began = monotonic()
            try:
                return await operation(*args, **named)
            except BaseException:
                kinds[which].failed += 1
                raise
            finally:
                kind = kinds[which]
                kind.count += 1
                kind.last.append(monotonic() - began)

        return measured

    def drain(self) -> dict[str, Samples]:
        """What was measured since the last drain, under ``read`` and ``write``; begins anew."""
        taken = {}
        for name in self._kinds:
            kind, self._kinds[name] = self._kinds[name], _Kind()
            seconds = list(kind.last)
            dropped = max(kind.count - len(seconds), 0)
            taken[name] = Samples(seconds=seconds, dropped=dropped, failed=kind.failed)
        return taken

    def spread(self) -> dict[str, Spread]:
        """The same in numbers, and nothing is taken; without what was not measured."""
        return {name: _spread(kind) for name, kind in self._kinds.items() if kind.last}


def _spread(kind: _Kind) -> Spread:
    ordered = sorted(kind.last)

    def rank(share: float) -> timedelta:
        return timedelta(seconds=ordered[max(math.ceil(share * len(ordered)), 1) - 1])

    return Spread(
        count=kind.count,
        failed=kind.failed,
        p50=rank(0.5),
        p95=rank(0.95),
        p99=rank(0.99),
        max=timedelta(seconds=ordered[-1]),
    )


class _TimedStorage:
    """A storage behind glass. What was looked up once is an attribute like any other."""

    def __init__(self, inner: Storage, timings: Timings) -> None:
        self.inner = inner
        self.timings = timings

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name in TIMED_STORES:
            found = _TimedStore(found, self.timings)
        elif name in READ_METHODS:
            found = self.timings.around(found, reads=True)
        else:
            return found  # it may change
        vars(self)[name] = found
        return found


class _TimedStore:
    def __init__(self, inner: object, timings: Timings) -> None:
        self._inner = inner
        self._timings = timings

    def pulse(self) -> Any:
        """A heartbeat's own way to the store is timed, too."""
        return _TimedStore(cast("Any", self._inner).pulse(), self._timings)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found) or name == "close":
            return found
        measured = self._timings.around(found, reads=name in READ_METHODS)
        vars(self)[name] = measured
        return measured


def with_timings(storage: Storage, timings: Timings) -> Storage:
    """``storage`` with every operation measured."""
    return cast("Storage", _TimedStorage(storage, timings))


def timings_of(storage: Storage) -> Timings | None:
    """What was measured of a storage; None: nobody does."""
    return storage.timings if isinstance(storage, _TimedStorage) else None


def without_timings(storage: Storage) -> Storage:
    """The backend's own object."""
    return storage.inner if isinstance(storage, _TimedStorage) else storage
