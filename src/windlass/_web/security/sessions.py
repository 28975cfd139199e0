"""Sessions of logged-in users. They live in this process: a restart logs everybody out, and so does
log-out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from windlass._system.seams import boot_seconds, new_secret
from windlass._web.security.roles import Person

__all__ = ["Session", "Sessions"]

IDLE_SECONDS = 30 * 60
LIFETIME_SECONDS = 12 * 3600
MAX_SESSIONS = 50
"""Sessions of one person; beyond, the one of theirs that was unused for longest ends. People are
few, since a line of the settings names each: together they need no bound."""


class Session(msgspec.Struct, frozen=True):
    """One browser that logged in."""

    person: Person
    token: str
    """Forms of this session carry it; another site cannot read it."""
    started: float
    seen: float


class Sessions:
    """By a digest of the cookie: what is kept here opens nothing."""

    def __init__(self, clock: Callable[[], float] = boot_seconds) -> None:
        """``clock``: seconds, suspended time included."""
        self._clock = clock
        self._open: dict[str, Session] = {}

    def open(self, person: Person) -> str:
        """Open a new session under a fresh name, with any cookie that the browser sent."""
        self._forget_old()
        own = [key for key, session in self._open.items() if session.person.name == person.name]
        for key in own[: max(len(own) - MAX_SESSIONS + 1, 0)]:  # in the order of use
            del self._open[key]
        now = self._clock()
        cookie = new_secret()
        self._open[_digest(cookie)] = Session(person, new_secret(), now, now)
        return cookie

    def find(self, cookie: str) -> Session | None:
        """Return the session, if it is not over."""
        key = _digest(cookie)
        session = self._open.get(key)
        if session is None or self._over(session):
            self._open.pop(key, None)
            return None
        return session

    def use(self, cookie: str) -> None:
        """Mark the session as used: it ends after half an hour without use."""
        session = self.find(cookie)
        if session is not None:
            key = _digest(cookie)
            del self._open[key]  # in the order of use: those in front go first
            self._open[key] = msgspec.structs.replace(session, seen=self._clock())

    def close(self, cookie: str) -> None:
        """Log out: the cookie is worth nothing from here on, wherever a copy of it is."""
        self._open.pop(_digest(cookie), None)

    def revoke(self, name: str) -> int:
        """End every session of a person; how many there were."""
        ended = [key for key, session in self._open.items() if session.person.name == name]
        for key in ended:
            del self._open[key]
        return len(ended)

    def _over(self, session: Session) -> bool:
        now = self._clock()
        return now - session.seen > IDLE_SECONDS or now - session.started > LIFETIME_SECONDS

    def _forget_old(self) -> None:
        while self._open:
            oldest = next(iter(self._open))
            if not self._over(self._open[oldest]):
                break
            del self._open[oldest]


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode(errors="replace")).hexdigest()
