"""An app on a memory store and a virtual clock, for as long as a test lasts."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import msgspec

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._client.connections import MakeClient
from windlass._storage.memory import MemoryDatabase
from windlass._storage.open import TRANSACTIONAL, StorageOpener, check_url
from windlass._storage.protocol.storage import Storage, Stores
from windlass._storage.protocol.transactions import UserInsertStore
from windlass._system.seams import Seams
from windlass.errors import ConfigError
from windlass.testing._clock import VirtualClock

if TYPE_CHECKING:
    from windlass.testing._transactions import IsolatedTransactions

__all__ = [
    "PlainContext",
    "isolated",
    "open_isolated_memory",
    "open_storage",
    "opener_of",
    "override_storage",
    "virtual_clock",
]

T_co = TypeVar("T_co", covariant=True)

_STORES = {name for name, kind in vars(Stores).items() if isinstance(kind, property)}
_ASKED_STORES = frozenset(_STORES - {"wakeups", "transactions"})


def _middle() -> float:
    """Return the middle of the range: a spread backoff then waits exactly as long as its curve
    says.
    """
    return 0.5


class PlainContext(AbstractContextManager[T_co], ContextDecorator):
    """A context manager for ``with``, also in coroutines; ``async with`` is refused with advice."""

    def __init__(self, name: str, enter: Callable[[], AbstractContextManager[T_co]]) -> None:
        """Keep both. ``name``: the function that users call. ``enter``: makes the context to
        enter.
        """
        self._name = name
        self._enter = enter
        self._entered: list[AbstractContextManager[T_co]] = []

    def __enter__(self) -> T_co:
        """Enter it. A decorated function that calls itself enters it several times."""
        context = self._enter()
        found = context.__enter__()
        self._entered.append(context)
        return found

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Leave the context that was entered last."""
        return self._entered.pop().__exit__(kind, error, trace)

    if not TYPE_CHECKING:  # a type checker says so by itself

        async def __aenter__(self) -> NoReturn:
            """Refuse ``async with``: there is nothing to wait for."""
            message = (
                f"{self._name}(app) is a plain context manager, also in async tests: write "
                f"`with {self._name}(app):` instead of `async with`"
            )
            raise TypeError(message)

        async def __aexit__(self, *error: object) -> None:
            """Satisfy Python, which needs it to try ``__aenter__``. Never called."""


def isolated(app: Windlass, *, clock: VirtualClock | None = None) -> PlainContext[VirtualClock]:
    """Give ``app`` a fresh memory store and a virtual clock.

        with isolated(app) as clock: ...

    Use plain ``with`` in async tests too. The app's own storage is not opened, and no file is
    touched. Jobs enqueued with ``connection=`` appear once your transaction commits, as in
    production. At the end all jobs are gone, and the app has its storage and ``app.state`` again.
    """
    return PlainContext("isolated", lambda: _isolated(app, clock))


@contextmanager
def _isolated(app: Windlass, clock: VirtualClock | None) -> Iterator[VirtualClock]:
    clock = VirtualClock() if clock is None else clock
    hooks = parts_of(app).hooks
    state = hooks.state
    try:
        with override_storage(app, open_isolated_memory(app, clock)):
            yield clock
    finally:
        hooks.set_state(state)


class MemoryOpener(StorageOpener):
    """Opens one memory store. Jobs of the user's transactions are added when these commit."""

    def __init__(self, app: Windlass, clock: VirtualClock) -> None:
        """Make the store with the settings of ``app``, but for the URL."""
        super().__init__(msgspec.structs.replace(app.settings, url="memory://"), clock)
        self._memory = MemoryDatabase(clock=clock, timings=self.timings)
        self._transactions: IsolatedTransactions | None = None
        self._transactional = check_url(app.settings.url) in TRANSACTIONAL
        self._inline = False

    async def open(self) -> Storage:
        """Open the memory store for the running event loop."""
        storage = await super().open()
        return cast("Storage", _LoopTurns(storage, self.waits)) if self._transactional else storage

    def transactions(self) -> UserInsertStore | None:
        """Return the store for the user's connections, if the app's own storage supports them."""
        if self._inline or not self._transactional or self._memory is None:
            return None
        if self._transactions is None:
            # Only here: it needs the PostgreSQL driver, as connection= does.
            from windlass.testing._transactions import IsolatedTransactions  # noqa: PLC0415

            self._transactions = IsolatedTransactions(self._memory)
        return self._transactions

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Store jobs of the user's transactions at once: they run before the enqueueing call
        returns.
        """
        before, self._inline = self._inline, True
        try:
            yield
        finally:
            self._inline = before

    def waits(self) -> bool:
        """Tell whether a commit or rollback may have happened that was not seen yet."""
        return self._transactions is not None and self._transactions.waits()


class _LoopTurns:
    """A storage, or one of its stores, that lets the event loop turn once before a call, if the end
    of a transaction may be under way.
    """

    def __init__(self, inner: object, may_be_news: Callable[[], bool]) -> None:
        self._inner = inner
        self._may_be_news = may_be_news

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in _ASKED_STORES and not callable(found):  # a store may have such an operation
            return _LoopTurns(found, self._may_be_news)
        if not inspect.iscoroutinefunction(found):
            return found

        async def after_news(*args: Any, **named: Any) -> Any:
            if self._may_be_news():
                await asyncio.sleep(0)
            return await found(*args, **named)

        return after_news


def open_isolated_memory(app: Windlass, clock: VirtualClock) -> MemoryOpener:
    """Open a memory store that no other test uses."""
    return MemoryOpener(app, clock)


@contextmanager
def override_storage(
    app: Windlass, opener: StorageOpener, make_client: MakeClient | None = None
) -> Iterator[None]:
    """Give the app this storage and this client. Stop what the block started at its end."""
    seams = Seams(chance=_middle, wall=opener.clock.now)
    with parts_of(app).on_storage(opener, seams, make_client):
        yield


async def open_storage(app: Windlass) -> Storage:
    """Open the storage of ``app`` for this event loop, for tests that read the store itself."""
    return await parts_of(app).storage()


def opener_of(app: Windlass) -> StorageOpener:
    """Return the opener of the app's storages; refused unless they are in memory."""
    opener = parts_of(app).connections.opener
    if opener.scheme != "memory":
        message = (
            f"{app!r} is not isolated: a test would run the jobs of its real storage. Wrap "
            f"the test in `with windlass.testing.isolated(app):`, use the fixture "
            f"windlass_isolated, or give the app the URL memory://."
        )
        raise ConfigError(message)
    return opener


def virtual_clock(app: Windlass) -> VirtualClock:
    """Return the clock of an isolated app."""
    clock = opener_of(app).clock
    if not isinstance(clock, VirtualClock):
        message = (
            f"{app!r} uses the machine's clock, which no test can move. Wrap the test in "
            f"`with windlass.testing.isolated(app):`."
        )
        raise ConfigError(message)
    return clock
