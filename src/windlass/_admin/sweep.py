"""The result of a sweep: what a worker does for others, done once on request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

__all__ = ["Sweep", "SweepReport"]


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a sweep."""

    dead: Sequence[str] = ()
    """Workers that were declared dead."""
    released: int = 0
    """Jobs of dead workers that were given back, or failed by their rules."""
    promoted: int = 0
    """Waiting jobs that have fallen due and were marked ready."""


Sweep = Callable[[], Awaitable[SweepReport]]
"""Looks for dead workers, releases their jobs and promotes due jobs."""
