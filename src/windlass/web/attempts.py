"""How often somebody may guess."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from windlass.seams import boot_seconds

__all__ = ["Attempts", "TooManyGuesses"]

WITHIN = 60.0
PER_ADDRESS = 10
IN_ALL = 200
"""From all addresses together: guessing from many at once is no way around."""
_ADDRESSES = 10_000


class TooManyGuesses(Exception):
    """So many were wrong that the next is not even looked at."""

    def __init__(self, wait: float) -> None:
        """``wait``: seconds."""
        super().__init__(wait)
        self.wait = wait


class Attempts:
    """Failed log-ins of the last minute, by address and in all."""

    def __init__(self, clock: Callable[[], float] = boot_seconds) -> None:
        """``clock``: seconds."""
        self._clock = clock
        self._all: deque[float] = deque()
        self._by: dict[str, deque[float]] = {}

    def wait(self, address: str) -> float:
        """Seconds until this address may try again; 0: now."""
        now = self._clock()
        waits = [_wait(self._all, IN_ALL, now)]
        if address in self._by:
            waits.append(_wait(self._by[address], PER_ADDRESS, now))
        return max(waits)

    def failed(self, address: str) -> None:
        """Count one. Where a check takes time, count first: a thousand guesses that are checked at
        once would otherwise all pass before the first of them has failed.
        """
        now = self._clock()
        if len(self._by) >= _ADDRESSES:
            self._by = {one: times for one, times in self._by.items() if times[-1] > now - WITHIN}
        self._all.append(now)
        # Where even those of the last minute are too many, the bound on all of them holds.
        if len(self._by) < _ADDRESSES or address in self._by:
            self._by.setdefault(address, deque()).append(now)

    def succeeded(self, address: str) -> None:
        """The guess counted last was none. Whoever knows the secret may have mistyped it before."""
        self._by.pop(address, None)
        if self._all:
            self._all.pop()


def _wait(times: deque[float], most: int, now: float) -> float:
    while times and times[0] <= now - WITHIN:
        times.popleft()
    return times[-most] + WITHIN - now if len(times) >= most else 0.0
