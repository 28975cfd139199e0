"""One event, many listeners."""

from __future__ import annotations

import logging
from collections.abc import Callable

from windlass.core.event import Event

__all__ = ["Bus", "Listener"]

Listener = Callable[[Event], None]
log = logging.getLogger("windlass")


class Bus:
    """Hands events to listeners, after the commit, in the writing process. Jobs never notice."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        """Start with nobody listening."""
        self._listeners: tuple[Listener, ...] = ()

    @property
    def heard(self) -> bool:
        """Whether anybody listens: events nobody hears are not built."""
        return bool(self._listeners)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; the answer removes it."""
        self._listeners = (*self._listeners, listener)

        def undo() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return undo

    def publish(self, event: Event) -> None:
        """Tell everybody. A listener that raises is logged and the next one is told."""
        for listener in self._listeners:
            try:
                listener(event)
            except KeyboardInterrupt:
                raise
            except BaseException:
                # Also what is no ordinary exception: it would end the loop that stores outcomes.
                log.exception("listener %r failed on %s", listener, type(event).__name__)
