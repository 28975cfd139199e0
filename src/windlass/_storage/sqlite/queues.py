"""Settings and cool-downs of queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import apsw
import msgspec

from windlass._core.limits.cooldown import MAX_STEPS
from windlass._core.limits.queue_settings import QueueSettings
from windlass._core.values.instants import add_clamped_us, span_us, us_or_none
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.admin.audit import keep_audit
from windlass._storage.sqlite.io.database import SqliteDatabase
from windlass._storage.sqlite.io.rows import Row, fetch, first, optional_instant, value_of
from windlass._storage.sqlite.limits.budgets import mark_charged, set_back_by

__all__ = ["CooldownChanges", "SqliteQueues", "pause", "paused_queues", "restore_queue", "resume"]

_SQL = load_sql("windlass._storage.sqlite.sql", "queues.sql")
_REST, _COOL = _SQL["rest"], _SQL["cool"]
_FORGET, _QUEUE = _SQL["forget"], _SQL["queue"]
_RESTORE = load_sql("windlass._storage.sqlite.sql", "copy.sql")["restore_queue"]
_SETTINGS, _CHANGE, _QUEUES = _SQL["settings"], _SQL["change"], _SQL["queues"]
_PAUSED, _PAUSE, _RESUME = _SQL["paused"], _SQL["pause"], _SQL["resume"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(QueueSettings).decode

_PLAIN = QueueSettings()


class CooldownChanges:
    """How the queues of one operation rest: changed in order, stored at its end."""

    def __init__(self, connection: apsw.Connection, now: int, forgivable: set[str]) -> None:
        """``forgivable``: queues whose cool-downs a success forgets."""
        self._connection, self._now = connection, now
        self._rests: dict[str, tuple[int | None, int]] = {}
        self._changed: set[str] = set()
        self._cooled = False
        self.forgivable = forgivable

    def cool(self, queue: str, cools: Sequence[timedelta], delay: timedelta) -> tuple[int, bool]:
        """Send a queue to rest; until when, and whether it did not rest already: many who hit one
        limiter are one hit. By a clock that was set back a rest begins where all others stand:
        `mend` moves it with them.
        """
        until, count = self._rest(queue)
        back = set_back_by(self._connection, self._now)
        if until is not None and until > self._now + back:
            return until - back, False
        wait = max(cools[min(count, len(cools) - 1)], delay)
        until = add_clamped_us(self._now + back, span_us(wait))
        self._set(queue, until, min(count + 1, MAX_STEPS))
        self._cooled = True
        return until - back, True

    def forgive(self, queue: str) -> None:
        """Reset the cool-downs of a queue after a success."""
        self._set(queue, None, 0)

    def store(self) -> None:
        """Write what has changed."""
        for queue in sorted(self._changed):
            self._connection.execute(_COOL, (queue, *self._rests[queue]))
            self._connection.execute(_FORGET, (queue,))
        if self._cooled:
            mark_charged(self._connection, self._now)

    def _set(self, queue: str, until: int | None, count: int) -> None:
        self._rests[queue] = (until, count)
        self._changed.add(queue)
        self.forgivable.discard(queue)

    def _rest(self, queue: str) -> tuple[int | None, int]:
        if queue not in self._rests:
            self._rests[queue] = first(self._connection, _REST, (queue,)) or (None, 0)
        return self._rests[queue]


class SqliteQueues:
    """A `QueueStore`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._db = database

    async def queues(self) -> Sequence[QueueRecord]:
        return await self._db.ask(
            lambda connection, _: [_record(row) for row in fetch(connection, _QUEUES)]
        )

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        def op(connection: apsw.Connection, now: int) -> bool:
            if not _change(connection, queue, new, old):
                return False
            keep_audit(connection, audit, 1, now)
            return True

        changed = await self._db.write(op)
        if changed:
            self._db.subscribers.wake({queue})
        return changed

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        def op(connection: apsw.Connection, now: int) -> None:
            if first(connection, _REST, (queue,)) is not None:
                connection.execute(_COOL, (queue, None, 0))
                connection.execute(_FORGET, (queue,))
            keep_audit(connection, audit, 1, now)

        await self._db.write(op)
        self._db.subscribers.wake({queue})


def _change(
    connection: apsw.Connection, queue: str, new: QueueSettings, old: QueueSettings
) -> bool:
    # Compared as settings: another release may write the same in other words.
    if _settings_of(value_of(connection, _SETTINGS, (queue,))) != old:
        return False
    text = None if new == _PLAIN else _encode(new).decode()
    connection.execute(_CHANGE, (queue, text, new.max_running))
    connection.execute(_FORGET, (queue,))
    return True


def _settings_of(text: str | None) -> QueueSettings:
    return _PLAIN if text is None else _decode(text)


def _record(row: Row) -> QueueRecord:
    queue, settings, paused, cool_until, cool_downs = row
    return QueueRecord(
        queue=queue,
        settings=_settings_of(settings),
        paused=bool(paused),
        cool_until=optional_instant(cool_until),
        cool_downs=cool_downs,
    )


def restore_queue(connection: apsw.Connection, record: QueueRecord) -> bool:
    """Take over what was known of a queue elsewhere; False: that is known here already."""
    name, settings = record.queue, record.settings
    stored = first(connection, _QUEUE, (name,))
    if record == (QueueRecord(queue=name) if stored is None else _record(stored)):
        return False
    text = None if settings == _PLAIN else _encode(settings).decode()
    until = us_or_none(record.cool_until)
    values = (int(record.paused), text, settings.max_running, until, record.cool_downs)
    connection.execute(_RESTORE, (name, *values))
    connection.execute(_FORGET, (name,))
    return True


def paused_queues(connection: apsw.Connection) -> set[str]:
    """List the paused queues."""
    return {name for (name,) in fetch(connection, _PAUSED)}


def pause(connection: apsw.Connection, queue: str) -> None:
    """Let a queue give nothing."""
    connection.execute(_PAUSE, (queue,))


def resume(connection: apsw.Connection, queue: str) -> None:
    """Let it give again."""
    connection.execute(_RESUME, (queue,))
    connection.execute(_FORGET, (queue,))
