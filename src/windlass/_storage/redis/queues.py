"""Settings and cool-downs of queues."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from windlass._core.limits.queue_settings import QueueSettings
from windlass._core.values.instants import instant_of
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.redis.admin.audit import note_bytes
from windlass._storage.redis.io.database import RedisDatabase
from windlass._storage.redis.io.scripts import script

__all__ = ["RedisQueues", "settings_text"]

_QUEUES, _SETTINGS = script("queues"), script("settings_of")
_CHANGE, _WARM = script("change_queue"), script("warm")

_BRAKE: Final = struct.Struct(">dII")
_PLAIN: Final = QueueSettings()

_json = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(QueueSettings).decode


class RedisQueues:
    """A `QueueStore`."""

    def __init__(self, database: RedisDatabase) -> None:
        self._db = database

    async def queues(self) -> Sequence[QueueRecord]:
        settings, paused, brakes = await self._db.run_aside(_QUEUES)
        set_for = dict(zip(settings[::2], settings[1::2], strict=True))
        held = dict(zip(brakes[::2], brakes[1::2], strict=True))
        return [
            _record(queue, set_for.get(queue, b""), held.get(queue, b""), paused=queue in paused)
            for queue in sorted({*set_for, *paused, *held})
        ]

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        # Compared as settings, because one of them may be written in several ways; the script
        # then sees to it that nothing has changed since.
        text = settings_text(new)
        while True:
            stored = await self._db.run_aside(_SETTINGS, queue)
            if _settings_of(stored) != old:
                return False
            given = (queue, stored, text, new.max_running or 0, note_bytes(audit))
            if await self._db.run_aside(_CHANGE, *given):
                self._db.wake({queue})
                return True

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await self._db.run_aside(_WARM, queue, note_bytes(audit))
        self._db.wake({queue})


def settings_text(settings: QueueSettings) -> bytes:
    """Return settings as they are stored; empty if none are set."""
    return b"" if settings == _PLAIN else _json(settings)


def _settings_of(text: bytes) -> QueueSettings:
    return _decode(text) if text else _PLAIN


def _record(queue: bytes, text: bytes, brake: bytes, *, paused: bool) -> QueueRecord:
    until, cool_downs, _ = _BRAKE.unpack(brake) if brake else (0, 0, 0)
    return QueueRecord(
        queue=queue.decode(),
        settings=_settings_of(text),
        paused=paused,
        cool_until=instant_of(int(until)) if until else None,
        cool_downs=cool_downs,
    )
