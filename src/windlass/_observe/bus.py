"""One event, many listeners."""

from __future__ import annotations

import logging
from collections.abc import Callable

from windlass._core.job.event import Event

__all__ = ["Bus", "Listener"]

Listener = Callable[[Event], None]
log = logging.getLogger("windlass")


class Bus:
    """Hands events to listeners, after the commit, in the writing process. Jobs never notice."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        """Start without listeners."""
        self._listeners: tuple[tuple[Listener, Callable[[], bool]], ...] = ()

    @property
    def heard(self) -> bool:
        """Whether something listens to every event: what nothing hears is not built."""
        for _, wants_all in self._listeners:  # noqa: SIM110 -- asked for every batch
            if wants_all():
                return True
        return False

    @property
    def alert(self) -> bool:
        """Whether something listens at least to what goes wrong."""
        return bool(self._listeners)

    def has(self, kind: type[object]) -> bool:
        """Return whether a listener of this class is there."""
        return any(isinstance(one, kind) for one, _ in self._listeners)

    def subscribe(
        self, listener: Listener, *, wants_all: Callable[[], bool] = lambda: True
    ) -> Callable[[], None]:
        """Add a listener; the answer removes it.

        ``wants_all`` is asked time and again: while it says no, the listener may miss what is not
        a retry, a failure or a throttle.
        """
        mine = (listener, wants_all)
        self._listeners = (*self._listeners, mine)

        def undo() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not mine)

        return undo

    def publish(self, event: Event) -> None:
        """Call every listener. If one raises, the error is logged and the next one is called."""
        for listener, _ in self._listeners:
            try:
                listener(event)
            except KeyboardInterrupt:
                raise
            except BaseException:
                # Also what is no ordinary exception: it would end the loop that stores outcomes.
                log.exception("listener %r failed on %s", listener, type(event).__name__)
