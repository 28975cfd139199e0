"""Time for the demo: a loop that skips whatever it would wait for, until it is told to go on live.

The past that the dashboard shows is the work of the real worker, client and storage. They run on
this loop and are told the time by `DemoClock`; where nobody has anything to do, time jumps to the
next timer, so that a day takes seconds.
"""

from __future__ import annotations

import asyncio
import selectors
from datetime import datetime, timedelta

from windlass.seams import SYSTEM_CLOCK, monotonic

__all__ = ["DemoClock", "DemoLoop"]


class DemoLoop(asyncio.SelectorEventLoop):
    """Skips waits while `live` is False."""

    def __init__(self) -> None:
        self.live: bool = False
        self._skipped = 0.0
        self._stood = 0.0
        super().__init__(_Skipping(self))

    def time(self) -> float:
        """In the past it moves by jumps alone, so that every demo has the same one."""
        return self._skipped + (monotonic() - self._stood if self.live else 0.0)

    def skip(self, seconds: float) -> None:
        """Take them for passed."""
        self._skipped += seconds

    def go_live(self) -> None:
        """From here on a second takes a second."""
        self._stood = monotonic()
        self.live = True


class _Skipping(selectors.DefaultSelector):
    """Where a loop waits: for files, and for its next timer."""

    def __init__(self, loop: DemoLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0 and not self._loop.live:
            self._loop.skip(timeout)
            timeout = 0
        return super().select(timeout)


class DemoClock:
    """The wall clock of that loop: ``start`` when the loop begins."""

    def __init__(self, loop: DemoLoop, start: datetime) -> None:
        self._loop = loop
        self._start = start

    def now(self) -> datetime:
        """Once live, the machine's own: the demo may have been suspended with it."""
        return SYSTEM_CLOCK.now() if self._loop.live else self._start + self.boot()

    def boot(self) -> timedelta:
        return timedelta(seconds=self._loop.time())
