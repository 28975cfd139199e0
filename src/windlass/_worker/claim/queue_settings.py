"""Queue settings as this worker knows them: about a second old at most."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.protocol.queues import QueueStore

__all__ = ["QueueSettingsCache"]

_PLAIN = QueueSettings()


class QueueSettingsCache:
    """The settings of every queue that has some."""

    def __init__(self, store: QueueStore, on_change: Callable[[], None]) -> None:
        """``on_change`` is called when something was set: what was made by it is out of date."""
        self._store = store
        self._on_change = on_change
        self._known: Mapping[str, QueueSettings] = {}

    def __getitem__(self, queue: str) -> QueueSettings:
        """Return the settings of a queue; the defaults if none are set."""
        return self._known.get(queue, _PLAIN)

    async def step(self) -> None:
        """Look again."""
        records = await self._store.queues()
        known = {one.queue: one.settings for one in records if one.settings != _PLAIN}
        if known != self._known:
            self._known = known
            self._on_change()

    @property
    def keep_succeeded(self) -> Mapping[str, timedelta]:
        """By queue, where it is not the app's own."""
        kept = {queue: one.keep_succeeded for queue, one in self._known.items()}
        return {queue: age for queue, age in kept.items() if age is not None}

    @property
    def keep_failed(self) -> Mapping[str, timedelta]:
        """By queue, where it is not the app's own."""
        kept = {queue: one.keep_failed for queue, one in self._known.items()}
        return {queue: age for queue, age in kept.items() if age is not None}
