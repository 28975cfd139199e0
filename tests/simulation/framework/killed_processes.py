"""Freeing what killed processes left behind, and not a moment too early."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["close_coroutine", "no_collector", "silence"]


@contextmanager
def no_collector() -> Iterator[None]:
    """Only reference counts free anything here, and they do it at the same moment every time.

    What they cannot free goes at the end. The collector would not come for it: it counts what is
    made while it is on, and between two simulations that is next to nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # All that was made meanwhile is in the two young generations: no need to look at the rest.
        gc.collect(1)
        if enabled:
            gc.enable()


@contextmanager
def silence() -> Iterator[None]:
    """What happens in here happens to the dead: nobody hears of it.

    A worker that is cut short looks through all objects for what has ended its event loop. Among
    the dead it finds nothing that matters, and looking takes longer than everything else in here.
    """
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    objects, gc.get_objects = gc.get_objects, lambda generation=None: []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = hook
        gc.get_objects = objects


def close_coroutine(coro: Any) -> None:
    """Make sure that freeing it runs nothing more."""
    for _ in range(100):  # a `finally` that awaits takes one more round for each await
        try:
            coro.close()
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001, S112 -- it happened to a process that is dead
            continue
        return
