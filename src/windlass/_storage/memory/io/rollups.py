"""Rollups: the finishes of each minute."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import NamedTuple

from windlass._core.job.job import NewJob
from windlass._core.stats.rollup import COALESCED, Rollup, minute_of

__all__ = ["RollupRow", "RollupRows"]


class RollupRow(NamedTuple):
    """The finishes of one minute, queue and task."""

    counts: Counter[str]
    wait: Counter[int]
    run: Counter[int]

    def add(self, other: RollupRow) -> None:
        self.counts.update(other.counts)
        self.wait.update(other.wait)
        self.run.update(other.run)

    def to_rollup(self, minute: datetime, queue: str, task: str) -> Rollup:
        """Return the public record."""
        return Rollup(
            minute=minute,
            queue=queue,
            task=task,
            counts=dict(self.counts),
            wait=dict(self.wait),
            run=dict(self.run),
        )


class RollupRows(dict[tuple[datetime, str, str], RollupRow]):
    """By minute, queue and task."""

    def at(self, now: datetime, queue: str, task: str) -> RollupRow:
        """Return the row of this minute, made if there is none."""
        none = RollupRow(Counter(), Counter(), Counter())
        return self.setdefault((minute_of(now), queue, task), none)

    def count_coalesced(self, job: NewJob, now: datetime) -> None:
        """Count an enqueue that a unique key answered with a stored job."""
        self.at(now, job.queue, job.task).counts[COALESCED] += 1
