"""Tools for testing your tasks: a clock that you move, and jobs that run when you say so.

The conformance suite for backends is `windlass.testing.conformance`; the fixtures for pytest are in
`windlass.testing.fixtures`. Nothing here is imported by the rest of the package.
"""

from windlass.testing._clock import VirtualClock
from windlass.testing._drain import (
    Drained,
    NeverEmpty,
    RunsFailed,
    drain,
    drain_all,
    drain_all_sync,
    drain_sync,
)
from windlass.testing._enqueued import Enqueued, enqueued, enqueued_sync
from windlass.testing._inline import TooDeep, inline
from windlass.testing._isolation import isolated, open_storage
from windlass.testing._replaced import replaced
from windlass.testing._stepper import StillRunning

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
    "open_storage",
    "replaced",
]
