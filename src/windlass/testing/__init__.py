"""For tests of what you build on Windlass: a clock that you move, and jobs that run when you say.

The conformance suite for backends is `windlass.testing.conformance`, the deterministic simulation
`windlass.testing.simulation`; the fixtures for pytest are in `windlass.testing.fixtures`.
"""

from windlass.testing.asserts import Enqueued, enqueued, enqueued_sync
from windlass.testing.clock import VirtualClock
from windlass.testing.drain import (
    Drained,
    NeverEmpty,
    RunsFailed,
    drain,
    drain_all,
    drain_all_sync,
    drain_sync,
)
from windlass.testing.inline import TooDeep, inline
from windlass.testing.isolation import isolated
from windlass.testing.stepper import StillRunning

__all__ = [
    "Drained",
    "Enqueued",
    "NeverEmpty",
    "RunsFailed",
    "StillRunning",
    "TooDeep",
    "VirtualClock",
    "drain",
    "drain_all",
    "drain_all_sync",
    "drain_sync",
    "enqueued",
    "enqueued_sync",
    "inline",
    "isolated",
]
