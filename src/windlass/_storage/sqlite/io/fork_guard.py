"""A fork waits until no thread of this process is inside SQLite.

SQLite keeps for each file which locks this process holds. A child forked in the middle of a
transaction inherits that belief: it waits for a writer that it is itself, for ever. A statement
under way leaves behind a locked mutex, or a read mark that protects nobody.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType

from windlass._system.seams import monotonic

__all__ = ["FORK_GUARD", "ForkGuard"]

_PATIENCE = 10.0
"""A fork is held up no longer than this: a disk may take its time with one sync."""


class ForkGuard:
    """Held, by any number of threads at once, around everything done to a connection.

    Reentrant. Never held while waiting for another process: a fork would wait as well.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Nobody is inside. In a forked child the other threads are gone, and what they held."""
        self._changed = threading.Condition()
        self._inside: dict[int, int] = {}
        self._forks = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._changed:
            depth = self._inside.get(me, 0)
            while self._forks and not depth:
                self._changed.wait()
            self._inside[me] = depth + 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        me = threading.get_ident()
        with self._changed:
            depth = self._inside.pop(me, 1) - 1
            if depth:
                self._inside[me] = depth
            elif self._forks:
                self._changed.notify_all()

    def shut(self) -> None:
        """Before a fork: let nobody in and wait for the others to come out."""
        self._changed.acquire()  # until after the fork, so that the child's copy is in order
        self._forks += 1
        deadline = monotonic() + _PATIENCE
        while self._inside.keys() - {threading.get_ident()} and monotonic() < deadline:
            self._changed.wait(deadline - monotonic())

    def open(self) -> None:
        """After it, in the parent."""
        self._forks -= 1
        self._changed.notify_all()
        self._changed.release()


FORK_GUARD = ForkGuard()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FORK_GUARD.shut, after_in_parent=FORK_GUARD.open, after_in_child=FORK_GUARD.renew
    )
