"""Events: what happened to jobs, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from windlass._admin.jobs.events import EventFilter
from windlass._client.event_log import EVENT_KINDS
from windlass._web.request import PageRequest

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["events", "read_live_state"]

_SIZE = 50
_WORDS = ("task", "queue", "worker", "job")
_BADGES = {
    "enqueued": "scheduled",
    "started": "running",
    "succeeded": "succeeded",
    "failed": "failed",
    "retried": "retrying",
    "throttled": "retrying",
    "snoozed": "retrying",
    "cancelled": "cancelled",
    "discarded": "discarded",
    "expired": "discarded",
}
"""The colour of an event: that of the state it leads to."""


async def events(visit: PageRequest) -> Response:
    """Return the page."""
    kind, after = visit.asked("kind"), visit.asked("after")
    words = {name: visit.asked(name).strip() for name in _WORDS}
    wanted = EventFilter(
        kinds=[kind] if kind else (), **{name: value or None for name, value in words.items()}
    )
    page = await visit.admin.storage.timeline(wanted, limit=_SIZE, after=after or None)
    return await visit.render(
        "events.html",
        now=await visit.admin.storage.now(),
        kind=kind,
        kinds=[("", "All"), *((one, one) for one in EVENT_KINDS)],
        words=words,
        narrow=bool(kind or any(words.values())),
        rows=[(event, _BADGES.get(event.kind, "ready")) for event in page.events],
        reached=page.reached,
        next=visit.changed(after=page.next) if page.next is not None else None,
        back=visit.changed(after=None) if after else None,
    )


async def read_live_state(admin: Admin) -> object:
    """Return the newest."""
    return (await admin.storage.timeline(limit=1)).events
