"""The database as a stranger sees it: plain SQL on the file, past all code that is tested."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw

WAITING, RUNNING, SUCCEEDED, FAILED, CANCELLED = range(5)


class StoredJob(NamedTuple):
    """A row of the table of jobs."""

    seq: int
    id: str
    queue: str
    task: str
    state: int
    attempt: int
    claim_number: int
    ended_number: int | None
    ended_verb: str | None
    worker: str | None
    started_at: int | None
    finished_at: int | None
    error_kind: str | None
    result: bytes | None


class Ended(NamedTuple):
    """A row of the history: a claim that did not succeed."""

    seq: int
    claim_number: int
    verb: str
    worker: str
    started_at: int
    ended_at: int
    error_kind: str | None


class StoredWorker(NamedTuple):
    """A row of the table of workers."""

    id: str
    pid: int
    state: str


class StoredRollup(NamedTuple):
    """A row of the rollups; the counts are still JSON."""

    minute: int
    queue: str
    task: str
    worker: str
    counts: str
    wait: str
    run: str


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


class Store:
    """Reads only, and holds nothing open in between: the processes are alone with their file."""

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
        """Whether somebody has made it: the file is there first, and the tables a moment later."""
        if not self.path.exists():
            return False
        return bool(self.rows("SELECT 1 FROM sqlite_schema WHERE name = 'workers'"))

    def jobs(self) -> list[StoredJob]:
        return [StoredJob(*row) for row in self.rows(_JOBS)]

    def job(self, job_id: str) -> StoredJob:
        (job,) = (job for job in self.jobs() if job.id == job_id)
        return job

    def history(self) -> list[Ended]:
        return [Ended(*row) for row in self.rows(_HISTORY)]

    def claims_at_death(self, pid: int) -> set[tuple[str, int]]:
        """The claims a killed process held, whether or not somebody has buried it since."""
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

    def workers_of(self, pid: int) -> list[StoredWorker]:
        return [worker for worker in self.workers() if worker.pid == pid]

    def is_sound(self) -> bool:
        return self.rows("PRAGMA integrity_check") == [("ok",)]


def counts_of(text: str) -> Counter[str]:
    return Counter(json.loads(text))


class StoreElsewhere(Store):
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
