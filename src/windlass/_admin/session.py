"""The session that every part of ``app.admin`` is given: where to ask, and who acts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from windlass._admin.jobs.redaction import KeyMasks
from windlass._core.job.job import JobId
from windlass._core.values.names import check_text
from windlass._observe.bus import Bus
from windlass._plugins.installation import Installed
from windlass._settings.settings import Settings
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.storage import Storage
from windlass._tasks.task import TaskRegistry
from windlass.errors import InvalidArgument

__all__ = ["AdminSession", "Sweep", "SweepReport", "check_changes"]


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


class AdminSession(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the parts of ``app.admin`` need."""

    storage: Callable[[], Awaitable[Storage]]
    """Opens the storage on first use."""
    bus: Bus
    """Gets an event for each action that took effect."""
    settings: Settings
    new_ids: Callable[[int], Sequence[JobId]]
    masks: KeyMasks
    """Hide the digests of unique keys and limit keys."""
    tasks: TaskRegistry
    plugins: Mapping[str, Installed]
    """The plugins that are installed in this process, by name."""
    sweep: Sweep
    """Does once what workers do for each other; the room of workers is not known here."""
    who: str = "api"
    """The name in the audit record of each action."""

    def acting(self, who: str) -> AdminSession:
        """Return the same session, whose actions are recorded under the name ``who``."""
        return msgspec.structs.replace(self, who=check_text(who, "who"))

    def note(self, what: str, subject: str = "", detail: str = "") -> AuditNote:
        """Make the audit record of one action. A repeat of the action is recognised by its id."""
        (number,) = self.new_ids(1)
        return AuditNote(id=number, who=self.who, what=what, subject=subject, detail=detail)


def check_changes(given: Mapping[str, object], what: str) -> dict[str, Any]:
    """Keep the options that were given; refuse a change without any."""
    changes = {name: value for name, value in given.items() if value is not UNSET}
    if not changes:
        raise InvalidArgument(f"nothing to change on {what}: give {', '.join(given)}")
    return changes
