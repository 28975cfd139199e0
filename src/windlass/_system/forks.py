"""Fork handling: the one place that keeps state for the whole process.

A forked child has copies of its parent's connections, loops and locks, and none of its threads. It
must neither use nor close what belongs to the parent.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from types import TracebackType
from typing import Protocol

__all__ = [
    "FORK_GUARD",
    "ForkGuard",
    "RenewedInChild",
    "keep_in_child",
    "keep_open",
    "may_close",
    "renew_in_child",
]

_PATIENCE = 10.0
"""A fork is held up no longer than this: a disk may take its time with one sync."""


class RenewedInChild(Protocol):
    """Something that a forked child starts anew."""

    def renew(self) -> None:
        """Forget what belongs to the parent. Called in the child, before other code runs there."""
        ...


_renewed: weakref.WeakSet[RenewedInChild] = weakref.WeakSet()
_opened: weakref.WeakSet[object] = weakref.WeakSet()
_inherited: list[object] = []
"""Objects that a parent opened. A child holds them for ever, so that no destructor closes them."""


def renew_in_child(part: RenewedInChild) -> None:
    """Let forked children call ``part.renew()``, if it is still in use then."""
    _renewed.add(part)


def keep_in_child(opened: object) -> None:
    """Let forked children hold ``opened``, as `keep_open` does; here it may go at any time."""
    _opened.add(opened)


def may_close(opened: object) -> bool:
    """Say whether this process, and not its parent, opened it. Asked once, before closing it."""
    here = opened in _opened
    _opened.discard(opened)
    return here


def keep_open(*inherited: object) -> None:
    """Hold these while the process lives. Called in a child, for what its parent opened."""
    _inherited.extend(inherited)


class ForkGuard:
    """A fork waits until no thread of this process is inside.

    Held, by any number of threads at once, around code that a fork must not cut in two. Reentrant.
    Never held while waiting for another process: a fork would wait as well.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Let everybody in. In a forked child the other threads are gone, and what they held."""
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
        """Let no thread in, and wait for the others to come out. Called before a fork."""
        self._changed.acquire()  # until after the fork, so that the child's copy is in order
        self._forks += 1
        deadline = time.monotonic() + _PATIENCE
        while self._inside.keys() - {threading.get_ident()} and time.monotonic() < deadline:
            self._changed.wait(deadline - time.monotonic())

    def open(self) -> None:
        """Let threads in again. Called after a fork, in the parent."""
        self._forks -= 1
        self._changed.notify_all()
        self._changed.release()


FORK_GUARD = ForkGuard()


def _in_child() -> None:
    FORK_GUARD.renew()
    keep_open(*_opened)
    _opened.clear()
    for part in list(_renewed):
        part.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FORK_GUARD.shut, after_in_parent=FORK_GUARD.open, after_in_child=_in_child
    )
