"""Numbered schema changes: which there are, which are missing, and applying them on SQLite.

A schema change is a file ``0001_initial.sql``, ``0002_…`` in a backend's folder. A change that
older workers can live with takes the next number; one that they cannot starts a new hundred
(``0100_…``), which is the schema's major version: a worker refuses a major it does not know, and
works with a newer minor.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from datetime import datetime
from importlib import resources
from typing import TYPE_CHECKING, NoReturn

import msgspec

from windlass._core.values.instants import to_us
from windlass.errors import SchemaTooNew, SchemaTooOld, StorageError

if TYPE_CHECKING:
    import apsw

__all__ = [
    "Migration",
    "apply_sqlite",
    "check_known",
    "find_migrations",
    "has_schema",
    "last_of_major",
    "major_of",
    "refuse_foreign_database",
    "refuse_newer",
    "refuse_older",
    "require_sqlite",
    "sort_migrations",
]

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_MAJOR = 100


class Migration(msgspec.Struct, frozen=True):
    """One schema change."""

    version: int
    name: str
    sql: str


def major_of(version: int) -> int:
    """Return the part of a version that old workers must know."""
    return version // _MAJOR


def last_of_major(version: int) -> int:
    """Return the highest version that code which knows ``version`` may work on."""
    return (major_of(version) + 1) * _MAJOR - 1


def find_migrations(package: str) -> tuple[Migration, ...]:
    """Return the migrations in a package folder, for example
    ``windlass._storage.sqlite.migrations``.
    """
    found = []
    for file in resources.files(package).iterdir():
        if not file.name.endswith(".sql"):
            continue
        match = _FILE.fullmatch(file.name)
        if match is None:
            raise ValueError(f"{package}/{file.name} is not named like 0001_initial.sql")
        found.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    return sort_migrations(found)


def sort_migrations(migrations: Sequence[Migration]) -> tuple[Migration, ...]:
    """Sorted by version; a gap or a number used twice is refused: it is a merge gone wrong."""
    result = tuple(sorted(migrations, key=lambda m: m.version))
    if not result or result[0].version != 1:
        raise ValueError("migrations start with 0001")
    for before, after in itertools.pairwise(result):
        following = {before.version + 1, (major_of(before.version) + 1) * _MAJOR}
        if after.version not in following:
            raise ValueError(
                f"migration {after.version:04d} ({after.name}) does not follow "
                f"{before.version:04d} ({before.name})"
            )
    return result


def check_known(stored: int, migrations: Sequence[Migration], where: str) -> None:
    """Refuse a schema whose major version this code does not know."""
    newest = migrations[-1].version
    if major_of(stored) > major_of(newest):
        refuse_newer(stored, newest, where)


def refuse_newer(stored: int, known: int, where: str) -> NoReturn:
    """Refuse to work on what a newer Windlass has written."""
    raise SchemaTooNew(
        f"{where} has schema version {stored}, written by a newer Windlass; this one knows "
        f"versions up to {known}. Upgrade windlass in this process (pip install -U windlass), "
        f"or point it at another storage."
    )


def refuse_older(stored: int, known: int, where: str) -> NoReturn:
    """Refuse to open what must be migrated first, where opening must not migrate."""
    found = f"has schema version {stored}" if stored else "has no Windlass tables"
    raise SchemaTooOld(
        f"{where} {found}, and this Windlass needs version {known}. Run `windlass db migrate` "
        f'first: with migrate="manual" opening a storage does not migrate it.'
    )


# --- SQLite ---------------------------------------------------------------------------------

_CREATE = "CREATE TABLE windlass_schema (version INTEGER NOT NULL, applied_at INTEGER NOT NULL)"
_FOREIGN = """
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite#_%' ESCAPE '#'
"""
_STORED = "SELECT coalesce(max(version), 0) FROM windlass_schema"
_EXISTS = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'windlass_schema'"


def apply_sqlite(
    connection: apsw.Connection, migrations: Sequence[Migration], now: datetime
) -> Sequence[Migration]:
    """Apply what is missing and return it; an op for the writer, so all of it or nothing stays.

    The writer holds the write lock: of many processes that open a new file at once, the first
    one creates the schema and the others find it there.
    """
    stored = _stored_version(connection)
    check_known(stored, migrations, connection.filename)
    missing = [migration for migration in migrations if migration.version > stored]
    if not has_schema(connection):
        connection.execute(_CREATE)
    for migration in missing:
        connection.execute(migration.sql).fetchall()
        connection.execute(
            "INSERT INTO windlass_schema (version, applied_at) VALUES (?, ?)",
            (migration.version, to_us(now)),
        )
    if missing:
        # The number is made here, from an integer; a PRAGMA takes no parameters.
        connection.pragma("user_version", missing[-1].version)
    return missing


def require_sqlite(connection: apsw.Connection, migrations: Sequence[Migration]) -> None:
    """Raise `SchemaTooOld` if a migration is missing. Reads only."""
    stored, known = _stored_version(connection), migrations[-1].version
    check_known(stored, migrations, connection.filename)
    if stored < known:
        refuse_older(stored, known, connection.filename)


def _stored_version(connection: apsw.Connection) -> int:
    refuse_foreign_database(connection)
    if not has_schema(connection):
        return 0
    stored = connection.execute(_STORED).get
    user_version = connection.pragma("user_version")
    return max(int(stored or 0), int(user_version or 0))


def has_schema(connection: apsw.Connection) -> bool:
    """Whether the database has tables of Windlass. Reads only."""
    return bool(connection.execute(_EXISTS).get)


def refuse_foreign_database(connection: apsw.Connection) -> None:
    """Raise if the database belongs to another program. Reads only."""
    if has_schema(connection):
        return
    foreign = connection.execute(_FOREIGN).fetchall()
    if foreign:
        # Two SQLite libraries in one process on one file lose committed rows, and the
        # application beside us most likely brings the other one.
        raise StorageError(
            f"{connection.filename} is another program's database (it has the table "
            f"{foreign[0][0]}). Use a separate file for the jobs, for example "
            f"sqlite:///jobs.db."
        )
