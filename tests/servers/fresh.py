"""Something empty for one test, on a server that all tests share."""

from __future__ import annotations

import os
from itertools import count
from typing import Any

import psycopg
import redis
from psycopg import sql

from tests.servers.shared import SharedServers

_numbers = count(1)

_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> %s"
_END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def new_name() -> str:
    """A name nobody else uses in this run, fit for a schema, a database or a prefix."""
    return f"t{os.getpid()}_{next(_numbers)}"


class FreshPostgres:
    """Databases and schemas made to be thrown away. One connection, held by one test process."""

    def __init__(self, servers: SharedServers) -> None:
        self._url = servers.postgres()
        self._line = psycopg.connect(self._url, autocommit=True)
        self.home = self.new_database()
        """A database of this process alone: tests that take a schema share it."""
        self._home = psycopg.connect(self.home, autocommit=True)
        self._clean: list[str] = []
        self._clean_databases: list[str] = []

    def new_database(self) -> str:
        """The URL of an empty one."""
        name = new_name()
        # A copy of the files is quicker than writing them to the log, block by block.
        order = "CREATE DATABASE {} TEMPLATE template0 STRATEGY file_copy"
        self._line.execute(sql.SQL(order).format(sql.Identifier(name)))
        return self._url.rpartition("/")[0] + "/" + name

    def drop_database(self, url: str) -> None:
        """With everybody who is still in it."""
        name = sql.Identifier(url.rpartition("/")[2])
        self._line.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))

    def take_database(self) -> str:
        """The URL of one that may have been used before and is empty again, but for our tables."""
        return self._clean_databases.pop() if self._clean_databases else self.new_database()

    def give_back_database(self, url: str) -> None:
        """End every session there, delete the rows of our tables, and drop everybody else's."""
        with psycopg.connect(url, autocommit=True) as line:
            line.execute(_END_OTHERS)
            for (table,) in line.execute(_TABLES, ("public", "")).fetchall():
                line.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier("public", table)))
            _delete_rows(line, "windlass")
        self._clean_databases.append(url)

    def new_schema(self) -> str:
        """The name of one that does not exist yet, in the database `home`."""
        return new_name()

    def drop_schema(self, name: str) -> None:
        order = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE")
        self._home.execute(order.format(sql.Identifier(name)))

    def take_schema(self) -> str:
        """One that may have been used before and is empty again: making one takes 60 ms."""
        return self._clean.pop() if self._clean else new_name()

    def give_back_schema(self, name: str) -> None:
        """Delete every row; TRUNCATE takes half as long as making the tables anew."""
        if _delete_rows(self._home, name):
            self._clean.append(name)

    def close(self) -> None:
        self._home.close()
        self._line.close()


def _delete_rows(line: psycopg.Connection[Any], schema: str) -> bool:
    """Of every table of ours; whether there are any."""
    tables = line.execute(_TABLES, (schema, "schema_versions")).fetchall()
    delete = sql.SQL("DELETE FROM {}")
    orders = [delete.format(sql.Identifier(schema, table)) for (table,) in tables]
    if orders:
        line.execute(sql.SQL(";").join(orders))
    return bool(orders)


def new_redis_database(servers: SharedServers) -> str:
    """The URL of an empty numbered database."""
    url, number = servers.valkey()
    full = f"{url}/{number}"
    with redis.Redis.from_url(full) as line:
        line.flushdb()
    return full
