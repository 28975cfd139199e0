"""What a newer Windlass does to a store: it raises the stored version to the next major one."""

from __future__ import annotations

from windlass._storage.memory import MemoryStorage
from windlass._storage.postgres import PostgresStorage
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import RedisStorage
from windlass._storage.sqlite import SqliteStorage

__all__ = ["downgraded", "upgraded"]

_RAISE = """
INSERT INTO windlass.schema_versions (version)
SELECT (max(version) / 100 + 1) * 100 FROM windlass.schema_versions
"""
_LOWER = "DELETE FROM windlass.schema_versions WHERE version > $1"


async def downgraded(storage: Storage) -> None:
    """Leave a schema that is used again as it was."""
    if isinstance(storage, PostgresStorage):
        await storage._db.fetch(storage._db.sql(_LOWER), storage._db.known)


async def upgraded(storage: Storage) -> None:
    """Raise the stored version; nothing else changes."""
    match storage:
        case MemoryStorage():
            storage._db.version += 1
        case SqliteStorage():
            newer = storage._db.last_known + 1
            await storage._db.write(lambda connection, _: connection.pragma("user_version", newer))
        case PostgresStorage():
            await storage._db.fetch(storage._db.sql(_RAISE), again=False)
        case RedisStorage():
            line, prefix = storage._db.side, storage._db.prefix
            layout, _, jobs = (await line.ask("GET", prefix + "epoch")).decode().partition("-")
            await line.ask("SET", prefix + "finishes", layout)
            await line.ask("SET", prefix + "epoch", f"{int(layout) + 1}-{jobs}")
