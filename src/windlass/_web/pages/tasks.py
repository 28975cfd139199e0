"""Tasks: the jobs of each that wait and run, its recent outcomes and its last error."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from starlette.responses import Response

from windlass._core.stats.rollup import minute_of
from windlass._web.render.paging import page_rows
from windlass._web.request import PageRequest

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["read_live_state", "tasks"]

_RANGES = {
    "1h": (timedelta(hours=1), "1 h"),
    "": (timedelta(days=1), "24 h"),
    "7d": (timedelta(days=7), "7 days"),
}


async def tasks(visit: PageRequest) -> Response:
    """Show the page."""
    asked = visit.asked("range")
    chosen = asked if asked in _RANGES else ""
    found = await visit.admin.tasks.list(within=_RANGES[chosen][0])
    part = page_rows(visit, found)
    return await visit.render(
        "tasks.html",
        now=await visit.admin.storage.now(),
        part=part,
        at_least=any(one.at_least for one in found),
        span=_RANGES[chosen][1],
        ranges=[
            (words, visit.changed(range=name or None, page=None), name == chosen)
            for name, (_, words) in _RANGES.items()
        ],
    )


async def read_live_state(admin: Admin) -> object:
    """Read the counts of queues and the latest minute: counting by task would cost too much."""
    now = await admin.storage.now()
    lately = await admin.stats.rollups(minute_of(now), now + timedelta(minutes=1))
    ended = [(one.task, sorted(one.counts.items())) for one in lately]
    counts = await admin.queues.counts()
    return ended, [(one.queue, one.ready, one.scheduled, one.running) for one in counts]
