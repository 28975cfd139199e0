"""What a simulation can find wrong by itself."""

from __future__ import annotations

__all__ = ["Deadlock", "Livelock", "NotSimulated", "Overrun", "SimulationError"]


class SimulationError(Exception):
    """The simulation itself found something wrong."""


class Deadlock(SimulationError):
    """Nothing is ready and no timer is set: what waits now waits for ever."""


class Livelock(SimulationError):
    """Callbacks run on and on while time stands still."""


class Overrun(SimulationError):
    """The virtual time is up and main has not ended."""


class NotSimulated(SimulationError):
    """The code reached for the outside world: a thread, a socket, a child process, a signal."""
