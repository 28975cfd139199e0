"""A schema of a PostgreSQL database in plain SQL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from tests.crash.harness.store import Ended, Store, StoredJob, StoredRollup, StoredWorker

_JOBS = """
SELECT seq, replace(id::text, '-', ''), queue, task, state, attempt, claim_number, ended_number,
       ended_verb, worker, pg_temp.us(started_at), pg_temp.us(finished_at), error_kind, result
  FROM jobs ORDER BY seq
"""
_HISTORY = """
SELECT seq, claim_number, verb, worker, pg_temp.us(started_at), pg_temp.us(ended_at), error_kind
  FROM history
"""
_CLAIMS_AT_DEATH = """
  WITH dead AS MATERIALIZED (SELECT id FROM workers WHERE pid = %s)
SELECT replace(id::text, '-', ''), claim_number FROM jobs
 WHERE state = 1 AND worker IN (SELECT id FROM dead)
 UNION
SELECT replace(jobs.id::text, '-', ''), history.claim_number FROM history JOIN jobs USING (seq)
 WHERE history.worker IN (SELECT id FROM dead)
   AND history.error_kind IN ('WorkerLost', 'Quarantined')
"""
_ROLLUPS = """
SELECT pg_temp.us(minute), queue, task, worker, counts,
       array_lower(wait, 1), wait, array_lower(run, 1), run
  FROM rollups
"""
_US = """
CREATE OR REPLACE FUNCTION pg_temp.us(timestamptz) RETURNS bigint LANGUAGE sql
RETURN (extract(epoch FROM $1) * 1000000)::bigint
"""
_INDEXES = """
SELECT public.bt_index_check(pg_index.indexrelid, true)
  FROM pg_index JOIN pg_class ON pg_class.oid = pg_index.indexrelid
 WHERE pg_class.relnamespace = current_schema()::regnamespace
"""


class PostgresStore(Store):
    """One connection; every question is a transaction of its own."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._schema = schema
        self._line: psycopg.Connection[tuple[Any, ...]] | None = None

    def rows(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if self._line is None or self._line.closed:
            self._line = psycopg.connect(self._url, autocommit=True)
            path = sql.SQL("SET search_path = {}").format(sql.Identifier(self._schema))
            self._line.execute(path)
            self._line.execute(_US)
        try:
            return self._line.execute(_constant(text), values or None).fetchall()
        except psycopg.OperationalError:
            self._line.close()  # the server was restarted; the next one is asked anew
            raise

    def close(self) -> None:
        if self._line is not None:
            self._line.close()

    def exists(self) -> bool:
        """The tables are made in one transaction."""
        return bool(self.rows("SELECT to_regclass('workers') IS NOT NULL")[0][0])

    def jobs(self) -> list[StoredJob]:
        return [StoredJob(*row) for row in self.rows(_JOBS)]

    def history(self) -> list[Ended]:
        return [Ended(*row) for row in self.rows(_HISTORY)]

    def claims_at_death(self, pid: int) -> set[tuple[str, int]]:
        return {(job, number) for job, number in self.rows(_CLAIMS_AT_DEATH, (pid,))}

    def workers(self) -> list[StoredWorker]:
        found = self.rows("SELECT id, pid, state FROM workers ORDER BY seq")
        return [StoredWorker(*row) for row in found]

    def rollups(self) -> list[StoredRollup]:
        names = self.rows("SELECT counted_names()")[0][0]
        return [
            StoredRollup(
                *(minute, queue, task, worker),
                counts=json.dumps(_present(zip(names, counts, strict=False))),
                wait=json.dumps(_present(enumerate(wait or (), first_wait or 0))),
                run=json.dumps(_present(enumerate(run or (), first_run or 0))),
            )
            for minute, queue, task, worker, counts, first_wait, wait, first_run, run in self.rows(
                _ROLLUPS
            )
        ]

    def ready(self) -> int:
        return int(self.rows("SELECT count(*) FROM jobs WHERE ready = 1")[0][0])

    def unfinished(self) -> int:
        return int(self.rows("SELECT count(*) FROM jobs WHERE state < 2")[0][0])

    def oldest_beat(self) -> int:
        found = self.rows("SELECT pg_temp.us(min(beat_at)) FROM workers WHERE state = 'live'")
        return int(found[0][0])

    def held_keys(self) -> list[str]:
        return [str(row[0]) for row in self.rows("SELECT key FROM keys")]

    def deadlocks(self) -> int:
        found = self.rows(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        return int(found[0][0])

    def is_sound(self) -> bool:
        """Every index holds exactly what its table does."""
        with psycopg.connect(self._url, autocommit=True) as line:
            line.execute("SET client_min_messages = error")
            line.execute("CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA public")
        return bool(self.rows(_INDEXES))


def _constant(text: str) -> LiteralString:
    """Every text here is written in this file; psycopg wants that said."""
    return text


def _present(counts: Iterable[tuple[object, int | None]]) -> dict[str, int]:
    return {str(name): count for name, count in counts if count}
