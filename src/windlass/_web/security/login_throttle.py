"""Limits on login attempts, and on log-ins of one person."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from windlass._system.seams import boot_seconds

__all__ = ["LoginThrottle", "TooManyLoginAttempts"]

WINDOW_SECONDS = 60.0
PER_ADDRESS = 10
PER_ACCOUNT = 20
"""From all addresses together."""
MAX_FAILURES = 200
"""At all accounts from all addresses: guessing from many at once is no way around."""
LOGINS = 60
"""Of one account: each makes a session."""
_KEPT = 10_000
_LONGEST = 64
"""Characters of a name that are looked at. No name of ours has more."""


class TooManyLoginAttempts(Exception):
    """Too many attempts were wrong: the next is not checked."""

    def __init__(self, wait: float) -> None:
        """``wait``: seconds."""
        super().__init__(wait)
        self.wait = wait


class LoginThrottle:
    """Failed log-ins of the last minute: by address, by account, and in all.

    If a person has logged in from an address before, only the failures of that address count there:
    attackers elsewhere who guess at an account do not lock its owner out.
    """

    def __init__(self, clock: Callable[[], float] = boot_seconds) -> None:
        """``clock``: seconds."""
        self._clock = clock
        self._all: deque[float] = deque()
        self._failed: dict[tuple[str, str], deque[float]] = {}
        """By address and account; "" for either means all of them."""
        self._logins: dict[str, deque[float]] = {}
        self._known: dict[tuple[str, str], None] = {}

    def wait(self, address: str, account: str = "") -> float:
        """Seconds until this address may try, at this account; 0: now."""
        now, account = self._clock(), account[:_LONGEST]
        waits = [self.wait_at(address), _wait(self._logins.get(account), LOGINS, now)]
        if (address, account) not in self._known:
            waits.append(_wait(self._failed.get(("", account)), PER_ACCOUNT, now))
            waits.append(_wait(self._all, MAX_FAILURES, now))
        return max(waits)

    def wait_at(self, address: str) -> float:
        """Return the wait by the failures of this address alone, for any account."""
        return _wait(self._failed.get((address, "")), PER_ADDRESS, self._clock())

    def failed(self, address: str, account: str = "") -> None:
        """Count one. Where a check takes time, count first: a thousand guesses that are checked at
        once would otherwise all pass before the first of them has failed.
        """
        now, account = self._clock(), account[:_LONGEST]
        if len(self._failed) >= _KEPT:
            self._failed = {
                one: times
                for one, times in self._failed.items()
                if times and times[-1] > now - WINDOW_SECONDS
            }
        self._all.append(now)
        # Where even those of the last minute are too many, the bound on all of them holds.
        room = len(self._failed) < _KEPT
        for key in {(address, ""), ("", account), (address, account)} - {("", "")}:
            if room or key in self._failed:
                self._failed.setdefault(key, deque()).append(now)

    def succeeded(self, address: str, account: str) -> None:
        """Remove the last attempt: it was right. A person who knows a secret may have mistyped it
        before: that is forgiven. Wrong attempts of the same address at other accounts are not.
        """
        account = account[:_LONGEST]
        own = self._failed.pop((address, account), deque())
        for key in ((address, ""), ("", account)):
            _take(self._failed.get(key, deque()), own)
            if not self._failed.get(key):
                self._failed.pop(key, None)
        _take(self._all, list(own)[-1:])
        self._logins.setdefault(account, deque(maxlen=LOGINS)).append(self._clock())
        self._known.pop((address, account), None)
        self._known[address, account] = None
        if len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]


def _take(times: deque[float], taken: deque[float] | list[float]) -> None:
    for one in taken:
        if one in times:
            times.remove(one)


def _wait(times: deque[float] | None, most: int, now: float) -> float:
    if times is None:
        return 0.0
    while times and times[0] <= now - WINDOW_SECONDS:
        times.popleft()
    return times[-most] + WINDOW_SECONDS - now if len(times) >= most else 0.0
