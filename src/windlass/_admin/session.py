"""What every part of the admin stands on."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Self

from msgspec import UNSET

from windlass._admin.jobs.redaction import KeyMasks
from windlass._core.job.job import JobId
from windlass._core.values.names import check_text
from windlass._observe.bus import Bus
from windlass._plugins.installation import Installed
from windlass._settings.settings import Settings
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.storage import Storage
from windlass._tasks.registry import TaskRegistry
from windlass.errors import InvalidArgument

__all__ = ["AdminSession", "check_changes"]

_NO_PLUGINS: Mapping[str, Installed] = MappingProxyType({})


class AdminSession:
    """Asks a storage that is opened on first use; accepted orders are told on the bus."""

    def __init__(
        self,
        storage: Callable[[], Awaitable[Storage]],
        bus: Bus,
        settings: Settings,
        new_ids: Callable[[int], Sequence[JobId]],
        *,
        tasks: TaskRegistry | None = None,
        plugins: Mapping[str, Installed] = _NO_PLUGINS,
    ) -> None:
        """``storage`` opens on first use; accepted orders are told on ``bus``. ``tasks`` and
        ``plugins``: those of the app.
        """
        self._registry = TaskRegistry() if tasks is None else tasks
        self._installed = plugins
        self._storage = storage
        self._bus = bus
        self._settings = settings
        self._new_ids = new_ids
        self._who = "api"
        self._shades = KeyMasks(storage)

    def acting(self, who: str) -> Self:
        """The same for somebody else: orders are recorded under the name ``who``."""
        other = copy.copy(self)
        other._who = check_text(who, "who")  # noqa: SLF001 -- one of our own
        return other

    async def now(self) -> datetime:
        """The store's clock, by which every instant it tells is to be read."""
        return await (await self._storage()).now()

    def _note(self, what: str, subject: str = "", detail: str = "") -> AuditNote:
        """For the record of one order; a repeat of the very same is recognised by it."""
        (number,) = self._new_ids(1)
        return AuditNote(id=number, who=self._who, what=what, subject=subject, detail=detail)


def check_changes(given: Mapping[str, object], what: str) -> dict[str, Any]:
    """Keep what was said; refuse a change that says nothing."""
    changes = {name: value for name, value in given.items() if value is not UNSET}
    if not changes:
        raise InvalidArgument(f"say what to change of {what}: {', '.join(given)}")
    return changes
