"""An app on its own memory and its own clock, for as long as a test lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.app import Windlass
from windlass.client import Client
from windlass.errors import ConfigError
from windlass.seams import Seams
from windlass.storage.memory import MemoryDatabase
from windlass.storage.open import TRANSACTIONAL, Opener, check_url
from windlass.storage.protocol import UserInsertStore
from windlass.storage.timing import Timings
from windlass.testing.clock import VirtualClock

if TYPE_CHECKING:
    from windlass.testing.transactions import IsolatedTransactions

__all__ = ["arranged", "isolated", "memory_of", "opener_of", "virtual_clock"]


def _middle() -> float:
    """Chance held still: a spread backoff waits exactly what its curve says."""
    return 0.5


@contextmanager
def isolated(app: Windlass, *, clock: VirtualClock | None = None) -> Iterator[VirtualClock]:
    """Put ``app`` on a fresh memory store whose clock moves only when told to.

    Whatever its URL says, nothing is opened and no file is touched. Jobs enqueued with
    ``connection=`` are there once your transaction commits, as in production. At the end everything
    that was enqueued is gone, and the app's storage and ``app.state`` are what they were.
    """
    clock = VirtualClock() if clock is None else clock
    state = app.state
    try:
        with arranged(app, memory_of(app, clock), Client):
            yield clock
    finally:
        app.state = state


class Isolated(Opener):
    """Opens one memory store, which jobs of the user's transactions reach when these commit."""

    def __init__(self, app: Windlass, clock: VirtualClock) -> None:
        """The settings are those of ``app``, but for the URL."""
        super().__init__(msgspec.structs.replace(app.settings, url="memory://"), clock)
        self._memory = MemoryDatabase(clock=clock)
        self._transactions: IsolatedTransactions | None = None
        self._transactional = check_url(app.settings.url) in TRANSACTIONAL
        self.inline = False
        """Jobs run before the call that enqueues them returns: no transaction is waited for."""
        self.timings = _Patience(self)

    def transactions(self) -> UserInsertStore | None:
        """Jobs on connections of the user's, if the app's own storage can have them."""
        if self.inline or not self._transactional or self._memory is None:
            return None
        if self._transactions is None:
            # Only here: it needs the PostgreSQL driver, as connection= does.
            from windlass.testing.transactions import IsolatedTransactions  # noqa: PLC0415

            self._transactions = IsolatedTransactions(self._memory)
        return self._transactions

    def waits(self) -> bool:
        """Whether the end of a transaction may have been told and not been heard yet."""
        return self._transactions is not None and self._transactions.waits()


class _Patience(Timings):
    """Lets the event loop turn once before the store is asked, where there may be news."""

    def __init__(self, opener: Isolated) -> None:
        super().__init__()
        self._opener = opener

    def around(self, operation: Any, *, reads: bool) -> Any:
        """``operation``, timed, after the news."""
        timed = super().around(operation, reads=reads)

        async def after_news(*args: Any, **named: Any) -> Any:
            if self._opener.waits():
                await asyncio.sleep(0)
            return await timed(*args, **named)

        return after_news


def memory_of(app: Windlass, clock: VirtualClock) -> Isolated:
    """Opens a memory store that nobody else uses."""
    return Isolated(app, clock)


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
