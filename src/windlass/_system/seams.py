"""The only doors to time, chance, identity and threads.

Everything else takes these as arguments or calls them here, so that a simulation can replace
them and a test can hold them still. A test in ``tests/architecture`` keeps it so.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec

from windlass._core.job.job import JobId
from windlass._system.forks import renew_in_child
from windlass._system.greenlets import green_threads, native_lock, run_native

__all__ = [
    "SYSTEM_CLOCK",
    "Clock",
    "Seams",
    "SystemClock",
    "boot_seconds",
    "chance",
    "monotonic",
    "new_job_id",
    "new_job_ids",
    "new_secret",
    "new_worker_id",
    "sleep",
    "start_native_thread",
    "start_thread",
]


class Clock(Protocol):
    """A storage's own clock. Only storages read it; all other parts get the time from them."""

    def now(self) -> datetime:
        """Return the wall clock, aware, UTC. It may step."""
        ...

    def boot(self) -> timedelta:
        """Time since the machine started, suspended time included. It never steps."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def boot(self) -> timedelta:
        # CLOCK_BOOTTIME counts suspended time; where it is missing the monotonic clock is next
        # best: leases then last longer over a suspend, which only delays a rescue.
        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return timedelta(seconds=time.clock_gettime(clock))


SYSTEM_CLOCK = SystemClock()


def monotonic() -> float:
    """Seconds on a clock that never steps; for measuring, never for deciding."""
    return time.monotonic()


def boot_seconds() -> float:
    """Seconds since the machine started, suspended time included: what leases are judged by."""
    return SYSTEM_CLOCK.boot().total_seconds()


def sleep(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)


class _Chance(random.Random):
    """Spreads load and makes ids unique; guards no secret."""

    def renew(self) -> None:
        """Draw other numbers than the parent: a forked child must not repeat its ids."""
        self.seed()


_chance = _Chance()
renew_in_child(_chance)


def chance() -> float:
    """Return a draw from [0, 1)."""
    return _chance.random()


_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


def new_job_ids(count: int) -> list[JobId]:
    """Fresh UUIDv7s as 32 hex digits: unique, and sorted by the millisecond they were made in."""
    # One clock read and one draw for the whole batch: bulk inserts make ids by the ten thousand.
    head = f"{time.time_ns() // 1_000_000:012x}7"
    raw = _chance.randbytes(10 * count).hex()
    return [
        JobId(f"{head}{raw[i : i + 3]}{_VARIANT[raw[i + 3]]}{raw[i + 4 : i + 19]}")
        for i in range(0, 20 * count, 20)
    ]


def new_job_id() -> JobId:
    """Return one fresh id."""
    return new_job_ids(1)[0]


def new_worker_id() -> str:
    """Return a fresh worker identity. Short: it is in every running row and its index."""
    return f"w{_chance.getrandbits(48):012x}"


def new_secret() -> str:
    """Return 256 random bits as text for URLs, cookies and headers."""
    return secrets.token_urlsafe(32)


def start_thread(name: str, target: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread: it must never keep a dying process alive."""
    thread = threading.Thread(target=target, name=f"windlass-{name}", daemon=True)
    thread.start()
    return thread


def start_native_thread(name: str, target: Callable[[], None]) -> Callable[[], None]:
    """Start an OS thread, also where gevent has replaced threads. The answer waits for its end."""
    if green_threads() != "gevent":
        return start_thread(name, target).join
    ended = native_lock()
    ended.acquire()

    def run() -> None:
        try:
            target()
        finally:
            ended.release()

    run_native(run)

    def join() -> None:
        with ended:
            pass

    return join


class Seams(msgspec.Struct, frozen=True):
    """The things that the client and the worker need from the outside world besides a storage."""

    chance: Callable[[], float] = chance
    new_job_ids: Callable[[int], Sequence[JobId]] = new_job_ids
    new_worker_id: Callable[[], str] = new_worker_id
    boot: Callable[[], float] = boot_seconds
    """The clock that storages judge leases by. A loop's own clock stops in a suspend. Measured by
    it, a machine that slept would seem to have run all the time.
    """
    wall: Callable[[], datetime] = SYSTEM_CLOCK.now
    """This machine's own clock, for people who want to know how far it is off. Nothing is decided
    by it: the storage's is the one that counts."""
