"""Clocks that a test moves. Both kinds satisfy ``windlass._system.seams.Clock``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

__all__ = ["START", "LoopClock", "VirtualClock"]

# Far enough ahead that no test mistakes it for today, and not close to a leap day or a DST switch.
START = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    """A clock that moves only when a test moves it.

    ``advance`` and ``set`` let time pass: the wall clock and the time since boot move together.
    ``jump`` sets the wall clock alone, in either direction: the time since boot stays.
    """

    def __init__(self, start: datetime = START) -> None:
        self._now = _aware(start)
        self._boot = timedelta()
        self._listeners: list[Callable[[], object]] = []

    def now(self) -> datetime:
        """Return the current time."""
        return self._now

    def boot(self) -> timedelta:
        """Return the time since the clock was made. It never goes back."""
        return self._boot

    def advance(self, by: timedelta | float) -> None:
        """Let time pass. A number means seconds."""
        if not isinstance(by, timedelta):
            by = timedelta(seconds=by)
        if by < timedelta():
            raise ValueError(f"Time does not go backwards (by {by}): use jump() to step back.")
        self._now += by
        self._boot += by
        self._announce()

    def set(self, instant: datetime) -> None:
        """Let time pass until ``instant``."""
        instant = _aware(instant)
        if instant < self._now:
            raise ValueError(
                f"{instant} is before {self._now}, and time does not go backwards: "
                "use jump() to step back."
            )
        self.advance(instant - self._now)

    def jump(self, instant: datetime) -> None:
        """Set the wall clock to ``instant``, forwards or backwards. No time passes."""
        self._now = _aware(instant)
        self._announce()

    def subscribe(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call ``listener`` after every move, in the order of subscription.

        Returns the function that ends the subscription. It may be called twice.
        """

        def unsubscribe() -> None:
            # By identity, so that the same listener subscribed twice is taken out once.
            self._listeners = [kept for kept in self._listeners if kept is not call]

        def call() -> None:
            listener()

        self._listeners.append(call)
        return unsubscribe

    def _announce(self) -> None:
        # A listener may subscribe or unsubscribe: those called are the ones there before the move.
        for listener in tuple(self._listeners):
            listener()


class LoopClock:
    """The time of an event loop as a wall clock: ``start`` + ``loop.time()``.

    On a ``SimLoop`` it shows virtual seconds as instants.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, start: datetime = START) -> None:
        self._loop = loop
        self._origin = _aware(start)

    def now(self) -> datetime:
        return self._origin + self.boot()

    def boot(self) -> timedelta:
        return timedelta(seconds=self._loop.time())

    def jump(self, instant: datetime) -> None:
        """Set the wall clock to ``instant``, forwards or backwards. No time passes."""
        self._origin = _aware(instant) - self.boot()


def _aware(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError(
            f"{instant!r} has no time zone: give an aware instant, "
            "for example datetime(2030, 1, 1, tzinfo=UTC)."
        )
    return instant.astimezone(UTC)
