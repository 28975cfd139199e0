"""Windlass on one SQLite file.

Read in the order of a job's way: `migrations` (the schema), `insert`, `claim` with `visits`,
`lanes` and `gates` for limited jobs, `apply`; `workers`, `admin` and `maintenance` beside it. The
stores (`jobs`, `workers`, …) run these as operations on a `database`, whose writes go through one
`writer`. The statements stand in `sql`, by name.
"""

from windlass.storage.sqlite.storage import SqliteStorage, open_in_memory, open_sqlite

__all__ = ["SqliteStorage", "open_in_memory", "open_sqlite"]
