"""Stores that count coalesced enqueues wrongly."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import NewJob
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rollups import RollupRows
from windlass._storage.memory.io.rows import JobRow
from windlass.testing.conformance import CoalescedConformance


@fails(
    CoalescedConformance.test_an_enqueue_that_meets_the_holder_of_its_key_is_counted,
    CoalescedConformance.test_an_enqueue_that_replaces_is_counted,
    CoalescedConformance.test_a_job_that_gives_way_after_a_success_is_counted,
    CoalescedConformance.test_runs_and_coalesced_enqueues_add_up_over_the_hour,
)
class CountsNoCoalesced(RollupRows):
    """An enqueue that was answered with a stored job leaves no trace."""

    def count_coalesced(self, job: NewJob, now: datetime) -> None:
        pass


@fails(CoalescedConformance.test_queue_and_task_are_those_of_the_enqueue)
class CountsOneTask(RollupRows):
    """All are counted for the task and queue of the first one."""

    def count_coalesced(self, job: NewJob, now: datetime) -> None:
        for _, queue, task in self:
            job = replace(job, queue=queue, task=task)
        super().count_coalesced(job, now)


@fails(CoalescedConformance.test_jobs_that_are_stored_refused_or_repeated_are_not_counted)
class CountsEveryKey(MemoryDatabase):
    """Every job with a key is counted."""

    def add(self, asked: NewJob, now: datetime) -> JobRow:
        if asked.unique is not None:
            self.tallies.count_coalesced(asked, now)
        return super().add(asked, now)
