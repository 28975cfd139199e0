"""What forks need. The one place that keeps state for the whole process.

A forked child has copies of its parent's connections, loops and locks, and none of its threads. It
must neither use nor close what belongs to the parent.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Protocol

__all__ = ["RenewedInChild", "around_forks", "keep_in_child", "keep_open", "renew_in_child"]


class RenewedInChild(Protocol):
    """Something that a forked child starts anew."""

    def renew(self) -> None:
        """Forget what belongs to the parent. Called in the child, before anything else runs."""
        ...


_renewed: weakref.WeakSet[RenewedInChild] = weakref.WeakSet()
_kept_in_child: weakref.WeakSet[object] = weakref.WeakSet()
_inherited: list[object] = []
"""What a parent opened. A child holds it for ever, so that no destructor closes it."""


def keep_open(*inherited: object) -> None:
    """Hold these while the process lives. Called in a child, for what its parent opened."""
    _inherited.extend(inherited)


def keep_in_child(thing: object) -> None:
    """Let forked children hold ``thing``, as `keep_open` does; here it may go at any time."""
    _kept_in_child.add(thing)


def renew_in_child(part: RenewedInChild) -> None:
    """Let forked children call ``part.renew()``, if it is still in use then."""
    _renewed.add(part)


def around_forks(
    *, before: Callable[[], None], in_parent: Callable[[], None], in_child: Callable[[], None]
) -> None:
    """Call these around every fork of this process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def _in_child() -> None:
    keep_open(*_kept_in_child)
    _kept_in_child.clear()
    for part in list(_renewed):
        part.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
