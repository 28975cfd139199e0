"""An app on its own memory and its own clock, for as long as a test lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from windlass.app import Windlass
from windlass.client import Client
from windlass.errors import ConfigError
from windlass.seams import Seams
from windlass.storage.open import Opener
from windlass.testing.clock import VirtualClock

__all__ = ["arranged", "isolated", "memory_of", "opener_of", "virtual_clock"]


def _middle() -> float:
    """Chance held still: a spread backoff waits exactly what its curve says."""
    return 0.5


@contextmanager
def isolated(app: Windlass, *, clock: VirtualClock | None = None) -> Iterator[VirtualClock]:
    """Put ``app`` on a fresh memory store whose clock moves only when told to.

    Whatever its URL says, nothing is opened and no file is touched. At the end everything that
    was enqueued is gone, and the app's storage and ``app.state`` are what they were.
    """
    clock = VirtualClock() if clock is None else clock
    state = app.state
    try:
        with arranged(app, memory_of(app, clock), Client):
            yield clock
    finally:
        app.state = state


def memory_of(app: Windlass, clock: VirtualClock) -> Opener:
    """Opens a memory store that nobody else uses."""
    return Opener(msgspec.structs.replace(app.settings, url="memory://"), clock)


@contextmanager
def arranged(app: Windlass, opener: Opener, make_client: Callable[..., Client]) -> Iterator[None]:
    """Give the app this storage and this client; what the block started is stopped at its end."""
    blocking_before = app.blocking.loop
    try:
        seams = Seams(chance=_middle, wall=opener.clock.now)
        with app._arranged(opener, seams, make_client):  # noqa: SLF001
            yield
    finally:
        if app.blocking.loop is not blocking_before:
            app.blocking.stop()


def opener_of(app: Windlass) -> Opener:
    """What opens the app's storages now; refused unless they live in memory."""
    opener = app._opener  # noqa: SLF001
    if opener.scheme != "memory":
        message = (
            f"{app!r} is not isolated: a test would run the jobs of its real storage. Wrap "
            f"the test in `with windlass.testing.isolated(app):`, use the fixture "
            f"windlass_isolated, or give the app the URL memory://."
        )
        raise ConfigError(message)
    return opener


def virtual_clock(app: Windlass) -> VirtualClock:
    """The clock an isolated app lives by."""
    clock = opener_of(app).clock
    if not isinstance(clock, VirtualClock):
        message = (
            f"{app!r} lives by the machine's clock, which no test can move. Wrap the test in "
            f"`with windlass.testing.isolated(app):`."
        )
        raise ConfigError(message)
    return clock
