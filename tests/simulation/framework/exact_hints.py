"""Hints that each go to one waiting worker, as a server with exact hints gives them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from tests.simulation.framework.loop import SimLoop
from tests.simulation.framework.process import SimProcess
from tests.simulation.world.faults import Faults

__all__ = ["ExactHints", "ExactHub"]


class ExactHub:
    """Wakes one waiting worker after each change. Some hints are lost: the others must poll."""

    def __init__(self, loop: SimLoop, faults: Faults) -> None:
        self._loop, self._faults = loop, faults
        self._waiting: list[ExactHints] = []
        self._left = False
        """Whether something changed while no worker waited."""

    def wake(self) -> None:
        """Something changed."""
        self._waiting = [hints for hints in self._waiting if hints.process.alive]
        if not self._faults.hears():
            return
        if not self._waiting:
            self._left = True
            return
        self.tell(self._waiting.pop(0))

    def wait(self, hints: ExactHints) -> None:
        """Wake this worker in its turn, or now if there is something left."""
        if hints in self._waiting:
            return
        if self._left:
            self._left = False
            self.tell(hints)
        else:
            self._waiting.append(hints)

    def tell(self, hints: ExactHints) -> None:
        """Deliver one hint, a little later."""
        at = self._loop.time() + self._faults.hint_delay()
        self._loop.call_at(at, hints.hear, context=hints.process.context.copy())

    def forget(self, hints: ExactHints) -> None:
        """Wake this worker no more."""
        if hints in self._waiting:
            self._waiting.remove(hints)


class ExactHints:
    """The `WorkHints` of one simulated worker."""

    exact: Final = True
    about: Final = ()

    def __init__(self, hub: ExactHub, process: SimProcess, callback: Callable[[], bool]) -> None:
        self._hub, self._callback = hub, callback
        self.process = process

    def want(self, queues: Collection[str]) -> None:
        """Wait for a hint, if it has room at all."""
        if queues:
            self._hub.wait(self)
        else:
            self._hub.forget(self)

    def hear(self) -> None:
        """Take a hint, or leave it to another worker."""
        if not self._callback():
            self._hub.wake()

    def close(self) -> None:
        """Hear no more."""
        self._hub.forget(self)
        self._callback = lambda: False
