"""`AdminStore.tasks`: waiting and running jobs by task."""

from __future__ import annotations

from windlass._core.job.outcome import Raised
from windlass._storage.protocol.admin import TaskCounts
from windlass._storage.protocol.storage import Storage
from windlass.testing.conformance.jobs.solo_runs import suspected
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    at_most,
    failed,
    happened,
    limited,
    started,
    succeeded,
)

__all__ = ["TaskCountConformance"]


class TaskCountConformance:
    """Counts per task."""

    async def test_jobs_are_counted_by_task_wherever_they_wait(
        self, storage: Storage
    ) -> None:  # STAT-1
        await happened(storage, await started(storage, a_job(task="mail")), Raised(OOPS, MINUTE))
        await started(storage, a_job(task="mail"))
        await suspected(storage, a_job(task="alone"))
        await at_most(storage, api=1)
        await add(
            storage,
            a_job(task="mail"),
            a_job(task="mail", queue="other"),
            a_job(task="later", delay=HOUR),
            limited("api", task="limited"),
            limited("api", task="limited"),
        )
        found = await storage.admin.tasks()
        assert found.complete
        assert list(found.counts) == [
            TaskCounts(task="alone", waiting=1),
            TaskCounts(task="later", waiting=1),
            TaskCounts(task="limited", waiting=2),
            TaskCounts(task="mail", waiting=3, running=1),
        ]

    async def test_tasks_whose_jobs_have_all_ended_are_left_out(self, storage: Storage) -> None:
        await succeeded(storage, await started(storage))
        await failed(storage)
        found = await storage.admin.tasks()
        assert (list(found.counts), found.complete) == ([], True)

    async def test_a_look_that_misses_waiting_jobs_says_so(self, storage: Storage) -> None:
        await started(storage, a_job(task="run"))
        await add(storage, *(a_job(task="wait") for _ in range(5)))
        found = await storage.admin.tasks(look=5)
        assert found.complete
        found = await storage.admin.tasks(look=4)
        assert not found.complete
        run, wait = found.counts
        assert (run.running, wait.task) == (1, "wait")
        assert wait.waiting >= 4
