"""A SQLite database in plain SQL."""

from __future__ import annotations

import ast
import fcntl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from tests.crash.harness.store import Ended, Store, StoredJob, StoredRollup, StoredWorker

_JOBS = """
SELECT seq, lower(hex(id)), queue, task, state, attempt, claim_number, ended_number, ended_verb,
       worker, started_at, finished_at, error_kind, result
  FROM jobs ORDER BY seq
"""
_HISTORY = "SELECT seq, claim_number, verb, worker, started_at, ended_at, error_kind FROM history"
_CLAIMS_AT_DEATH = """
  WITH dead AS MATERIALIZED (SELECT id FROM workers WHERE pid = ?1)
SELECT lower(hex(id)), claim_number FROM jobs WHERE state = 1 AND worker IN dead
 UNION
SELECT lower(hex(jobs.id)), history.claim_number FROM history JOIN jobs USING (seq)
 WHERE history.worker IN dead AND history.error_kind IN ('WorkerLost', 'Quarantined')
"""
_ROLLUPS = "SELECT minute, queue, task, worker, counts, wait, run FROM rollups"


class SqliteStore(Store):
    """Holds nothing open in between: the processes are alone with their file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        # Read-only, so that closing it never tidies up what a killed process has left.
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(10_000)
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def exists(self) -> bool:
        """The file is there first, and the tables a moment later."""
        if not self.path.exists():
            return False
        return bool(self.rows("SELECT 1 FROM sqlite_schema WHERE name = 'workers'"))

    def is_locked(self) -> bool:
        """Writers hold a lock on a file beside the database for the length of a transaction."""
        with Path(f"{self.path}-lock").open("rb") as turns:
            try:
                fcntl.flock(turns, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def jobs(self) -> list[StoredJob]:
        return [StoredJob(*row) for row in self.rows(_JOBS)]

    def history(self) -> list[Ended]:
        return [Ended(*row) for row in self.rows(_HISTORY)]

    def claims_at_death(self, pid: int) -> set[tuple[str, int]]:
        return {(job, number) for job, number in self.rows(_CLAIMS_AT_DEATH, (pid,))}

    def workers(self) -> list[StoredWorker]:
        return [StoredWorker(*row) for row in self.rows("SELECT id, pid, state FROM workers")]

    def rollups(self) -> list[StoredRollup]:
        return [StoredRollup(*row) for row in self.rows(_ROLLUPS)]

    def ready(self) -> int:
        """By its index: a count of everything would take longer the longer a test lasts."""
        return int(self.rows("SELECT count(*) FROM jobs WHERE ready = 1")[0][0])

    def unfinished(self) -> int:
        return int(self.rows("SELECT count(*) FROM jobs WHERE state < 2")[0][0])

    def oldest_beat(self) -> int:
        return int(self.rows("SELECT min(beat_at) FROM workers WHERE state = 'live'")[0][0])

    def held_keys(self) -> list[str]:
        return [str(row[0]) for row in self.rows("SELECT key FROM keys")]

    def is_sound(self) -> bool:
        return self.rows("PRAGMA integrity_check") == [("ok",)]


class StoreElsewhere(SqliteStore):
    """A file that only the children can see, because it is in a mount of their own."""

    def __init__(self, path: Path, ask: Callable[[str, Sequence[Any]], str]) -> None:
        super().__init__(path)
        self._ask = ask

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        answer = ast.literal_eval(self._ask(sql, values))
        assert isinstance(answer, list)
        return answer

    def exists(self) -> bool:
        return True
