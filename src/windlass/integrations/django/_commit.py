"""``OPTIONS = {"transactional": True}``: a job exists if the request's transaction commits.

Jobs in the same PostgreSQL schema are stored on the request's own connection. Elsewhere they are
stored after the commit, and a process that dies between the two loses them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any
from urllib.parse import unquote, urlsplit

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._storage.open import TRANSACTIONAL
from windlass._storage.protocol.transactions import TransactionStore
from windlass._tasks.handle import Job
from windlass._tasks.task import Call
from windlass.errors import ConfigError
from windlass.integrations.django._project import PROJECT

__all__ = [
    "Way",
    "both_postgresql",
    "database_of",
    "elsewhere",
    "enqueue_inside",
    "may_be_same",
    "way_of",
]

log: logging.Logger = logging.getLogger("windlass")


class Way(Enum):
    """When a job is stored."""

    NOW = auto()
    INSIDE = auto()
    """In the request's transaction, on its connection."""
    AFTER = auto()
    """After its commit."""


def database_of(options: Mapping[str, Any]) -> str | None:
    """Return the database whose transactions decide about the jobs of a backend, or None."""
    wanted = options.get("transactional", False)
    if wanted is False:
        return None
    if wanted is not True and not isinstance(wanted, str):
        message = f"transactional must be True, False or the name of a database, got {wanted!r}"
        raise ConfigError(message)
    alias = DEFAULT_DB_ALIAS if wanted is True else wanted
    if alias not in connections:
        message = f"transactional names {alias!r}, and DATABASES has no such database"
        raise ConfigError(message)
    return alias


def way_of(app: Windlass, alias: str | None) -> Way:
    """Decide when to store a job that is enqueued now."""
    if alias is None:
        return Way.NOW
    database = connections[alias]
    if database.connection is None or (database.autocommit and not database.in_atomic_block):
        return Way.NOW
    return Way.INSIDE if _is_same(app, database) else Way.AFTER


def enqueue_inside(app: Windlass, call: Call[Any], alias: str) -> Job[Any]:
    """Store a job in the open transaction."""
    database = connections[alias]
    database.validate_no_broken_transaction()
    with database.wrap_database_errors:
        (job,) = app.blocking.enqueue_many([call], connection=database.connection)
    if database.in_atomic_block:
        wake = app.blocking.wake
        # Once for calls in a row. If a savepoint is rolled back, its callbacks are dropped too.
        if not database.run_on_commit or database.run_on_commit[-1][1] != wake:
            transaction.on_commit(wake, using=alias, robust=True)
    return job


def both_postgresql(app: Windlass, alias: str) -> bool:
    """Tell whether the database and the jobs are both on PostgreSQL."""
    kept = parts_of(app).connections.opener.scheme in TRANSACTIONAL  # not that of a test
    return kept and connections[alias].vendor == "postgresql"


def may_be_same(app: Windlass, alias: str) -> str | None:
    """Explain why a database cannot be the one with the jobs, as far as settings show it."""
    database = connections[alias]
    if not both_postgresql(app, alias):
        where = _scheme(app)
        return f"jobs are in {where}, and the database {alias!r} is {database.display_name}"
    if not _is_psycopg_3():
        return f"the database {alias!r} is used through psycopg 2, and psycopg 3 is needed"
    theirs = str(database.settings_dict.get("NAME") or "")
    ours = unquote(urlsplit(app.settings.url).path.lstrip("/"))
    if theirs and ours and theirs != ours:
        return f"jobs are in the database {ours!r}, and {alias!r} is {theirs!r}"
    return None


def elsewhere(app: Windlass, alias: str) -> str | None:
    """Explain why a database is not the one with the jobs. Connects to both."""
    reason = may_be_same(app, alias)
    if reason is None and not _asked(app, connections[alias]):
        return (
            f"the connection of {alias!r} leads to another server, database or schema than the "
            f"jobs, or its role may not use the schema"
        )
    return reason


def _is_same(app: Windlass, database: BaseDatabaseWrapper) -> bool:
    """Tell whether a request's connection leads to the schema with the jobs."""
    if database.vendor != "postgresql":
        return False
    known = database.settings_dict
    theirs = (str(known.get(name)) for name in ("HOST", "PORT", "NAME", "USER"))
    key = (_scheme(app), app.settings.url, app.settings.schema, database.alias, *theirs)

    def ask() -> bool:
        # Asked of the servers, not compared by name: a pooler may call a database otherwise.
        possible = both_postgresql(app, database.alias)
        same = possible and _is_psycopg_3() and _asked(app, database)
        if possible and not same:
            log.warning(
                "transactional: the connection of %r does not lead to the schema with the jobs, "
                "so they are stored after its commit. `manage.py check --database %s` says why.",
                database.alias,
                database.alias,
            )
        return same

    return PROJECT.same_database(key, ask)


def _asked(app: Windlass, database: BaseDatabaseWrapper) -> bool:
    found = app.blocking.run(_place(app))  # first: it makes the tables
    if found is None:
        return False
    store, ours = found
    database.ensure_connection()
    with database.wrap_database_errors:
        return store.place_sync(database.connection) == ours


async def _place(app: Windlass) -> tuple[TransactionStore, str] | None:
    store = (await parts_of(app).storage()).transactions
    return None if store is None else (store, await store.place())


def _scheme(app: Windlass) -> str:
    return f"{parts_of(app).connections.opener.scheme}://"


def _is_psycopg_3() -> bool:
    from django.db.backends.postgresql.psycopg_any import is_psycopg3  # noqa: PLC0415 -- a driver

    return bool(is_psycopg3)
