"""The handle of a run that its handler holds: whether it should end, and what its end stores."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import msgspec

from windlass._core.flows.flow import Addition, NewFlow
from windlass._core.values.metadata import Metadata, merge_metadata
from windlass.errors import InvalidArgument, WindlassError

__all__ = ["MOST_ADDED", "RUN_ENDED", "CancelToken", "count_jobs", "too_many_added"]

_MAKING = threading.Lock()

MOST_ADDED = 10_000
"""Jobs that one success may add: they are one write, and every other write waits for it."""

RUN_ENDED = (
    "ctx.then(...) was called after the run had ended, so nothing is stored. Call it in the "
    "handler, or in what the handler waits for; elsewhere enqueue the call"
)


def too_many_added(number: int) -> str:
    """Return the message for a run that adds too many jobs."""
    return (
        f"ctx.then(...) would store {number:,} jobs with one success, and at most {MOST_ADDED:,} "
        f"are allowed. Add jobs that each add a part of them with ctx.then(...), or use "
        f"app.enqueue_many(...) or app.start(flow), which do not wait for the success"
    )


def count_jobs(added: Iterable[Addition]) -> int:
    """Return the number of jobs in what a run adds."""
    return sum(len(one.jobs) if isinstance(one, NewFlow) else 1 for one in added)


class CancelToken(msgspec.Struct, eq=False):
    """Tells whether the run should end. Safe to read from any thread."""

    _event: threading.Event | None = None
    wish: timedelta | None = None
    """Run the job again after this time, once the run has succeeded."""
    metadata: Metadata | None = None
    """The facts that the handler has noted."""
    added: list[Addition] | None = None
    """The jobs and flows to store with the success; None: the handler has added none."""
    closed: bool = False
    """The run has ended: no more jobs can be added."""

    def put_off(self, after: timedelta) -> None:
        """Let the job run again after the end of this run."""
        self.wish = after

    def note(self, added: Mapping[str, object]) -> Metadata:
        """Add facts about the run; all of them. Safe from any thread."""
        with _MAKING:
            self.metadata = merge_metadata(self.metadata or {}, added)
            return self.metadata

    def add(self, more: Sequence[Addition]) -> None:
        """Add jobs and flows to store with the success; all or none. Safe from any thread."""
        with _MAKING:
            if self.added is None:
                self.added = []
            before, jobs = len(self.added), count_jobs([*self.added, *more])
            if jobs > MOST_ADDED:
                raise InvalidArgument(too_many_added(jobs))
            self.added += more
            # After they were added: the end of the run sets `closed` first, then looks at `added`,
            # without the lock. So it sees them, or they are taken back here.
            if self.closed:
                del self.added[before:]
                raise WindlassError(RUN_ENDED)

    def take_added(self) -> tuple[Addition, ...]:
        """Return the jobs and flows that were added. The run is closed."""
        with _MAKING:
            return tuple(self.added or ())

    def set(self) -> None:
        """Ask the run to end."""
        self._waitable().set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block a thread until the run should end; True when it should."""
        return self._waitable().wait(timeout)

    def __bool__(self) -> bool:
        """Tell whether the run should end."""
        return self._event is not None and self._event.is_set()

    def _waitable(self) -> threading.Event:
        # Made on demand: an Event costs more than all other bookkeeping of a no-op job. Under a
        # lock: the loop may set it while the handler's thread begins to wait.
        if self._event is None:
            with _MAKING:
                if self._event is None:
                    self._event = threading.Event()
        return self._event
