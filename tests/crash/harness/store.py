"""What is stored, as a stranger sees it: past all code that is tested."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from typing import NamedTuple

WAITING, RUNNING, SUCCEEDED, FAILED, CANCELLED, DISCARDED = range(6)


class StoredJob(NamedTuple):
    """A job. Instants are microseconds."""

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
    """A piece of history: a claim that did not succeed."""

    seq: int
    claim_number: int
    verb: str
    worker: str
    started_at: int
    ended_at: int
    error_kind: str | None


class StoredWorker(NamedTuple):
    """A worker's row."""

    id: str
    pid: int
    state: str


class StoredRollup(NamedTuple):
    """A row of the rollups; the counts are still JSON."""

    minute: int
    queue: str
    task: str
    worker: str
    """Empty where the backend does not tell workers apart."""
    counts: str
    wait: str
    run: str


class Store(ABC):
    """Reads only: the processes are alone with what they store."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether somebody has made it."""

    def is_locked(self) -> bool:
        """Return whether a process holds a lock that keeps all others from writing."""
        return False

    @abstractmethod
    def jobs(self) -> list[StoredJob]:
        """Every job, in order of insertion."""

    @abstractmethod
    def history(self) -> list[Ended]:
        """Every ended claim that did not succeed."""

    @abstractmethod
    def claims_at_death(self, pid: int) -> set[tuple[str, int]]:
        """The claims a killed process held, whether or not somebody has buried it since."""

    @abstractmethod
    def workers(self) -> list[StoredWorker]:
        """Every row, oldest first."""

    @abstractmethod
    def rollups(self) -> list[StoredRollup]:
        """Every one."""

    @abstractmethod
    def ready(self) -> int:
        """How many jobs of the default queue could be claimed."""

    @abstractmethod
    def unfinished(self) -> int:
        """How many jobs wait or run."""

    @abstractmethod
    def oldest_beat(self) -> int:
        """Of all live workers, the instant of the last beat that is longest ago."""

    @abstractmethod
    def held_keys(self) -> list[str]:
        """Unique keys that somebody holds."""

    def deadlocks(self) -> int:
        """Return how many deadlocks the server has resolved."""
        return 0

    @abstractmethod
    def is_sound(self) -> bool:
        """Whether what is stored contradicts itself nowhere."""

    def close(self) -> None:  # noqa: B027 -- most hold nothing
        """Let go of it."""

    def job(self, job_id: str) -> StoredJob:
        (job,) = (job for job in self.jobs() if job.id == job_id)
        return job

    def workers_of(self, pid: int) -> list[StoredWorker]:
        return [worker for worker in self.workers() if worker.pid == pid]


def counts_of(text: str) -> Counter[str]:
    return Counter(json.loads(text))
