"""The SQLite backend: one file on one machine, without a server.

The stores run operations on a database, whose writes pass through one writer, both in ``io``; the
statements are in ``sql``. Only `windlass._storage.open` imports this package.
"""

from windlass._storage.sqlite.storage import SqliteStorage, open_in_memory, open_sqlite

__all__ = ["SqliteStorage", "open_in_memory", "open_sqlite"]
