"""Where the navigation leads. An entry is shown once its page stands in the route table."""

from __future__ import annotations

import msgspec

__all__ = ["NAVIGATION", "Entry"]


class Entry(msgspec.Struct, frozen=True):
    """One line of it."""

    title: str
    path: str
    icon: str
    """A name of ``templates/parts/icons.html``."""
    key: str
    """``g`` and this letter lead there."""


NAVIGATION = (
    Entry("Overview", "/overview", "overview", "o"),
    Entry("Jobs", "/jobs", "jobs", "j"),
    Entry("Errors", "/errors", "errors", "e"),
    Entry("Queues", "/queues", "queues", "q"),
    Entry("Schedules", "/schedules", "schedules", "s"),
    Entry("Workers", "/workers", "workers", "w"),
    Entry("Limits", "/limits", "limits", "l"),
    Entry("Audit", "/audit", "audit", "a"),
    Entry("Storage", "/storage", "storage", "d"),
    Entry("Plugins", "/plugins", "plugins", "p"),
)
